"""Loads the plug-in in the workers that fairseq starts itself, one for each GPU.

fairseq/distributed/utils.py, line 334, ``call_main``: each of them is a new process, which first runs the
file of the parent's command. That of ``fairseq-adv train`` imports :mod:`fairseq_adv`, and so fairseq takes
``--user-dir`` for imported. Other criterions train as before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fairseq.distributed import utils

from fairseq_adv.fairseq_patches.replace import replace


def set_up_spawned_workers() -> None:
    """Applies the patch."""
    replace(utils, "call_main", _with_plugin)


def _with_plugin(plain: Callable[..., Any]) -> Callable[..., Any]:
    def call_main(cfg: Any, main: Callable[..., Any], **options: Any) -> Any:
        return plain(cfg, partial(_run, main), **options)

    return call_main


def _run(main: Callable[..., Any], *args: Any, **options: Any) -> Any:
    import fairseq_adv.plugin  # noqa: F401 - here, because it imports this module

    return main(*args, **options)
