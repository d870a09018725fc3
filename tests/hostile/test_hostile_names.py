"""Names that would control a terminal or a spreadsheet, through every verb that prints or writes names."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pty
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import VERBS as READERS
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from glue_samples import small_wordpiece
from support import CommandMain, environment, fairseq_train, train_args, verb

import fairseq_adv.cli
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.printable import printable
from fairseq_adv.fairseq_patches.run_options import check_run

NAME = "evil\x1b[2J\x1b]0;t\x07\x9b\r\u202e\u200b\u2028name"
SHOWN = r"evil\x1b[2J\x1b]0;t\x07\x9b\r\u202e\u200b\u2028name"
FORMULA = "=cmd|' /C calc'!A0"
TURNED = "\u202eé"  # the worst name that is allowed for a class
# Words that make verbs print NAME, by different code.
PRINTING: dict[str, list[str]] = {
    "prepare glue": [NAME, "RTE", "OUT", "--encoder", "ENCODER"],
    "corpus": [NAME, "OUT", "--encoder", "ENCODER"],
    "train": [NAME, "--encoder", "ENCODER", "--dry-run"],
    "predict": [NAME, "--stdin"],
    "compare": [NAME],
    "options": [NAME],
    "doctor": [NAME],
}
TELLING = ("predict --input", "predict --data", "export")  # where they wrote


def raw(text: str) -> set[str]:
    """The characters that a person doesn't see, but a terminal obeys."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_wordpiece(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("", capsys)


