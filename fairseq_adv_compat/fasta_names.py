"""A data folder's name is no shell command.

fairseq/data/fasta_dataset.py, line 60, writes the path of a .fasta file into a command line of the shell. Any
data folder with such a file gets there, and a checkpoint may name the folder.
"""

from __future__ import annotations

import shlex
from types import ModuleType
from typing import Any


def apply(module: ModuleType) -> None:
    """Makes fairseq's reader of .fasta files refuse paths that a shell would not take as they are."""
    dataset: Any = module.FastaDataset  # type: ignore[attr-defined]
    build_index = dataset._build_index

    def checked(self: Any, path: str) -> Any:
        if shlex.quote(path) != path:
            raise ValueError(
                f"{path}.fasta: fairseq hands this path to a shell. Rename it to letters and digits."
            )
        return build_index(self, path)

    dataset._build_index = checked
