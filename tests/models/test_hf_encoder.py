"""``--arch hf_encoder``: what it computes is what transformers computes, in every mode of training."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hf_encoders
import pytest
import torch
from criterions.restated import DROPOUT, FP16, ROWS, change, flat, one_step, recorded
from fairseq import checkpoint_utils
from hf_encoders import KINDS, SELDOM, TEXT, WORDS, hf_args, hf_run, save_encoder
from methods import OPTIONS
from odd_strings import SPECIAL, odd_strings
from safetensors.torch import load_file, save_file
from support import batch, build, fork_command, run_command, slow
from torch import nn

from fairseq_adv.cli.train_folders import hugging_face_args
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer, vocabulary_rows
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer, tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import encode_aligned
from fairseq_adv.evaluation.word_attacks.encoders import TextEncoder
from fairseq_adv.models import transformers_models
from fairseq_adv.models.hf_encoder import HFEncoderModel
from fairseq_adv.perturbation import find_layers, find_token_embedding
from fairseq_adv.perturbation.embeddings import parts_of

HALF = [FP16, "--fp16-init-scale", "4"]
SOME = ["deberta-v3", "modernbert", "electra"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Encoders with a tokenizer of their own sort."""
    root = tmp_path_factory.mktemp("own")
    for kind in KINDS:
        save_encoder(root / kind, kind)
    return {kind: root / kind for kind in KINDS}


def without_mask_token(folder: Path) -> None:
    """Its tokenizer's files name none, and none of its special tokens has the usual name."""
    tokenizer, names = folder / "tokenizer.json", folder / "tokenizer_config.json"
    tokenizer.write_text(tokenizer.read_text().replace('"[MASK]"', '"[OTHER]"'))
    names.write_text(json.dumps({**json.loads(names.read_text()), "mask_token": None}))


def of_theirs(tokenizer: Any, ids: Any) -> list[int]:
    """The encoder's ids of the dictionary's."""
    rows = vocabulary_rows(tokenizer.options["words"], tokenizer.options["special"])
    return [rows[number] for number in ids]


# --- tokenizers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [(kind, n) for kind in KINDS for n in (300,)]
                         + [slow(kind, 100_000) for kind in KINDS])  # fmt: skip
def test_ids_are_those_of_transformers(own: dict[str, Path], tmp_path: Path, kind: str, count: int) -> None:
    """Also of a tokenizer that was saved beside data, without the encoder's folder."""
    from transformers import AutoTokenizer

    names = [name.lower() for name in SPECIAL[:11]]
    strings = [one.strip() for one in odd_strings(count)]
    strings = [*TEXT, *(one for one in strings if not any(name in one.lower() for name in names))]
    save_tokenizer(tmp_path, HFTokenizer(own[kind]))
    expected = AutoTokenizer.from_pretrained(own[kind])(strings)["input_ids"]
    for tokenizer in (tokenizer_for_encoder(own[kind]), tokenizer_for_encoder(tmp_path)):
        ids, lengths = tokenizer.encode(strings)
        found = [[0, *row.tolist()] for row in torch.from_numpy(ids).split(lengths.tolist())]
        assert [of_theirs(tokenizer, row) for row in found] == expected
        assert max(ids) < len(tokenizer.dictionary)


@pytest.mark.parametrize(
    ("kind", "key", "name"), [("bert", "do_lower_case", "lowercase"), ("roberta", *["add_prefix_space"] * 2)]
)
def test_files_that_disagree_about_the_tokens_are_refused(
    own: dict[str, Path], tmp_path: Path, kind: str, key: str, name: str
) -> None:
    """transformers' BERT and RoBERTa follow tokenizer_config.json, PreTrainedTokenizerFast the other."""
    folder = Path(shutil.copytree(own[kind], tmp_path / kind))
    content, path = json.loads((folder / "tokenizer.json").read_text()), folder / "tokenizer_config.json"
    named = {**json.loads(path.read_text()), "tokenizer_class": f"{kind.title()}Tokenizer"}
    has = {**(content["normalizer"] or {}), **content["pre_tokenizer"]}[name]
    unsaid = json.dumps({name: value for name, value in named.items() if name != key})
    path.write_text(unsaid)
    assert tokenizer_for_encoder(folder), "tokenizer.json has transformers' default"
    other = (
        (folder / "tokenizer.json")
        .read_text()
        .replace(f'"{name}": {json.dumps(has)}', f'"{name}": {json.dumps(not has)}')
    )
    for said, kept in ((has, True), (not has, False)):
        path.write_text(json.dumps({**named, key: said}))
        if kept:
            assert tokenizer_for_encoder(folder)
            continue
        with pytest.raises(DataError, match=f"{key} is {said}, but {name} in tokenizer.json is {has}. Make"):
            tokenizer_for_encoder(folder)
    path.write_text(json.dumps({**named, key: not has, "tokenizer_class": "PreTrainedTokenizerFast"}))
    assert tokenizer_for_encoder(folder)
    path.write_text(unsaid)
    (folder / "tokenizer.json").write_text(other)
    told = f"{key} is {has} by default, but {name} in tokenizer.json is {not has}. Make"
    with pytest.raises(DataError, match=told):
        tokenizer_for_encoder(folder)


