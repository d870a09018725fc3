"""Models that are trained on, or measured, on data whose classes stand in another order than theirs."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Sequence

import hf_models
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from hf_encoders import WORDS, of_transformers, save_encoder
from support import ENCODER_WORDS, build, slow, train_args, validate, write_questions, write_task
from token_data import write_tags

from fairseq_adv import load
from fairseq_adv.cli import main as fairseq_adv
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.evaluation.attack import Attack, attack_checkpoint
from fairseq_adv.evaluation.validate import validate as validate_checkpoint
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv.hub.export import export_checkpoint

NAMES = ["contradiction", "entailment", "neutral"]  # the data's order, which prepare chooses
ORDERS = [list(order) for order in itertools.permutations(NAMES)]
OTHER = ["neutral", "contradiction", "entailment"]  # no swap: its inverse is another order
PATHS = ["hf", "converted"]


def texts() -> list[str]:
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(WORDS, size=rng.integers(3, 12))) for _ in range(60)]


def classifier(folder: Path, encoder: Path) -> tuple[Any, list[str]]:
    """transformers' RoBERTa with a random head, saved without names, and what it answers to the texts.

    It answers with each class equally often.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    shutil.copytree(encoder, folder)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=len(NAMES)).eval()
    rows = AutoTokenizer.from_pretrained(encoder)(texts(), padding=True, return_tensors="pt")
    torch.manual_seed(2)
    with torch.no_grad():
        for one in model.classifier.parameters():
            one.copy_(torch.randn_like(one))
        logits = model(rows["input_ids"], attention_mask=rows["attention_mask"]).logits
        model.classifier.out_proj.bias.sub_(logits.median(dim=0).values)
        found = model(rows["input_ids"], attention_mask=rows["attention_mask"]).logits.argmax(dim=1)
    assert torch.bincount(found, minlength=len(NAMES)).min() >= 8
    model.save_pretrained(folder)
    return model, [NAMES[int(answer)] for answer in found]


def in_the_order(folder: Path, source: Path, names: Sequence[str]) -> Path:
    """A copy of a classifier of ``NAMES`` whose head has them in another order, in capitals."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    rows, tensors = [NAMES.index(name) for name in names], load_file(folder / "model.safetensors")
    for part in ("weight", "bias"):
        tensors[f"classifier.out_proj.{part}"] = tensors[f"classifier.out_proj.{part}"][rows].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return with_names(folder, [name.upper() for name in names])


def with_names(folder: Path, names: Sequence[str]) -> Path:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), "id2label": {str(k): name for k, name in enumerate(names)}}
    path.write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa, a classifier with it, and data that this answers right, for both paths."""
    from transformers import RobertaTokenizerFast

    folder = tmp_path_factory.mktemp("orders")
    hf_models.save_roberta(folder / "encoder")
    RobertaTokenizerFast.from_pretrained(folder / "encoder").save_pretrained(folder / "encoder")
    _, answers = classifier(folder / "unnamed", folder / "encoder")
    rows = "".join(f"{answer},{text}\n" for answer, text in zip(answers, texts()))
    (folder / "rows.csv").write_text(f"label,text\n{rows}")
    for path in PATHS:
        words = ["prepare", "classification", folder / "rows.csv", folder / f"data-{path}", "--valid"]
        words += [folder / "rows.csv", "--text", "text", "--label", "label", "--encoder"]
        fairseq_adv(list(map(str, [*words, by_path(folder / "unnamed", path)])))
    return folder


def by_path(folder: Path, path: str) -> Path:
    """An encoder as it is, or converted."""
    if path == "hf":
        return folder
    convert_hf_checkpoint(folder, folder.parent / f"{folder.name}-converted")
    return folder.parent / f"{folder.name}-converted"


