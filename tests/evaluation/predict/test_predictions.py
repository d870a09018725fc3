"""Checkpoints to prediction files, with real tiny models; expected answers come from one row at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils
from support import write_json_lines, write_questions, write_task, write_wsc, wsc_line
from tiny import kept, qnli, rename_labels, save, tsv, with_test_splits

from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.ensemble import ScoredRows, Scores
from fairseq_adv.evaluation.predict.predict import Predicted, Request, _check_kind, predict
from fairseq_adv.evaluation.trained import Trained

CPU = InferenceConfig(cpu=True)
HEAD = "sentence_classification_head"


@pytest.fixture(scope="module")
def rte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the labels of RTE, and two checkpoints beside it."""
    folder = tmp_path_factory.mktemp("rte")
    data = rename_labels(
        with_test_splits(write_task(folder / "data"), test=9), "entailment", "not_entailment"
    )
    save(data, folder / "a.pt")
    save(data, folder / "b.pt", "--seed", "8")
    return folder


@pytest.fixture(scope="module")
def cqa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cqa")
    data = write_questions(folder / "data")
    save(data, folder / "a.pt", task="commonsense_qa")
    save(data, folder / "b.pt", "--seed", "8", task="commonsense_qa")
    return folder


def run(task: str, out: Path, *checkpoints: Path, **more: Any) -> Predicted:
    return predict(Request(task, out, list(checkpoints), **{"running": CPU, **more}))


def model_of(path: Path) -> torch.nn.Module:
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    model: torch.nn.Module = models[0].eval()
    return model


def one_by_one(path: Path, rows: list[list[int]]) -> np.ndarray:
    """The head's outputs for each row by itself."""
    model = model_of(path)
    with torch.no_grad():
        found = [
            model(torch.tensor([row]), features_only=True, classification_head_name=HEAD)[0][0]
            for row in rows
        ]
    return torch.stack(found).double().numpy()


def sentences(data: Path, split: str) -> list[list[int]]:
    dictionary = Dictionary.load(str(data / "input0" / "dict.txt"))
    rows = data_utils.load_indexed_dataset(str(data / "input0" / split), dictionary)
    return [[0, *rows[i].tolist()] for i in range(len(rows))]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_classes_stand_in_the_order_of_the_rows(rte: Path, tmp_path: Path) -> None:
    result = run("rte", tmp_path, rte / "a.pt", data=rte / "data")
    logits = one_by_one(rte / "a.pt", sentences(rte / "data", "test"))
    expected = [("entailment", "not_entailment")[k] for k in logits.argmax(axis=1)]
    assert len(set(expected)) == 2
    assert tsv(tmp_path / "RTE.tsv") == expected
    assert (result.file, result.rows, result.members) == (tmp_path / "RTE.tsv", 9, 1)
    assert result.measured == {}
    assert np.allclose(kept(tmp_path)[0].log_probs, log_softmax(logits), atol=1e-5)


def test_an_ensemble_is_the_mean_of_log_probabilities(rte: Path, tmp_path: Path) -> None:
    result = run("RTE", tmp_path, rte / "a.pt", rte / "b.pt", data=rte / "data")
    rows = sentences(rte / "data", "test")
    members = [log_softmax(one_by_one(rte / name, rows)) for name in ("a.pt", "b.pt")]
    expected = [("entailment", "not_entailment")[k] for k in (members[0] + members[1]).argmax(axis=1)]
    assert result.members == 2 and tsv(result.file) == expected
    alone = [[("entailment", "not_entailment")[k] for k in member.argmax(axis=1)] for member in members]
    assert expected != alone[0] or expected != alone[1]


def test_scores_of_earlier_runs_join_in_without_a_model_or_data(rte: Path, tmp_path: Path) -> None:
    run("RTE", tmp_path / "both", rte / "a.pt", rte / "b.pt", data=rte / "data")
    run("RTE", tmp_path / "a", rte / "a.pt", data=rte / "data")
    run("RTE", tmp_path / "b", rte / "b.pt", data=rte / "data")
    files = [next((tmp_path / name / "scores").iterdir()) for name in ("a", "b")]
    result = run("RTE", tmp_path / "c", scores=files)
    assert result.members == 2
    assert tsv(tmp_path / "c" / "RTE.tsv") == tsv(tmp_path / "both" / "RTE.tsv")
    run("RTE", tmp_path / "d", rte / "a.pt", data=rte / "data", scores=files[1:])
    assert tsv(tmp_path / "d" / "RTE.tsv") == tsv(tmp_path / "both" / "RTE.tsv")
    with pytest.raises(DataError, match="is the same model as"):
        run("RTE", tmp_path / "e", rte / "a.pt", data=rte / "data", scores=files)
    with pytest.raises(DataError, match="has scores for RTE, split test, but RTE, split valid"):
        run("RTE", tmp_path / "f", scores=files, split="valid")


