"""Several labels a text: from columns to an exported model, with scores, thresholds, answers and attacks."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from pathlib import Path

import hf_encoders
import numpy as np
import pytest
import torch
from criterions.restated import run_of
from fairseq.logging import metrics
from sklearn.metrics import accuracy_score, average_precision_score, f1_score
from support import VOCABULARY, CommandMain, _write, batch, fork_command, validate, write_label_sets
from torch.distributions import Bernoulli, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits

from fairseq_adv import load
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.several_labels import LabelColumns, joined_labels
from fairseq_adv.data.temperature import read_thresholds, save_thresholds, thresholds_file
from fairseq_adv.data.text.labelled_folder import check_split
from fairseq_adv.evaluation.attack import attack_checkpoint
from fairseq_adv.evaluation.attack_settings import Attack
from fairseq_adv.evaluation.class_report import fit_thresholds, label_report
from fairseq_adv.evaluation.validate import evaluate
from fairseq_adv.hub.export import THRESHOLDS, export_checkpoint
from fairseq_adv.objectives.multi_label import label_scores, least_logits
from fairseq_adv.perturbation.divergence import DIVERGENCES, label_divergence

transformers = pytest.importorskip("transformers", reason="compares with transformers' own models")
LABELS = ["toxic", "insult"]
SIZES = ["--epsilon", "0.5", "--absolute", "--cpu", "--json"]


def rows(count: int, seed: int = 0) -> list[tuple[str, list[int]]]:
    """A text is toxic by its words w0 to w9, and an insult by w5 to w14."""
    random, found = np.random.default_rng(seed), []
    for _ in range(count):
        numbers = random.integers(0, 40, size=4)
        held = [int(any(first <= n < first + 10 for n in numbers)) for first in (0, 5)]
        found.append((" ".join(VOCABULARY[n] for n in numbers), held))
    return found


def write_table(path: Path, table: list[tuple[str, list[int]]], separator: str = "") -> Path:
    """Columns of 0 and 1, or one column."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["comment", *(["labels"] if separator else LABELS)])
        for text, held in table:
            names = f" {separator}".join(name for name, one in zip(LABELS, held) if one)
            names += separator * held[0]  # as forms write it
            out.writerow([text, *([names] if separator else held)])
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    hf_encoders.save_encoder(folder, "bert", VOCABULARY)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """``run/checkpoint_best.pt``, with ``data`` and ``test.csv``, made as in docs/own-data.md."""
    folder = tmp_path_factory.mktemp("trained")
    train, test = (
        write_table(folder / f"{name}.csv", rows(n, n)) for name, n in (("train", 60), ("test", 12))
    )
    words = ["--text", "comment", "--label", *LABELS, str(folder / "data")]
    for verb in (
        ["prepare", "classification", str(train), "--test", str(test), "--encoder", str(encoder), *words],
        ["train", str(folder / "data"), "--encoder", str(encoder), "--save-dir", str(folder / "run"),
         "--criterion", "alum_vat", "--max-epoch", "2", "--batch-size", "4", "--cpu", "--num-workers", "0",
         "--lr", "0.01"],
    ):  # fmt: skip
        done = fork_command("fairseq-adv", *verb)
        assert done.returncode == 0, done.stderr
    assert "54 rows, 2 labels (toxic, insult)" in done.stdout and "best dev micro_f1" in done.stdout
    saving = torch.load(folder / "run" / "checkpoint_best.pt", weights_only=False)["cfg"]["checkpoint"]
    assert saving["best_checkpoint_metric"] == "micro_f1" and saving["maximize_best_checkpoint_metric"]
    return folder


@pytest.fixture
def checkpoint(trained: Path, tmp_path: Path) -> Path:
    """A copy, with its tokenizer."""
    shutil.copytree(trained / "run" / "tokenizer", tmp_path / "tokenizer")
    return Path(shutil.copy(trained / "run" / "checkpoint_best.pt", tmp_path))