def reordered(data: Path, folder: Path, names: Sequence[str]) -> Path:
    """A copy of a data folder whose dictionary lists the classes in another order."""
    shutil.copytree(data, folder)
    lines = (data / "label" / "dict.txt").read_text().splitlines()
    found = [line.rsplit(" ", 1)[0] for line in lines]
    assert found == NAMES
    (folder / "label" / "dict.txt").write_text("".join(f"{lines[found.index(one)]}\n" for one in names))
    write_labels(folder, data, [names.index(name) for name in NAMES])
    return folder


def write_labels(folder: Path, data: Path, numbers: Sequence[int]) -> None:
    """The labels of a data folder with another number for each class."""
    for split in ("train", "valid"):
        old = data_utils.load_indexed_dataset(str(data / "label" / split), None)
        ids = [[numbers[int(row[0]) - 4] + 4, 2] for row in old]  # after fairseq's own four
        lengths = np.full(len(ids), 2, dtype=np.int64)
        write_indexed(folder / "label" / split, [(np.array(ids, dtype=np.int64).reshape(-1), lengths)], 7)


def arguments(encoder: Path, data: Path, *words: str, save: Path | None = None) -> list[str]:
    """Of fairseq-train, to begin with an encoder of either path."""
    args = train_args(data, save, "standard", *words, classes=3, task="text_classification")
    if (encoder / "model_args.txt").is_file():
        others = {"--finetune-from-model", "--restore-file"} & {*words}
        start = [] if others else ["--finetune-from-model", str(encoder / "model.pt")]
        return [*args, *(encoder / "model_args.txt").read_text().split(), *start]
    return [*of_transformers(args, encoder), "--max-positions", "40"]


def start(args: list[str]) -> SimpleNamespace:
    """A run that has read what it starts from."""
    run = build(args)
    checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
    return run


def accuracy(run: SimpleNamespace) -> float:
    return validate(run, "valid", 16)["accuracy"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "order", [one if one in (NAMES, OTHER) else slow(one) for one in ORDERS], ids="-".join
)
def test_a_classifier_starts_with_what_it_knows(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, order: list[str]
) -> None:
    caplog.set_level("INFO")
    encoder = by_path(in_the_order(tmp_path / "hf", root / "unnamed", order), path)
    assert accuracy(start(arguments(encoder, root / f"data-{path}"))) == 100
    assert heads_told(caplog) == [
        f"{encoder}{'/model.pt' * (path == 'converted')}: the head is taken over: its rows "
        f"({', '.join(order).upper()}) go by name to the data's ({', '.join(NAMES)})"
    ]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("names", "keep", "told"),
    [
        (None, True, "the head is taken over, in the data's order (--keep-head): contradiction, entailment"),
        (None, False, "(3 without names) are not the data's (contradiction, entailment, neutral). If they"),
        (["a", "b", "Neutral"], False, "(a, b, Neutral) are not the data's (contradiction, entailment, neu"),
    ],
)
def test_a_head_with_other_names_or_none_begins_anew(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    path: str, names: list[str] | None, keep: bool, told: str,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    folder = Path(shutil.copytree(root / "unnamed", tmp_path / "hf"))
    encoder = by_path(folder if names is None else with_names(folder, names), path)
    words = ["--keep-head"] if keep else []
    run = start(arguments(encoder, root / f"data-{path}", *words))
    assert (accuracy(run) == 100) is keep
    assert len(heads_told(caplog)) == 1 and told in heads_told(caplog)[0]
    if not keep:  # fairseq's and transformers' new heads have a standard deviation of 0.02, these 1
        assert float(output_of(run).std()) < 0.2
    if names:
        with pytest.raises(DataError, match=r"^--keep-head: the head of .* has other classes \(a, b, Neut"):
            start(arguments(encoder, root / f"data-{path}", "--keep-head"))


def output_of(run: SimpleNamespace) -> torch.Tensor:
    """The head's output matrix, (classes, dim)."""
    heads = {name: one for name, one in run.model.named_parameters() if name.endswith("out_proj.weight")}
    (found,) = [one for name, one in heads.items() if "classif" in name]
    return found.detach()


def heads_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one for one in caplog.messages if ": the head " in one]