def test_a_checkpoint_with_scores_is_not_run_again(
    rte: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("RTE", tmp_path / "fresh", rte / "a.pt", rte / "b.pt", data=rte / "data")
    ran: list[str] = []
    really = ScoredRows.decode

    def stopped(rows: ScoredRows, trained: Trained, progress: bool) -> Scores:
        ran.append(trained.path.name)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return really(rows, trained, progress)

    monkeypatch.setattr(ScoredRows, "decode", stopped)
    with pytest.raises(KeyboardInterrupt):
        run("RTE", tmp_path / "out", rte / "a.pt", rte / "b.pt", data=rte / "data")
    assert not (tmp_path / "out" / "RTE.tsv").exists()
    run("RTE", tmp_path / "out", rte / "a.pt", rte / "b.pt", data=rte / "data")
    assert ran == ["a.pt", "b.pt", "b.pt"]
    assert tsv(tmp_path / "out" / "RTE.tsv") == tsv(tmp_path / "fresh" / "RTE.tsv")


def test_other_data_under_the_same_name_is_run_again(rte: Path, tmp_path: Path) -> None:
    data = shutil.copytree(rte / "data", tmp_path / "data")
    run("RTE", tmp_path / "out", rte / "a.pt", data=data)
    before = kept(tmp_path / "out")[0].log_probs
    for ending in ("bin", "idx"):
        shutil.copy(data / "input0" / f"valid.{ending}", data / "input0" / f"test.{ending}")
    assert run("RTE", tmp_path / "out", rte / "a.pt", data=data).rows == 8
    assert kept(tmp_path / "out")[0].log_probs.shape != before.shape


def test_mismatched_mnli_is_the_second_split_and_ax_its_own(tmp_path: Path) -> None:
    names = "contradiction", "neutral", "entailment"
    data = with_test_splits(write_task(tmp_path / "MNLI", classes=3), test=5, test1=7)
    rename_labels(data, *names)
    path = save(data, tmp_path / "mnli.pt", classes=3)
    matched = run("MNLI-m", tmp_path / "out", path, data=data)
    mismatched = run("mnli-mm", tmp_path / "out", path, data=data)
    assert (matched.file.name, matched.rows) == ("MNLI-m.tsv", 5)
    assert (mismatched.file.name, mismatched.rows) == ("MNLI-mm.tsv", 7)
    expected = one_by_one(path, sentences(data, "test1")).argmax(axis=1)
    assert tsv(mismatched.file) == [names[k] for k in expected]
    ax = shutil.copytree(data, tmp_path / "AX")
    shutil.rmtree(ax / "label")
    (ax / "label").mkdir()
    shutil.copy(data / "label" / "dict.txt", ax / "label" / "dict.txt")
    assert run("AX", tmp_path / "out", path, data=ax).file.name == "AX.tsv"
    answers = tsv(tmp_path / "out" / "AX.tsv")
    rename_labels(ax, "entailment", "neutral", "contradiction")  # in another order
    assert tsv(run("AX", tmp_path / "out", path, data=ax).file) == answers
    rename_labels(ax, "yes", "no", "perhaps")
    with pytest.raises(DataError, match="predicts yes, no, perhaps, but AX has contradiction"):
        run("AX", tmp_path / "out", path, data=ax)


def test_similarity_is_written_on_its_own_scale(tmp_path: Path) -> None:
    data = write_task(tmp_path / "STS-B", classes=1)
    path = save(data, tmp_path / "a.pt", classes=1)
    # Values inside and outside of the scale.
    state = torch.load(path, weights_only=False)
    head = f"classification_heads.{HEAD}.out_proj"
    values = one_by_one(path, sentences(data, "valid"))[:, 0]
    share = 1 / (2 * float(values.std()))
    state["model"][f"{head}.weight"] *= share
    bias = state["model"][f"{head}.bias"]
    bias.copy_(share * (bias - float(np.median(values))) + 0.5)
    torch.save(state, path)
    result = run("STS-B", tmp_path / "out", path, data=data, split="valid")
    values = one_by_one(path, sentences(data, "valid"))[:, 0]
    answers = [float(answer) for answer in tsv(result.file)]
    assert np.allclose(answers, np.clip(values * 5, 0, 5), atol=6e-4)
    assert sum(0 < answer < 5 for answer in answers) > 2 and {0.0, 5.0} & set(answers)
    assert all(len(answer.split(".")[1]) == 3 for answer in tsv(result.file))
    gold = [float(line) for line in (data / "label" / "valid.label").read_text().split()]
    assert result.measured["pearson"] == pytest.approx(100 * np.corrcoef(values, gold)[0, 1], abs=1e-3)
    with pytest.raises(DataError, match="the model predicts numbers, but RTE has"):
        run("RTE", tmp_path / "out", path, data=data, split="valid")


def candidates(data: Path, stem: str, choice: str) -> list[int]:
    tokenizer = tokenizer_for_encoder(data)
    question, answer = (tokenizer.encode([text])[0].tolist() for text in (f"Q: {stem}", f"A: {choice}"))
    return [0, *question, *answer]


def ranked(path: Path, data: Path, split: str) -> list[np.ndarray]:
    questions = read_questions(data / f"{split}.jsonl")
    return [one_by_one(path, [candidates(data, q.stem, c.text) for c in q.choices])[:, 0] for q in questions]


def test_questions_get_the_label_of_their_best_choice(cqa: Path, tmp_path: Path) -> None:
    split = "valid"
    result = run("commonsense_qa", tmp_path, cqa / "a.pt", data=cqa / "data", split=split)
    questions = read_questions(cqa / "data" / f"{split}.jsonl")
    best = [int(scores.argmax()) for scores in ranked(cqa / "a.pt", cqa / "data", split)]
    expected = [f"{q.id},{q.choices[k].label}" for q, k in zip(questions, best)]
    assert result.file.read_text() == "".join(line + "\n" for line in expected)
    assert result.file.name == "predictions-valid.csv"
    right = [q.answer == k for q, k in zip(questions, best)]
    assert result.measured == {"accuracy": 100 * sum(right) / len(right)}


def test_arc_with_documents_and_labels_of_its_own(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "data", para=True)
    rows = [json.loads(line) for line in (data / "test.jsonl").read_text().splitlines()]
    for number, choice in enumerate(rows[1]["question"]["choices"], start=1):
        choice["label"] = str(number)
    rows[0]["id"] = 'Mercury, "7"'
    write_json_lines(data / "test.jsonl", rows)
    path = save(data, tmp_path / "arc.pt", task="arc_retrieval")
    lines = run("arc", tmp_path / "out", path, data=data).file.read_text().splitlines()
    assert lines[0].startswith('"Mercury, ""7""",') and lines[0][-1] in "ABC"
    assert lines[1].split(",")[1] in "12345"
    # Trained on several data sets, it answers one.
    other = shutil.copytree(data, tmp_path / "other")
    both = f"{data}:{other}"
    two = save(Path(both), tmp_path / "two.pt", "--sampling-weights", "1:2", task="arc_retrieval")
    assert run("arc", tmp_path / "two", two, data=data).rows == 5
    with pytest.raises(DataError, match=r"the id .* is also at"):
        run("arc", tmp_path / "two", two, data=Path(both))


@pytest.mark.parametrize("part", ["id", "label"])
@pytest.mark.parametrize("name", ["a\tb", "a\u2028b", 1001 * "a"], ids=["tab", "line", "long"])
def test_a_name_that_no_answer_can_have_is_told_before_the_model_runs(
    cqa: Path, tmp_path: Path, part: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shutil.copytree(cqa / "data", tmp_path / "data")
    rows = [json.loads(line) for line in (data / "test.jsonl").read_text().splitlines()]
    (rows[1] if part == "id" else rows[1]["question"]["choices"][2])[part] = name
    write_json_lines(data / "test.jsonl", rows)
    monkeypatch.setattr(ScoredRows, "decode", lambda *args: pytest.fail("it ran"))
    with pytest.raises(DataError, match=r"test.jsonl:2: 'a.+ can't be an id or the name of a choice"):
        run("commonsense_qa", tmp_path, cqa / "a.pt", data=data)


def test_winograd_schemas(tmp_path: Path) -> None:
    data = write_wsc(tmp_path / "WSC")
    path = save(data, tmp_path / "wsc.pt", task="wsc")
    result = run("wsc", tmp_path / "out", path, data=data, split="valid")
    assert result.file.name == "WSC-valid.jsonl"
    rows = [json.loads(line) for line in result.file.read_text().splitlines()]
    scores = kept(tmp_path / "out")[0]
    expected = [str(bool((row[0] >= row[1:]).all())) for row in scores.log_probs]
    assert rows == [{"idx": i, "label": answer} for i, answer in enumerate(expected)]
    gold = [json.loads(line)["label"] for line in (data / "valid.jsonl").read_text().splitlines()]
    right = [str(g) == answer for g, answer in zip(gold, expected)]
    assert result.measured == {"accuracy": 100 * sum(right) / len(right)}
    assert run("wsc", tmp_path / "out", path, data=data).file.name == "WSC.jsonl"


def test_wnli_through_winograd_schemas(tmp_path: Path) -> None:
    data = write_wsc(tmp_path / "WSC")
    rng = np.random.default_rng(1)
    lines = []
    for number in range(6):
        line = wsc_line(rng, number, None)
        line["text"] = f"w{number} w10 w{number + 20} w11 he w12 w{30 + number}"
        line["target"] = {"span1_text": f"w{number}", "span2_text": "he", "span2_index": 4}
        lines.append(line)
    write_json_lines(data / "test.jsonl", lines)
    path = save(data, tmp_path / "wsc.pt", task="wsc")
    answers = run("wsc", tmp_path / "out", path, data=data).file.read_text().splitlines()
    expected = {i: str(int(json.loads(answer)["label"] == "True")) for i, answer in enumerate(answers)}
    assert len(set(expected.values())) == 2
    # WNLI has the rows in another order.
    order = [4, 0, 5, 1, 3, 2]
    rows = [f"{k}\t{lines[i]['text']}\tw{i} w12 w{30 + i}" for k, i in enumerate(order)]
    wnli = tmp_path / "test.tsv"
    wnli.write_text("".join(f"{row}\n" for row in ["index\tsentence1\tsentence2", *rows]))
    result = run("WNLI", tmp_path / "out", path, data=data, wnli=wnli)
    assert tsv(tmp_path / "out" / "WNLI.tsv") == [expected[i] for i in order]
    assert result.rows == 6 and result.measured == {}
    labelled = [f"{row}\t1" for row in rows * 2]  # rows can be more than the sentences
    wnli.write_text("".join(f"{row}\n" for row in ["index\tsentence1\tsentence2\tlabel", *labelled]))
    measured = run("WNLI", tmp_path / "out", path, data=data, wnli=wnli).measured
    assert measured == {"accuracy": pytest.approx(100 * list(expected.values()).count("1") / 6)}
    with pytest.raises(DataError, match="pass --wnli-test"):
        run("WNLI", tmp_path / "out", path, data=data)
    # Scores of these sentences do not answer others that have the same numbers.
    kept = next((tmp_path / "out" / "scores").glob("WNLI-*.npz"))
    again = run("WNLI", tmp_path / "again", data=data, wnli=wnli, scores=[kept]).measured
    assert again == measured
    renumbered = [{**line, "idx": number} for number, line in enumerate(reversed(lines))]
    write_json_lines(data / "test.jsonl", renumbered)
    with pytest.raises(DataError, match=r"test.jsonl:1: no scores for it \(idx 0\)"):
        run("WNLI", tmp_path / "again", data=data, wnli=wnli, scores=[kept])


def test_qnli_through_ranking(tmp_path: Path) -> None:
    data = qnli(tmp_path / "QNLI", [["3", "0"], ["dev-5", "1"], ["4", "2"], ["5"]])
    path = save(data, tmp_path / "qnli.pt", task="qnli_ranking")
    result = run("QNLI", tmp_path / "out", path, data=data)
    scores = ranked(path, data, "test")
    winners = [row.max() for row in scores[:3]]
    middle = (np.mean(winners) + np.mean([row.min() for row in scores[:3]])) / 2
    entailed = {
        3: scores[0][0] > scores[0][1],
        0: scores[0][0] < scores[0][1],
        1: scores[1][1] > scores[1][0],
        4: scores[2][0] > scores[2][1],
        2: scores[2][0] < scores[2][1],
        5: scores[3][0] > middle,
    }
    expected = ["entailment" if entailed[i] else "not_entailment" for i in range(6)]
    assert tsv(tmp_path / "out" / "QNLI.tsv") == expected
    assert result.notes == ["1 rows without a partner were answered by the midpoint of the scores"]
    gold = tmp_path / "dev.tsv"
    rows = [f"{i}\tq\ts\tentailment" for i in range(6)]
    gold.write_text("".join(f"{row}\n" for row in ["index\tquestion\tsentence\tlabel", *rows]))
    with pytest.raises(DataError, match="--gold has dev's labels: pass --split test-dev"):
        run("QNLI", tmp_path / "out", path, data=data, gold=gold)
    (data / "test-dev.jsonl").write_bytes((data / "test.jsonl").read_bytes())
    dev = {"data": data, "gold": gold, "split": "test-dev"}
    measured = run("QNLI", tmp_path / "out", path, **dev).measured
    assert measured == {"accuracy": pytest.approx(100 * expected.count("entailment") / 6)}
    gold.write_text("index\tquestion\tsentence\tlabel\n0\tq\ts\tentailment\n")
    with pytest.raises(DataError, match="has 1 rows, but 6 were predicted"):
        run("QNLI", tmp_path / "out", path, **dev)
    with pytest.raises(DataError, match="are not for models that classify texts"):
        _check_kind("classes", Request("QNLI", tmp_path, [path], **dev))
    # The same checkpoint answers the questions by their labels.
    lines = run("qnli_ranking", tmp_path / "out", path, data=data).file.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == [f"test-{i}" for i in range(4)]


def test_a_stock_criterion(rte: Path, tmp_path: Path) -> None:
    from support import build, train_args

    stock = build(train_args(rte / "data", tmp_path / "unused", "sentence_prediction"))
    stock.trainer.consolidate_optimizer()
    stock.trainer.save_checkpoint(str(tmp_path / "stock.pt"), {"train_iterator": {"epoch": 1}})
    assert run("RTE", tmp_path, tmp_path / "stock.pt", data=rte / "data").rows == 9


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"task": "SNLI", "checkpoints": "A", "data": "DATA"}, "--task SNLI: no such task. Choose"),
        ({}, "no model: pass checkpoints, or score files with --scores"),
        ({"checkpoints": "A"}, "--data is missing"),
        ({"checkpoints": "CQA", "data": "DATA"}, "was trained with --task commonsense_qa, but RTE needs"),
        ({"task": "CoLA", "checkpoints": "A", "data": "DATA"}, "entailment, not_entailment, but CoLA"),
        ({"checkpoints": "A", "data": "DATA", "split": "test1"}, "no split 'test1' (input0/test1.idx)"),
        ({"checkpoints": "A", "data": "DATA", "running": InferenceConfig(cpu=True, max_tokens=5)},
         " tokens, more than --max-tokens 5. Pass"),
    ],
    ids=range(7),
)  # fmt: skip
def test_mistakes_are_told_and_nothing_is_written(
    request_: dict[str, Any], message: str, rte: Path, cqa: Path, tmp_path: Path
) -> None:
    places: dict[Any, Any] = {"A": [rte / "a.pt"], "CQA": [cqa / "a.pt"], "DATA": rte / "data"}
    given = {
        name: places[value] if value in ("A", "CQA", "DATA") else value for name, value in request_.items()
    }
    with pytest.raises(DataError) as error:
        predict(Request(**{"task": "RTE", "out": tmp_path / "out", "running": CPU, **given}))
    assert message in str(error.value) and not (tmp_path / "out").exists()


def test_weights_that_do_not_fit_the_dictionary(rte: Path, tmp_path: Path) -> None:
    data = shutil.copytree(rte / "data", tmp_path / "data")
    path = save(data, tmp_path / "a.pt")
    with open(data / "input0" / "dict.txt", "a") as file:
        file.write("another 1\n")
    with pytest.raises(DataError, match="its weights don't match the data's dictionary"):
        run("RTE", tmp_path / "out", path, data=data)


def test_scores_that_are_not_finite(rte: Path, tmp_path: Path) -> None:
    state = torch.load(rte / "a.pt", weights_only=False)
    state["model"][f"classification_heads.{HEAD}.out_proj.weight"].fill_(float("nan"))
    torch.save(state, tmp_path / "nan.pt")
    with pytest.raises(DataError, match=r"nan\.pt: row 0: the model's scores are not finite"):
        run("RTE", tmp_path / "out", tmp_path / "nan.pt", data=rte / "data")
    assert not (tmp_path / "out").exists()
