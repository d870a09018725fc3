"""The command line of fairseq-adv prepare glue."""

from __future__ import annotations

from pathlib import Path

import pytest
from glue_samples import AWKWARD, rte, small_bpe, small_wordpiece, sst2
from support import verb

import fairseq_adv.cli

ROOT = Path(__file__).resolve().parents[2]
COMMAND = verb("prepare glue")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_wordpiece(tmp_path_factory.mktemp("encoder"))


def run(*arguments: object) -> int:
    return fairseq_adv.cli.main(["prepare", "glue", *map(str, arguments)])


def test_one_task_and_again(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sst2(tmp_path / "glue" / "SST-2")
    out = tmp_path / "bin"
    assert run(tmp_path / "glue", "SST-2", out, "--encoder", encoder) == 0
    shown = capsys.readouterr()
    assert f"SST-2: wrote {out} (train 60, valid {len(AWKWARD)}, test {len(AWKWARD)})" in shown.out
    assert "SST-2: 100%" in shown.err  # the bar
    assert run(tmp_path / "glue", "SST-2", out, "--encoder", encoder) == 0
    assert "is already there and made from these files; nothing to do" in capsys.readouterr().out
    other = small_bpe(tmp_path / "other")
    assert run(tmp_path / "glue", "SST-2", out, "--encoder", other) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "was made from other files or options (tokenizer)" in error
    assert run(tmp_path / "glue", "SST-2", out, "--encoder", other, "--overwrite") == 0


def test_all_tasks_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sst2(tmp_path / "glue" / "SST-2")
    rte(tmp_path / "glue" / "RTE")
    files = small_bpe(tmp_path / "bpe")
    options = ["--srcdict", files / "dict.txt"]
    options += ["--encoder-json", files / "encoder.json", "--vocab-bpe", files / "vocab.bpe"]
    assert run(tmp_path / "glue", "ALL", tmp_path / "bins", *options) == 0
    assert sorted(path.name for path in (tmp_path / "bins").iterdir()) == ["RTE-bin", "SST-2-bin"]
    assert "so not prepared: CoLA, MRPC, STS-B, QQP, MNLI, QNLI, WNLI" in capsys.readouterr().out