def test_accents_are_left_with_upper_case_told_or_not(own: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(own["bert"], tmp_path / "bert"))
    content, path = json.loads((folder / "tokenizer.json").read_text()), folder / "tokenizer_config.json"
    named = {**json.loads(path.read_text()), "tokenizer_class": "BertTokenizer", "do_lower_case": False}
    path.write_text(json.dumps(named))
    for has in (None, False, True):
        content["normalizer"].update(lowercase=False, strip_accents=has)
        (folder / "tokenizer.json").write_text(json.dumps(content))
        if not has:
            assert tokenizer_for_encoder(folder)
            continue
        with pytest.raises(DataError, match=r"accents is None by default, but strip_accents in .* is True"):
            tokenizer_for_encoder(folder)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_special_tokens_that_no_file_names(own: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """As in bert-base-uncased and roberta-base, whose tokenizer_config.json has two entries."""
    from transformers import AutoTokenizer

    folder = Path(shutil.copytree(own[kind], tmp_path / kind))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 40}))
    special = tokenizer_for_encoder(folder).options["special"]
    theirs = AutoTokenizer.from_pretrained(folder)
    assert special == tokenizer_for_encoder(own[kind]).options["special"]
    assert special["<mask>"] == theirs.mask_token_id and special["<unk>"] == theirs.unk_token_id


def test_masked_words_need_a_mask_token(own: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(own["bert"], tmp_path / "bert"))
    without_mask_token(folder)
    words = HFTokenizer(folder).dictionary
    task = SimpleNamespace(cfg=None, predicts_masked_words=True, source_dictionary=words)
    task.source_dictionary.add_symbol("<mask>")
    args = SimpleNamespace(hf_model=str(folder))
    with pytest.raises(DataError, match="bert: its tokenizer has no mask token, which this task needs"):
        HFEncoderModel.build_model(args, task)  # type: ignore[arg-type]
    task.predicts_masked_words = False
    assert HFEncoderModel.build_model(SimpleNamespace(hf_model=str(folder)), task)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cant_write_the_encoders_own_tokens(own: dict[str, Path], kind: str) -> None:
    tokenizer = tokenizer_for_encoder(own[kind])
    ids, _ = tokenizer.encode(["a [SEP] b [CLS] </s> <s> <pad> [PAD] [MASK] <mask> c"])
    special = {one for name, one in tokenizer.options["special"].items() if name != "<unk>"}
    assert not special & set(of_theirs(tokenizer, ids[:-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_cover_the_characters_of_their_words(own: dict[str, Path], kind: str) -> None:
    text = " I  would not watch it again, twice "
    aligned = encode_aligned(tokenizer_for_encoder(own[kind]), [text])
    covered = [text[start:end] for start, end in zip(aligned.starts, aligned.ends)]
    assert all(part == part.strip() for part in covered)
    places = {place for start, end in zip(aligned.starts, aligned.ends) for place in range(start, end)}
    assert places == {place for place, one in enumerate(text) if one != " "}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_texts_of_the_tokens(own: dict[str, Path], kind: str) -> None:
    tokenizer = tokenizer_for_encoder(own[kind])
    ids, _ = tokenizer.encode(["a film"])
    pieces = [tokenizer.dictionary_pieces()[number] for number in ids[:-1]]
    assert "".join(piece.text for piece in pieces) == "afilm"
    begins = [piece.begins_word for piece in pieces]
    assert sum(begins) == (1 if kind in ("roberta", "modernbert", "deberta") else 2)  # no space before "a"


# --- what it computes -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *SELDOM])
def test_masked_words_get_the_logits_of_transformers(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str
) -> None:
    from transformers import AutoModelForMaskedLM

    run = hf_run(hf_data, encoders[kind], "masked_lm", "standard")
    tokens = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 2, 1, 1]])
    description = transformers_models.described(run.model.args.hf_encoder)
    rows = torch.tensor(vocabulary_rows(description["config"]["vocab_size"], description["special"]))
    reference = AutoModelForMaskedLM.from_pretrained(encoders[kind]).eval()
    model = run.model.eval()
    with torch.no_grad():
        expected = reference(input_ids=rows[tokens], attention_mask=tokens.ne(1).long()).logits[..., rows]
        found, features = model(tokens)[0], model(tokens, features_only=True)[0]
        masked = tokens.ge(8)
        chosen = model(tokens, masked_tokens=masked)[0]
    real = tokens.ne(1)
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-6)
    torch.testing.assert_close(chosen, found[masked], rtol=0, atol=1e-6)
    assert features.shape == (2, 6, reference.config.hidden_size)


