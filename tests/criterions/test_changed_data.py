"""A checkpoint that was made with other data is refused, unless the user agrees."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from corpus_shards import pretraining_args
from fairseq import options, tasks
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support import (
    batch,
    build,
    train_args,
    write_corpus,
    write_encoder,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_swag, write_tags

from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.training.data_digest import differences, digests_of

Change = Callable[[Path], object]


def digests(data: Path | str, task: str) -> dict[str, Any]:
    """What a run's checkpoint keeps."""
    classes, task = (1, "sentence_prediction") if task == "regression" else (2, task)
    words = train_args(Path(data), Path("unused"), "standard", task=task, classes=classes)
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=words))
    return digests_of(tasks.setup_task(cfg.task), cfg.dataset)


# ---- data


def regression(folder: Path) -> Path:
    return write_task(folder, classes=1)


def prepared(folder: Path, rows: int = 8) -> Path:
    """By this project: with a manifest."""
    encoder = write_encoder(folder.parent / "encoder")
    table = [(f"a.csv:{k}", {"text": f"w{k} w{k + 1}", "label": "ab"[k % 2]}) for k in range(rows)]
    tokenizer = tokenizer_for_encoder(encoder)
    splits = [read_texts(name, table, Columns(("text",), "label")) for name in ("train", "valid")]
    prepare_classification(splits, folder, PrepareConfig(tokenizer, progress=False, overwrite=True))
    return folder


def swag(folder: Path) -> Path:
    return write_swag(write_encoder(folder))


def race(folder: Path) -> Path:
    write_encoder(folder)
    for split in ("train", "dev"):
        (folder / split / "middle").mkdir(parents=True)
        article = {"article": "w1 w2", "questions": ["w3 ?"], "options": [["w4", "w5"]], "answers": ["A"]}
        (folder / split / "middle" / "1.txt").write_text(json.dumps(article))
    return folder


# ---- changes


def rows(name: str) -> Change:
    """The last row is another one of the same length."""

    def change(data: Path) -> None:
        ids = [row.tolist() for row in MMapIndexedDataset(str(data / name))]
        ids[-1][0] += 1 if ids[-1][0] == 4 else -1
        flat = np.array([one for row in ids for one in row], dtype=np.int64)
        write_indexed(data / name, [(flat, np.array([len(row) for row in ids]))], 50)

    return change


def swapped(name: str, one: int = 0, other: int = 1) -> Change:
    """Two lines of a file."""

    def change(data: Path) -> None:
        lines = (data / name).read_text().splitlines(keepends=True)
        lines[one], lines[other] = lines[other], lines[one]
        (data / name).write_text("".join(lines))

    return change


def replaced(name: str, old: str, new: str) -> Change:
    def change(data: Path) -> None:
        text = (data / name).read_text()
        assert old in text
        (data / name).write_text(text.replace(old, new, 1))

    return change


def more(name: str, text: str = "\n") -> Change:
    def change(data: Path) -> None:
        with open(data / name, "a") as file:
            file.write(text)

    return change


def without_manifest(data: Path) -> None:
    (data / "manifest.json").unlink()


