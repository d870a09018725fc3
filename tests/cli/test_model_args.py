"""An encoder's model_args.txt gives its sizes to a command line, and no other option."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support import CommandMain, write_task

from fairseq_adv.cli.train_folders import model_args

GOOD = "--arch roberta_base --encoder-layers 6 --encoder-embed-dim 128 --untie-weights-roberta\n"


def test_sizes_are_taken(tmp_path: Path) -> None:
    (tmp_path / "model_args.txt").write_text(GOOD)
    assert model_args(tmp_path) == GOOD.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--arch roberta_base --user-dir evil", "'--user-dir' is not an encoder's size"),
        ("--encoder-layers --user-dir evil", "'--encoder-layers' '--user-dir' is not an encoder's size"),
        ("--encoder-layers=6", "'--encoder-layers=6' is not an encoder's size"),
        ("--arch ${env:HOME}", "'--arch' '${env:HOME}' is not an encoder's size"),
        ("--arch 'roberta_base", "not a line of options (No closing quotation)"),
        ("--arch \udcff", "not a line of options ('utf-8' codec can't decode"),
    ],
)
def test_nothing_else_is(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model_args.txt"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ValueError) as told:  # noqa: PT011 - the text is what is compared
        model_args(tmp_path)
    assert str(told.value).startswith(f"{path}: ") and message in str(told.value)


def test_no_code_of_an_encoder_s_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_task(tmp_path / "data")
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    shutil.copy(data / "input0" / "dict.txt", encoder / "dict.txt")
    (encoder / "model.pt").write_bytes(b"x")
    (encoder / "evil").mkdir()
    (encoder / "evil" / "__init__.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    (encoder / "model_args.txt").write_text(f"{GOOD.strip()} --user-dir {encoder / 'evil'}\n")
    done = CommandMain("train", capsys)(data, "--encoder", encoder, "--save-dir", tmp_path / "save")
    assert done.returncode == 2
    assert f"error: {encoder}/model_args.txt: '--user-dir' is not an encoder's size" in done.stderr
    assert not (tmp_path / "canary").exists() and not (tmp_path / "save").exists()
