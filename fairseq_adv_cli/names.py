"""The names that options take, to refuse a wrong one before torch and fairseq are imported.

``tests/cli/test_names.py`` compares them with what the package knows.
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
    """Whether ``name`` is one of ``names``; if not, says so.

    Args:
        name: what the user gave.
        names: what there is.
        problem: the error line up to the list of names.
        loosely: in any case, and with or without hyphens.
    """
    if name in names or (loosely and _plain(name) in map(_plain, names)):
        return True
    print(f"error: {problem} {', '.join(names)}", file=sys.stderr)
    return False


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
