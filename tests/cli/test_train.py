"""fairseq-adv train: the command that it makes, the runs that it starts, and what it refuses."""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import iterators
from fairseq.data.data_utils import batch_by_size
from fairseq.tasks import TASK_REGISTRY
from hf_encoders import save_encoder
from omegaconf import OmegaConf
from support import (
    PLUGIN,
    build,
    fairseq_train,
    fork_command,
    run_command,
    slow,
    start_command,
    train_args,
    weights,
    write_corpus,
    write_encoder,
    write_json_lines,
    write_label_sets,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_tags
from torch.distributed import run as torchrun

import fairseq_adv.cli
from fairseq_adv.cli.check_options import checked
from fairseq_adv.cli.train import _save_tokenizer
from fairseq_adv.cli.train_command import _fill_task, count_updates, filled_in
from fairseq_adv.cli.train_folders import detect_task, task_of
from fairseq_adv.cli.train_run import launch, logged_to
from fairseq_adv.cli.train_text import next_command
from fairseq_adv.data import processes
from fairseq_adv.data.errors import DataError, FullDisk
from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.objectives.multi_label import SCORES
from fairseq_adv.tasks.choices_record import CHOICES
from fairseq_adv.tasks.commonsense_qa import CommonsenseQATask
from fairseq_adv.tasks.task_record import described_tasks

SIZES = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --max-positions 16 --activation-fn gelu\n"
)
QUICK = ["--cpu", "--num-workers", "0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", train=23)


