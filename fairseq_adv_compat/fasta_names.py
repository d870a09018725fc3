"""Keeps the name of a data folder from being run as a shell command.

fairseq/data/fasta_dataset.py, line 60, inserts the path of a .fasta file into a shell command. Any data
folder with such a file gets there, and a checkpoint may name the folder.
"""

from __future__ import annotations

import shlex
from types import ModuleType
from typing import Any


def apply(module: ModuleType) -> None:
    """Makes fairseq's reader of .fasta files refuse paths that a shell would not take literally."""
    dataset: Any = module.FastaDataset  # type: ignore[attr-defined]
    build_index = dataset._build_index

    def checked(self: Any, path: str) -> Any:
        if shlex.quote(path) != path:
            raise ValueError(
                f"{path}.fasta: fairseq passes this path to a shell. Use only letters and digits in it."
            )
        return build_index(self, path)

    dataset._build_index = checked