# ---- data


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_files_may_stand_behind_the_columns(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str], behind: int
) -> None:
    files = [str(write_table(tmp_path / "train.csv", rows(20))), str(tmp_path / "out")]
    before, after = files[: 2 - behind], files[2 - behind :]
    words = [*before, "--label", *LABELS, *after, "--text", "comment", "--encoder", str(encoder)]
    done = CommandMain("prepare classification", capsys)(*words)
    assert done.returncode == 0, done.stderr
    assert "note: 2 labels, of which a text may have several or none: toxic, insult\n" in done.stdout
    assert (tmp_path / "out" / "label" / "dict.txt").read_text().split()[::2] == LABELS, "in their order"


def test_a_column_with_a_separator_makes_the_same_data(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except for the order of the labels, by name."""
    more = ["--text", "comment", "--encoder", encoder, "--label"]
    table = [(text, held[::-1]) for text, held in rows(20)]
    cells = write_table(tmp_path / "cells.csv", table, ";")
    columns = tmp_path / "columns.csv"
    columns.write_text("comment,insult,toxic\n" + "".join(f"{text},{b},{a}\n" for text, (a, b) in table))
    prepare = CommandMain("prepare classification", capsys)
    assert prepare(cells, tmp_path / "a", *more, "labels", "--label-separator", ";").returncode == 0
    assert prepare(columns, tmp_path / "b", *more, "insult", "toxic").returncode == 0
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin"):
        assert (tmp_path / "a" / "label" / name).read_bytes() == (
            tmp_path / "b" / "label" / name
        ).read_bytes()
    for value, labelled in (
        ("", False),
        ("-", True),
    ):  # of one text: no label holds; of all: nobody has looked
        test = tmp_path / "test.csv"
        test.write_text(f"comment,labels\nw1,{value}\nw2,\n")
        done = prepare(
            cells, tmp_path / f"c{value}", *more, "labels", "--label-separator", ";", "--test", test
        )
        assert ("note: without labels: test\n" in done.stdout) != labelled


@pytest.mark.parametrize(
    ("separator", "cell", "names"),
    [
        (" + ", "java + c++", ["java", "c++"]),
        (" and ", "human and bad and ", ["bad", "human"]),
        ("<br>", "humor<br>odd<br>", ["humor", "odd"]),
        (", ", "a, b,", ["a", "b"]),
        (";", "a; b; ;", ["a", "b"]),
        (" ", " ", []),
    ],
)
def test_a_separator_ends_a_cell_only_as_a_whole(separator: str, cell: str, names: list[str]) -> None:
    assert LabelColumns(("labels",), separator)({"labels": cell}, "") == joined_labels(names)


def test_lists_of_a_jsonl_are_labels(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [["toxic", "insult"], [], ["insult", 1], "toxic;insult", 1, None]
    lines = [json.dumps({"comment": f"w{n}", "labels": value}) for n, value in enumerate(values * 4)]
    train = tmp_path / "train.jsonl"
    prepare = CommandMain("prepare classification", capsys)
    words = ["--text", "comment", "--encoder", encoder, "--label", "labels", "--label-separator", ";"]
    train.write_text("\n".join(lines))
    done = prepare(train, tmp_path / "out", *words, "--allow-odd-labels")
    assert done.returncode == 0, done.stderr
    assert "note: 3 labels, of which a text may have several or none: 1, insult, toxic\n" in done.stdout
    for value in (["toxic", True], True, 1.5, {"toxic": 1}, [["toxic"]]):
        train.write_text("\n".join([*lines, json.dumps({"comment": "w", "labels": value})]))
        done = prepare(train, tmp_path / "odd", *words)
        assert done.stderr.startswith(f"error: {train}:25: {value!r} in column 'labels' is neither"), (
            done.stderr
        )


def test_a_criterion_of_fairseq_is_refused(trained: Path, encoder: Path, tmp_path: Path) -> None:
    words = ["--encoder", str(encoder), "--save-dir", str(tmp_path), "--criterion", "sentence_prediction"]
    done = fork_command("fairseq-adv", "train", str(trained / "data"), *words, "--cpu", "--num-workers", "0")
    assert done.returncode == 2 and "Pass --criterion standard, or another" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("a,1,2\n", ["x", "y"], r"csv:2: '2' in column 'y' is neither 0 nor 1"),
        ("a,1,\n", ["x", "y"], r"csv:2: no 0 or 1 in column 'y'"),
        ("a,,\n", ["x", "y"], r"csv:2: no label in column 'x'"),
        ("a,1,0\n", ["x", "x"], "two of them name the same column"),
        ("a,1,0\n", ["x", "y", "--regression"], "^error: --regression: pass one --label"),
        ("a,1,0\n", ["x", "y", "--label-separator", "|"], "^error: --label-separator: pass one"),
        ("a,1,0\n", ["x", "--label-separator", "|"], "1 different labels, but at least two"),
        ("a,p|-,0\n", ["x", "--label-separator", "|"], "csv:2: '-' can't be the name of a label"),
        ("a,p;q|r,0\n", ["x", "--label-separator", ";"], r"csv:2: 'q\|r' can't be the name of a label"),
        ("a,1,0\n", ["x", "z"], "no column 'z'"),
        ("a,1,0\n", ["x,y"], "no column 'x,y'.* Pass x y, with spaces"),
    ],
)
def test_odd_rows_and_options_are_refused(
    tmp_path: Path,
    encoder: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    words: list[str],
    message: str,
) -> None:
    train = tmp_path / "train.csv"
    train.write_text("comment,x,y\n" + text + "b,1,0\nc,1,1\n")
    given = [train, tmp_path / "out", "--text", "comment", "--encoder", encoder, "--label", *words]
    done = CommandMain("prepare classification", capsys)(*given)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
    assert not (tmp_path / "out").exists()


def test_a_label_without_rows_is_told_and_one_that_is_new_is_refused(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [(text, [held[0], 0]) for text, held in rows(20)]
    train, valid = write_table(tmp_path / "train.csv", table), tmp_path / "valid.csv"
    words = [train, "--valid", train, "--text", "comment", "--encoder", encoder]
    prepare = CommandMain("prepare classification", capsys)
    done = prepare(*words, tmp_path / "a", "--label", *LABELS)
    assert "note: labels with no positive training rows, which can't be learned: insult" in done.stdout
    cells = write_table(tmp_path / "cells.csv", rows(20), "|")
    valid.write_text("comment,labels\nw1,toxic|odd\n")
    words = [cells, "--valid", valid, "--text", "comment", "--encoder", encoder, "--label", "labels"]
    done = prepare(*words, "--label-separator", "|", tmp_path / "b")
    assert done.stderr == f"error: {valid}:2: label 'odd' is not in the training rows. Correct it.\n"


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    """Labels that are no labels, twice, out of order, without an end; as classes they are none either."""
    data = write_label_sets(tmp_path / "data", train=1, labels=3)
    check_split(data, "train", False, several=True)
    for row in ([4, 5, 2], [2], [6, 2]):
        _write(data / "label" / "train", [row], 7)
        check_split(data, "train", False, several=True)
    for row in ([4, 4, 2], [5, 4, 2], [4], [7, 2], [3, 2], [4, 2, 2]):
        _write(data / "label" / "train", [row], 9)
        with pytest.raises(DataError, match=r"the label of row 1 is '.*', not different labels of dict"):
            check_split(data, "train", False, several=True)


# ---- the loss, divergences and scores


def test_loss_divergence_and_scores_are_those_of_torch_and_scikit_learn(tmp_path: Path) -> None:
    folders = {"multi_label": write_label_sets(tmp_path, labels=3, valid=30)}
    run = run_of(folders, "multi_label", "standard")
    run.task.load_dataset("valid")
    sample, objective = batch(run, list(range(30)), "valid"), run.criterion.objective
    run.model.eval()
    with torch.no_grad():  # about half of the answers
        bias = run.model.classification_heads["sentence_classification_head"].out_proj.bias
        bias.sub_(objective.predict(run.model, sample).quantile(torch.tensor([0.45]), dim=0)[0])
    logits, targets = objective.predict(run.model, sample).detach(), sample["target"]
    assert targets.shape == (30, 3) and 0 < targets.sum() < 90
    expected = binary_cross_entropy_with_logits(logits, targets.float())  # as transformers' models
    assert objective.loss(logits, sample).item() == pytest.approx(30 * expected.item(), rel=1e-6)
    assert run.criterion(run.model, sample)[1] == 30
    found, right, answers = validate(run, "valid", 7), targets.numpy(), (logits >= 0).numpy().astype(int)
    assert 0 < answers.sum() < 90
    assert found["accuracy"] == round(100 * accuracy_score(right, answers), 2)
    for kind in ("micro", "macro"):
        assert found[f"{kind}_f1"] == round(100 * f1_score(right, answers, average=kind), 2)
    assert found["map"] == round(100 * average_precision_score(right, logits.numpy()), 2)
    shares = targets.double().mean(0)
    entropy = -(torch.special.xlogy(shares, shares) + torch.special.xlogy(1 - shares, 1 - shares)).mean()
    with metrics.aggregate(new_root=True) as meters:
        objective.reduce_metrics([objective.logging_output(logits, sample, gather=False)])
    assert objective.constant_loss(meters) == pytest.approx(entropy.item())


def test_scores_by_hand() -> None:
    """Label 0: ranked right, wrong, right. Label 1: one of two found. Label 2 has no row."""
    right = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0]])
    logits = np.array([[3.0, 1, -1], [2, -2, -1], [1, -3, -1]])
    found = label_scores(logits, right)
    assert found["map"] == pytest.approx(100 * ((1 + 2 / 3) / 2 + 1) / 2)
    assert found["micro_f1"] == pytest.approx(100 * 2 * 3 / (2 * 3 + 1 + 1))
    assert found["macro_f1"] == pytest.approx(100 * (0.8 + 2 / 3 + 0) / 3)
    assert label_scores(logits, right, np.array([2.5, 0, 0]))["micro_f1"] == pytest.approx(100 * 4 / 6)
    assert math.isnan(label_scores(logits, 0 * right)["map"])


def test_a_single_label_is_no_pair_of_classes() -> None:
    """One of four rows has it, and none gets it: right answers of the others are no true positives."""
    right = np.array([[1], [0], [0], [0]])
    assert {label_scores(right - 2.0, right)[name] for name in ("micro_f1", "macro_f1")} == {0.0}
    report = label_report(["toxic"], right, 0 * right, {})
    assert report.scores == [[0.0, 0.0, 0.0]] and report.means["micro avg"] == [0.0, 0.0, 0.0]


def test_thresholds_of_labels_in_another_case() -> None:
    assert least_logits(["Toxic", "other"], {"toxic": 0.9}).tolist() == pytest.approx([np.log(9), 0])
    with pytest.raises(DataError, match="the thresholds are of giftig, the labels Toxic"):
        least_logits(["Toxic"], {"giftig": 0.9})


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_the_divergence_is_the_mean_of_bernoulli_divergences(kind: str) -> None:
    torch.manual_seed(0)
    p, q = (Bernoulli(logits=torch.randn(5, 4).double() * 2) for _ in range(2))
    middle = Bernoulli((p.probs + q.probs) / 2)
    expected = {
        "kl": kl_divergence(p, q),
        "symmetric-kl": kl_divergence(p, q) + kl_divergence(q, p),
        "js": (kl_divergence(p, middle) + kl_divergence(q, middle)) / 2,
    }[kind].mean(1)
    torch.testing.assert_close(
        label_divergence(p.logits, q.logits, kind).double(), expected, rtol=1e-5, atol=0
    )


def test_thresholds_have_the_best_f1_and_lie_between_probabilities() -> None:
    random = np.random.default_rng(0)
    logits, right = random.normal(size=(40, 3)), random.integers(0, 2, size=(40, 3))
    right[:, 2] = 0
    logits[:, 0] += right[:, 0]
    found = fit_thresholds(["a", "b", "c"], logits, right)
    shares = 1 / (1 + np.exp(-logits))
    assert found["c"] == 0.5
    for k, name in enumerate("ab"):
        scores = [f1_score(right[:, k], shares[:, k] >= share) for share in shares[:, k]]
        assert f1_score(right[:, k], shares[:, k] >= found[name]) == pytest.approx(max(scores))
        assert found[name] not in shares[:, k]


# ---- answers, attacks and export


def test_predict_by_columns_a_separator_and_the_prepared_split(
    trained: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All give the same answers and scores, which are scikit-learn's."""
    predict, table = CommandMain("predict", capsys), rows(12, 12)
    cells = write_table(tmp_path / "cells.csv", table, ";")
    end = ["--cpu", "--out", tmp_path / "out", "--json"]
    ways = [
        ["--input", trained / "test.csv", "--text", "comment", *end, "--label", *LABELS, checkpoint],
        [
            checkpoint,
            "--input",
            cells,
            "--text",
            "comment",
            "--label",
            "labels",
            "--label-separator",
            ";",
            *end,
        ],
        [checkpoint, "--data", trained / "data", *end],
    ]
    found = []
    for words in ways:
        done = predict(*words)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
        lines = Path(found[-1].pop("file")).read_text().splitlines()
        found[-1]["answers"] = [line.split("\t")[1] for line in lines[1:]]
        assert lines[0] == "index\tprediction\ttoxic\tinsult"
    assert found[0] == found[1] == found[2]
    model = load(checkpoint, device="cpu")
    scores = model.scores([text for text, _ in table])
    assert scores is not None
    answers, right = (scores.raw >= 0).astype(int), np.array([held for _, held in table])
    names = ["|".join(sorted(n for n, one in zip(LABELS, row) if one)) or "-" for row in answers]
    assert found[0]["answers"] == names
    assert found[0]["accuracy"] == pytest.approx(100 * accuracy_score(right, answers))
    assert found[0]["micro_f1"] == pytest.approx(100 * f1_score(right, answers, average="micro"))
    assert found[0]["map"] == pytest.approx(100 * average_precision_score(right, scores.raw))
    one = model.predict([table[0][0]])[0]
    assert one.labels == tuple(n for n, held in zip(LABELS, answers[0]) if held)
    assert list(one.probabilities.values()) == pytest.approx(list(1 / (1 + np.exp(-scores.raw[0]))))
    both = load([checkpoint, checkpoint], device="cpu").predict([table[0][0]])
    assert both[0].label == one.label
    refused = predict(checkpoint, "--input", cells, "--text", "comment", "--label", *LABELS, "--cpu")
    assert refused.returncode == 2 and "no column" in refused.stderr
    words = ["--text", "comment", "--label", "Insult", "--cpu"]
    for one in (
        predict(checkpoint, "--input", trained / "test.csv", *words),
        CommandMain("attack", capsys)(
            *(checkpoint, "--attack", "deepwordbug", "--data", trained / "test.csv", *words),
            *("--out", tmp_path / "attacked"),
        ),
    ):
        assert one.returncode == 2 and "--label: no column for toxic, which the model" in one.stderr


def test_thresholds_by_dev_change_answers_of_predict_attack_and_export(
    trained: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = CommandMain("validate", capsys)(checkpoint, "--cpu", "--calibrate")
    assert done.returncode == 0 and f"wrote {thresholds_file(checkpoint)}, which" in done.stdout, done.stderr
    assert json.loads(thresholds_file(checkpoint).read_text()).keys() >= {"thresholds", "split", "rows"}
    texts = [text for text, _ in rows(12, 12)]
    plain = evaluate(str(checkpoint), None, "test", cpu=True)
    # So that each text has the first label, and none the second.
    own = {"toxic": 1e-6, "insult": 1 - 1e-6}
    save_thresholds(checkpoint, own, {})
    assert {one.label for one in load(checkpoint, device="cpu").predict(texts)} == {"toxic"}
    how = Attack(epsilon=1e-3, step_size=1e-3, steps=1)
    right = [held == [1, 0] for _, held in rows(12, 12)]
    assert attack_checkpoint(str(checkpoint), how, split="test", cpu=True)["accuracy"] == pytest.approx(
        100 * np.mean(right)
    )
    export_checkpoint(checkpoint, tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())[THRESHOLDS] == own
    assert {one.label for one in load(tmp_path / "hf", device="cpu").predict(texts)} == {"toxic"}
    assert "toxic 0.000, insult 1.000" in (tmp_path / "hf" / "README.md").read_text()
    export_checkpoint(checkpoint, tmp_path / "renamed", labels="giftig\u00a0sehr,Beleidigung")
    assert {one.label for one in load(tmp_path / "renamed", device="cpu").predict(texts)} == {
        "giftig\u00a0sehr"
    }
    scored = evaluate(str(checkpoint), None, "test", cpu=True)
    assert scored.scores == plain.scores, "of training's validation, at .5"
    assert scored.label_report().values()["labels"]["toxic"]["recall"] == 100.0  # type: ignore[union-attr]
    for verb, is_said in (("validate", True), ("predict", False)):
        out = ["--out", tmp_path / "out", "--data", trained / "data"] if verb == "predict" else []
        done = CommandMain(verb, capsys)(checkpoint, "--cpu", "--split", "test", *out)
        assert "at the thresholds toxic 0.000, insult 1.000\n" in done.stdout, done.stderr
        assert ("the scores above this table are at 0.5" in done.stdout) is is_said
    save_thresholds(checkpoint, dict.fromkeys(map("label {}".format, range(9000)), 0.5), {})
    assert len(read_thresholds(checkpoint)) == 9000
    thresholds_file(checkpoint).write_text('{"thresholds": {"toxic": 2}, "checkpoint": ""}')
    with pytest.raises(DataError, match=r"thresholds.json.*numbers between 0 and 1"):
        load(checkpoint, device="cpu")


def test_attacks_count_a_row_as_right_if_all_labels_are(
    trained: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = load(checkpoint, device="cpu").scores([text for text, _ in rows(12, 12)])
    assert raw is not None
    right = ((raw.raw >= 0) == np.array([held for _, held in rows(12, 12)])).all(1)
    attack = CommandMain("attack", capsys)
    done = attack(checkpoint, "--data", trained / "data", "--split", "test", *SIZES)
    found = json.loads(done.stdout)
    assert found["accuracy"] == pytest.approx(100 * right.mean())
    assert found["perturbed_loss"] > found["loss"]
    words = ["--attack", "deepwordbug", "--data", trained / "test.csv", "--text", "comment", "--cpu"]
    done = attack(*words, "--out", tmp_path / "out", "--label", *LABELS, checkpoint)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "out" / "examples.jsonl").open(encoding="utf-8")]
    assert [one["why"] != "the model was wrong before" for one in records] == right.tolist()
    before = [one["before"] for one, good in zip(records, right) if good]
    signs = np.where([held for _, held in rows(12, 12)], 1, -1)
    least = (1 / (1 + np.exp(-signs * raw.raw))).min(1)
    assert before == pytest.approx([float(one) for one, good in zip(least, right) if good], abs=1e-5)
    refused = attack(checkpoint, "--loss", "margin", *SIZES)
    assert refused.returncode == 2 and "has no classes" in refused.stderr


def test_transformers_own_model_has_the_same_logits(checkpoint: Path, tmp_path: Path) -> None:
    export_checkpoint(checkpoint, tmp_path / "hf")
    texts = [text for text, _ in rows(12, 12)]
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path / "hf"), top_k=None)
    assert type(pipeline.model).__name__ == "BertForSequenceClassification"
    assert pipeline.model.config.problem_type == "multi_label_classification"
    model = load(checkpoint, device="cpu")
    ours = model.scores(texts)
    assert ours is not None
    inputs = pipeline.tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        theirs = pipeline.model(**inputs).logits
    torch.testing.assert_close(torch.from_numpy(ours.raw), theirs, rtol=0, atol=1e-5)
    for one, answer in zip(model.predict(texts), pipeline(texts)):
        assert one.probabilities == pytest.approx({part["label"]: part["score"] for part in answer}, abs=1e-5)
