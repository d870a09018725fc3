"""The names that options accept, so that a wrong one is refused before torch and fairseq are imported.

``tests/cli/test_names.py`` compares them with the names in the package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

CRITERIONS = (
    "alum_vat",
    "creat",
    "flooding",
    "freeat",
    "freelb",
    "infobert",
    "noise",
    "pgd",
    "r3f",
    "smart",
    "standard",
    "tavat",
    "yopo",
)
GLUE_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI", "AX")
PREDICTION_TASKS = (
    "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX",
    "commonsense_qa", "arc", "race", "openbookqa", "qnli_ranking", "wsc", "squad", "tagging",
)  # fmt: skip


def is_known(name: str, names: Sequence[str], problem: str, loosely: bool = True) -> bool:
    """Whether ``name`` is one of ``names``; prints an error if it is not.

    Args:
        name: as the user typed it.
        names: the known ones.
        problem: the error message up to the list of names.
        loosely: ignore case and hyphens.
    """
    if name in names or (loosely and _plain(name) in map(_plain, names)):
        return True
    print(f"error: {problem} {', '.join(names)}", file=sys.stderr)
    return False


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
