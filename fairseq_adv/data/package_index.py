"""Downloads one known file from the package index that pip is configured with, and checks its SHA-256.

pip itself would build a source package to learn its dependencies, which runs the package's code. Here a file
is only data. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import ast
import base64
import html
import http.client
import netrc
import os
import re
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence
from urllib.parse import unquote, urljoin, urlsplit

from tqdm import tqdm

from fairseq_adv.data.errors import DataError, FullDisk
from fairseq_adv.data.io import atomic_folder, atomic_open, sha256_of
from fairseq_adv.data.processes import python_module

_BLOCK = 1 << 16
_MAX_PAGE_BYTES = 10_000_000
_LINK = re.compile(rb"""<a\b[^>]*?\bhref\s*=\s*["']([^"'>]+)""", re.IGNORECASE)  # PEP 503
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class IndexFile:
    """A file of a project on a package index, known to the byte."""

    project: str  # the project's normalised name (PEP 503)
    name: str  # the file's name
    sha256: str  # its SHA-256, in lower-case hex
    size: int  # its size in bytes; no more than that is read


def fetch_folder(
    out: Path,
    file: IndexFile,
    source: Optional[Path],
    unpack: Callable[[Path, Path], None],
    expected: Dict[str, str],
    unwanted: Sequence[str] = (),
) -> bool:
    """Writes a folder made from a downloaded file, completely or not at all.

    Args:
        out: output folder; kept if it already has the right files.
        source: a copy of that file, which is used instead of a download.
        unpack: called with the checked file and an empty folder that it fills.
        expected: SHA-256 of each file that ``unpack`` writes.
        unwanted: names of files that would be read if they were in the folder too.

    Returns:
        True if the folder was written, False if it existed already.
    """
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if fault := _fault(out, expected, unwanted):
            raise DataError(
                f"{out}: exists but is not the complete folder made from {file.name}: {fault}. Remove it, "
                "or pass another folder."
            )
        return False
    with tempfile.TemporaryDirectory() as scratch:
        if source is None:
            archive = _download(file, Path(scratch))
            fix = "Try again later, or pass a good copy with --from."
        else:
            archive, fix = source, f"Pass {file.name} as it is on PyPI, or leave out --from."
            if not archive.is_file():
                raise DataError(f"{archive}: no such file. {fix}")
        if archive.stat().st_size != file.size or sha256_of(archive) != file.sha256:
            raise DataError(f"{archive}: changed or damaged: its SHA-256 is not {file.sha256}. {fix}")
        with atomic_folder(out) as folder:
            unpack(archive, folder)
            if fault := _fault(folder, expected, unwanted):
                raise DataError(f"{archive}: not what was expected: {fault}. Nothing was written. {fix}")
    return True


def _fault(folder: Path, expected: Dict[str, str], unwanted: Sequence[str]) -> str:
    """What is wrong with the first file that differs from the expected ones; empty if nothing is."""
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (found := sha256_of(path)) != digest:
            return f"{name} has SHA-256 {found}, not {digest}"
    more = [name for name in unwanted if name not in expected and (folder / name).exists()]
    return f"{more[0]} is not one of its files" if more else ""


def _download(file: IndexFile, folder: Path) -> Path:
    """Downloads the file from the first index that has it, with a progress bar on stderr."""
    settings = _pip_settings()
    indexes = [settings.get("index-url") or "https://pypi.org/simple"]
    indexes += (settings.get("extra-index-url") or "").split()
    if (settings.get("no-index") or "no").lower() in ("y", "yes", "t", "true", "on", "1"):
        indexes = []
    problem = "pip is configured to use no index (no-index)"
    try:
        client = _Client(settings)
    except (OSError, ValueError) as error:
        raise DataError(f"pip's settings can't be used (see `pip config list`): {error}") from error
    for index in indexes:
        try:
            link = client.link(index, file)
            if link is not None:
                return client.save(link, file, folder / file.name)
            problem = f"{_shown(index)} does not have it"
        except FullDisk:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            problem = f"{_shown(index)}: {' '.join(str(reason).split())}"
    raise DataError(
        f"{file.name} was not downloaded: {problem}. Check the network and `pip config list`, or get the "
        "file in another way and pass it with --from."
    )


def _pip_settings() -> Dict[str, str]:
    """pip's settings for ``pip download``, from its files and its environment variables; without pip, from
    these alone."""
    command = python_module("pip", "config", "list")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        if last.endswith("No module named pip"):  # as in environments that uv makes
            variables = {key: value for key, value in os.environ.items() if key[:4] == "PIP_" and value}
            return {key[4:].lower().replace("_", "-"): value for key, value in variables.items()}
        raise DataError(f"`pip config list` failed: {last}. Repair pip, or pass the file with --from.")
    found: Dict[str, Dict[str, str]] = {"global": {}, "download": {}, ":env:": {}}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            with suppress(ValueError, SyntaxError):
                found[section][name] = str(ast.literal_eval(value))
    return {name: value for section in found.values() for name, value in section.items()}


class _Client:
    """Opens URLs with pip's proxy, certificates, timeout and credentials."""

    def __init__(self, settings: Dict[str, str]) -> None:
        self._timeout = float(settings.get("timeout") or settings.get("default-timeout") or 15)
        self._trusted = (*_THIS_MACHINE, *(settings.get("trusted-host") or "").split())
        context = ssl.create_default_context(cafile=settings.get("cert") or None)
        handlers: List[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if proxy := settings.get("proxy"):
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        self._opener = urllib.request.build_opener(*handlers)
        self._login: Dict[str, str] = {}

    def link(self, index: str, file: IndexFile) -> Optional[str]:
        """The file's URL on an index; None if the index does not have it."""
        page = f"{index.rstrip('/')}/{file.project}/"
        if page.startswith("file:"):
            page += "index.html"
        try:
            with self._open(page) as response:
                base = str(response.geturl())
                content = response.read(_MAX_PAGE_BYTES + 1)
        except urllib.error.URLError as error:
            if getattr(error, "code", 0) == 404 or isinstance(error.reason, FileNotFoundError):
                return None
            raise
        if len(content) > _MAX_PAGE_BYTES:
            raise ValueError(f"its page of {file.project} has more than {_MAX_PAGE_BYTES} bytes")
        for link in _LINK.findall(content):
            target = html.unescape(link.decode("utf-8", errors="replace"))
            if unquote(urlsplit(target).path.rpartition("/")[2]) == file.name:
                return urljoin(base, target)
        return None

    def save(self, url: str, file: IndexFile, target: Path) -> Path:
        """Writes what the URL has to ``target``: at most one byte more than the file's size."""
        with (
            self._open(url) as response,
            atomic_open(target) as sink,
            tqdm(total=file.size, unit="B", unit_scale=True, desc=file.name) as bar,
        ):
            left = file.size + 1
            while left and (block := response.read(min(_BLOCK, left))):
                sink.write(block)
                bar.update(len(block))
                left -= len(block)
        return target

    def _open(self, url: str):  # type: ignore[no-untyped-def]  # what urllib returns has no common type
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("https", "file") and not (parts.scheme == "http" and host in self._trusted):
            raise ValueError(f"{parts.scheme or 'no'} URL refused; use https, or pip's trusted-host")
        if parts.username:
            self._login[host] = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        elif host not in self._login:
            with suppress(OSError, netrc.NetrcParseError):
                if entry := netrc.netrc(os.environ.get("NETRC")).authenticators(host):
                    self._login[host] = f"{entry[0]}:{entry[2]}"
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        request = urllib.request.Request(plain, headers={"Accept": "text/html", "User-Agent": "fairseq_adv"})
        if host in self._login:  # not sent to where a redirect leads
            code = base64.b64encode(self._login[host].encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {code}")
        return self._opener.open(request, timeout=self._timeout)


def _shown(url: str) -> str:
    """The URL without a user's name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