@pytest.fixture(scope="module")
def trained(root: Path) -> Path:
    """Checkpoints ``PATH.pt`` that know the answers, with their optimizer's state."""
    for path in PATHS:
        encoder = by_path(in_the_order(root / f"known-{path}", root / "unnamed", OTHER), path)
        run = start(arguments(encoder, root / f"data-{path}"))
        run.trainer.consolidate_optimizer()
        run.trainer.save_checkpoint(str(root / "trained" / f"{path}.pt"), {"train_iterator": {"epoch": 1}})
        shutil.copytree(root / f"data-{path}" / "tokenizer", root / "trained" / path / "tokenizer")
    return root / "trained"


def without_optimizer(checkpoint: Path, path: Path) -> Path:
    state = torch.load(checkpoint, weights_only=False)
    state["last_optimizer_state"] = None
    torch.save(state, path)
    return path


@pytest.mark.parametrize("path", PATHS)
def test_a_run_starts_from_a_checkpoint_of_another_order(
    root: Path, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """But none resumes: the optimizer's state has the old order, too."""
    caplog.set_level("INFO")
    encoder, checkpoint = by_path(root / f"known-{path}", path), trained / f"{path}.pt"
    bare = without_optimizer(checkpoint, tmp_path / "bare.pt")
    data = {order: reordered(root / f"data-{path}", tmp_path / order[0], ORDERS[k]) for k, order in
            enumerate("-".join(one) for one in ORDERS) if k in (1, 3, 4)}  # fmt: skip
    for folder in data.values():
        for words in (["--finetune-from-model", checkpoint], ["--restore-file", bare],
                      ["--restore-file", checkpoint, "--reset-optimizer"]):  # fmt: skip
            caplog.clear()
            assert accuracy(start(arguments(encoder, folder, *map(str, words)))) == 100
            told = f"{words[1]}: the head is taken over: its rows (contradiction, entailment, neutral) go by"
            assert heads_told(caplog)[-1].startswith(told)
        for more in ([], ["--allow-changed-options"]):
            with pytest.raises(DataError, match=f"^{checkpoint}: its run has the classes contradiction, ent"):
                start(arguments(encoder, folder, "--restore-file", str(checkpoint), *more))


@pytest.mark.parametrize("path", PATHS)
def test_a_checkpoint_of_other_classes_lends_no_head(
    root: Path, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """Also if their number differs."""
    caplog.set_level("INFO")
    for k, names in enumerate((["a", "b", "neutral"], ["contradiction", "entailment"])):
        data = Path(shutil.copytree(root / f"data-{path}", tmp_path / str(k)))
        (data / "label" / "dict.txt").write_text("".join(f"{name} 1\n" for name in names))
        write_labels(data, root / f"data-{path}", [0, 1, len(names) - 1])
        words = ["--finetune-from-model", str(trained / f"{path}.pt"), "--num-classes", str(len(names))]
        caplog.clear()
        run = start(arguments(by_path(root / f"known-{path}", path), data, *words))
        assert float(output_of(run).std()) < 0.2 and len(output_of(run)) == len(names)
        told = f"contradiction, entailment, neutral) are not the data's ({', '.join(names)})"
        assert heads_told(caplog)[-1].endswith(told)


@pytest.mark.parametrize("path", PATHS)
def test_trained_models_are_measured_on_data_of_another_order(
    root: Path, trained: Path, tmp_path: Path, path: str
) -> None:
    checkpoint, first = str(trained / f"{path}.pt"), root / f"data-{path}"
    data = [first, *(reordered(first, tmp_path / str(k), ORDERS[k]) for k in (1, 3, 4))]
    scores = [validate_checkpoint(checkpoint, str(folder), cpu=True) for folder in data]
    assert scores[0]["accuracy"] == 100
    how = Attack(0.1, 0.1, steps=1)  # of more, sums in another order make others
    attacked = [attack_checkpoint(checkpoint, how, str(folder), cpu=True) for folder in data]
    answers = []
    for k, folder in enumerate(data):
        words = ["predict", checkpoint, "--data", folder, "--split", "valid", "--out", tmp_path / f"out{k}"]
        assert fairseq_adv([*map(str, words), "--cpu"]) == 0
        (file,) = (tmp_path / f"out{k}").glob("*.tsv")
        rows = [line.split("\t") for line in file.read_text().splitlines()]
        answers.append([dict(zip(rows[0], row)) for row in rows[1:]])
        for row in answers[-1]:
            row.update({name: float(row[name]) for name in NAMES})
    for k in (1, 2, 3):
        assert scores[k] == pytest.approx(scores[0]) and attacked[k] == pytest.approx(attacked[0], abs=1e-4)
        assert len(answers[k]) == len(answers[0]) == 60
        for row, first_row in zip(answers[k], answers[0]):
            assert row == pytest.approx(first_row, abs=2e-6)


def test_labels_in_a_file_go_by_name(
    root: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To score answers, or to attack."""
    head, *rows = (root / "rows.csv").read_text().splitlines()
    lines = [f"{label.upper()},{text}" for label, text in (row.split(",") for row in rows)]
    (tmp_path / "rows.csv").write_text("\n".join([head, *lines, ""]))
    columns = ["--text", "text", "--label", "label", "--cpu", "--json", "--out", tmp_path / "out"]
    columns += ["--tokenizer-dir", root / "data-hf" / "tokenizer"]
    predict = ["predict", trained / "hf.pt", "--input", tmp_path / "rows.csv"]
    attack = ["attack", trained / "hf.pt", "--attack", "deepwordbug", "--data", tmp_path / "rows.csv"]
    for words in (predict, [*attack, "--examples", "4"]):
        capsys.readouterr()
        assert fairseq_adv(list(map(str, [*words, *columns]))) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert {100.0} == {found[name] for name in ("accuracy", "clean") if name in found}, found


@pytest.mark.parametrize("path", PATHS)
def test_names_for_an_export_go_to_their_own_rows(
    root: Path, trained: Path, tmp_path: Path, path: str
) -> None:
    """Which are those of the checkpoint; other names rename its classes in their order."""
    checkpoint, tokenizer = trained / f"{path}.pt", root / f"data-{path}" / "tokenizer"
    for k, (labels, expected) in enumerate([(None, NAMES), (",".join(OTHER), NAMES), ("a,b,c", list("abc"))]):
        out = tmp_path / str(k)
        export_checkpoint(checkpoint, out, tokenizer, labels)
        config = json.loads((out / "config.json").read_text())
        assert list(config["id2label"].values()) == expected
    data = reordered(root / f"data-{path}", tmp_path / "data", ORDERS[3])
    assert accuracy(start(arguments(by_path(tmp_path / "0", path), data))) == 100
    model = load(checkpoint, tokenizer, device="cpu")
    gold = [line.split(",")[0] for line in (root / "rows.csv").read_text().splitlines()[1:]]
    assert [one.label for one in model.predict(texts())] == gold


def test_the_head_of_a_regression_is_kept(root: Path, tmp_path: Path) -> None:
    """It has no classes, whatever transformers calls its only row."""
    from transformers import AutoModelForSequenceClassification

    shutil.copytree(root / "encoder", tmp_path / "hf")
    model = AutoModelForSequenceClassification.from_pretrained(root / "encoder", num_labels=1)
    hf_models.randomise(model)
    model.save_pretrained(tmp_path / "hf")
    for path in PATHS:
        data = Path(shutil.copytree(root / f"data-{path}", tmp_path / f"data-{path}"))
        shutil.rmtree(data / "label")
        (data / "label").mkdir()
        for split in ("train", "valid"):
            (data / "label" / f"{split}.label").write_text("0.5\n" * len(texts()))
        words = ["--regression-target", "--num-classes", "1", "--best-checkpoint-metric", "loss"]
        run = start(arguments(by_path(tmp_path / "hf", path), data, *words))
        assert torch.equal(output_of(run), model.classifier.out_proj.weight)


def test_the_head_of_choices_is_kept(tmp_path: Path) -> None:
    from transformers import AutoModelForMultipleChoice

    data = write_questions(tmp_path / "questions")
    save_encoder(tmp_path / "hf", "bert", list(ENCODER_WORDS))
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "hf")
    hf_models.randomise(model)
    model.save_pretrained(tmp_path / "hf")
    args = of_transformers(train_args(data, None, "standard", task="commonsense_qa"), tmp_path / "hf")
    run = start([*args, "--tokenizer-dir", str(tmp_path / "hf")])
    assert torch.equal(run.model.hf.classifier.weight, model.classifier.weight)


def test_tags_go_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import AutoModelForTokenClassification

    caplog.set_level("INFO")
    data = write_tags(tmp_path / "data")
    words = list(ENCODER_WORDS)
    save_encoder(tmp_path / "hf", "bert", words)
    tags = ["B-Gene", "O", "i-gene", "B-Cell", "I-Cell"]
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "hf", num_labels=5)
    hf_models.randomise(model)
    model.save_pretrained(tmp_path / "hf")
    with_names(tmp_path / "hf", tags)
    args = of_transformers(train_args(data, None, "standard", task="tagging"), tmp_path / "hf")
    run = start([*args, "--tokenizer-dir", str(tmp_path / "hf")])
    rows = [[one.lower() for one in tags].index(one.lower()) for one in run.task.tags]
    assert torch.equal(run.model.hf.classifier.weight, model.classifier.weight[rows])
    assert len(heads_told(caplog)) == 1 and "go by name to the data's (O, B-Cell, " in heads_told(caplog)[0]


def test_a_head_with_spectral_norm_goes_by_name(tmp_path: Path) -> None:
    """It has a weight that torch computes, and a vector with a row for each class."""
    words = ["--spectral-norm-classification-head", "--no-save-optimizer-state"]
    data = write_task(tmp_path / "data", classes=3)
    first = build(train_args(data, None, "standard", *words, classes=3, task="text_classification"))
    first.trainer.save_checkpoint(str(tmp_path / "a.pt"), {"train_iterator": {"epoch": 1}})
    other = write_task(tmp_path / "other", classes=3)
    (other / "label" / "dict.txt").write_text("1 1\n2 1\n0 1\n")
    more = ["--finetune-from-model", str(tmp_path / "a.pt")]
    run = start(train_args(other, None, "standard", *words, *more, classes=3, task="text_classification"))
    before, after = (
        one.trainer.get_model().eval().classification_heads["sentence_classification_head"].out_proj
        for one in (first, run)
    )
    rows = [1, 0, 2]  # of 1, 2, 0 in 2, 1, 0
    states = torch.randn(4, 16)
    torch.testing.assert_close(after(states), before(states)[:, rows])
    assert torch.equal(after.weight_u, before.weight_u[rows])


def test_fairseqs_own_task_goes_by_the_names_in_its_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose checkpoint has none: without that folder they are unknown."""
    caplog.set_level("INFO")
    data = write_task(tmp_path / "data", classes=3)
    first = build(train_args(data, None, "standard", "--no-save-optimizer-state", classes=3))
    first.trainer.save_checkpoint(str(tmp_path / "a.pt"), {"train_iterator": {"epoch": 1}})
    other = write_task(tmp_path / "other", classes=3)
    (other / "label" / "dict.txt").write_text("1 1\n2 1\n0 1\n")
    args = train_args(other, None, "standard", "--finetune-from-model", str(tmp_path / "a.pt"), classes=3)
    assert torch.equal(output_of(start(args)), output_of(first)[[1, 0, 2]])  # of 2, 1, 0
    shutil.rmtree(data)
    caplog.clear()
    assert output_of(start(args)).std() < 0.2
    assert heads_told(caplog)[0].startswith(
        f"{tmp_path}/a.pt: the head begins anew: its classes (3 without n"
    )
