"""transformers computes with an export what fairseq computes with the checkpoint, from the same texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import export_samples
import glue_samples
import hf_models
import pytest
import support
import torch
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from odd_strings import SPECIAL
from safetensors.torch import load_file
from support import slow

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.hf_tokenizer import vocabulary_rows
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer, tokenizer_for_encoder
from fairseq_adv.evaluation.trained import load
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv.hub.export import _in_its_order, export_checkpoint

transformers = pytest.importorskip("transformers", reason="compares with transformers' own models")

CLOSE = 1e-5
KINDS = ["roberta", "deberta-v3", slow("modernbert"), slow("electra"), slow("albert")]


@pytest.fixture(scope="module", params=KINDS)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_samples.encoder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def pairs(encoder: Path) -> Path:
    """Pairs of texts with two classes."""
    return export_samples.glue(encoder.parent, "RTE", encoder)


@pytest.fixture(scope="module")
def trained(encoder: Path, pairs: Path) -> Path:
    """A model of two classes."""
    return export_samples.train(encoder.parent / "run" / "model.pt", encoder, pairs)


@pytest.fixture(scope="module")
def exported(trained: Path) -> Path:
    out = trained.parent / "out"
    export_checkpoint(trained, out)
    return out


def rows_of(out: Path, encoder: Path) -> list[int]:
    """The row in the export of each fairseq index: by the tokens' names, or the table of one as it is."""
    if not (encoder / "dict.txt").is_file():
        options = tokenizer_for_encoder(encoder).options
        return vocabulary_rows(options["words"], options["special"])
    dictionary = Dictionary.load(str(encoder / "dict.txt"))
    dictionary.add_symbol("<mask>")
    vocabulary = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    numbers = json.loads((encoder / "encoder.json").read_text())
    names = {str(number): token for token, number in numbers.items()}
    return [vocabulary[names.get(symbol, symbol)] for symbol in dictionary.symbols]


def names_a_token(encoder: Path, text: str) -> bool:
    """Whether a tokenizer as it is may find a token in a text, which ours reads as ``<unk>``."""
    is_converted = (encoder / "dict.txt").is_file()
    return not is_converted and any(name in text for name in SPECIAL[:11])


def scores_of(answer: list[dict[str, Any]], classes: list[str]) -> list[float]:
    found = {one["label"]: one["score"] for one in answer}
    return [found[name] for name in classes]


def largest(ours: list[float], theirs: list[float]) -> float:
    assert len(ours) == len(theirs)
    return max(abs(a - b) for a, b in zip(ours, theirs))


# ---- the tokenizer