@pytest.mark.parametrize("kind", [kind if kind in SOME else slow(kind) for kind in KINDS])
def test_a_new_masked_lm_head_is_told(
    encoders: dict[str, Path],
    hf_data: dict[str, Path],
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as that of ELECTRA's discriminator: answers for WSC's pronouns would be random."""
    from transformers import AutoModel

    for folder, is_told in ((encoders[kind], False), (tmp_path / "headless", True)):
        if is_told:
            shutil.copytree(encoders[kind], folder)
            AutoModel.from_pretrained(folder).save_pretrained(folder)
        caplog.clear()
        hf_run(hf_data, folder, "masked_lm", "standard")
        assert ("has no masked-LM head" in caplog.text) == is_told


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_former_heads_layer_for_other_classes_is_new(
    encoders: dict[str, Path], hf_data: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    from transformers import AutoModelForSequenceClassification

    folder = Path(shutil.copytree(encoders[kind], tmp_path / kind))
    former = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=7)
    former.save_pretrained(folder)
    tensors = dict(hf_run(hf_data, folder, "classes", "standard").model.hf.named_parameters())
    other = {name for name, one in former.named_parameters() if one.shape != tensors[name].shape}
    assert other == {"classifier.weight", "classifier.bias"} and 0 < tensors["classifier.weight"].std() < 1
    words = former.get_input_embeddings().weight
    assert all(
        torch.equal(one, tensors[name])
        for name, one in former.named_parameters() if name not in other and one.shape != words.shape
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [("masked_lm", "classes"), ("classes", "masked_lm"), ("classes", "regression"),
     ("classes", "commonsense_qa"), ("tagging", "span_qa"), ("regression", "commonsense_qa")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_run_starts_from_the_encoder_of_another_tasks_checkpoint(
    encoders: dict[str, Path], hf_data: dict[str, Path], tmp_path: Path,
    caplog: pytest.LogCaptureFixture, kind: str, before: str, after: str,
) -> None:  # fmt: skip
    """What the checkpoint lacks is the folder's, or new."""
    caplog.set_level("INFO")
    more = ["--no-save-optimizer-state", "--store-ema"]
    first = hf_run(hf_data, encoders[kind], before, "standard", *more)
    with torch.no_grad():
        for parameter in first.model.parameters():
            parameter.add_(1.0)
    first.trainer.save_checkpoint(str(tmp_path / "a.pt"), {"train_iterator": {"epoch": 1}})
    option = "--restore-file" if before == "classes" else "--finetune-from-model"
    words = [option, str(tmp_path / "a.pt"), "--store-ema"]
    run = hf_run(hf_data, encoders[kind], after, "standard", *words)
    checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
    untouched = hf_run(hf_data, encoders[kind], after, "standard").model.state_dict()
    saved, found = first.model.state_dict(), run.trainer.get_model().state_dict()
    encoder = f"hf.{run.model.hf.base_model_prefix}."
    new = [name for name, one in found.items() if name not in saved or one.shape != saved[name].shape]
    for name, weight in found.items():
        if name not in new:
            assert torch.equal(weight, saved[name]), name
        elif "decoder.weight" in name:  # tied
            assert torch.equal(weight, found[next(one for one in found if one.startswith(encoder))])
        elif "pooler" in name:
            assert torch.equal(weight, untouched[name])
        else:
            assert not name.startswith(encoder)
    average = run.trainer.ema.get_model().state_dict()
    assert all(torch.equal(average[name], weight) for name, weight in found.items())
    is_kept = before == "regression"  # one number, as of each choice
    assert ("has no head for this task; a new one begins" in caplog.text) is not is_kept


def test_a_masked_lm_that_was_pre_trained_here_proposes_words(
    encoders: dict[str, Path], hf_data: dict[str, Path], tmp_path: Path
) -> None:
    """Its tokenizer is the folder's that it was built from."""
    run = hf_run(hf_data, encoders["bert"], "masked_lm", "standard", "--no-save-optimizer-state")
    run.trainer.save_checkpoint(str(tmp_path / "a.pt"), {"train_iterator": {"epoch": 1}})
    found = TextEncoder(tmp_path / "a.pt", torch.device("cpu"), masked_lm=True)
    assert found.tokenizer.fingerprint() == tokenizer_for_encoder(encoders["bert"]).fingerprint()
    assert found.model.has_masked_lm_head


def test_a_head_that_is_not_there_cant_be_kept(
    encoders: dict[str, Path], hf_data: dict[str, Path], tmp_path: Path
) -> None:
    first = hf_run(hf_data, encoders["bert"], "masked_lm", "standard", "--no-save-optimizer-state")
    first.trainer.save_checkpoint(str(tmp_path / "a.pt"), {"train_iterator": {"epoch": 1}})
    args = hf_args(hf_data, encoders["bert"], "multi_label", "standard", "--keep-head")
    run = build([*args, "--finetune-from-model", str(tmp_path / "a.pt")])
    with pytest.raises(DataError, match=r"--keep-head: .*a.pt: has no head for this task \(hf.classifier"):
        checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)


@pytest.mark.parametrize("kind", ["roformer", "convbert"])
def test_a_choice_is_read_at_its_first_token(
    encoders: dict[str, Path], hf_data: dict[str, Path], kind: str
) -> None:
    """transformers' default is the last place of the mini-batch: padding, where a row is shorter."""
    model = hf_run(hf_data, encoders[kind], "commonsense_qa", "standard").model.eval()
    row = torch.tensor([[0, 7, 8, 2]])
    if kind == "roformer":  # the other's convolution reads padding itself
        head = {"classification_head_name": next(iter(model.classification_heads))}
        padded = torch.nn.functional.pad(row, (0, 3), value=1)
        alone, padded = (model(one, **head)[0] for one in (row, padded))
        torch.testing.assert_close(alone, padded, rtol=1e-5, atol=1e-6)
    assert model.hf.config.summary_type == "first"


