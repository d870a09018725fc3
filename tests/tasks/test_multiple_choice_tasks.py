"""Token layouts of the multiple-choice tasks, several data sets in one, and what is refused before
training.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support import (
    batch,
    build,
    train_args,
    word_of,
    write_encoder,
    write_json_lines,
    write_questions,
)  # fmt: skip

from fairseq_adv.data.errors import DataError
from fairseq_adv.tasks.arc_retrieval import statement

ROW = {
    "id": "one",
    "question": {
        "stem": "w1 w2?",
        "choices": [
            {"label": "A", "text": "w3", "para": "w8 w9"}, {"label": "B", "text": "w4 w5"},
            {"label": "C", "text": "w6"},
        ],
    },
    "answerKey": "B",
}  # fmt: skip


def rows_of(run: SimpleNamespace) -> list[str]:
    tokens = batch(run, [0])["net_input"]["src_tokens"]
    return [" ".join(word_of(run.task.dictionary, int(t)) for t in row if t != 1) for row in tokens]


def setup_task_of(folder: Path, *extra: str) -> Any:
    args = train_args(folder, None, "standard", *extra, task="arc_retrieval")
    parsed = options.parse_args_and_arch(options.get_training_parser(), input_args=args)
    return tasks.setup_task(convert_namespace_to_omegaconf(parsed).task)


def folder_with(tmp_path: Path, row: dict[str, object], **splits: dict[str, object]) -> Path:
    write_encoder(tmp_path)
    for split in ("train", "valid"):
        write_json_lines(tmp_path / f"{split}.jsonl", [splits.get(split, row)])
    return tmp_path


@pytest.mark.parametrize("task", ["commonsense_qa", "qnli_ranking"])
def test_layout_of_question_and_answer(tmp_path: Path, task: str) -> None:
    row = json.loads(json.dumps(ROW).replace("w8 w9", " "))
    run = build(train_args(folder_with(tmp_path, row), None, "standard", task=task))
    assert rows_of(run) == [
        "<s> q : w1 w2 ? </s> a : w3 </s>", "<s> q : w1 w2 ? </s> a : w4 w5 </s>",
        "<s> q : w1 w2 ? </s> a : w6 </s>",
    ]  # fmt: skip
    with pytest.raises(DataError, match=rf"train\.jsonl:1: has documents .* --task {task} doesn't read"):
        build(train_args(folder_with(tmp_path, ROW), None, "standard", task=task))
    sample = batch(run, [0])
    assert sample["target"].tolist() == [1] and run.task.dataset("train").examples[0].id == "one"


@pytest.mark.parametrize("extra", [[], ["--no-documents"]], ids=["documents", "no-documents"])
def test_layout_of_documents(tmp_path: Path, extra: list[str]) -> None:
    run = build(train_args(folder_with(tmp_path, ROW), None, "standard", *extra, task="arc_retrieval"))
    first = "<s> w1 w2 ? w3 </s>" if extra else "<s> w8 w9 </s> w1 w2 ? w3 </s>"
    assert rows_of(run) == [first, "<s> w1 w2 ? w4 w5 </s>", "<s> w1 w2 ? w6 </s>"]


@pytest.mark.parametrize(
    ("stem", "answer", "expected"),
    [("Why?", "so", "Why? so"), ("It is _ .", "a bird", "It is a bird ."),
     ("It is ____.", r"\1", r"It is \1."),
     ("_ and _", "x", "x and x"), ("because_.", "so", "becauseso."), ("he____to", " is ", "he is to"),
     ("What does read_file do?", "x", "What does read_file do? x"),
     ("Is max_len of a_1 _ ?", "5", "Is max_len of a_1 5 ?"),
     ("What is __init__ ?", "x", "What is __init__ ? x"),
     ("__init__ makes ____to", "a ", "__init__ makes a to"),
     ("Cu(NO_{3})_{2} + H_{2}O?", "x", "Cu(NO_{3})_{2} + H_{2}O? x")],
)  # fmt: skip
def test_an_answer_fills_the_blanks(stem: str, answer: str, expected: str) -> None:
    assert statement(stem, answer) == expected


LONG = {**ROW, "question": {**ROW["question"], "stem": " ".join(["w7"] * 30)}}  # type: ignore[dict-item]
UNKNOWN = {key: value for key, value in ROW.items() if key != "answerKey"}


@pytest.mark.parametrize(
    ("split", "row", "message"),
    [("train", LONG, "train.jsonl:1: .* more than --max-positions 24"),
     ("valid", UNKNOWN, "valid.jsonl:1: no right answer, but the valid split needs one"),
     ("train", None, r"no tokenizer found.*--tokenizer-dir")],
)  # fmt: skip
def test_data_that_cant_be_trained_on_are_refused(
    tmp_path: Path, split: str, row: dict[str, object] | None, message: str
) -> None:
    folder = folder_with(tmp_path, ROW, **({split: row} if row else {}))
    if row is None:
        (folder / "hf_vocabulary.json").unlink()
    with pytest.raises(DataError, match=message):
        build(train_args(folder, None, "standard", task="arc_retrieval"))


def test_a_question_that_doesnt_fit_is_left_out_of_training_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As fairseq leaves out a text; every question that is evaluated needs an answer."""
    write_encoder(tmp_path)
    rows = [{**LONG, "id": "long"}, ROW, {**ROW, "id": "two", "answerKey": "C"}]
    for split in ("train", "valid"):
        write_json_lines(tmp_path / f"{split}.jsonl", rows)
    task = setup_task_of(tmp_path)
    task.load_dataset("train", epoch=1)
    kept = task.dataset("train")
    assert [q.id for q in kept.examples] == ["one", "two"] and kept.targets.tolist() == [1, 2]
    assert "train.jsonl:1: " in caplog.text and "Such questions of train are left out: 1." in caplog.text
    for split in ("train", "valid"):
        with pytest.raises(DataError, match=rf"{split}\.jsonl:1: .* more than --max-positions 24"):
            task.load_dataset(split)  # to evaluate