def test_unusual_names_of_special_tokens_are_kept(tmp_path: Path) -> None:
    """From Hugging Face's folder through the converted encoder and prepared data back to such a folder."""
    hf_models.save_roberta(tmp_path / "hf")
    usual = ("<s>", "<unk>", "<mask>")
    names = {"cls_token": "[START]", "unk_token": "[ODD]", "mask_token": "<blank>"}
    vocabulary = tmp_path / "hf" / "vocab.json"
    text = vocabulary.read_text(encoding="utf-8")
    for before, now in zip(usual, names.values()):
        text = text.replace(before, now)
    vocabulary.write_text(text, encoding="utf-8")
    (tmp_path / "hf" / "special_tokens_map.json").write_text(json.dumps(names))
    convert_hf_checkpoint(tmp_path / "hf", tmp_path / "encoder")
    (tmp_path / "encoder" / "tokenizer").mkdir()  # as prepared data have it
    save_tokenizer(tmp_path / "encoder" / "tokenizer", tokenizer_for_encoder(tmp_path / "encoder"))
    export_checkpoint(tmp_path / "encoder" / "model.pt", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert {role: getattr(tokenizer, role) for role in names} == names
    first, *_, blank, _ = tokenizer("the film <blank>")["input_ids"]
    assert tokenizer.convert_ids_to_tokens([first, blank]) == ["[START]", "<blank>"]


# ---- classes, and numbers


def test_pairs(encoder: Path, pairs: Path, trained: Path, exported: Path) -> None:
    check_classes(encoder, pairs, trained, exported, glue_samples.pairs(30))


def test_single_texts(encoder: Path, trained: Path, exported: Path) -> None:
    data = export_samples.glue(encoder.parent, "SST-2", encoder)
    shutil.copy(trained_on(encoder) / "label" / "dict.txt", data / "label")  # of as many classes
    check_classes(encoder, data, trained, exported, [(text, None) for text in glue_samples.AWKWARD])


def check_classes(encoder: Path, data: Path, trained: Path, exported: Path, texts: Any) -> None:
    """The ids are equal, and so are the pipeline's probabilities."""
    classes = [
        line.split()[0] for line in (trained_on(encoder) / "label" / "dict.txt").read_text().splitlines()
    ]
    classes = [name for name in classes if not name.startswith("madeupword")]
    pipeline = transformers.pipeline("text-classification", model=str(exported), top_k=None)
    assert list(pipeline.model.config.id2label.values()) == classes
    rows, seen = rows_of(exported, encoder), set()
    ours = export_samples.answers(trained, data)
    assert len(ours) == len(texts)
    for (text, pair), (ids, probabilities) in zip(texts, ours):
        if pair == "":
            continue  # transformers takes an empty second text for none
        if names_a_token(encoder, f"{text} {pair}"):
            continue
        theirs = pipeline.tokenizer(text, pair)
        assert theirs["input_ids"] == [rows[index] for index in ids[0]], (text, pair)
        assert set(theirs) == {"input_ids", "attention_mask"}
        answer = pipeline({"text": text, "text_pair": pair} if pair is not None else text)
        answer = answer[0] if isinstance(answer[0], list) else answer
        assert largest(probabilities, scores_of(answer, classes)) < CLOSE
        seen.add(round(probabilities[0], 3))
    assert len(seen) > 10  # the texts decide


def test_weights_in_bf16(encoder: Path, pairs: Path, trained: Path, exported: Path, tmp_path: Path) -> None:
    """Half the bytes, and each weight rounded once; the answers stay close, computed in bf16 or in fp32."""
    out = tmp_path / "out"
    assert not export_checkpoint(trained, out, precision="bf16").reused
    assert export_checkpoint(trained, out, precision="bf16").reused
    halves, whole = (load_file(folder / "model.safetensors") for folder in (out, exported))
    for folder, dtype in ((out, "bfloat16"), (exported, "float32")):
        config = json.loads((folder / "config.json").read_text())
        assert config.get("torch_dtype", config.get("dtype")) == dtype  # as transformers 4, or 5, names it
    assert halves.keys() == whole.keys()
    for name, value in whole.items():
        assert value.dtype == torch.float32 and torch.equal(halves[name], value.to(torch.bfloat16)), name
    ours = [probabilities for _, probabilities in export_samples.answers(trained, pairs)]
    for dtype in ("float32", "bfloat16"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            out, torch_dtype=getattr(torch, dtype)
        ).eval()
        for (text, pair), expected in zip(glue_samples.pairs(30), ours):
            with torch.no_grad():
                logits = model(**tokenizer(text, pair, return_tensors="pt")).logits[0]
            odd = pair == "" or names_a_token(encoder, f"{text} {pair}")
            assert odd or largest(expected, logits.float().softmax(-1).tolist()) < 0.02
    export_checkpoint(trained, tmp_path / "same", precision="fp32")
    same = load_file(tmp_path / "same" / "model.safetensors")
    assert all(torch.equal(same[name], value) for name, value in whole.items())


def trained_on(encoder: Path) -> Path:
    return encoder.parent / "RTE"


def test_segments_and_padding_change_nothing(encoder: Path, exported: Path) -> None:
    """Whatever a program passes as token_type_ids, and however long the batch is."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(exported).eval()
    batch = tokenizer(
        ["It is cold.", "No."], ["A much longer second text.", "Yes."], padding=True, return_tensors="pt"
    )
    assert batch["input_ids"].shape[0] == 2 and not batch["attention_mask"].all()
    alone = tokenizer("No.", "Yes.", return_tensors="pt")
    segments = {"token_type_ids": torch.zeros_like(batch["input_ids"])}
    segments["token_type_ids"][:, 5:] = int(getattr(model.config, "type_vocab_size", 0) > 1)
    if not encoder.name.startswith("fairseq"):  # an encoder as it is has segments of its own
        segments = {}
    with torch.no_grad():
        logits = model(**batch, **segments).logits
        assert float((logits[1] - model(**alone).logits[0]).abs().max()) < CLOSE
        assert float((logits[0] - logits[1]).abs().max()) > 0.01


def test_a_regression(encoder: Path, trained: Path, pairs: Path, tmp_path: Path) -> None:
    def change(state: dict[str, Any]) -> None:
        state["cfg"]["task"].update(regression_target=True, num_classes=1)
        state["cfg"]["criterion"].update(regression_target=True)
        for name, tensor in state["model"].items():
            if ("head.out_proj" in name or name.startswith("hf.classifier")) and tensor.size(0) == 2:
                state["model"][name] = tensor[:1].clone()

    one = export_samples.changed(trained, tmp_path / "one.pt", change)
    (pairs / "label" / "valid.label").write_text("0.5\n" * 30)
    export_checkpoint(one, tmp_path / "out")
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path / "out"))
    assert pipeline.model.config.problem_type == "regression"
    for (text, pair), (_, number) in zip(glue_samples.pairs(30), export_samples.answers(one, pairs)):
        answer = pipeline({"text": text, "text_pair": pair or " "})
        odd = names_a_token(encoder, f"{text} {pair}")
        assert odd or largest(number, [answer["score"]]) < 3 * CLOSE  # a number, not a probability
    assert not answer["label"].startswith("entail")


# ---- multiple choice


QUESTIONS = [
    ("What is cold?", ["The soup", "the\x0bsun", "a\nfire", "<s> </s>"],
     ["It was  cold. ", "", "Hot.\u2028Hot.", "x"]),
    ("Fill the _ here", ["gap", "", "[SEP]"], ["They did not refund us.", "\x1c No. \x85", "a"]),
]  # fmt: skip


@pytest.mark.parametrize("encoder", [*KINDS, "xlm"], indirect=True)
@pytest.mark.parametrize("task", ["commonsense_qa", "arc_retrieval"])
def test_multiple_choice(encoder: Path, tmp_path: Path, task: str) -> None:
    rows = []
    for number, (stem, choices, documents) in enumerate(QUESTIONS):
        options = [
            {
                "label": "ABCD"[k],
                "text": text or "empty",
                **({"para": documents[k]} if task == "arc_retrieval" else {}),
            }
            for k, text in enumerate(choices if encoder.name != "hf" else [*choices[:2], "sep", *choices[3:]])
        ]
        rows.append({"id": str(number), "question": {"stem": stem, "choices": options}, "answerKey": "A"})
    for split in ("train", "valid"):
        support.write_json_lines(tmp_path / f"{split}.jsonl", rows)
    trained = export_samples.train(
        tmp_path / "run" / "model.pt", encoder, tmp_path, "--tokenizer-dir", str(encoder), task=task
    )
    export_checkpoint(trained, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "out").eval()
    assert tokenizer.model_max_length == 512
    rows_here = rows_of(tmp_path / "out", encoder)
    for row, (ids, probabilities) in zip(rows, export_samples.answers(trained, tmp_path)):
        texts = [as_texts(task, row["question"]["stem"], choice) for choice in row["question"]["choices"]]
        theirs = [tokenizer(*text)["input_ids"] for text in texts]
        assert theirs == [[rows_here[index] for index in one] for one in ids]
        batch = tokenizer.pad({"input_ids": theirs}, return_tensors="pt")
        with torch.no_grad():
            logits = model(**{name: value[None] for name, value in batch.items()}).logits[0]
        assert largest(probabilities, logits.softmax(-1).tolist()) < CLOSE
        assert max(probabilities) < 0.999


def as_texts(task: str, stem: str, choice: dict[str, str]) -> tuple[str, ...]:
    if task == "commonsense_qa":
        return f"Q: {stem}", f"A: {choice['text']}"
    statement = stem.replace("_", choice["text"]) if "_" in stem else f"{stem} {choice['text']}"
    return (choice["para"], statement) if choice["para"].strip() else (statement,)


# ---- masked language models, and back


@pytest.mark.parametrize("encoder", [*KINDS, "mobilebert"], indirect=True)
def test_a_masked_lm(encoder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if (encoder / "model.pt").is_file():
        with pytest.raises(DataError, match=r"--labels: .*model\.pt has no classes"):
            export_checkpoint(encoder / "model.pt", out, labels="a,b")
        export_checkpoint(encoder / "model.pt", out)
        model = RobertaModel.from_pretrained(str(encoder), "model.pt", bpe=None).eval().model
    else:
        data = support.write_corpus(tmp_path / "data")
        tokenizer_for_encoder(encoder).dictionary.save(str(data / "dict.txt"))
        checkpoint = export_samples.train(tmp_path / "model.pt", encoder, data, task="masked_lm")
        export_checkpoint(checkpoint, out, encoder)
        model = load(str(checkpoint), str(data), ["valid"], cpu=True).model.eval()
    pipeline = transformers.pipeline("fill-mask", model=str(out), top_k=3)
    rows = rows_of(out, encoder)
    text = f"The soup was {pipeline.tokenizer.mask_token} cold."
    ids = pipeline.tokenizer(text, return_tensors="pt")["input_ids"]
    mask = pipeline.tokenizer.mask_token_id
    assert ids[0].tolist().count(mask) == 1
    # As fairseq's own fill_mask: a space before the mask is no token of its own.
    is_converted = (encoder / "model.pt").is_file()
    assert not is_converted or "Ġ" not in pipeline.tokenizer.convert_ids_to_tokens(ids[0].tolist())
    pair = pipeline.tokenizer("a", "b")["input_ids"]
    between = 2 if is_converted else tokenizer_for_encoder(encoder).options["separators"]
    assert pair.count(pipeline.tokenizer.sep_token_id) == between + 1
    words = torch.tensor([[rows.index(row) for row in ids[0].tolist()]])
    with torch.no_grad():
        ours = model(words)[0][0].softmax(-1)
        theirs = pipeline.model(ids).logits[0].softmax(-1)[:, rows]
    assert float((ours - theirs).abs().max()) < CLOSE
    best = ours[(ids[0] == mask).nonzero()[0, 0]].topk(3)
    answer = pipeline(text)
    assert [one["token"] for one in answer] == [rows[index] for index in best.indices.tolist()]
    assert largest(best.values.tolist(), [one["score"] for one in answer]) < CLOSE


def test_of_two_symbols_that_are_one_word_the_one_around_texts_is_exported() -> None:
    """Padding as the first token, an unknown word as the last; the mask is one of the others."""
    special = {"<s>": 1, "<pad>": 1, "</s>": 4, "<unk>": 4, "<mask>": 2}
    rows = torch.tensor(vocabulary_rows(6, special))
    assert rows.tolist() == [1, 1, 4, 4, 0, 3, 5, 2]
    exported = _in_its_order(torch.arange(8.0).reshape(8, 1), rows, 6)
    assert exported[:, 0].tolist() == [4, 0, 7, 5, 2, 6]


@pytest.mark.parametrize("encoder", ["roberta"], indirect=True)
def test_an_exported_classifier_can_be_converted_again(exported: Path, tmp_path: Path) -> None:
    """Its tokenizer.json removes the space around texts, as our tasks do."""
    assert json.loads((exported / "tokenizer.json").read_text())["normalizer"]
    assert convert_hf_checkpoint(exported, tmp_path / "again")


@pytest.mark.parametrize("tied", [True, False])
def test_back_to_hugging_face_bit_for_bit(tmp_path: Path, tied: bool) -> None:
    """All but the segments, which fairseq lacks: the first one's row is in the positions."""
    hf_models.save_roberta(tmp_path / "hf", tie_word_embeddings=tied)
    convert_hf_checkpoint(tmp_path / "hf", tmp_path / "fairseq")
    export_checkpoint(tmp_path / "fairseq" / "model.pt", tmp_path / "back")
    source, back = (load_file(tmp_path / name / "model.safetensors") for name in ("hf", "back"))
    positions, segments = (
        f"roberta.embeddings.{name}_embeddings.weight" for name in ("position", "token_type")
    )
    expected = source[positions][2:] + source.pop(segments)[0]  # the rows before that are of padding
    assert torch.equal(back.pop(positions)[2:], expected)
    assert not back.pop(segments).any()
    del source[positions]
    if not tied:  # transformers then has a bias beside the decoder's own, which it does not use
        del source["lm_head.bias"]
    assert set(source) - set(back) <= {"lm_head.decoder.bias"}
    assert not set(back) - set(source) or not tied
    for name in set(source) & set(back):
        assert torch.equal(source[name], back[name]), name
    # And from there on everything.
    convert_hf_checkpoint(tmp_path / "back", tmp_path / "fairseq-2")
    export_checkpoint(tmp_path / "fairseq-2" / "model.pt", tmp_path / "back-2")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("back", "back-2"))
    assert set(one) == set(two) and all(torch.equal(one[name], two[name]) for name in one)
    for name in ("dict.txt", "encoder.json", "vocab.bpe"):
        files = [tmp_path / folder / name for folder in ("fairseq", "fairseq-2")]
        assert not files[0].is_file() or files[0].read_bytes() == files[1].read_bytes()