@pytest.mark.parametrize("name", PRINTING)
def test_a_name_on_the_command_line(
    name: str, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = [str(encoder) if word == "ENCODER" else word for word in PRINTING[name]]
    with contextlib.suppress(SystemExit):  # argparse's, after its message
        fairseq_adv.cli.main([*name.split(), *words])
    out, err = capsys.readouterr()
    assert SHOWN in out + err and not raw(out + err), out + err


@pytest.mark.parametrize("name", TELLING)
def test_a_model_in_such_a_folder(
    name: str, films: Path, tmp_path: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a film\n"), encoding="utf-8"))
    folder = shutil.copytree(films / "save", tmp_path / NAME / "save")
    words = READERS[name](films, folder / "checkpoint_best.pt")
    done = run(*words, *(["--out", folder / "out"] if name == "predict --input" else []))
    said = done.stdout + done.stderr
    assert not raw(said.replace("\r", "")), said  # a bar's
    assert done.returncode == 0 and SHOWN in said, said


def test_what_prepare_tells(encoder: Path, tmp_path: Path, run: CommandMain) -> None:
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "train.csv").write_text("t,l\na,x\nb,x\nb,x\u200b\nc,\u202ey\nd,\u202ey\n", encoding="utf-8")
    words = ["prepare", "classification", folder / "train.csv", "--text", "t", "--label", "l"]
    done = run(*words, "--encoder", encoder, folder / "out")
    assert done.returncode == 0 and "3 classes: " in done.stdout, done.stderr
    assert f"{SHOWN}/out" in done.stdout and r"x\u200b" in done.stdout and not raw(done.stdout)
    done = run(*words[:-1], NAME, "--encoder", encoder, folder / "out2")
    assert done.returncode == 2 and SHOWN in done.stderr.replace("\\\\", "\\")
    assert not raw(done.stderr)


def configuration(args: list[str]) -> Any:
    found = options.parse_args_and_arch(options.get_training_parser(), input_args=args)
    return convert_namespace_to_omegaconf(found)


def with_classes(*names: str) -> Callable[[dict[str, Any], Path], None]:
    return lambda state, _: state["cfg"]["task"].update(class_names=list(names))


@pytest.fixture
def model(hostile: Callable[..., Path]) -> Path:
    return hostile(with_classes(TURNED, FORMULA))


def test_the_model_card(hostile: Callable[..., Path], tmp_path: Path, run: CommandMain) -> None:
    model = hostile(with_classes(NAME, FORMULA))
    out = tmp_path / 'c"\x1b[2J```\u202e'
    done = run("export", model, out)
    assert done.returncode == 0 and SHOWN.split("\\r")[0] in done.stdout and not raw(done.stdout)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert not raw(card) and r"evil\x1b" in card and r"c_\x1b[2J```\u202e" in card
    assert card.count("\n```") == 2  # the example's own


def test_predictions(model: Path, films: Path, tmp_path: Path, run: CommandMain) -> None:
    """Data is left as it is, but nothing in it is a formula."""
    texts = ["predict", model, "--input", films / "raw" / "dev.tsv", "--text", "sentence"]
    done = run(*texts, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "out" / "predictions-dev.tsv").read_bytes()
    head, *rows = csv.reader(written.decode().splitlines(keepends=True), delimiter="\t")
    assert head == ["index", "prediction", TURNED, f"'{FORMULA}"]
    assert {row[1] for row in rows} <= {TURNED, f"'{FORMULA}"} and float(rows[0][2]) > 0
    done = subprocess.run([*verb(""), *map(str, texts)], env=environment(), capture_output=True, timeout=600)
    assert done.stdout == written
    ascii_only = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    done = subprocess.run([*verb(""), *map(str, texts)], env=ascii_only, capture_output=True, timeout=600)
    assert done.stdout == written


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_predictions_on_a_terminal(model: Path, terminal: tuple[int, int]) -> None:
    subprocess.run(
        [*verb("predict"), str(model), "--stdin"], input=b"a film\n", stdout=terminal[1],
        stderr=subprocess.PIPE, env=environment(), timeout=600, check=True,
    )  # fmt: skip
    shown = os.read(terminal[0], 10000).decode().replace("\r\n", "\n")
    assert shown.endswith("\n") and not raw(shown)
    assert shown.startswith((r"\u202eé", FORMULA))


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_an_ascii_locale(encoder: Path, tmp_path: Path) -> None:
    """A finished job stays finished: names that the locale lacks are shown as escapes."""
    rows = "".join(f"film {number},{'é' if number % 2 else 'ж'}\n" for number in range(12))
    (tmp_path / "train.csv").write_text(f"t,l\n{rows}", encoding="utf-8")
    words = ["prepare", "classification", tmp_path / "train.csv", "--text", "t", "--label", "l"]
    done = subprocess.run(
        [*verb(""), *map(str, words), "--encoder", encoder, tmp_path / "out"],
        env=environment(**ASCII), capture_output=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rb"2 classes: \u0436, \xe9" in done.stdout or rb"2 classes: \xe9, \u0436" in done.stdout
    assert b"Error" not in done.stderr


@pytest.mark.slow
def test_a_training_s_log(hostile: Callable[..., Path], films: Path, tmp_path: Path) -> None:
    """Classes of the model that it starts from; in an ASCII locale, where Python's logs contain tracebacks
    instead of such lines."""
    data, model = shutil.copytree(films / "data", tmp_path / "é"), hostile(with_classes(TURNED, NAME))
    more = [
        "--max-update",
        "1",
        "--log-file",
        str(tmp_path / "train.log"),
        "--finetune-from-model",
        str(model),
    ]
    args = train_args(data, None, "standard", "--max-positions", "64", *more, task="text_classification")
    done = fairseq_train(*args, **ASCII)
    assert "Traceback" not in done.stderr and not raw(done.stdout + done.stderr), done.stderr
    # "loaded … examples from: ", with é as Python reads it there
    assert rf"{tmp_path}/\udcc3\udca9/input0/train" in done.stdout and SHOWN in done.stdout
    assert not raw((tmp_path / "train.log").read_text(encoding="ascii"))


@pytest.mark.parametrize("name", ["evil\x1b[2J", "\u202egnp"])
def test_a_folder_that_a_training_s_log_would_name(name: str, films: Path, tmp_path: Path) -> None:
    args = train_args(films / "data", tmp_path / "\U0001f469\u200d\U0001f4bb", task="text_classification")
    check_run(configuration(args))  # pictures of several characters are left alone
    with pytest.raises(DataError) as error:
        check_run(configuration([*args, "--save-dir", str(tmp_path / name)]))
    assert str(error.value).startswith(f"save_dir: {tmp_path}/{printable(name)}: has control characters.")
