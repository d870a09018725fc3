"""What an export writes beside the weights, what it refuses, and that it appears whole or not at all."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any, Callable

import export_samples
import pytest
import torch
from hf_encoders import WORDS, save_tokenizer
from omegaconf import OmegaConf
from run_samples import line, write_run
from safetensors.torch import load_file

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.hf_tokenizer import special_ids
from fairseq_adv.hub.export import export_checkpoint

Change = Callable[[dict[str, Any]], None]
# A hydra configuration has the options of the model that its yaml names; fairseq fills in the others.
IN_A_YAML = (
    "_name", "encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads",
    "max_positions", "dropout", "attention_dropout",
)  # fmt: skip
OUT_PROJ = "classification_heads.sentence_classification_head.out_proj.weight"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roberta")
    encoder = export_samples.encoder(folder, "roberta")
    data = export_samples.glue(folder, "RTE", encoder)
    return export_samples.train(folder / "run" / "model.pt", encoder, data)


def in_model(**values: Any) -> Change:
    return lambda state: vars(state["cfg"]["model"]).update(values)


def in_task(**values: Any) -> Change:
    return lambda state: state["cfg"]["task"].update(values)


def in_tensors(**values: Any) -> Change:
    return lambda state: state["model"].update({name.replace("__", "."): v for name, v in values.items()})


def without(name: str) -> Change:
    return lambda state: state["model"].pop(name)


# ---- what cannot be exported


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_task(_name="translation"), "was trained with --task translation; .*, sentence_prediction, text"),
        (in_task(_name=["x"]), r"was trained with --task \['x'\]"),
        (in_model(_name="fconv_lm", decoder_layers="[(8, 3)] * 2"), "its model is 'fconv_lm'"),
        (in_model(decoder_layers="__import__('os').getpid()"), "decoder_layers is .* not a literal"),
        (in_model(pooler_activation_fn="relu"), r"pooler_activation_fn='relu' \(another activation in the"),
        (in_model(activation_fn="gelu_accurate"), "activation_fn='gelu_accurate'.*don't support"),
        (in_model(spectral_norm_classification_head=True), "spectral_norm_classification_head=True"),
        (in_model(encoder_normalize_before=True), r"\(LayerNorm before each layer\)"),
        (in_model(quant_noise_scalar=0.1), "quant_noise_scalar=0.1"),
        (in_model(encoder_attention_heads=5), "encoder_attention_heads is 5, which does not divide 24"),
        (in_model(encoder_attention_heads="3"), "encoder_attention_heads is '3'"),
        (in_task(classification_head_name="mine"), "no head 'mine'; found sentence_classification_head"),
        (in_task(_name="commonsense_qa"), "has 2 outputs; multiple choice needs one"),
        (in_task(separator_token=7), "token 7 around its texts, which is none of <s>, <pad>, </s>"),
        (in_task(init_token="0"), "init_token is '0', not a token id"),
        (in_task(class_names=["a", "b", "c"]), r"names 3 classes \(a, b, c\).*has 2 outputs.*--labels"),
        (in_tensors(adapter=torch.zeros(2)), "unknown: adapter"),
        (in_tensors(encoder__sentence_encoder__layers__0__fc1__bias=torch.zeros(3)), r"fc1.bias.*\(3,\)"),
        (without("encoder.sentence_encoder.layers.1.fc2.weight"), r"missing: .*s.1.fc2.weight \(24, 40\)"),
        (without("encoder.sentence_encoder.embed_positions.weight"), "no encoder with the tensor names"),
        (in_tensors(encoder__sentence_encoder__embed_tokens__weight=torch.zeros(9, 24)), "embeddings for 9"),
        (lambda state: state["model"].update(x=3), r"checkpoint written by fairseq-train \(model: 'x'\)"),
        (lambda state: state.pop("model"), "not a checkpoint written by fairseq-train"),
    ],
)  # fmt: skip
def test_refused(trained: Path, tmp_path: Path, change: Change, message: str) -> None:
    bad = export_samples.changed(trained, tmp_path / "run" / "bad.pt", change)
    with pytest.raises(DataError, match=message) as refusal:
        export_checkpoint(bad, tmp_path / "out")
    assert "\n" not in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_not_finite(trained: Path, tmp_path: Path) -> None:
    bad = export_samples.changed(
        trained, tmp_path / "bad.pt", lambda state: state["model"][OUT_PROJ].fill_(float("nan"))
    )
    with pytest.raises(DataError, match=r"out_proj.weight has values that are not finite"):
        export_checkpoint(bad, tmp_path / "out")
    encoder = export_samples.encoder(tmp_path, "bert")
    as_it_is = export_samples.train(
        tmp_path / "run" / "a.pt", encoder, export_samples.glue(tmp_path, "RTE", encoder)
    )
    rows = "hf.bert.embeddings.word_embeddings.weight"
    bad = export_samples.changed(
        as_it_is, tmp_path / "run" / "b.pt", lambda state: state["model"][rows][7].fill_(float("nan"))
    )
    with pytest.raises(DataError, match=r"b\.pt: bert.embeddings.word_embeddings.weight has values that are"):
        export_checkpoint(bad, tmp_path / "out")


def test_a_payload_is_not_run(trained: Path, tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch '{tmp_path / 'touched'}'",)

    bad = export_samples.changed(
        trained, tmp_path / "bad.pt", lambda s: s["cfg"]["task"].update(data=Touch())
    )
    with pytest.raises(DataError, match=r"bad\.pt was not loaded: it names `posix\.system`"):
        export_checkpoint(bad, tmp_path / "out")
    assert not (tmp_path / "touched").exists()
    (tmp_path / "cut.pt").write_bytes(trained.read_bytes()[:5000])
    (tmp_path / "text.pt").write_text("no checkpoint")
    (tmp_path / "list.pt").write_bytes(pickle.dumps([1, 2]))
    for name in ("cut.pt", "text.pt", "list.pt", "absent.pt"):
        with pytest.raises(DataError, match=rf"{name}"):
            export_checkpoint(tmp_path / name, tmp_path / "out")


def test_without_a_tokenizer(trained: Path, tmp_path: Path) -> None:
    alone = export_samples.changed(trained, tmp_path / "alone.pt", in_task(data="absent"))
    with pytest.raises(DataError, match=r"no tokenizer next to it or its data .*--tokenizer-dir"):
        export_checkpoint(alone, tmp_path / "out")
    encoder = trained.parents[1] / "fairseq"
    assert export_checkpoint(alone, tmp_path / "out", encoder).classes == ("LABEL_0", "LABEL_1")
    wrong = Path(shutil.copytree(encoder, tmp_path / "wrong"))
    text = (wrong / "dict.txt").read_text(encoding="utf-8")
    (wrong / "dict.txt").write_text(text.replace("\n260 1\n", "\nother 1\n"), encoding="utf-8")
    with pytest.raises(DataError, match=r"dict.txt: lacks \[.*\] of .*vocab.bpe"):
        export_checkpoint(alone, tmp_path / "out-2", wrong)


def test_the_tokenizer_of_another_encoder(trained: Path, tmp_path: Path) -> None:
    """Converted, or that of another Hugging Face folder, for an encoder that was trained as it is."""
    (tmp_path / "hf").mkdir()
    save_tokenizer(tmp_path / "hf", "bert", WORDS)
    (tmp_path / "hf" / "config.json").write_text('{"vocab_size": 70}')
    found = {"config": {"vocab_size": 71}, "special": special_ids(tmp_path / "hf")}
    encoder = in_model(_name="hf_encoder", hf_encoder="config:" + json.dumps(found))
    as_it_is = export_samples.changed(trained, tmp_path / "hf.pt", encoder)
    for tokenizer in (tmp_path / "hf", trained.parents[1] / "fairseq"):
        with pytest.raises(DataError, match=rf"{tokenizer}: not the tokenizer that .*--tokenizer-dir"):
            export_checkpoint(as_it_is, tmp_path / "out", tokenizer)


@pytest.mark.parametrize("labels", ["a", "a,b,c", "a,a", "a,"])
def test_wrong_labels(trained: Path, tmp_path: Path, labels: str) -> None:
    with pytest.raises(DataError, match=r"--labels: names \d classes .*has 2 outputs"):
        export_checkpoint(trained, tmp_path / "out", labels=labels)


# ---- what is exported


def test_names_of_the_classes(trained: Path, tmp_path: Path) -> None:
    named = export_samples.changed(trained, tmp_path / "named.pt", in_task(class_names=["up", "down"]))
    assert export_checkpoint(trained, tmp_path / "1").classes == ("entailment", "not_entailment")
    assert export_checkpoint(named, tmp_path / "2").classes == ("up", "down")
    assert export_checkpoint(named, tmp_path / "3", labels="left, right").classes == ("left", "right")
    config = json.loads((tmp_path / "3" / "config.json").read_text())
    assert config["id2label"] == {"0": "left", "1": "right"}
    assert config["label2id"] == {"left": 0, "right": 1}


def test_configurations_of_other_fairseqs(trained: Path, tmp_path: Path) -> None:
    """All options in a Namespace, and old names, as before 0.10; or a container of omegaconf, as in 0.10."""

    def to_namespace(state: dict[str, Any]) -> None:
        cfg, old, model = state["cfg"], {}, state["model"]
        for name, tensor in model.items():
            if ".k_proj." in name or ".v_proj." in name:
                continue
            if ".q_proj." in name:
                tensor = torch.cat([model[name.replace(".q_", f".{one}_")] for one in "qkv"])
            name = name.replace("q_proj.", "in_proj_").replace("layernorm_embedding", "emb_layer_norm")
            old[re.sub("^encoder", "decoder", name)] = tensor
        state["model"] = old
        names = {"task": cfg["task"]["_name"], "criterion": "freelb", "arch": "roberta_base"}
        state["args"] = argparse.Namespace(**{**vars(cfg["model"]), **cfg["task"], **names})
        state["cfg"] = None

    def to_container(state: dict[str, Any]) -> None:
        named = {name: v for name, v in vars(state["cfg"]["model"]).items() if name in IN_A_YAML}
        state["cfg"] = OmegaConf.create({**state["cfg"], "model": named})

    export_checkpoint(trained, tmp_path / "out")
    for change in (to_namespace, to_container):
        other = export_samples.changed(trained, tmp_path / "other.pt", change)
        out = tmp_path / change.__name__
        export_checkpoint(other, out)
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            assert (out / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
        card = (out / "README.md").read_text(encoding="utf-8")
        assert "--criterion freelb" in card and "--data" not in card and "--arch" not in card


def test_half_precision_is_kept(trained: Path, tmp_path: Path) -> None:
    def change(state: dict[str, Any]) -> None:
        state["model"] = {name: tensor.half() for name, tensor in state["model"].items()}

    export_checkpoint(export_samples.changed(trained, tmp_path / "half.pt", change), tmp_path / "out")
    assert {t.dtype for t in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.float16}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "float16"


def test_the_average_of_the_weights(trained: Path, tmp_path: Path) -> None:
    def change(state: dict[str, Any]) -> None:
        state["extra_state"]["ema"] = {name: tensor + 1 for name, tensor in state["model"].items()}

    with pytest.raises(DataError, match="has no average of the weights"):
        export_checkpoint(trained, tmp_path / "out", averaged=True)
    smooth = export_samples.changed(trained, tmp_path / "smooth.pt", change)
    export_checkpoint(smooth, tmp_path / "last")
    export_checkpoint(smooth, tmp_path / "average", averaged=True)
    last, average = (load_file(tmp_path / name / "model.safetensors") for name in ("last", "average"))
    assert torch.equal(last["classifier.out_proj.weight"] + 1, average["classifier.out_proj.weight"])
    for name, words, is_measured in (("last", "", True), ("average", "--ema ", False)):
        card = (tmp_path / name / "README.md").read_text()
        assert f"`fairseq-adv export {words}smooth.pt {name}`" in card
        assert (" on the validation split |" in card) == is_measured != ("its validations" in card.lower())


@pytest.mark.parametrize("name", ["loss", "task_loss"])
def test_a_loss_on_the_card_is_in_nats(trained: Path, tmp_path: Path, name: str) -> None:
    def change(state: dict[str, Any]) -> None:
        state["cfg"]["checkpoint"]["best_checkpoint_metric"] = name
        state["extra_state"]["val_loss"] = 0.5

    in_bits = export_samples.changed(trained, tmp_path / "loss.pt", change)
    export_checkpoint(in_bits, tmp_path / "loss")
    card = (tmp_path / "loss" / "README.md").read_text(encoding="utf-8")
    assert f"| {name} (nats) on the validation split | 0.346574 |" in card


def test_the_model_card(trained: Path, tmp_path: Path) -> None:
    export_checkpoint(trained, tmp_path / "my-model")
    card = (tmp_path / "my-model" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification\n" in card and "- freelb\n" in card
    assert "| method | --criterion freelb " in card and "--adv-steps 3" in card and "--adv-lr" in card
    assert "| accuracy on the validation split | 80.25 |" in card
    assert "| best accuracy during training | 81.5 |" in card
    method = next(line for line in card.splitlines() if line.startswith("| method "))
    assert "--seed" not in method and "--flood" not in method  # of fairseq's, and of what was not used
    assert "| updates | 3 |" in card and "White space around a text is removed, as in training.\n" in card
    assert "# freelb on RTE\n" in card and "`entailment`, `not_entailment`" in card
    assert "`fairseq-adv export model.pt my-model`" in card and '"text_pair": "another' in card
    for file in (tmp_path / "my-model").iterdir():
        assert file.stat().st_mode == (tmp_path / "my-model" / "README.md").stat().st_mode
        assert str(trained.parents[1]).encode() not in file.read_bytes(), file


def test_the_model_card_has_the_other_scores_of_its_validation(trained: Path, tmp_path: Path) -> None:
    """From the run's own file: of its update, each split, and nothing that controls a page."""
    lines = [
        line(2, accuracy=70, mcc=10), line(3, accuracy=80.25, loss=0.5, wps=9, best_accuracy=81.5),
        line(3, "b|<i>", mcc=12.5, **{"x`y": 1}), line(3, "train_inner", gnorm=1),
    ]  # fmt: skip
    run = write_run(tmp_path / "run", *lines, dataset={"valid_subset": "valid,b|<i>"})
    export_checkpoint(Path(shutil.copy(trained, run / "model.pt")), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    _, _, scores = card.partition("## Scores")
    assert [row for row in scores.splitlines() if row.startswith("| ")][1:] == [
        "| accuracy on the validation split | 80.25 |", "| best accuracy during training | 81.5 |",
        "| loss (nats) on valid | 0.346574 |", "| mcc on b i | 12.5 |", "| x y on b i | 1 |",
    ]  # fmt: skip


def test_the_model_card_of_single_texts_shows_no_pair(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained.parents[1] / "RTE", tmp_path / "single")
    shutil.rmtree(tmp_path / "single" / "input1")
    single = export_samples.changed(trained, tmp_path / "a.pt", in_task(data=str(tmp_path / "single")))
    export_checkpoint(single, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert 'print(model({"text": "one text"}, top_k=None))' in card


@pytest.mark.parametrize(
    ("how", "told"),
    [("head", ""), ("head-tail", "the rest from its end"), ("windows", "over all windows of a text")],
)
def test_the_model_card_tells_what_was_read_of_long_texts(
    trained: Path, tmp_path: Path, how: str, told: str
) -> None:
    export_checkpoint(
        export_samples.changed(trained, tmp_path / "a.pt", in_task(long_texts=how)), tmp_path / "out"
    )
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    (rows,) = [line for line in card.splitlines() if line.startswith("A row has at most ")]
    assert rows.endswith("as in training.") if how == "head" else told in rows


def test_a_checkpoint_cannot_write_into_the_card(trained: Path, tmp_path: Path) -> None:
    def change(state: dict[str, Any]) -> None:
        state["cfg"]["criterion"]["_name"] = "x\n---\n<script>"
        state["cfg"]["criterion"]["y|\n# z"] = "`<b>`"

    export_checkpoint(export_samples.changed(trained, tmp_path / "odd.pt", change), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "<" not in card and "\n# z" not in card and card.count("\n---\n") == 1


# ---- whole or not at all


def test_reused_and_refused(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not export_checkpoint(trained, out).reused
    stamp = (out / "model.safetensors").stat().st_mtime_ns
    assert export_checkpoint(trained, out).reused
    assert (out / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(DataError, match=r"was made from other files or options \(labels\).*--overwrite"):
        export_checkpoint(trained, out, labels="a,b")
    assert not export_checkpoint(trained, out, labels="a,b", overwrite=True).reused
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    with pytest.raises(DataError, match="was not made by this program"):
        export_checkpoint(trained, tmp_path / "mine", overwrite=True)