TRAIN, VALID = "data: {} has other rows in train", "data: {} has other rows in valid"
WORDS, CLASSES = "tokenizer: has other words or options", "data: the classes, or their order, have changed"
ANEW = "data: {} was prepared again, from other rows or with other options"
CASES: list[tuple[Callable[[Path], Path], str, Change, list[str]]] = [
    (write_task, "sentence_prediction", rows("input0/train"), [TRAIN]),
    (write_task, "sentence_prediction", rows("label/valid"), [VALID]),
    (write_task, "text_classification", swapped("label/dict.txt"), [CLASSES]),
    (write_task, "sentence_prediction", swapped("input0/dict.txt"), [WORDS]),
    (write_task, "sentence_prediction", lambda data: write_task(data, train=9, seed=3),
     ["data: {} has other rows in train and valid"]),
    (regression, "regression", replaced("label/train.label", "0.5", "0.6"), [TRAIN]),
    (prepared, "text_classification", lambda data: prepared(data, 7), [ANEW]),
    (prepared, "text_classification", without_manifest, ["data: {} has other files"]),
    (prepared, "text_classification", more("input0/valid.bin"), [ANEW]),  # under the old manifest
    (write_corpus, "masked_lm", rows("train"), [TRAIN]),
    (write_questions, "commonsense_qa", more("train.jsonl"), [TRAIN]),
    (write_questions, "arc_retrieval", replaced("tokenizer.json", '"w1": ', '"v1": '), [WORDS]),
    (write_wsc, "wsc", swapped("valid.jsonl"), [VALID]),
    (swag, "arc_retrieval", swapped("train.csv", 1, 2), [TRAIN]),
    (race, "arc_retrieval", replaced("train/middle/1.txt", "w1", "w9"), [TRAIN]),
    (write_tags, "tagging", swapped("train.tsv"), [TRAIN]),
    (write_spans, "span_qa", replaced("valid.json", "w1", "w2"), [VALID]),
    # The same data.
    (write_task, "sentence_prediction", lambda data: write_task(data), []),
    (prepared, "text_classification", lambda data: prepared(data), []),
    (prepared, "text_classification", more("label/notes.txt"), []),
    (write_questions, "commonsense_qa", more("test.jsonl"), []),  # is not read
    (write_tags, "tagging", lambda data: [os.utime(path, (1, 1)) for path in data.iterdir()], []),
    (write_tags, "tagging", more("train.out"), []),  # of nohup, or of an editor
    (write_tags, "tagging", more(".train.conll.swp"), []),
    (write_tags, "tagging", more("train.conll~"), []),
    (write_tags, "tagging", lambda data: write_encoder(data / "train_out" / "tokenizer"), []),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_has_changed_is_named(case: int, tmp_path: Path) -> None:
    write, task, change, expected = CASES[case]
    data = write(tmp_path / "data")
    before = json.loads(json.dumps(digests(data, task)))  # a checkpoint has plain values
    moved = shutil.copytree(data, tmp_path / "moved")
    assert differences(before, digests(moved, task), str(moved)) == []
    change(data)
    assert differences(before, digests(data, task), str(data)) == [line.format(data) for line in expected]


@pytest.mark.parametrize("place", [10 << 20, (200 << 20) - 1])
def test_of_a_large_file_samples_are_read(tmp_path: Path, place: int) -> None:
    """Sparse; with a manifest, nothing of it is."""
    data = write_questions(tmp_path / "data")
    os.truncate(data / "train.jsonl", 200 << 20)
    before = digests(data, "commonsense_qa")
    with open(data / "train.jsonl", "r+b") as file:
        file.seek(place)
        file.write(b"?")
    expected = [] if place == 10 << 20 else [TRAIN.format(data)]  # between two samples
    assert differences(before, digests(data, "commonsense_qa"), str(data)) == expected


# ---- runs


def run_of(data: Path, save: Path, *given: str) -> SimpleNamespace:
    """Its folder has the checkpoint of one update, unless there is one."""
    save.mkdir(exist_ok=True)
    return build(train_args(data, save, "standard", *given))


def saved(run: SimpleNamespace, save: Path, done: int = 1) -> None:
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    iterator = {"epoch": 1, "iterations_in_epoch": done, "version": 2, "shuffle": True}
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(save / "checkpoint_last.pt"), {"train_iterator": iterator, "best": 0.5})


def load(run: SimpleNamespace, save: Path) -> dict[str, Any]:
    found: dict[str, Any] = run.trainer.load_checkpoint(str(save / "checkpoint_last.pt"))
    return found


def test_other_data_are_refused_or_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the user's consent, once."""
    data, save = write_task(tmp_path / "data"), tmp_path / "save"
    saved(run_of(data, save), save)
    load(run_of(data, save), save)
    write_task(data, train=9, seed=3)
    write_encoder(save / "tokenizer")
    told = f"data: {data} has other rows in train and valid"
    with pytest.raises(DataError) as caught:
        load(run_of(data, save), save)
    assert str(caught.value) == (
        f"{save}/checkpoint_last.pt was made with other data, and this run would resume from it ({told}). "
        "Pass another --save-dir (checkpoint.save_dir; in a sweep one per job), or --allow-changed-options "
        "(criterion.allow_changed_options=true) to go on with the new data, which the checkpoint will record"
    )
    with pytest.raises(DataError, match=r"was made with other options and data, .*\(--seed: 7 -> 8; data: "):
        load(run_of(data, save, "--seed", "8"), save)
    assert (save / "tokenizer").is_dir()
    with caplog.at_level(logging.WARNING):
        run = run_of(data, save, "--allow-changed-options")
        extra = load(run, save)
    assert not (save / "tokenizer").exists()
    assert f"{save}/checkpoint_last.pt: resumes after update 1 with {told}" in caplog.text
    assert "best" not in extra and extra["train_iterator"]["version"] == 1
    saved(run, save)
    again = run_of(data, save)
    load(again, save)
    assert again.trainer.get_num_updates() == 2
    assert again.trainer.extra_state()["changed_options"] == [{"update": 1, "changes": [told]}]


def test_data_that_change_while_a_run_reads_them_are_not_taken_for_its_own(tmp_path: Path) -> None:
    data, save = write_corpus(tmp_path / "data"), tmp_path / "save"
    run = build(pretraining_args(data, save, "standard"))
    other = write_corpus(tmp_path / "other", seed=1)
    for path in other.iterdir():
        os.replace(path, data / path.name)
    save.mkdir()
    saved(run, save)
    with pytest.raises(DataError, match="other rows in train and valid"):
        load(build(pretraining_args(data, save, "standard")), save)


def test_a_checkpoint_that_does_not_tell_its_data_needs_consent(tmp_path: Path) -> None:
    data, save = write_task(tmp_path / "data"), tmp_path / "save"
    saved(run_of(data, save), save)
    state = torch.load(save / "checkpoint_last.pt")
    del state["extra_state"]["data"]
    torch.save(state, save / "checkpoint_last.pt")
    with pytest.raises(DataError, match=r"made with other data, .*\(contents of the data: not known, since"):
        load(run_of(data, save), save)
    run = run_of(data, save, "--allow-changed-options")
    extra = load(run, save)
    assert run.trainer.get_num_updates() == 1
    assert extra["best"] == 0.5  # what isn't known needn't be another
