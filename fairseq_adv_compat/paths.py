"""Keeps an archive, and the name of a data folder, from reaching out of their folder."""

from __future__ import annotations

import shlex
import tarfile
from types import ModuleType
from typing import Any

from .newer_versions import ModuleView


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
    """Unpacks an untrusted tar archive only inside its folder.

    ``from_pretrained`` accepts an archive; fairseq/file_utils.py, line 90, unpacks it with ``extractall``,
    which before Python 3.14 follows names such as ``../../.bashrc`` out of the folder.
    """
    module.tarfile = ModuleView(tarfile, open=open_archive)  # type: ignore[attr-defined]


def open_archive(*args: Any, **kwargs: Any) -> tarfile.TarFile:
    """``tarfile.open`` for an archive whose members stay in the folder that it is unpacked to.

    tarfile's own ``data_filter`` is not enough: it turns ``/home/x`` into ``home/x``, but fairseq then moves
    the common prefix of the original names, and ``..`` is that of ``..a`` and ``..b``.

    Raises:
        tarfile.TarError: a member lies outside.
    """
    archive = tarfile.open(*args, **kwargs)  # noqa: SIM115 (the caller closes it)
    for member in archive:
        outside = member.name.startswith("/") or any(part.startswith("..") for part in member.name.split("/"))
        if outside or not (member.isdir() or member.isfile()):
            archive.close()
            raise tarfile.TarError(
                f"{archive.name!r}: {member.name!r} lies outside, or is a link. Not unpacked."
            )
    archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in early 3.10 and 3.11
    return archive