@pytest.fixture(scope="module")
def encoder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the converter writes it, with untrained weights."""
    folder = tmp_path_factory.mktemp("encoder")
    run = build(train_args(data, None, "sentence_prediction", "--no-save-optimizer-state"))
    run.trainer.save_checkpoint(str(folder / "model.pt"), {})
    shutil.copy(data / "input0" / "dict.txt", folder)
    (folder / "model_args.txt").write_text(SIZES)
    return folder


def options_of(data: Path, encoder: Path | None, *own: str, **environment: str) -> dict[str, str]:
    found = filled_in(str(data), encoder, own, environment)
    assert found.words()[len(found.words()) - len(own) :] == [*own], "the user's words stand last"
    return {**found.filled, **found.given}


def words_of(data: object, encoder: Path | None, *own: str) -> list[str]:
    """The arguments of fairseq-train."""
    return [str(data), *filled_in(str(data), encoder, own, {}).words()]


def verb(*words: object) -> subprocess.CompletedProcess[str]:
    return fork_command("fairseq-adv", "train", *map(str, words))


# --- the command


METRIC, HIGHEST = "--best-checkpoint-metric", "--maximize-best-checkpoint-metric"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("--save-dir out", {
            "--user-dir": PLUGIN, "--task": "text_classification", "--criterion": "freelb", "--lr": "1e-4",
            "--adv-relative": "", "--num-classes": "2", "--init-token": "0", "--separator-token": "2",
            "--encoder-layers": "2", "--finetune-from-model": "ENCODER/model.pt", METRIC: "accuracy",
            "--valid-subset": "valid", "--log-file": "out/train.log", "--log-format": "json", HIGHEST: "",
            "--max-epoch": "3", "--batch-size": "16", "--total-num-update": "6", "--warmup-updates": "0",
            "--no-epoch-checkpoints": "", "--distributed-world-size": "1", "--regression-target": None,
            "--disable-validation": None,
        }),
        ("--max-epoch 50", {"--total-num-update": "100", "--warmup-updates": "6"}),
        ("--lr=0.1 --max-sentences 4 --best-checkpoint-metric loss --adv-lr 0.2 --optimizer sgd "
         "--lr-scheduler fixed --save-interval 2 --encoder-layers 1 --restore-file x.pt", {
            "--lr": "0.1", "--batch-size": "4", "--encoder-layers": "1", "--encoder-embed-dim": "16",
            HIGHEST: None, "--adv-relative": None, "--adam-eps": None, "--warmup-updates": None,
            "--no-epoch-checkpoints": None, "--finetune-from-model": None,
        }),
        ("-a roberta_base", {"--arch": "roberta_base"}),
        *((f"{METRIC} {name}", {HIGHEST: ""}) for name in ("f1", "em", *SCORES)),
        *((f"{METRIC} {name}", {HIGHEST: None}) for name in ("ppl", "mse", "mape")),
        ("--required-batch-size-multiple 8 --batch-size 12 --max-epoch 1", {"--total-num-update": "3"}),
        # Sizes are shares of the embeddings' norm, unless one is given.
        ("--criterion standard", {"--adv-relative": None, "--lr": "5e-05"}),
        ("--criterion smart", {"--vat-relative": "", "--store-ema": "", "--adv-relative": None}),
        ("--criterion smart --vat-epsilon 1e-5", {"--vat-relative": None}),
        ("--adv-max-norm 0.01", {"--adv-relative": None, "--adv-lr": None}),
        ("--adv-relative --adv-max-norm 0.01", {
            "--adv-relative": "", "--adv-max-norm": "0.01", "--adv-lr": "0.006667", "--adv-init-mag": "0.01"
        }),
        ("--adv-relative --adv-norm-type linf", {"--adv-lr": None}),
        ("--criterion noise", {"--noise-relative": "", "--noise-size": "0.104"}),
        ("--criterion r3f --r3f-epsilon 1e-5", {"--r3f-relative": None}),
        # A rate that was chosen with a small encoder may be too high for a wider one.
        ("--criterion pgd --encoder-embed-dim 768", {"--lr": "5e-05"}),
        # As many updates as the epochs of another method have, and a log at the end of a mini-batch.
        ("--criterion freeat", {"--max-update": "6", "--total-num-update": "6", "--log-interval": "21"}),
        ("--criterion freeat --max-epoch 3 --adv-start-update 2", {"--total-num-update": "14"}),
    ],
)  # fmt: skip
def test_what_is_filled_in_beside_the_users_options(
    data: Path, encoder: Path, own: str, expected: dict[str, str | None]
) -> None:
    found = options_of(data, encoder, *own.split())
    wanted = {name: value and value.replace("ENCODER", str(encoder)) for name, value in expected.items()}
    assert {name: found.get(name) for name in expected} == wanted


@pytest.mark.parametrize(
    ("cores", "own", "environment", "loaders"),
    [
        (1, "", {}, "1"), (2, "", {}, "1"), (3, "", {}, "2"), (64, "", {}, "4"),
        (32, "--distributed-world-size 8", {}, "3"), (8, "--distributed-world-size 8", {}, "1"),
        (32, "--distributed-world-size 16", {"SLURM_NNODES": "2"}, "3"),
        (12, "", {**dict.fromkeys(("MASTER_ADDR", "MASTER_PORT", "RANK"), ""), "WORLD_SIZE": "64",
                  "LOCAL_WORLD_SIZE": "4"}, "2"),
        # SLURM gives each task its cores, or all of them to all.
        *((cores, "--distributed-world-size 16", {"SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": each,
                                                  "SLURM_STEP_TASKS_PER_NODE": tasks}, "3")
          for cores, each, tasks in ((4, "4", "8(x2)"), (32, "4", "8(x2)"), (32, "32", "1(x2)"))),
        (64, "--num-workers 7", {}, "7"),
    ],
)  # fmt: skip
def test_processes_load_a_corpus_on_the_cores_that_a_gpu_has(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, own: str,
    environment: dict[str, str], loaders: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(processes, "own_cores", lambda: cores)
    corpus = write_corpus(tmp_path / "corpus")
    assert options_of(corpus, None, *SIZES.split(), *own.split(), **environment)["--num-workers"] == loaders
    others = options_of(data, encoder, *own.split(), **environment)
    assert others.get("--num-workers") == (loaders if "--num-workers" in own else None)


@pytest.mark.parametrize(
    "option", ["--reset-optimizer", "--reset-meters", "--restore-file=checkpoint_last.pt"]
)
def test_a_run_that_would_begin_with_random_weights_is_refused(
    data: Path, encoder: Path, tmp_path: Path, option: str
) -> None:
    own = ["--save-dir", str(tmp_path), option]
    with pytest.raises(ValueError, match=f"^{option[:9]}.*: there is no {tmp_path}/.* Leave the option "):
        options_of(data, encoder, *own)
    (tmp_path / "checkpoint_last.pt").touch()
    assert "--finetune-from-model" not in options_of(data, encoder, *own)


@pytest.mark.parametrize(
    ("manifest", "own", "expected"),
    [
        ({"task": "CoLA"}, [], ("2", None, "mcc")),
        ({"task": "CoLA"}, ["--criterion", "sentence_prediction"], ("2", None, "accuracy")),
        ({"regression": True}, [], ("1", "", "pearson")),
        (None, [], ("1", "", "pearson")),
    ],
)
def test_classes_and_score_are_the_datas(
    data: Path, encoder: Path, tmp_path: Path, manifest: dict[str, Any] | None, own: list[str],
    expected: object,
) -> None:  # fmt: skip
    """Numbers have no dictionary in what prepare glue writes for STS-B."""
    shutil.copytree(data, tmp_path / "bin")
    if manifest is None:
        write_task(tmp_path / "bin", classes=1)
        (tmp_path / "bin" / "label" / "dict.txt").unlink()
    else:
        (tmp_path / "bin" / "manifest.json").write_text(json.dumps({"made_from": manifest}))
    found = options_of(tmp_path / "bin", encoder, *own)
    names = ("--num-classes", "--regression-target", "--best-checkpoint-metric")
    assert tuple(found.get(name) for name in names) == expected


def test_a_second_validation_split_and_none(data: Path, encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "bin")
    for name in ("input0", "label"):
        for end in ("bin", "idx"):
            shutil.copy(tmp_path / "bin" / name / f"valid.{end}", tmp_path / "bin" / name / f"valid1.{end}")
    assert options_of(tmp_path / "bin", encoder)["--valid-subset"] == "valid,valid1"
    for combined in ("--combine-valid-subsets", "--combine-val"):  # under the name of the first
        assert options_of(tmp_path / "bin", encoder, combined)["--valid-subset"] == "valid"
    for path in (tmp_path / "bin").glob("*/valid*"):
        path.unlink()
    assert "--disable-validation" not in options_of(tmp_path / "bin", encoder, "--valid-subset", "dev")
    where = [tmp_path / "bin", "--encoder", encoder, "--save-dir", tmp_path / "out"]
    done = verb(*where, "--max-update", "1", *QUICK)
    assert done.returncode == 0 and "checkpoint_last.pt\nnext: " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("valid", ["long", "none"])
def test_a_corpus_with_a_long_line_to_validate_on_or_none(tmp_path: Path, valid: str) -> None:
    """fairseq would stop at such a line, and at a missing split, even without validation."""
    data = write_corpus(tmp_path / "bin")
    for path in data.glob("valid*"):
        path.unlink()
    if valid == "long":
        write_indexed(data / "valid", [(np.full(42, 5), np.array([12, 30]))], 50)
    own = ["--batch-size", "4", "--max-update", "1", *SIZES.split(), *QUICK, "--sample-break-mode", "eos"]
    own += ["--criterion", "standard", "--no-save", "--save-dir", str(tmp_path / "unused")]
    words = words_of(data, None, *own)
    assert ("--disable-validation" in words) == (valid == "none")
    done = fairseq_train(*words)
    assert len(read_log_of(done)) == 1
    assert (done.stdout + done.stderr).count("--num-workers 0: processes that load data, for") == 1


def test_the_task_is_that_of_the_files(tmp_path: Path) -> None:
    assert detect_task(write_corpus(tmp_path / "corpus")) == "masked_lm"
    assert detect_task(write_questions(tmp_path / "arc")) == "arc_retrieval"
    assert detect_task(write_wsc(tmp_path / "wsc")) == "wsc"
    assert detect_task(write_tags(tmp_path / "tags")) == "tagging"
    assert detect_task(write_task(tmp_path / "classes")) == "text_classification"
    assert detect_task(write_label_sets(tmp_path / "labels")) == "multi_label"
    spans = write_spans(tmp_path / "spans")
    (spans / "train.json").rename(spans / "my_questions.json")
    assert detect_task(spans) == "span_qa"  # by its content
    conll = tmp_path / "conll"
    conll.mkdir()
    (conll / "eng.train").write_text("-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n")
    assert detect_task(conll) == "tagging"
    (conll / "eng.train").write_text("# id a-1\n#tag O\n")
    assert detect_task(conll) == "tagging"
    glue = tmp_path / "glue"
    glue.mkdir()
    (glue / "train.tsv").write_text("sentence\tlabel\na fine film\t1\n")  # not yet prepared
    with pytest.raises(ValueError, match=r"no training data recognised.* It has train\.tsv\. Prep") as told:
        detect_task(glue)
    assert all(record.looks_for in str(told.value) for record in described_tasks().values())
    for shard in ("shard10", "shard9"):
        write_corpus(tmp_path / "shards" / shard)
    with pytest.raises(ValueError, match=r"shards of a corpus\. Pass \S+/shard9:\S+/shard10$"):
        detect_task(tmp_path / "shards")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match="no training data recognised"):
        detect_task(tmp_path / "texts")
    with pytest.raises(ValueError, match=r"train\.csv: a file, not a folder\. .* with tags.* pass the f"):
        detect_task(tmp_path / "texts" / "train.csv")
    question = {"stem": "a", "question_concept": "b", "choices": []}
    (tmp_path / "csqa").mkdir()
    write_json_lines(tmp_path / "csqa" / "train_rand_split.jsonl", [{"question": question}])
    assert detect_task(tmp_path / "csqa") == "commonsense_qa"
    (tmp_path / "race" / "train" / "middle").mkdir(parents=True)
    assert detect_task(tmp_path / "race") == "arc_retrieval"
    assert task_of([tmp_path / "csqa"]) == "commonsense_qa"
    assert task_of([tmp_path / "csqa", tmp_path / "race"]) == "arc_retrieval", "whose articles are read"
    question["choices"] = [{"label": "A", "text": "a", "para": "retrieved"}]
    write_json_lines(tmp_path / "csqa" / "train_rand_split.jsonl", [{"question": question}])
    assert detect_task(tmp_path / "csqa") == "arc_retrieval"
    shutil.copytree(tmp_path / "arc", tmp_path / "pairs")
    (tmp_path / "pairs" / "report.json").write_text("{}")
    assert detect_task(tmp_path / "pairs") == "qnli_ranking"


def test_what_a_reader_of_the_users_own_makes_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may make several questions of a line."""
    write_questions(tmp_path)

    class Their(CommonsenseQATask):
        def read(self, folder: Path, split: str) -> Any:
            return 2 * super().read(folder, split)

    monkeypatch.setitem(TASK_REGISTRY, "their_questions", Their)
    options, ours = TrainOptions(["--task", "their_questions"]), TrainOptions(["--task", "commonsense_qa"])
    assert CHOICES.rows is not None and CHOICES.rows(options, [tmp_path], "train") is None
    assert CHOICES.rows(ours, [tmp_path], "train") is not None