def test_documents_are_cut_to_fit_the_model_not_refused(tmp_path: Path) -> None:
    row = json.loads(json.dumps(ROW))
    row["question"]["choices"][0]["para"] = " ".join(["w7"] * 100)
    run = build(train_args(folder_with(tmp_path, row), None, "standard", task="arc_retrieval"))
    first = rows_of(run)[0].split()
    assert len(first) == 24 and first[-5:] == ["w1", "w2", "?", "w3", "</s>"] and first[-6] == "</s>"
    short = build(train_args(tmp_path, None, "standard", "--tokens-per-sample", "9", task="arc_retrieval"))
    assert rows_of(short)[0] == "<s> w7 w7 </s> w1 w2 ? w3 </s>"


@pytest.mark.parametrize(
    ("extra", "message"),
    [(["--tokens-per-sample", "25"], "--tokens-per-sample 25: pass 4 or more, and no more than --max-p"),
     (["--sampling-weights", "1:1"], "one for each of the 1 data folders"),
     (["--sampling-weights", "x"], "--sampling-weights x"),
     (["--sampling-weights", "0.1"], "no questions are left in an epoch"),
     (["--sampling-weights", "0"], "not all 0"),
     (["--combine-val"], "--combine-valid-subsets: only binarised splits can be joined. Name those"),
     (["--tokenizer-dir", "/nowhere"], "/nowhere: no such folder")],
)  # fmt: skip
def test_options_are_checked_when_the_task_is_built(tmp_path: Path, extra: list[str], message: str) -> None:
    with pytest.raises(DataError) as error:
        build(train_args(folder_with(tmp_path, ROW), None, "standard", *extra, task="arc_retrieval"))
    assert message in str(error.value)


def test_a_data_set_is_left_out_only_where_it_lacks_the_split(tmp_path: Path) -> None:
    first, second = write_questions(tmp_path / "first"), write_questions(tmp_path / "second")

    def together(other: Path) -> SimpleNamespace:
        saving = ["--save-dir", str(tmp_path / "unused")]
        return build(train_args(Path(f"{first}:{other}"), None, "standard", *saving, task="commonsense_qa"))

    (second / "valid.jsonl").rename(second / "dev.jsonl")
    assert len(together(second).task.dataset("valid")) == 16
    (second / "dev.jsonl").rename(second / "kept.jsonl")
    assert len(together(second).task.dataset("valid")) == 8
    for name in ("dev.jsonl", "val.jsonl"):
        (second / name).write_bytes((second / "kept.jsonl").read_bytes())
    with pytest.raises(DataError, match="several files for the split"):
        together(second)
    task = setup_task_of(Path(f"{first}:{tmp_path / 'third'}"), "--save-dir", str(tmp_path / "unused"))
    with pytest.raises(DataError, match="third: no such folder"):
        task.load_dataset("valid")
    assert not task.has_sharded_data("train")  # a colon joins data sets, not shards


def test_a_checkpoint_of_several_data_sets_is_evaluated_on_one(tmp_path: Path) -> None:
    """Its sampling weights are those of training."""
    folder = folder_with(tmp_path, ROW)
    task = setup_task_of(folder, "--sampling-weights", "1:2")
    task.load_dataset("valid")
    assert len(task.dataset("valid")) == 1
    with pytest.raises(DataError, match="one for each of the 1 data folders"):
        task.load_dataset("train")
