"""The verbs fetch, convert and export: result on stdout, a user's mistake as one line, exit status 2."""

from __future__ import annotations

import subprocess
from inspect import cleandoc
from pathlib import Path

import pytest
from support import CommandMain, run_command, verb

from fairseq_adv.cli.hub import convert


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(*verb(words[0]), *words[1:])


@pytest.mark.parametrize("words", [["convert", "{tmp}/absent"], ["fetch", "minilm"]])
def test_mistake_is_one_line(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    done = run(*(word.format(tmp=tmp_path) for word in words), str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout


@pytest.fixture
def samples(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of tests/hub."""
    monkeypatch.syspath_prepend(str(repo / "tests" / "hub"))


def test_exports_and_reuses(samples: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import export_samples

    converted = export_samples.encoder(tmp_path, "roberta")
    export = CommandMain("export", capsys)
    words = (converted / "model.pt", tmp_path / "out")
    done = export(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"wrote {tmp_path / 'out'}, for AutoModelForMaskedLM\n"
    assert export(*words).stdout.endswith("already there and made from this checkpoint; nothing to do\n")
    assert export(words[0], tmp_path / "half", "--precision", "bf16").returncode == 0
    assert '"torch_dtype": "bfloat16"' in (tmp_path / "half" / "config.json").read_text()
    for mistake, message in (
        ([tmp_path / "absent.pt", tmp_path / "x"], "no such checkpoint"),
        ([*words, "--labels", "a,b"], "has no classes (masked LM). Leave it out."),
        ([words[0], tmp_path], "was not made by this program"),
        ([words[0], tmp_path / "x", "--tokenizer-dir", tmp_path], "neither a Hugging Face folder"),
    ):
        done = export(*mistake)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
        assert message in done.stderr


def test_the_help_of_convert_says_what_works(
    samples: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines under the heading, as they stand there, in the folder above OUT."""
    import export_samples

    converted = export_samples.encoder(tmp_path, "roberta")
    converted.rename(tmp_path / "OUT")
    lines = cleandoc(str(convert.__doc__)).partition("Load it:")[2].split("\n\n")[0].splitlines()
    program = "\n".join(line[2:] for line in lines)
    assert "extract_features(" in program and "encode(" in program
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(program.replace("model.extract_features(", "features = model.extract_features("), names)
    model, features = names["model"], names["features"]
    ids = model.encode("A text.").tolist()  # type: ignore[attr-defined]
    assert ids[0] == 0 and ids[-1] == 2 and 3 not in ids and len(ids) > 4
    assert features.shape == (1, len(ids), 24)  # type: ignore[attr-defined]