def test_a_longformer_of_choices_is_refused() -> None:
    from transformers import LongformerConfig

    with pytest.raises(DataError, match="Longformer reads no choices"):
        transformers_models.build(LongformerConfig(), "MultipleChoice", None, "folder")


@pytest.mark.parametrize("kind", KINDS)
def test_methods_find_its_parts(hf_data: dict[str, Path], encoders: dict[str, Path], kind: str) -> None:
    """The perturbation of a factorised embedding comes before the projection."""
    run = hf_run(hf_data, encoders[kind], "classes", "freelb", *OPTIONS["freelb"])
    assert find_token_embedding(run.model) is run.model.hf.get_input_embeddings()
    assert len(find_layers(run.model)) == 2
    with recorded() as deltas:
        log = one_step(run, batch(run, ROWS))[2]
    width = 8 if kind in ("albert", "electra") else 16
    assert [delta.size(-1) for delta in deltas] == [width] * 3
    assert 0 < log["adv_ratio"] / log["nexamples"] < 10


@pytest.mark.parametrize("kind", [kind if kind in (*SOME, "roberta") else slow(kind) for kind in KINDS])
def test_the_default_size_is_a_share_of_any_encoders_embeddings(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str
) -> None:
    from fairseq_adv.criterions import methods

    run = hf_run(hf_data, encoders[kind], "classes", "freelb", *methods()["freelb"].suggested_options.split())
    log = one_step(run, batch(run, ROWS))[2]
    assert 0.0136 < float(log["adv_ratio"]) / log["nexamples"] < 0.0154


def test_a_model_without_word_embeddings_is_refused(
    hf_data: dict[str, Path], encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import BertModel

    monkeypatch.setattr(BertModel, "get_input_embeddings", lambda self: nn.Linear(2, 2))
    told = "bert: BertModel has no word embeddings that can be perturbed. Pass another encoder"
    with pytest.raises(DataError, match=told):
        hf_run(hf_data, encoders["bert"], "classes", "freelb")


def test_train_fills_in_as_many_positions_as_the_encoder_has(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    """RoBERTa's tables have two rows more."""
    from transformers import AutoConfig, AutoModel

    for kind, encoder in encoders.items():
        (tmp_path / kind).mkdir()
        shutil.copyfile(encoder / "config.json", tmp_path / kind / "config.json")
        with torch.device("meta"):
            model = AutoModel.from_config(AutoConfig.from_pretrained(encoder))
        filled_in = hugging_face_args([tmp_path], tmp_path / kind)["--max-positions"]
        assert filled_in == str(transformers_models.longest_row(model))


@pytest.mark.parametrize(
    ("kind", "longest"), [("layoutlm", 20), ("luke", 18), ("nystromformer", 20), ("ibert", 18), ("xlm", 20)]
)
def test_the_longest_row_is_that_of_the_words_positions(kind: str, longest: int) -> None:
    """Others are places on a page, and entities'; a table may be longer than what is used of it."""
    from transformers import CONFIG_MAPPING, AutoModel

    config = CONFIG_MAPPING[kind](max_position_embeddings=20, num_hidden_layers=1)
    with torch.device("meta"):
        assert transformers_models.longest_row(AutoModel.from_config(config)) == longest


# --- modes of training ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("deberta-v3", "freelb"), ("modernbert", "alum_vat"), ("electra", "freelb"),
        slow("deberta-v3", "alum_vat"), slow("modernbert", "freelb"), slow("electra", "alum_vat"),
    ],
)  # fmt: skip
def test_an_update_is_the_same_in_parts_with_recomputed_layers_and_in_half_precision(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, method: str
) -> None:
    """With dropout, whose masks every pass and every re-computation repeats."""
    sgd = ["--optimizer", "sgd", "--lr", "0.5"]
    adam = ["--optimizer", "adam", "--adam-betas", "(0.0,0.0)", "--adam-eps", "1e3", "--lr", "500"]

    def moved(*words: str, parts: Any = (ROWS,)) -> torch.Tensor:
        return change(hf_run(hf_data, encoders[kind], "classes", method, *OPTIONS[method], *words), *parts)

    plain = moved(*sgd)
    parts = moved(*sgd, parts=(ROWS[:2], ROWS[2:]))
    assert plain.norm() > 1e-3 and (parts - plain).norm() <= 1e-5 * plain.norm()
    random = moved(*DROPOUT, *adam)
    again = moved(*DROPOUT, *adam, "--checkpoint-activations")
    assert not torch.equal(random, moved(*adam)) and (again - random).norm() <= 1e-5 * random.norm()
    half = moved(*adam, *HALF)
    exact = moved(*adam)
    assert 0 < (half - exact).norm() <= 0.03 * exact.norm()


@pytest.mark.parametrize("kind", ["bert", "deberta-v3", "modernbert"])
def test_in_half_precision_its_layer_norm_gets_delta_in_fp32(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str
) -> None:
    run = hf_run(hf_data, encoders[kind], "classes", "freelb", *OPTIONS["freelb"], *HALF)
    norm, seen = parts_of(run.model).layer_norm, set[torch.dtype]()
    norm.register_forward_pre_hook(lambda _, given: seen.add(given[0].dtype))
    one_step(run, batch(run, ROWS))
    assert norm.weight.dtype == torch.float16 and seen == {torch.float32}


