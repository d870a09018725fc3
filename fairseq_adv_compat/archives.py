"""Unpacks an untrusted tar archive only inside its folder.

``from_pretrained`` accepts an archive; fairseq/file_utils.py, line 90, unpacks it with ``extractall``, which
before Python 3.14 follows names such as ``../../.bashrc`` out of the folder.
"""

from __future__ import annotations

import tarfile
from types import ModuleType
from typing import Any

from .module_view import ModuleView


def apply(module: ModuleType) -> None:
    """Makes the ``tarfile`` of one module of fairseq refuse members outside the folder."""
    module.tarfile = ModuleView(tarfile, open=_open)  # type: ignore[attr-defined]


def _open(*args: Any, **kwargs: Any) -> tarfile.TarFile:
    archive = tarfile.open(*args, **kwargs)  # noqa: SIM115 (the caller closes it)
    if hasattr(tarfile, "data_filter"):
        archive.extraction_filter = tarfile.data_filter
        return archive
    for member in archive.getmembers():  # Pythons before 3.9.17 and 3.10.12
        if (
            member.name.startswith("/")
            or ".." in member.name.split("/")
            or not (member.isdir() or member.isfile())
        ):
            archive.close()
            raise tarfile.TarError(
                f"{archive.name!r}: {member.name!r} lies outside, or is a link. Not unpacked."
            )
    return archive
