"""The sweep, with real runs of a tiny encoder: it measures the norm, trains, resumes and writes the table."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from glue_samples import sst2
from hf_encoders import save_encoder
from support import (
    CommandMain,
    batch,
    build,
    fairseq_train,
    run_command,
    train_args,
    verb,
    weights,
    write_questions,
    write_task,
)

from fairseq_adv.cli import verb_parser
from fairseq_adv.cli.script import sigterm_as_ctrl_c
from fairseq_adv.cli.sweep import _run_to_its_end, command, embedding_norm, settings
from fairseq_adv.cli.train_command import TrainOptions
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

MODEL = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --max-positions 16"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data`` and ``encoder`` as the scripts make them."""
    folder = tmp_path_factory.mktemp("sweep")
    write_task(folder / "data", train=12)
    fairseq_train(*train_args(folder / "data", folder / "saved", "freelb", "--max-update", "1"))
    (folder / "encoder").mkdir()
    (folder / "saved" / "checkpoint_last.pt").rename(folder / "encoder" / "model.pt")
    (folder / "encoder" / "model_args.txt").write_text(MODEL)
    return folder


def test_the_norm_is_that_of_the_embedded_sentences(folder: Path) -> None:
    run = build(train_args(folder / "data", None))
    sample = batch(run, list(range(12)))
    table = weights(folder / "encoder" / "model.pt")["encoder.sentence_encoder.embed_tokens.weight"]
    tokens = sample["net_input"]["src_tokens"]
    embedded = table[tokens] * tokens.ne(1).unsqueeze(-1)
    expected = embedded.flatten(1).norm(dim=1).mean().item()
    assert embedding_norm(folder / "data", folder / "encoder") == pytest.approx(expected, rel=1e-5)


def test_runs_every_setting_once_and_writes_the_table(folder: Path) -> None:
    words = [
        *verb("sweep"), str(folder / "data"),
        str(folder / "encoder"), str(folder / "out"), "--ratios", "0.1", "--seeds", "1", "--max-epoch", "1",
        "--batch-size", "4",
    ]  # fmt: skip
    done = run_command(*words)
    assert done.returncode == 0, done.stderr[-2000:]
    table = (folder / "out" / "RESULTS.md").read_text(encoding="utf-8")
    assert done.stdout.rstrip().endswith(table.rstrip())
    assert "| plain |" in table and "| 0.1 | 0.33 | 0.5 |" in table
    norm = embedding_norm(folder / "data", folder / "encoder")
    command = (folder / "out" / "eps0.1-alpha0.33-start0.5-seed1" / "command.txt").read_text()
    assert f"--adv-max-norm {0.1 * norm:.4g} --adv-lr {0.033 * norm:.4g}" in command
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("checkpoint_best.pt")}
    assert len(before) == 2
    again = run_command(*words)
    assert again.returncode == 0 and (folder / "out" / "RESULTS.md").read_text(encoding="utf-8") == table
    assert {path: path.stat().st_mtime_ns for path in before} == before
    moved = shutil.move(folder / "out", folder / "moved")
    words[words.index("--ratios") - 1] = str(moved)
    assert run_command(*words).returncode == 0
    assert {path.stat().st_mtime_ns for path in moved.rglob("checkpoint_best.pt")} == set(before.values())
    other = run_command(*words, "--criterion", "pgd")  # finished runs are not those of another sweep
    assert other.returncode == 2 and "seed1: was trained by another command (" in other.stderr
    assert (folder / "moved" / "RESULTS.md").read_text(encoding="utf-8") == table