def test_a_cast_leaves_the_angles_of_positions_as_they_are(
    hf_data: dict[str, Path], encoders: dict[str, Path]
) -> None:
    """As in an export that transformers loads in bf16. Rounded, they turn far positions into others."""
    model = hf_run(hf_data, encoders["modernbert"], "classes", "standard").model
    exact = {name: one for name, one in model.named_buffers() if "inv_freq" in name}
    model.bfloat16()
    now = dict(model.named_buffers())
    assert exact and all(now[name].dtype == torch.float32 and now[name].equal(exact[name]) for name in exact)
    assert next(model.parameters()).dtype == torch.bfloat16
    assert all(one.is_meta for one in model.half().to("meta").buffers())


@pytest.mark.parametrize(
    "words", ["yopo --yopo-steps 2", "pgd --adv-clean-weight 1 --adv-init-mag 0"], ids=["yopo", "pgd"]
)
def test_recomputed_layers_lose_no_gradient_of_the_words(
    hf_data: dict[str, Path], encoders: dict[str, Path], words: str
) -> None:
    """transformers then makes their embeddings require a gradient, in passes with frozen weights too.

    fp32: the same operations, whose sums may be cut differently.
    """
    method, *own = words.split()
    given = [*OPTIONS["freelb"], *own, "--optimizer", "sgd", "--lr", "0.5"]
    plain, again = (
        change(hf_run(hf_data, encoders["bert"], "classes", method, *given, *more))
        for more in ([], ["--checkpoint-activations"])
    )
    assert plain.norm() > 1e-3 and (again - plain).norm() <= 1e-5 * plain.norm()


@pytest.mark.parametrize("method", ["freelb", "tavat", "alum_vat"])
def test_padding_is_not_moved_where_a_convolution_reads_it(
    hf_data: dict[str, Path], encoders: dict[str, Path], method: str
) -> None:
    run = hf_run(hf_data, encoders["convbert"], "classes", method, *OPTIONS[method])
    sample = batch(run, ROWS)
    padding = sample["net_input"]["src_tokens"].eq(1)
    with recorded() as deltas:
        one_step(run, sample)
    assert padding.any() and len(deltas) > 1
    assert all(not delta[padding].any() and delta[~padding].any() for delta in deltas)


@pytest.mark.parametrize("kind", ["xlm", "flaubert", "squeezebert"])
def test_an_encoder_without_layers_that_can_be_watched_is_refused_where_they_are_needed(kind: str) -> None:
    """XLM's modules are parts of layers; hooks of SqueezeBERT's are not called."""
    from transformers import CONFIG_MAPPING, AutoModel

    small = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    groups = {"embedding_size": 8, "q_groups": 1, "k_groups": 1, "v_groups": 1}  # SqueezeBERT's
    model = AutoModel.from_config(CONFIG_MAPPING[kind](**small, **groups))
    parts = transformers_models.encoder_parts(model)
    assert parts.embedding is model.get_input_embeddings() and parts.layers == []
    model.encoder_parts = lambda: parts
    with pytest.raises(ValueError, match="has no list of layers that run one after the other"):
        find_layers(model)


def test_yopo_refuses_a_convolution_beside_the_layers(hf_data: dict[str, Path], tmp_path: Path) -> None:
    """That of some DeBERTa-v2 adds what it makes of the embeddings to the first layer's output."""
    save_encoder(tmp_path / "deberta", "deberta-v3", WORDS, conv_kernel_size=3, conv_act="gelu")
    run = hf_run(hf_data, tmp_path / "deberta", "classes", "yopo", *OPTIONS["yopo"])
    with pytest.raises(DataError, match=r"--criterion yopo .* \(conv_kernel_size\)\. Choose another"):
        run.criterion.check_before_training(run.model)


@pytest.mark.parametrize("kind", SOME)
def test_with_zero_steps_it_is_standard_to_the_bit(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str
) -> None:
    """So the passes of an update draw the same masks, and nothing else draws."""
    off = ["--adv-steps", "1", "--adv-init-mag", "0"]
    runs = [hf_run(hf_data, encoders[kind], "classes", "freelb", *off, *DROPOUT),
            hf_run(hf_data, encoders[kind], "classes", "standard", *DROPOUT)]  # fmt: skip
    ours, plain = (change(run) for run in runs)
    assert torch.equal(ours, plain) and plain.any()


