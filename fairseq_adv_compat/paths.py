"""Keeps an archive, and the name of a data folder, from reaching out of their folder."""

from __future__ import annotations

import os
import shlex
import tarfile
from types import ModuleType
from typing import Any

from .newer_versions import ModuleView

_HEADERS = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
_LARGEST_HEADER = 1 << 20  # bytes
_ALWAYS = 64 << 20  # bytes that any archive may unpack to
_RATIO = 100  # weights can hardly be packed


def refuse_shell_commands(module: ModuleType) -> None:
    """Makes fairseq's reader of .fasta files refuse paths that a shell would not take literally.

    fairseq/data/fasta_dataset.py, line 60, inserts the path of a .fasta file into a shell command. Any data
    folder with such a file gets there, and a checkpoint may name the folder.
    """
    dataset: Any = module.FastaDataset  # type: ignore[attr-defined]
    build_index = dataset._build_index

    def checked(self: Any, path: str) -> Any:
        if shlex.quote(path) != path:
            raise ValueError(
                f"{path}.fasta: fairseq passes this path to a shell. Use only letters and digits in it."
            )
        return build_index(self, path)

    dataset._build_index = checked


def unpack_inside_the_folder(module: ModuleType) -> None:
    """Unpacks an untrusted tar archive only inside its folder, and not to a size out of proportion.

    ``from_pretrained`` accepts an archive; fairseq/file_utils.py, line 90, unpacks it with ``extractall``,
    which before Python 3.14 follows names such as ``../../.bashrc`` out of the folder.
    """
    module.tarfile = ModuleView(tarfile, open=open_archive)  # type: ignore[attr-defined]


class _Member(tarfile.TarInfo):
    """A header. Long names are in headers of their own, which are read whole, whatever size they give."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADERS and member.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {member.size} bytes. Not unpacked.")
        return member


def open_archive(*args: Any, **kwargs: Any) -> tarfile.TarFile:
    """``tarfile.open`` for an archive whose members stay in the folder that it is unpacked to.

    Raises:
        tarfile.TarError: a member lies outside, or the archive unpacks to too much.
    """
    archive = tarfile.open(*args, tarinfo=_Member, **kwargs)  # noqa: SIM115 (the caller closes it)
    try:
        _check(archive, max(_ALWAYS, _RATIO * os.path.getsize(str(archive.name))))
    except BaseException:
        archive.close()
        raise
    if hasattr(tarfile, "data_filter"):
        archive.extraction_filter = tarfile.data_filter
    return archive


def _check(archive: tarfile.TarFile, most: int) -> None:
    """fairseq reads all headers before it unpacks anything, so this costs nothing.

    tarfile's own ``data_filter`` is not enough: it turns ``/home/x`` into ``home/x``, but fairseq then moves
    the common prefix of the original names, and ``..`` is that of ``..a`` and ``..b``. Through links it can
    be deceived (CVE-2025-4517).
    """
    total = 0
    for member in archive:
        total += member.size
        if max(member.offset_data + member.size, total) > most:
            raise tarfile.TarError(f"{archive.name!r}: unpacks to more than {most >> 20} MiB. Not unpacked.")
        outside = member.name.startswith("/") or any(part.startswith("..") for part in member.name.split("/"))
        # The data of a sparse file may be those of the next members, again and again.
        if outside or member.issparse() or not (member.isdir() or member.isfile()):
            raise tarfile.TarError(
                f"{archive.name!r}: {member.name!r} lies outside, or is a link or sparse. Not unpacked."
            )
