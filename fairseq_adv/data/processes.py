"""Starts Python without the current folder on its path.

``python -m`` and ``python -c`` look for modules in the current folder first: in a folder of others, its
``torch.py`` would run. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import sys
from typing import List

# Python has -P only from 3.11 on. An empty name stands for the current folder, from which nothing was
# imported yet.
LEAVE_OUT = "import sys; sys.path[:1] = filter(None, sys.path[:1])\n"
"""Begins the code of ``python -c``."""


def python_code(code: str, *words: str) -> List[str]:
    """The command that runs ``code`` with this Python.

    Args:
        words: its arguments.
    """
    return [sys.executable, "-c", LEAVE_OUT + code, *words]


def python_module(name: str, *words: str) -> List[str]:
    """The command that runs a module as ``python -m`` does.

    Args:
        words: its arguments.
    """
    code = f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    return python_code(code, *words)