@pytest.mark.parametrize(("kind", "workers"), [("deberta-v3", 2), slow("modernbert", 2), slow("albert", 2)])
def test_two_workers_make_the_update_of_one(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, kind: str, workers: int
) -> None:
    from support import fairseq_train, weights

    found = []
    for number, size in ((1, "16"), (workers, "8")):
        save = tmp_path / str(number)
        words = [*OPTIONS["freelb"], "--optimizer", "sgd", "--lr", "0.1", "--max-epoch", "1",
                 "--batch-size", size, "--no-epoch-checkpoints"]  # fmt: skip
        fairseq_train(
            *hf_args(hf_data, encoders[kind], "classes", "freelb", *words, save=save), workers=number
        )
        found.append(weights(save / "checkpoint_last.pt"))
    one, two = found
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("kind", ["deberta-v3", slow("modernbert"), slow("roberta")])
def test_a_run_that_resumes_ends_in_the_same_weights(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    from support import fairseq_train, tensors

    words = [*OPTIONS["freelb"], *DROPOUT, "--no-epoch-checkpoints"]
    ends = []
    for name, epochs in (("whole", ["2"]), ("parts", ["1", "2"])):
        for last in epochs:
            more = ["--max-epoch", last]
            fairseq_train(
                *hf_args(hf_data, encoders[kind], "classes", "freelb", *words, *more, save=tmp_path / name)
            )
        ends.append(tensors(tmp_path / name / "checkpoint_last.pt"))
    whole, parts = ({key: v for key, v in end.items() if "model" in key} for end in ends)
    assert whole and whole == parts


@pytest.mark.timing
@pytest.mark.parametrize(("kind", "workers"), [slow("deberta-v3", 1), slow("modernbert", 2)])
def test_killed_in_mid_epoch_it_ends_in_the_same_weights(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, kind: str, workers: int
) -> None:
    from support import fairseq_train, killed_training, tensors

    words = [*OPTIONS["freelb"], *DROPOUT, "--no-epoch-checkpoints", "--batch-size", "1", "--max-epoch", "3",
             "--save-interval-updates", "2", "--keep-interval-updates", "1"]  # fmt: skip
    ends, texts = [], []
    for name in ("killed", "whole"):
        args = hf_args(hf_data, encoders[kind], "classes", "freelb", *words, save=tmp_path / name)
        if name == "killed":
            text = killed_training(args, workers, lambda line: '"num_updates": "5"' in line)
            assert '"num_updates": "5"' in text and "done training" not in text
        done = fairseq_train(*args, workers=workers)
        texts.append(done.stdout + done.stderr)
        ends.append(tensors(tmp_path / name / "checkpoint_last.pt"))
    assert "Loaded checkpoint" in texts[0] and "Loaded checkpoint" not in texts[1]
    assert ends[0] == ends[1]


# --- what is refused --------------------------------------------------------------------------------


def refused(hf_data: dict[str, Path], folder: Path, message: str, *words: str) -> None:
    with pytest.raises(DataError, match=message):
        hf_run(hf_data, folder, "classes", "freelb", *words)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "a decoder. Pass the folder of an encoder"),
        ({"model_type": "gpt2"}, "model_type is 'gpt2', not a text encoder"),
        ({"model_type": None}, 'config.json: no model_type. Add "model_type": "bert", or what it is'),
        ({"model_type": "yoso"}, "model_type is 'yoso'"),
        ({"model_type": ["bert"]}, "model_type is"),
        ({"vocab_size": "many"}, "vocab_size is 'many', not a number of tokens"),
        ({"vocab_size": 3}, "but the encoder's vocab_size is 3|vocab_size"),
        ({"num_hidden_layers": 100_000_000}, "num_hidden_layers is 100000000, more than 1000"),
        ({"hidden_size": 2**20}, r"the configuration needs [\d,]+ numbers, but the weights have"),
        ({"num_attention_heads": 7}, "transformers can't build the model"),
        ({"model_type": "xmod", "languages": ["en", "de"]}, "no default_language. Set it there to one of en"),
        ({"model_type": "fnet"}, "FNetModel takes no attention mask"),
        ({"pad_token_id": 10_000}, "transformers can't build the model .*adding_idx must be within"),
        ({"num_hidden_layers": 3}, "the weights lack bert.encoder.layer.2|the weights lack encoder.layer.2"),
        ({"intermediate_size": 25}, "transformers can't load the weights"),
        # Without a table of positions, but with a buffer.
        ({"max_position_embeddings": 2**31}, r"the configuration needs 2,147,\d+,\d+ numbers"),
        ({"max_position_embeddings": 10**30}, "transformers can't build the model"),
    ],
)
def test_a_folder_that_cant_be_used_is_refused(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, changes: Any, message: str
) -> None:
    kind = "deberta-v3" if "max_position_embeddings" in changes else "bert"
    folder = shutil.copytree(encoders[kind], tmp_path / kind)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    refused(hf_data, Path(folder), message)


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        (
            "bert.encoder.layer.0.output.dense.weight",
            torch.ones(16, 24, dtype=torch.int8),
            "is of int8: the weights",
        ),
        (
            "bert.encoder.layer.0.attention.self.distance_embedding.weight",
            torch.ones(3, 8),
            "would leave out",
        ),
    ],
    ids=["quantised", "relative positions"],
)
def test_weights_that_make_another_model_are_refused(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, name: str, weights: Any, message: str
) -> None:
    folder = Path(shutil.copytree(encoders["bert"], tmp_path / "bert"))
    tensors = {**load_file(folder / "model.safetensors"), name: weights}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    refused(hf_data, folder, message)


def test_recomputed_activations_need_a_model_that_has_them(
    hf_data: dict[str, Path], encoders: dict[str, Path]
) -> None:
    refused(hf_data, encoders["albert"], "--checkpoint-activations: .* Albert", "--checkpoint-activations")


