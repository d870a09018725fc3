"""AdvGLUE, HANS and ANLI: files in the layouts of their authors, and the scores of their evaluators."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import glue_samples
import pytest
from sklearn import metrics
from support import CommandMain
from tiny import glue_model, rename_labels

from fairseq_adv import load
from fairseq_adv.data.classes.evaluation_sets import EVALUATION_SETS, EvaluationRows
from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.set_scores import answer_set, set_scores

SETS = {one.name: one for one in EVALUATION_SETS}
NLI = ("entailment", "neutral", "contradiction")
HEURISTICS = {
    "lexical_overlap": ("le_passive", "ln_preposition"),
    "subsequence": ("se_conjunction", "sn_NP/S"),
    "constituent": ("ce_adverb", "cn_disjunction"),
}
ROWS = glue_samples.pairs(36, 7)
ANLI_ROW = {"uid": "u", "context": "a", "hypothesis": "b", "label": "e"}
PAIRS = [(first.replace("\t", " "), second.replace("\t", " ")) for first, second in ROWS]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mnli/a.pt, a model of pairs with GLUE's dictionary of MNLI, and sst2/a.pt, of single texts."""
    folder = tmp_path_factory.mktemp("models")
    for name, task in (("mnli", "MNLI"), ("sst2", "SST-2")):
        glue_model(folder / name, task, "--max-positions", "256", "--seed", "7")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("predict", capsys)