def test_help_names_what_is_filled_in(data: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fairseq_adv.cli.main(["train", "--help"])
    text = capsys.readouterr().out
    computed = {
        "--user-dir", "--task", "--finetune-from-model", "--num-classes", "--total-num-update",
        "--warmup-updates", "--log-file", "--valid-subset", "--maximize-best-checkpoint-metric",
        "--adv-max-norm", "--adv-lr", "--adv-init-mag", "--adam-betas",
        *TrainOptions(shlex.split(SIZES)).given,
    }  # fmt: skip
    filled = options_of(data, encoder)
    for name, value in filled.items():
        assert name in computed or f"{name} {value}".strip() in text, name
    assert f"--adam-betas '{filled['--adam-betas']}'" in text


# --- how many updates


@pytest.mark.parametrize(
    "more",
    [
        ["--max-epoch", "2", "--update-freq", "1,2", "--batch-size", "5"],
        ["--max-update", "2", "--max-epoch", "9"],
        ["--criterion", "freeat"],
    ],
    ids=" ".join,
)
def test_the_schedule_ends_with_the_last_update(
    data: Path, encoder: Path, tmp_path: Path, more: list[str]
) -> None:
    """fairseq-train's own count, and its learning rate after it."""
    words = words_of(data, encoder, *QUICK, "--save-dir", str(tmp_path), "--no-save", *more)
    lines = read_log_of(fairseq_train(*words))
    total = TrainOptions(words).value("--total-num-update")
    assert lines[-1]["train_num_updates"] == total and float(lines[-1]["train_lr"]) == 0


def read_log_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    return [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines() if "| train | {" in line]


@pytest.mark.parametrize(
    "kind", ["classes", "questions", "weights", "regents", "race", "wsc", "corpus", "lines"]
)
def test_the_rows_of_each_kind_of_data_are_counted(encoder: Path, tmp_path: Path, kind: str) -> None:
    """As many mini-batches as fairseq makes of them."""
    folders, own = [tmp_path / "a", tmp_path / "b"], ["--max-epoch", "1"]
    if kind == "classes":
        folders = [write_task(folders[0], train=23)]
    elif kind == "wsc":
        folders = [write_wsc(folders[0], train=23)]
    elif kind == "race":  # two articles of two questions
        for split in ("train", "dev"):
            (folders[0] / split / "high").mkdir(parents=True)
            for name in ("1.txt", "2.txt"):
                row = {"article": "w1 w2.", "questions": ["w3?"] * 2, "options": [["w4", "w5"]] * 2}
                (folders[0] / split / "high" / name).write_text(json.dumps({**row, "answers": ["A", "B"]}))
        folders, own = folders[:1], [*own, "--batch-size", "1"]
    elif kind == "regents":  # a third of the rows is not multiple choice
        folders[0].mkdir()
        row = '\n{0},A,{1},"w{0} (A) w1 (B) w2"'
        rows = "".join(row.format(number, int(number % 3 > 0)) for number in range(12))
        for split in ("train", "dev"):
            path = folders[0] / f"{split}.csv"
            path.write_text(f"questionID,AnswerKey,isMultipleChoiceQuestion,question{rows}")
        folders = folders[:1]
    elif kind in ("questions", "weights"):
        write_questions(folders[0], train=23)
        write_questions(folders[1], train=14, seed=1)
        own += ["--sampling-weights", "1:0.5"] if kind == "weights" else []
    else:
        folders = [write_corpus(folders[0], train=31)]
        own += ["--tokens-per-sample", "10"] if kind == "corpus" else ["--sample-break-mode", "eos"]
        if kind == "lines":  # of which fairseq leaves out those that are longer than the encoder reads
            lengths = np.repeat([31, 32, 40], [9, 9, 13])
            write_indexed(folders[0] / "train", [(np.full(lengths.sum(), 5), lengths)], 50)
    if kind in ("classes", "corpus"):  # as fairseq-preprocess writes a second --trainpref
        for path in [*folders[0].rglob("train.bin"), *folders[0].rglob("train.idx")]:
            shutil.copy(path, path.with_stem("train1"))
    if kind in ("race", "regents"):
        write_encoder(folders[0])
    start = encoder if kind == "classes" else None  # others have their tokenizer beside their rows
    own += [] if kind == "classes" else SIZES.replace("16 --act", "32 --act").split()
    where = ":".join(map(str, folders))
    words = words_of(where, start, "--batch-size", "4", *own, *QUICK, "--no-save")
    words += ["--save-dir", str(tmp_path / "unused"), "--log-file", str(tmp_path / "log")]
    batches = iterators.GroupedIterator(build(words).trainer.get_train_iterator(1).next_epoch_itr(), 1)
    assert str(len(batches)) == TrainOptions(words).value("--total-num-update")


def test_updates_of_several_workers_and_shards() -> None:
    """Sharded mini-batches are filled up to a multiple of the workers."""
    assert count_updates([17], 1, 4, 2, [2]) == 2
    assert count_updates([17, 5], 3, 4, 1, [1]) == 5 + 2 + 5
    assert count_updates([16], 3, 4, 1, [4, 2]) == 1 + 2 + 2
    assert count_updates([40], 2, 4, 1, [4], skips_rest=True) == 2 + 2, "the last mini-batch, and a third"


@pytest.mark.parametrize("multiple", [1, 3])
def test_mini_batches_are_multiples(multiple: int) -> None:
    """As fairseq makes them, with a rest that may be split."""
    for rows, size in itertools.product(range(1, 25), range(1, 12)):
        tokens, order = np.ones(rows, dtype=np.int64), np.arange(rows)
        batches = batch_by_size(order, lambda row: 1, tokens, None, size, multiple)
        assert count_updates([rows], 1, size, 1, [1], multiple) == len(batches), (rows, size)


def test_several_workers(
    data: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a CPU under torchrun, on GPUs by fairseq; the schedule is that of so many."""

    def shown(*more: str) -> list[str]:
        words = [str(data), "--encoder", str(encoder), "--dry-run", "--workers", "2", *more]
        assert fairseq_adv.cli.main(["train", *words, "--save-dir", str(tmp_path / "none")]) == 0
        return shlex.split(capsys.readouterr().out)

    on_cpu = shown("--cpu", "--batch-size", "4")
    assert on_cpu[1:4] == ["--standalone", "--nproc_per_node", "2"] and on_cpu[0].endswith("torchrun")
    assert on_cpu[4].endswith("fairseq-train") and "gloo" in on_cpu
    assert "--find-unused-parameters" not in on_cpu
    assert TrainOptions(on_cpu).value("--total-num-update") == "9"
    on_gpus = shown("--batch-size", "4")
    assert on_gpus[0] == "fairseq-train" and TrainOptions(on_gpus).value("--distributed-world-size") == "2"
    assert TrainOptions(on_gpus).value("--total-num-update") == "9"
    assert "--find-unused-parameters" in on_gpus
    assert "--find-unused-parameters" not in shown("--ddp-backend", "legacy_ddp")
    theirs = ["--arch", "hf_encoder", "--hf-model", str(tmp_path / "hf"), "--checkpoint-activations"]
    save_encoder(tmp_path / "hf", "bert")
    assert "--find-unused-parameters" in options_of(data, None, *theirs, "--distributed-world-size", "2")
    assert not (tmp_path / "none").exists()
    under = dict.fromkeys(("MASTER_ADDR", "MASTER_PORT", "RANK"), "0")
    found = options_of(data, encoder, WORLD_SIZE="6", **under)
    assert found["--total-num-update"] == "3" and "--distributed-world-size" not in found
    assert "--find-unused-parameters" in found
    assert "--find-unused-parameters" not in options_of(data, encoder, WORLD_SIZE="1", **under)


# --- runs


def test_a_run_and_what_it_leaves(data: Path, encoder: Path, tmp_path: Path) -> None:
    """It is the printed command's; it can be continued, and not by a run with other options."""
    shutil.copytree(data, tmp_path / "bin")
    (tmp_path / "bin" / "tokenizer").mkdir()
    (tmp_path / "bin" / "tokenizer" / "tokenizer.json").write_text("[PAD]\n")
    (tmp_path / "bin" / "tokenizer" / "notes.txt").symlink_to(encoder / "model_args.txt")
    (tmp_path / "bin" / "tokenizer" / "notes").mkdir()
    save = tmp_path / "new" / "save"
    words = [tmp_path / "bin", "--encoder", encoder, "--save-dir", save, *QUICK]
    done = verb(*words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(read_metrics(save).of("valid")) == 3
    assert [path.name for path in (save / "tokenizer").iterdir()] == ["tokenizer.json"]
    assert (save / "tokenizer" / "tokenizer.json").read_text() == "[PAD]\n"
    log = (save / "train.log").read_text()
    printed = shlex.split(verb(*words, "--dry-run").stdout)
    assert printed[0] == "fairseq-train" and f" | {shlex.join(printed)}" in log.splitlines()[0]
    fairseq_train(
        *printed[1:], "--save-dir", str(tmp_path / "plain"), "--log-file", f"{tmp_path}/a/plain.log"
    )
    left, right = (weights(folder / "checkpoint_last.pt") for folder in (save, tmp_path / "plain"))
    assert all(torch.equal(left[name], right[name]) for name in left)

    finished = verb(*words)
    assert finished.returncode == 0 and re.fullmatch(
        "nothing left to do after update 6: --max-epoch 3 is reached\n"
        rf"best dev accuracy [\d.]+\ncheckpoint: {save}/checkpoint_best.pt\nnext: .*\n", finished.stdout
    )  # fmt: skip
    fewer = verb(*words, "--max-epoch", "2")  # a shorter schedule, of which nothing is left to do either
    assert fewer.returncode == 0 and "nothing left to do" in fewer.stdout
    again = verb(*words, "--max-epoch", "4")
    assert again.returncode == 0 and "resuming after update 6\n" in again.stdout
    assert "with --max-epoch: 3 -> 4; --total-num-update: 6.0 -> 8.0" in again.stdout
    before = (save / "checkpoint_last.pt").read_bytes()
    (tmp_path / "bin" / "tokenizer" / "tokenizer.json").write_text("[UNK]\n")
    other = verb(*words, "--adv-steps", "2", "--max-epoch", "5")
    assert other.returncode == 2 and other.stderr.splitlines()[-1].startswith(
        f"error: {save}/checkpoint_last.pt"
    )
    assert "(--adv-steps: 3 -> 2)" in other.stderr and "Traceback" not in other.stderr + other.stdout
    assert (save / "checkpoint_last.pt").read_bytes() == before
    assert (save / "tokenizer" / "tokenizer.json").read_text() == "[PAD]\n"


@pytest.mark.parametrize("has_one", [False, True], ids=["data without a tokenizer", "data with one"])
def test_a_folder_called_tokenizer_that_is_not_a_copy_stays(tmp_path: Path, has_one: bool) -> None:
    """As with --save-dir . in a project that has one."""
    mine = tmp_path / "save" / "tokenizer"
    for folder in (mine, *([tmp_path / "tokenizer"] if has_one else [])):
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_text("{}\n")  # as transformers saves it
    for more in ([], ["__init__.py"], ["__init__.py", "hf_vocabulary.json"]):
        for name in more:
            (mine / name).write_text("{}")
        with pytest.raises(DataError, match=r"save/tokenizer: a training keeps .* another --save-dir"):
            _save_tokenizer(tmp_path, TrainOptions(["--save-dir", str(tmp_path / "save")]))
        assert sorted(os.listdir(mine)) == [*more, "tokenizer.json"]
    (mine / "__init__.py").unlink()
    _save_tokenizer(tmp_path, TrainOptions(["--save-dir", str(tmp_path / "save")]))
    assert mine.exists() == has_one


def test_a_run_that_is_refused_leaves_the_tokenizer_of_the_one_at_work(
    data: Path, encoder: Path, tmp_path: Path
) -> None:
    """Before its first checkpoint nothing else tells that there is one."""
    for folder in (shutil.copytree(data, tmp_path / "bin"), tmp_path / "save"):
        (folder / "tokenizer").mkdir(parents=True)
        (folder / "tokenizer" / "tokenizer.json").write_text(f"{folder.name}\n")
    with open(tmp_path / "save" / ".running", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        done = verb(tmp_path / "bin", "--encoder", encoder, "--save-dir", tmp_path / "save", *QUICK)
    assert done.returncode == 2 and "another run is writing its checkpoints there" in done.stderr
    assert (tmp_path / "save" / "tokenizer" / "tokenizer.json").read_text() == "save\n"


@pytest.mark.timing
@pytest.mark.parametrize(
    ("workers", "number"),
    [("1", signal.SIGTERM), slow("2", signal.SIGUSR1)],
)
def test_a_signal_saves_a_checkpoint_and_ends_it(
    data: Path, encoder: Path, tmp_path: Path, workers: str, number: signal.Signals
) -> None:
    if number == signal.SIGUSR1 and "--signals-to-handle" not in torchrun.get_args_parser().format_help():
        pytest.skip("this torch's torchrun passes no SIGUSR1 on")
    words = [data, "--encoder", encoder, "--save-dir", tmp_path / "save", "--cpu", "--num-workers", "2"]
    words += ["--workers", workers]
    command = [sys.executable, "-m", "fairseq_adv", "train", *map(str, words), "--max-epoch", "5000"]
    process = start_command(command, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "dev accuracy" in line:
            process.send_signal(number)
            break
    said += process.communicate(timeout=120)[0]  # ends when no worker has the pipe any more
    assert process.returncode == 128 + number and "Traceback" not in said, said
    stopped = re.search(
        rf"stopped by {number.name} after update (\d+): run the same command again to resume",
        said.splitlines()[-1],
    )
    state = torch.load(tmp_path / "save" / "checkpoint_last.pt")
    assert stopped and state["optimizer_history"][-1]["num_updates"] == int(stopped[1])
    assert not list((tmp_path / "save").glob("*.tmp"))


@pytest.mark.timing
def test_a_closed_terminal_is_a_signal(data: Path, encoder: Path, tmp_path: Path) -> None:
    """What is printed afterwards would be an error."""
    words = [data, "--encoder", encoder, "--save-dir", tmp_path / "save", "--cpu", "--num-workers", "2"]
    command = [sys.executable, "-m", "fairseq_adv", "train", *map(str, words), "--max-epoch", "5000"]
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which may have started the tests, ignores it
        os.execv(sys.executable, command)
    said = b""
    while b"dev accuracy" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 128 + signal.SIGHUP, status
    log = (tmp_path / "save" / "train.log").read_text()
    stopped = re.search(r"stopped by SIGHUP after update (\d+): run the same command again to resume", log)
    state = torch.load(tmp_path / "save" / "checkpoint_last.pt")
    assert stopped and state["optimizer_history"][-1]["num_updates"] == int(stopped[1])


def test_torchrun_passes_sigusr1_on_and_gives_workers_time_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(torchrun, "run", found.append)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    launch(2, ["--standalone", "--nproc_per_node", "2", "--no-python", "true"])
    told = vars(found[0])
    if "signals_to_handle" in told:  # not in earlier torches
        assert "SIGUSR1" in told["signals_to_handle"].split(",") and told["shutdown_timeout"] == 600


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--adv-steps", "0"], "--adv-steps 0: pass 1 or more"),
        (["--encoder-layers", "3"], "Cannot load model parameters from checkpoint"),
    ],
)
def test_a_mistake_is_the_last_line(
    data: Path, encoder: Path, tmp_path: Path, more: list[str], message: str
) -> None:
    """Ours, and fairseq's, whose traceback is in the log."""
    done = verb(data, "--encoder", encoder, "--save-dir", tmp_path, *QUICK, *more)
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    assert not done.stdout
    last = done.stderr.rstrip("\n")
    assert last.startswith("error: ") and message in last and "\n" not in last
    log = tmp_path / "train.log"
    assert ("(traceback: " in last) == (log.exists() and "Traceback" in log.read_text())


OURS = "Ours are alum_vat, awp, creat, flooding, "


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--criterion freelab", f"no such criterion. Did you mean freelb or freeat? {OURS}"),
        ("--criterion fgm", "Did you mean pgd --adv-relative --adv-steps 1 --adv-init-mag 0 --adv-max-norm"),
        (
            "--task text_clasification",
            "--task text_clasification: no such task. Did you mean text_class",
        ),
        ("--epochs 3", "--epochs: no such option. Did you mean --max-epoch?"),
        ("--alpha 3", "--alpha: no such option. Did you mean --adv-lr?"),
        ("--criterion smart --alpha 3", "--alpha: no such option. Did you mean --vat-alpha?"),
        ("--criterion pgd --vat-alpha 3", "--vat-alpha: an option of alum_vat, sift, smart, not of pgd."),
        ("--max-epoch 3 4", "4: belongs to no option"),
        ("--save-async", "--write-checkpoints-asynchronously: of several checkpoints that"),
        ("--tensorboard-logdir ${x}", "tensorboard_logdir: ${x}: must not have ${. Leave it out"),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_is_printed(
    data: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, message: str
) -> None:
    words = [data, "--encoder", encoder, "--save-dir", tmp_path / "none", *more.split()]
    assert fairseq_adv.cli.main(["train", *map(str, words)]) == 2
    said = capsys.readouterr()
    assert not said.out and not (tmp_path / "none").exists()
    (line,) = said.err.splitlines()
    assert line.startswith("error: ") and message in line


# --- what is refused before torch is imported


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{tmp} --encoder {encoder}", "{tmp}: no training data recognised"),
        ("{data}", "--encoder is missing"),
        ("{data} --encoder {tmp}/bare", "{tmp}/bare/model_args.txt: no such file"),
        (
            "{data} --encoder {tmp}/other",
            "was prepared with a different dictionary than {tmp}/other/dict.txt",
        ),
        ("{data} --encoder {encoder} --max-tokens 100", "Pass --max-update, or --total-num-update"),
        ("{data} --encoder {encoder} --update-freq 1,0", "--update-freq 0: pass a whole number of 1 or"),
        ("{data} --encoder {encoder} --skip-remainder-batch --update-freq 2", "batch: no epoch has enough"),
        ("{data}:{tmp}/none --encoder {encoder}", "{data}:{tmp}/none: text_classification reads one folder"),
        ("{data} --encoder {encoder} --task tagging", "{data}: not data of --task tagging, but of text_"),
        ("{tmp}/corpus --encoder {encoder}", "corpus. Pass {tmp}/corpus/shard2:{tmp}/corpus/shard10"),
    ],
)
def test_a_wrong_folder_or_number_is_named(
    data: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    for name in ("bare", "other"):
        (tmp_path / name).mkdir()
        shutil.copy(encoder / "model.pt", tmp_path / name)
    (tmp_path / "other" / "model_args.txt").write_text(SIZES)
    (tmp_path / "other" / "dict.txt").write_text("hello 1\n")
    for name in ("shard10", "shard2"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        (tmp_path / "corpus" / name / "train.idx").touch()
    places = {"tmp": tmp_path, "data": data, "encoder": encoder}
    assert fairseq_adv.cli.main(["train", *words.format(**places).split(), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert (
        out == "" and err.startswith("error: ") and message.format(**places) in err and err.count("\n") == 1
    )


METHOD = """
from fairseq.criterions import register_criterion
from fairseq_adv.criterions.pgd import PGDConfig, PGDCriterion

@register_criterion("{0}", dataclass=PGDConfig)
class TheirCriterion(PGDCriterion):
    suggested_options = "--adv-relative --adv-lr 0.25"

    @classmethod
    def updates_per_batch(cls, options):
        return 2
"""


def test_a_method_of_the_users_own_is_treated_like_ours(data: Path, encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "their_methods"
    folder.mkdir()
    (folder / "__init__.py").write_text(METHOD.format("theirs"))
    own = ["--user-dir", str(folder), "--criterion"]
    filled = options_of(data, encoder, *own, "theirs")
    assert (filled["--adv-lr"], filled["--precision"], "--adv-relative" in filled) == ("0.25", "auto", True)
    assert filled["--best-checkpoint-metric"] == "accuracy"
    with pytest.raises(ValueError, match=r"--user-dir .*/none: no such folder. Pass a folder"):
        options_of(data, encoder, "--user-dir", str(tmp_path / "none"))
    own += ["theirs", "--max-epoch", "3"]
    ours, plain = (options_of(data, encoder, *own, *more) for more in ([], ["--criterion", "standard"]))
    assert int(ours["--total-num-update"]) == 2 * int(plain["--total-num-update"])
    assert filled["--max-update"] == plain["--total-num-update"]  # unless told otherwise, as many updates


def test_a_task_of_ones_own_on_other_files(tmp_path: Path) -> None:
    """It has the options of the objective's task, but not its data; and nothing that predict could answer."""
    record = described_tasks()["text_classification"]
    assert record.fill is not None and record.rows is not None
    options = TrainOptions(["--num-classes", "7"])
    record.fill(options, [tmp_path], None, True)
    assert options.value("--num-classes") == "7" and record.rows(options, [tmp_path], "train") is None
    with pytest.raises(DataError, match=r"label/dict.txt: no such file"):
        record.fill(TrainOptions([]), [tmp_path], None, True)
    cfg = OmegaConf.create({"task": {"_name": "their_task"}, "common": {"user_dir": str(tmp_path)}})
    assert next_command(cfg, "a b.pt", "") == f"fairseq-adv validate 'a b.pt' --user-dir {tmp_path}"


def test_a_folder_may_begin_with_a_dash(data: Path, encoder: Path) -> None:
    filled = filled_in(str(data), encoder, ["--save-dir=-out"])
    assert checked(str(data), filled).log_file == "-out/train.log"


def test_the_score_of_a_task_of_ones_own_is_maximised() -> None:
    """Whatever it is called; not what the user, or the record's function, chooses instead."""

    def choose(options: TrainOptions, *rest: object) -> None:
        options.fill({METRIC: "mse"})

    for own, fill, expected in (([], None, "bleu"), ([METRIC, "loss"], None, ""), ([], choose, "mse")):
        options = TrainOptions(own)
        metric = "bleu" if fill is None else ""
        _fill_task(options, replace(CHOICES, metric=metric, fill=fill), [], None, True)
        assert options.filled.get(METRIC, "") == expected
        assert (HIGHEST in options.filled) is (expected == "bleu")


def test_a_log_on_a_full_disk_is_named() -> None:
    """Its last lines are written when it is closed."""
    with pytest.raises(FullDisk, match=r"^/dev/full: "), logged_to("/dev/full"):
        logging.getLogger("fairseq").warning("a line")


def test_the_tokenizer_of_a_hugging_face_folder_is_kept(tmp_path: Path) -> None:
    """With its vocabulary, which is in config.json there: predict reads the copy without it."""
    save_encoder(tmp_path / "encoder", "bert")
    encoder = str(tmp_path / "encoder")
    words = ["--task", "tagging", "--tokenizer-dir", encoder, "--save-dir", str(tmp_path / "out")]
    _save_tokenizer(tmp_path, TrainOptions(words))
    kept = tokenizer_for_encoder(tmp_path / "out" / "tokenizer")
    assert kept.fingerprint() == tokenizer_for_encoder(Path(encoder)).fingerprint()


def test_tags_are_trained_and_answered(tmp_path: Path) -> None:
    """The updates are counted by sentences, the best checkpoint is chosen by F1, the tokenizer is kept."""
    data = write_tags(tmp_path / "tags", train=11)
    encoder = write_encoder(tmp_path / "encoder")
    sizes = SIZES.replace("--max-positions 16", "--max-positions 24").split()
    given = ["--tokenizer-dir", str(encoder), *sizes, "--save-dir", str(tmp_path / "out"), *QUICK]
    done = verb(data, *given, "--batch-size", "4", "--max-epoch", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    after = shlex.split(done.stdout.splitlines()[-1].replace("next: fairseq-adv", "-m fairseq_adv", 1))
    asked = run_command(sys.executable, *after, "--cpu")
    assert asked.returncode == 0 and len(asked.stdout.splitlines()[0].split("\t")) == 3, asked.stderr
    found = options_of(data, None, *given, "--batch-size", "4", "--max-epoch", "2")
    expected = {"--task": "tagging", "--best-checkpoint-metric": "f1", "--total-num-update": "6"}
    assert expected.items() <= found.items()
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").is_file()


def test_what_follows_pre_training_names_the_architecture_or_the_encoder(tmp_path: Path) -> None:
    cfg = OmegaConf.create({"task": {"_name": "masked_lm"}})
    for encoder, option in (("roberta_base", "--arch roberta_base"), (tmp_path, f"--encoder {tmp_path}")):
        expected = f"fairseq-adv train DATA {option} --finetune-from-model a.pt --save-dir OUT"
        assert next_command(cfg, "a.pt", str(encoder)) == expected


@pytest.mark.parametrize("kind", ["arc", "wsc"])
def test_a_split_of_questions_is_answered_next(tmp_path: Path, kind: str) -> None:
    """By the command that is printed: two folders of questions, and schemas, which no --input holds."""
    if kind == "wsc":
        data = str(write_wsc(tmp_path / "wsc"))
    else:
        folders = [write_questions(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
        data = ":".join(map(str, folders))
    encoder = write_encoder(tmp_path / "encoder")
    given = ["--tokenizer-dir", str(encoder), *SIZES.split(), "--save-dir", str(tmp_path / "out"), *QUICK]
    done = verb(data, *given, "--batch-size", "4", "--max-epoch", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    after = done.stdout.splitlines()[-1].replace("next: fairseq-adv", "-m fairseq_adv", 1)
    command = shlex.split(after.replace("--out OUT", f"--out {tmp_path}/answers"))
    asked = run_command(sys.executable, *command, "--cpu")
    assert asked.returncode == 0 and asked.stdout.startswith("wrote "), (command, asked.stderr)


def test_the_updates_of_spans_are_counted_by_windows(tmp_path: Path) -> None:
    """A long context is several rows, and a mini-batch's rows are windows."""
    data = write_spans(tmp_path / "spans", train=11)
    run = build(train_args(data, None, "standard", task="span_qa"))
    assert next_command(run.cfg, "a.pt", "") == f"fairseq-adv predict a.pt --input {data}/valid.json"
    windows = len(run.task.dataset("train"))
    assert windows > 11
    given = ["--max-positions", "24", "--window-tokens", "12", "--window-overlap", "2", "--batch-size", "1"]
    found = options_of(data, None, *SIZES.split(), *given)
    assert (found["--task"], found["--best-checkpoint-metric"]) == ("span_qa", "f1")
    assert found["--total-num-update"] == str(3 * windows)


def test_other_words_of_the_tokenizer_are_refused_or_also_those_of_predict(tmp_path: Path) -> None:
    """The words of the data are numbered by the encoder's tokenizer.json, of which the run has a copy."""
    data, save = write_tags(tmp_path / "tags", train=11), tmp_path / "out"
    words, kept = (folder / "tokenizer.json" for folder in (tmp_path / "encoder", save / "tokenizer"))
    write_encoder(words.parent)
    sizes = SIZES.replace("--max-positions 16", "--max-positions 24").split()
    given = [data, "--tokenizer-dir", str(words.parent), *sizes, "--save-dir", str(save), *QUICK]
    done = verb(*given, "--max-epoch", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    before = words.read_text()
    words.write_text(before.replace('"w1"', '"w"').replace('"w2"', '"w1"').replace('"w"', '"w2"'))
    refused = verb(*given, "--max-epoch", "2")
    assert refused.returncode == 2 and kept.read_text() == before
    assert (
        f"error: {save}/checkpoint_last.pt was made with other data, and this run would resume from it "
        "(tokenizer: has other words or options). Pass another --save-dir"
    ) in refused.stderr.splitlines()[-1]
    allowed = verb(*given, "--max-epoch", "2", "--allow-changed-options")
    assert allowed.returncode == 0, allowed.stderr[-2000:]
    assert kept.read_text() == words.read_text()
    assert "resumes after update 1 with tokenizer: has other words or options" in allowed.stderr