@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        ("deberta-v3", "classes"),
        ("deberta-v3", "tagging"),
        ("roberta", "commonsense_qa"),
        ("electra", "commonsense_qa"),
        ("roberta", "tagging"),
    ],
)
def test_the_dropout_of_a_head(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, kind: str, objective: str
) -> None:
    folder = shutil.copytree(encoders[kind], tmp_path / "hf")
    if kind == "electra":  # whose head for choices then has none
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "summary_last_dropout": 0.0}))
    model = hf_run(hf_data, folder, objective, "freelb", "--pooler-dropout", "0.37").model.hf
    of_encoder = set(model.base_model.modules())
    found = {one.p for one in model.modules() if isinstance(one, nn.Dropout) and one not in of_encoder}
    assert found == {0.37}
    name = {"roberta": "classifier_dropout", "electra": "summary_last_dropout"}.get(kind, "cls_dropout")
    assert getattr(model.config, name) == 0.37  # for who trains the export


def test_a_head_without_dropout_has_none(hf_data: dict[str, Path], encoders: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"--pooler-dropout 0.1: the head of .*Answering has no dropout"):
        hf_run(hf_data, encoders["roberta"], "span_qa", "standard", "--pooler-dropout", "0.1")
    hf_run(hf_data, encoders["roberta"], "span_qa", "standard", "--pooler-dropout", "0")


def test_a_big_bird_reads_a_text_alike_whatever_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sparse attention gives way at the first short mini-batch."""
    from transformers import BigBirdConfig

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BigBirdConfig(vocab_size=20, max_position_embeddings=64, **sizes)
    assert config.attention_type == "block_sparse"
    model = transformers_models.build(config, "SequenceClassification", None, "folder")
    assert model.bert.attention_type == "original_full"


def test_a_projection_before_the_layer_norm_is_no_normalised_embedding() -> None:
    """As RoCBert's: the layer norm then gets what is computed, perhaps in half precision."""
    parts = {"words": nn.Embedding(9, 4), "map": nn.Linear(4, 4), "norm": nn.LayerNorm(4)}
    module = nn.ModuleDict(parts)
    assert transformers_models._norm_after(module, module["words"]) is None
    del module["map"]
    assert transformers_models._norm_after(module, module["words"]) is module["norm"]


def test_a_tokenizer_without_tokens_around_a_text_is_refused(own: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(own["bert"], tmp_path / "bert"))
    about = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**about, "post_processor": None}))
    with pytest.raises(DataError, match=r"tokenizer.json: puts no token before a text and another one after"):
        transformers_models.read(folder)


def test_a_vocabulary_of_letters(tmp_path: Path) -> None:
    """Nucleotides: fewer words than special tokens."""
    hf_encoders.save_tokenizer(tmp_path, "bert", ["a", "c", "g", "t"])
    (tmp_path / "config.json").write_text('{"vocab_size": 9}')
    tokenizer = tokenizer_for_encoder(tmp_path)
    assert len(set(tokenizer.encode(["a c g t"])[0].tolist())) == 5


def test_a_vocabulary_as_large_as_a_layer_is_refused(tmp_path: Path) -> None:
    """Its tensors are found by their size, of which config.json may have a part; training adds a <mask>."""
    words = len(WORDS) + 8
    save_encoder(tmp_path / "half", "modernbert", WORDS, intermediate_size=words // 2)
    save_encoder(tmp_path / "mask", "bert", WORDS, hidden_size=words + 1, num_attention_heads=1)
    without_mask_token(tmp_path / "mask")
    for folder in ("half", "mask"):
        with pytest.raises(DataError, match=rf"config.json: .* has a size of the vocabulary's \({words}\)"):
            transformers_models.read(tmp_path / folder)


def test_a_padding_token_without_a_row_is_refused(own: dict[str, Path], tmp_path: Path) -> None:
    """The tokenizer names none, so config.json does."""
    folder = Path(shutil.copytree(own["bert"], tmp_path / "bert"))
    for file, changes in (
        ("config.json", {"pad_token_id": 10_000}),
        ("tokenizer_config.json", {"pad_token": None}),
    ):
        (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), **changes}))
    with pytest.raises(
        DataError, match=r"config.json: vocab_size is \d+, but a special token has the id 10000"
    ):
        transformers_models.read(folder)


def test_a_tokenizer_with_another_padding_token_than_the_positions_is_refused(tmp_path: Path) -> None:
    """An export would count no position for its [UNK], whose id the configuration has as padding."""
    save_encoder(tmp_path / "roberta", "roberta", WORDS)
    hf_encoders.save_tokenizer(tmp_path / "roberta", "bert", WORDS)
    with pytest.raises(DataError, match=r"counted from padding token 1, and the tokenizer's is 0\. Only 1"):
        transformers_models.read(tmp_path / "roberta")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--encoder-layerdrop", "0.1"],
            "--encoder-layerdrop 0.1: transformers' encoders run all their layers",
        ),
        (["--max-positions", "41"], "--max-positions 41: this encoder has 40 positions"),
    ],
)
def test_options_that_dont_fit_are_refused(
    hf_data: dict[str, Path], encoders: dict[str, Path], words: list[str], message: str
) -> None:
    refused(hf_data, encoders["bert"], message, *words)