def hans_rows(count: int = 36) -> list[dict[str, str]]:
    """As corpus_generator.py writes them; sentences of its own have no odd characters, but these have."""
    rows = []
    for number, (first, second) in enumerate(PAIRS[:count]):
        heuristic = list(HEURISTICS)[number // 2 % 3]
        rows.append({
            "gold_label": ("entailment", "non-entailment")[number % 2],
            "sentence1_binary_parse": "( a )", "sentence2_binary_parse": "( b )",
            "sentence1_parse": "(ROOT a)", "sentence2_parse": "(ROOT b)",
            "sentence1": first, "sentence2": second, "pairID": f"ex{number}", "heuristic": heuristic,
            "subcase": HEURISTICS[heuristic][number % 2], "template": f"temp{number}",
        })  # fmt: skip
    return rows


def write_hans(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_anli(folder: Path) -> Path:
    """Rounds of different sizes, so that the mean over them isn't that over the rows."""
    for number, count in enumerate((6, 9, 14), start=1):
        for split in ("train", "dev", "test"):
            rows = [
                {"uid": f"{split}-{number}-{k}", "context": first, "hypothesis": second,
                 "label": "enc"[k % 3], "reason": "because"}
                for k, (first, second) in enumerate(PAIRS[number : number + count])
            ]  # fmt: skip
            write_lines(folder / f"R{number}" / f"{split}.jsonl", rows)
    return folder


def write_advglue(path: Path) -> Path:
    keys = {
        "sst2": ("sentence",), "qqp": ("question1", "question2"), "mnli": ("premise", "hypothesis"),
        "mnli-mm": ("premise", "hypothesis"), "qnli": ("question", "sentence"),
        "rte": ("sentence1", "sentence2"),
    }  # fmt: skip
    document = {
        task: [
            {"idx": k, **dict(zip(names, pair)), "label": k % (3 if "mnli" in task else 2)}
            for k, pair in enumerate(PAIRS[number : number + 12 + number])
        ]
        for number, (task, names) in enumerate(keys.items())
    }
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return path


def answers_of(model: Path, texts: Sequence[Any]) -> list[str]:
    return [one.label for one in load(model, device="cpu").predict(texts)]


def renamed(models: Path, out: Path, names: Mapping[str, str]) -> Path:
    """The data of the model of MNLI with other names for its classes, in the same order."""
    shutil.copytree(models / "mnli" / "data", out)
    lines = (out / "label" / "dict.txt").read_text().splitlines()
    return rename_labels(out, *(names.get(line.split()[0], line.split()[0]) for line in lines[:3]))


def accuracy(right: Sequence[str], found: Sequence[str]) -> float:
    return 100 * float(metrics.accuracy_score(right, found))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_hans(models: Path, tmp_path: Path, run: CommandMain) -> None:
    rows = hans_rows()
    file = write_hans(tmp_path / "heuristics_evaluation_set.txt", rows)
    words = [models / "mnli" / "a.pt", "--task", "hans", "--input", file, "--cpu"]
    done = run(*words, "--json", "--out", tmp_path / "out")
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
    of_model = [one.label for one in load(words[0], device="cpu").predict(pairs)]
    assert set(of_model) == {"entailment", "contradiction"}
    answers = ["entailment" if one == "entailment" else "non-entailment" for one in of_model]
    gold = [row["gold_label"] for row in rows]
    expected = {"accuracy": accuracy(gold, answers)}
    for label in ("entailment", "non-entailment"):
        for heuristic in HEURISTICS:
            at = [k for k, row in enumerate(rows) if (row["heuristic"], gold[k]) == (heuristic, label)]
            expected[f"{heuristic}, {label}"] = accuracy([label] * len(at), [answers[k] for k in at])
    for name in (row["subcase"] for row in rows):
        at = [k for k, row in enumerate(rows) if row["subcase"] == name]
        expected[name] = accuracy([gold[k] for k in at], [answers[k] for k in at])
    path = tmp_path / "out" / "predictions-HANS.tsv"
    assert list(found) == ["file", "rows", *expected, "notes"]  # in the order of the authors' evaluator
    assert (found["file"], found["rows"], found["notes"]) == (str(path), 36, [])
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    lines = table(path)
    assert [line["prediction"] for line in lines] == answers and [line["label"] for line in lines] == gold
    assert [line["pairID"] for line in lines] == [row["pairID"] for row in rows]
    shown = run(*words).stdout.splitlines()  # no answers without --out
    assert shown[0] == "HANS: 36 rows" and shown[1] == f"  accuracy: {expected['accuracy']:.2f}"


def test_anlis_rounds(models: Path, tmp_path: Path, run: CommandMain) -> None:
    folder = write_anli(tmp_path / "anli_v1.0")
    words = [models / "mnli" / "a.pt", "--task", "ANLI", "--cpu", "--json", "--out", tmp_path / "out"]
    found = json.loads(run(*words, "--input", folder).stdout)
    lines = table(tmp_path / "out" / "predictions-ANLI.tsv")
    places = [range(number, number + count) for number, count in ((1, 6), (2, 9), (3, 14))]
    of_pairs = answers_of(models / "mnli" / "a.pt", PAIRS[:17])
    gold = [[NLI[k % 3] for k in range(len(place))] for place in places]
    answers = [[of_pairs[k] for k in place] for place in places]
    expected = {f"R{n}": accuracy(*both) for n, both in enumerate(zip(gold, answers), start=1)}
    expected["mean"] = sum(expected.values()) / 3
    expected["all rounds"] = accuracy([*chain(*gold)], [*chain(*answers)])
    assert expected["mean"] != expected["all rounds"]
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert [line["prediction"] for line in lines] == [*chain(*answers)]
    assert [lines[k]["uid"] for k in (0, 6, 15)] == ["test-1-0", "test-2-0", "test-3-0"]
    # A single file, and the other split.
    found = json.loads(run(*words, "--input", folder / "R2" / "dev.jsonl", "--split", "dev").stdout)
    assert found["R2"] == pytest.approx(expected["R2"]) and found["rows"] == 9 and "mean" not in found
    assert table(tmp_path / "out" / "predictions-ANLI-R2-dev.tsv")[0]["uid"] == "dev-2-0"


def test_the_real_rounds_of_anli(shared_data: Path) -> None:
    """A model that always says the same is right as often as that label occurs."""
    folder, counts = shared_data / "nli", {}
    for name in ("R1", "R2", "R3"):
        lines = (folder / f"{name}.dev.jsonl").read_text(encoding="utf-8").splitlines()
        counts[name] = Counter(json.loads(line)["label"] for line in lines)
    rows = SETS["ANLI"].read(folder, "dev")
    assert Counter(rows.columns["round"]) == {name: sum(of.values()) for name, of in counts.items()}
    assert len(set(rows.columns["uid"])) == len(rows.texts) == 3198 and all(map(all, rows.texts))
    for label in NLI:
        found = set_scores(SETS["ANLI"], rows, [label] * 3198)
        shares = {name: 100 * of[label[0]] / sum(of.values()) for name, of in counts.items()}
        all_rows = 100 * sum(of[label[0]] for of in counts.values()) / 3198
        expected = {**shares, "mean": sum(shares.values()) / 3, "all rounds": all_rows}
        assert found == pytest.approx(expected)


def test_advglue_with_its_own_scores(models: Path, tmp_path: Path, run: CommandMain) -> None:
    file = write_advglue(tmp_path / "dev.json")
    document = json.loads(file.read_text())
    words = ["--input", file, "--cpu", "--json", "--out", tmp_path / "out"]
    found = json.loads(run(models / "mnli" / "a.pt", "--task", "AdvGLUE-MNLI", *words).stdout)
    expected = {}
    for task in ("mnli", "mnli-mm"):
        pairs = [(row["premise"], row["hypothesis"]) for row in document[task]]
        gold = [NLI[row["label"]] for row in document[task]]
        expected[task] = accuracy(gold, answers_of(models / "mnli" / "a.pt", pairs))
    expected["score"] = (expected["mnli"] + expected["mnli-mm"]) / 2
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    found = json.loads(run(models / "sst2" / "a.pt", "--task", "advglue_sst2", *words).stdout)
    lines = table(tmp_path / "out" / "predictions-AdvGLUE-SST-2.tsv")
    answers = answers_of(models / "sst2" / "a.pt", [row["sentence"] for row in document["sst2"]])
    assert [line["prediction"] for line in lines] == answers and len(set(answers)) == 2
    right = accuracy([str(row["label"]) for row in document["sst2"]], answers)
    assert found["score"] == found["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize(
    ("task", "key", "names"),
    [("QQP", "qqp", ("0", "1")), ("QNLI", "qnli", None), ("RTE", "rte", None)],
)
def test_advglues_pairs_with_two_classes(
    task: str, key: str, names: tuple[str, str] | None, tmp_path: Path
) -> None:
    names = names or ("entailment", "not_entailment")
    document = json.loads(write_advglue(tmp_path / "dev.json").read_text())
    rows = SETS[f"AdvGLUE-{task}"].read(tmp_path / "dev.json", "")
    assert rows.labels == [names[row["label"]] for row in document[key]]
    assert rows.texts == [tuple(list(row.values())[1:3]) for row in document[key]]
    answers = [names[k % 3 == 0] for k in range(len(rows.labels))]
    expected = {"accuracy": accuracy(rows.labels, answers)}
    if task == "QQP":
        expected["f1"] = 100 * float(metrics.f1_score(rows.labels, answers, pos_label="1"))
    expected["score"] = sum(expected.values()) / len(expected)
    assert set_scores(SETS[f"AdvGLUE-{task}"], rows, answers) == pytest.approx(expected)


def test_classes_are_matched_by_name(models: Path, tmp_path: Path, run: CommandMain) -> None:
    """The numbers of classes say nothing: the data's dictionary does, or --label-map."""
    file = write_anli(tmp_path) / "R3" / "test.jsonl"
    words = [models / "mnli" / "a.pt", "--task", "ANLI", "--input", file, "--out", tmp_path, "--cpu"]

    def answers(names: Mapping[str, str], *more: str) -> list[str]:
        data = renamed(models, tmp_path / "-".join(["data", *names.values()]), names)
        done = run(*words, "--data", data, *more)
        assert done.returncode == 0, done.stderr
        return [line["prediction"] for line in table(tmp_path / "predictions-ANLI-R3-test.tsv")]

    plain = answers({})
    swap = {"entailment": "contradiction", "contradiction": "entailment"}
    assert answers(swap) == plain  # in the order of the folder that the model was trained on
    assert answers({name: name.upper() for name in plain}) == plain
    numbers = {"entailment": "2", "neutral": "0", "contradiction": "1"}
    assert answers(numbers, "--label-map", *(f"{name}={number}" for name, number in numbers.items())) == plain
    assert answers({"neutral": "maybe"}, "--label-map", "neutral=maybe") == plain


@pytest.mark.parametrize(
    ("model", "task", "more", "message"),
    [
        ("mnli", "AdvGLUE-RTE", [], "AdvGLUE-RTE needs entailment, not_entailment, but the model's"),
        ("sst2", "HANS", [], "HANS needs entailment, but the model's classes are 1, 0. If"),
        ("sst2", "HANS", ["--label-map", "entailment=0"], "trained on single texts, but was given pairs"),
        ("mnli", "HANS", ["--label-map", "e=neutral"], "--label-map e=neutral: HANS has no class 'e'"),
        ("mnli", "ANLI", ["--split", "train2"], "no file of the split 'train2', such as R1/train2.jsonl"),
    ],
)
def test_refused_before_the_model_runs(
    model: str, task: str, more: list[str], message: str, models: Path, tmp_path: Path, run: CommandMain
) -> None:
    inputs = {
        "HANS": write_hans(tmp_path / "hans.txt", hans_rows()), "ANLI": write_anli(tmp_path / "anli"),
        "AdvGLUE-RTE": write_advglue(tmp_path / "dev.json"),
    }  # fmt: skip
    words = ["--task", task, "--input", inputs.get(task, tmp_path / "hans.txt"), "--out", tmp_path / "out"]
    done = run(models / model / "a.pt", *words, "--cpu", *more)
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_model_with_several_labels_a_text_is_refused() -> None:
    """Two labels, or none, are no answer of the set's."""
    model: Any = SimpleNamespace(
        takes="texts", labels=["entailment", "neutral", "contradiction"], several=True
    )
    with pytest.raises(
        DataError, match="ANLI has texts with classes, but this model gives a text several la"
    ):
        answer_set(model, SETS["ANLI"], EvaluationRows([("a", "b")], ["neutral"], {}), {})


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("HANS", "a.jsonl", [{**hans_rows(1)[0], "gold_label": "neutral"}], ":1: label 'neutral' is none"),
        ("HANS", "a.jsonl", [{**hans_rows(1)[0], "heuristic": None}], ":1: no text in column 'heuristic'"),
        ("HANS", "a.jsonl", [{"gold_label": "neutral", "sentence1": "a"}], ":1: no column 'pairID'"),
        ("ANLI", "R1.dev.jsonl", [{**ANLI_ROW, "label": "x"}], ":1: label 'x' is none of entail"),
        ("ANLI", "R1.dev.jsonl", [{**ANLI_ROW, "label": "-"}], ":1: no right answer in 'label'. Each"),
        ("ANLI", "dev.jsonl", [ANLI_ROW], ": neither file nor folder is called R1, R2 or R3"),
        ("AdvGLUE-RTE", "dev.json", {"rte": {}}, ": rte must be a JSON array, not {}"),
        ("AdvGLUE-RTE", "dev.json", {"rte": []}, ": no rows found"),
        ("AdvGLUE-RTE", "dev.json", {"rte": [{"sentence1": "a", "label": 0}]}, "rte[0]: the key sentence2"),
        ("AdvGLUE-RTE", "dev.json", {"rte": [{"sentence1": "a", "sentence2": "b", "label": 2}]},
         "rte[0]: label must be one of 0 (entailment), 1 (not_entailment), not 2"),
    ],
)  # fmt: skip
def test_odd_files(task: str, name: str, content: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if isinstance(content, list):
        write_lines(file, content)
    else:
        file.write_text(json.dumps(content))
    with pytest.raises(DataError) as told:
        SETS[task].read(file, "dev")
    assert name in str(told.value) and message in str(told.value)