def test_an_interrupted_run_is_not_that_of_another_sweep(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq's own criterion, which trains the plain runs, does not compare the options."""
    words = ["sweep", str(folder / "data"), str(folder / "encoder"), str(tmp_path), "--ratios", "0.1"]
    args = verb_parser(words).parse_args(words[1:])
    plain = tmp_path / "plain-seed1"
    plain.mkdir()
    (plain / "command.txt").write_text(shlex.join(command(args, next(settings(args)), 4.0, 1, plain)))
    (plain / "checkpoint_last.pt").touch()
    other = CommandMain("sweep", capsys)(*words[1:], "--lr", "1e-4")
    assert other.returncode == 2 and f"{plain}: was trained by another command (" in other.stderr


def test_a_stopped_sweep_lets_its_run_save(tmp_path: Path) -> None:
    """The run here needs longer for that than Python's subprocess.run gives it after Ctrl-C."""
    program = "\n".join([
        "import os, pathlib, signal, sys, time",
        "def save(*_):",
        "    time.sleep(1)",
        "    pathlib.Path(sys.argv[1]).touch()",
        "    sys.exit(143)",
        "signal.signal(signal.SIGTERM, save)",
        "os.kill(os.getppid(), signal.SIGTERM)",
        "time.sleep(20)",
    ])  # fmt: skip
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        _run_to_its_end([sys.executable, "-c", program, str(tmp_path / "saved")])
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("precision", [None, "auto", "bf16"])
def test_the_precision_is_that_of_all_runs(folder: Path, tmp_path: Path, precision: str | None) -> None:
    """fairseq's own criterion does not have the option."""
    words = ["sweep", str(folder / "data"), str(folder / "encoder"), str(tmp_path)]
    args = verb_parser(words).parse_args(words[1:] + (["--precision", precision] if precision else []))
    for setting in settings(args):
        found = TrainOptions(command(args, setting, 4.0, 1, tmp_path)).given
        expected = ("freelb", precision or "fp32") if setting.ratio else ("standard", precision)
        if not setting.ratio and precision is None:
            expected = ("sentence_prediction", None)
        assert (found["--criterion"], found.get("--precision")) == expected
        assert "--num-classes" not in found, "train takes it from the data"
    args.metric = "mcc"  # which fairseq's own criterion doesn't have
    plain = next(setting for setting in settings(args) if not setting.ratio)
    found = TrainOptions(command(args, plain, 4.0, 1, tmp_path)).given
    assert (found["--criterion"], found["--precision"]) == ("standard", precision or "fp32")


def test_no_perturbation_is_one_setting_and_the_metric_a_score(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(folder / "data"), str(folder / "encoder"), str(tmp_path), "--ratios", "0,0.1"]
    names = [setting.name for setting in settings(verb_parser(words).parse_args(words[1:]))]
    assert names == ["plain", "eps0.1-alpha0.33-start0.5"]
    done = CommandMain("sweep", capsys)(*words[1:], "--metric", "loss")
    assert done.returncode == 2 and "--metric loss: the table has the loss. Pass a score" in done.stderr


def test_a_missing_encoder_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"model\.pt: no such file. Pass a folder written by fairseq-adv convert"
    ):
        embedding_norm(folder / "data", tmp_path)


@pytest.mark.slow
def test_a_hugging_face_folder_as_it_is(tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder", "bert")
    sst2(tmp_path / "raw")
    tokenizer = tokenizer_for_encoder(tmp_path / "encoder")
    prepare(tmp_path / "raw", "SST-2", tmp_path / "data", tokenizer, progress=False)
    words = map(str, (tmp_path / "data", tmp_path / "encoder", tmp_path / "out"))
    done = run_command(*verb("sweep"), *words, "--ratios", "0.02", "--seeds", "1", "--max-epoch", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (tmp_path / "out" / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    assert float(lines[-1].split("|")[4]) == pytest.approx(0.02, rel=0.1), "what the method measured"


def test_its_folder_needs_no_model_args(tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder", "bert")
    with pytest.raises(DataError, match=r"gone/input0/dict\.txt: no such file"):
        embedding_norm(tmp_path / "gone", tmp_path / "encoder")


@pytest.mark.parametrize(
    ("data", "more", "message"),
    [
        ("gone", [], "gone: no such folder"),
        ("numbers", [], "numbers: not texts with classes"),
        ("questions", [], "questions: not texts with classes"),
        ("data", ["--criterion", "alum_vat"], "--criterion alum_vat: lacks sizes that a sweep sets"),
        ("data", ["--criterion", "frelb"], "Pass one of creat, freeat, freelb, infobert, pgd, tavat, yopo"),
    ],
)
def test_other_data_and_criterions_are_refused_before_a_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: str, more: list[str], message: str
) -> None:
    write_questions(tmp_path / "questions")
    write_task(tmp_path / "numbers", classes=1)
    (tmp_path / "numbers" / "label" / "dict.txt").unlink()
    where = folder / data if data == "data" else tmp_path / data
    done = CommandMain("sweep", capsys)(where, folder / "encoder", tmp_path / "out", *more)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