def test_deberta_1_is_trained_in_fp32(
    hf_data: dict[str, Path], encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers' own code fails in autocast."""
    monkeypatch.setattr("fairseq_adv.training.precision_option.bf16_products", lambda: "avx512_bf16")
    for kind, in_autocast in (("deberta", False), ("bert", True)):
        run = hf_run(hf_data, encoders[kind], "classes", "standard", "--precision", "auto")
        change(run)
        assert run.trainer.cfg.common.amp == in_autocast
    run = hf_run(hf_data, encoders["deberta"], "classes", "standard", "--amp")
    with pytest.raises(DataError, match="DeBERTa can't be computed in autocast: pass --precision fp32"):
        run.trainer.load_checkpoint("none.pt")  # before the first update
    with pytest.raises(DataError, match="DeBERTa can't be computed in autocast: pass --precision fp32"):
        change(run)
    run = hf_run(hf_data, encoders["deberta"], "classes", "standard", "--bf16")  # what a GPU has
    assert change(run).norm() > 0


def test_data_of_another_encoder_is_refused(
    hf_data: dict[str, Path], own: dict[str, Path], encoders: dict[str, Path], tmp_path: Path
) -> None:
    refused(hf_data, own["bert"], "the data was prepared with another encoder's dictionary")
    longer = shutil.copytree(hf_data["classes"], tmp_path / "longer")
    with (longer / "input0" / "dict.txt").open("a", encoding="utf-8") as file:
        file.write("more 1\n")
    refused({"classes": longer}, encoders["bert"], "the data was prepared with another encoder's dictionary")


def test_without_transformers_one_line_says_what_to_install(
    hf_data: dict[str, Path], encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(
        hf_data, encoders["bert"], r"--arch hf_encoder needs transformers .*: pip install 'fairseq_adv\[hf\]'"
    )


def test_nothing_in_a_folder_is_run(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its code, no kernel that it names, no quantiser, and nothing is fetched."""
    folder = Path(shutil.copytree(encoders["bert"], tmp_path / "bert"))
    trap = tmp_path / "trap"
    (folder / "modeling.py").write_text(f"open({str(trap)!r}, 'w')\nclass Model: pass\n")
    config = json.loads((folder / "config.json").read_text())
    more = {
        "auto_map": {"AutoConfig": "modeling.Model", "AutoModel": "modeling.Model"},
        "attn_implementation": "some/kernels", "_attn_implementation": "some/kernels",
        "quantization_config": {"quant_method": "awq", "bits": 4}, "torch_dtype": "os.system",
        "id2label": {"0": "${oc.env:HOME}"}, "_name_or_path": "${common.seed}", "custom": "${common.seed}",
        "_auto_class": "AutoModel",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection"))
    run = hf_run(hf_data, folder, "classes", "freelb", *OPTIONS["freelb"])
    change(run)
    assert not trap.exists()
    for unsafe in ("$", "auto_map", "_auto_class"):
        assert unsafe not in run.cfg.model.hf_encoder


def test_sizes_are_kept_whatever_their_names() -> None:
    """RemBERT's and SqueezeBERT's begin as what a model is asked to return."""
    sizes = {"vocab_size": 9, "output_embedding_size": 8, "output_groups": 2}
    special = dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    found = {"config": {**sizes, "output_attentions": True, "output_past": True}, "special": special}
    assert transformers_models.described("config:" + json.dumps(found))["config"] == sizes


@pytest.mark.parametrize(
    "text",
    ["", "config:", "config:{}", "config:[]", "config:" + "[" * 100_000,
     'config:{"config": {}, "special": {}}', 'config:{"config": {"vocab_size": 9}, "special": {"<s>": "x"}}'],
)  # fmt: skip
def test_a_checkpoints_configuration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="--hf-encoder"):
        transformers_models.described(text)


def test_stock_fairseq_train_trains_it_too(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path
) -> None:
    """With fairseq's own criterion."""
    args = hf_args(
        hf_data, encoders["bert"], "classes", "sentence_prediction", "--max-epoch", "1", save=tmp_path
    )
    done = fork_command("fairseq-train", *args)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "checkpoint_last.pt").is_file()
    assert flat(build(args)).numel() > 0


def test_the_yaml_of_the_documentation_trains_it(
    hf_data: dict[str, Path], encoders: dict[str, Path], tmp_path: Path, repo: Path
) -> None:
    page = (repo / "docs" / "start.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^fairseq-hydra-train .*", page, re.MULTILINE)
    (tmp_path / "sentiment.yaml").write_text(text)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sentiment").symlink_to(hf_data["classes"])
    (tmp_path / "out" / "minilm").symlink_to(encoders["bert"])
    small = (
        "common.cpu=true task.num_classes=3 task.max_positions=16 +model.dropout=0.2 optimization.max_epoch=1"
    )
    done = run_command(
        "bash", "-c", f"cd {shlex.quote(str(tmp_path))} && {line} {small} dataset.num_workers=0"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cfg = torch.load(tmp_path / "out" / "sentiment-yaml" / "checkpoint_last.pt", weights_only=False)["cfg"]
    config = transformers_models.described(cfg["model"]["hf_encoder"])["config"]
    assert (cfg["model"]["dropout"], config["model_type"]) == (0.2, "bert")
    assert (cfg["criterion"]["adv_lr"], cfg["criterion"]["adv_steps"]) == (0.0067, 3)
