"""Runs fairseq's ``main`` with its log in a file and a screen for people."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .train_log import logged_to


class ShownRun:
    """fairseq's ``main``, shown; picklable, for the workers that fairseq starts."""

    def __init__(
        self, main: Callable[..., Any], log: str, encoder: str, when_loaded: Callable[[], None]
    ) -> None:
        self.main, self.log, self.encoder, self.when_loaded = main, log, encoder, when_loaded
        self.logged: AbstractContextManager[None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_a_worker, (self.main, self.log, self.encoder, self.when_loaded)

    def __call__(self, cfg: Any, **options: Any) -> Any:
        from fairseq.distributed.utils import is_master

        from .train_screen import TrainScreen

        if not is_master(cfg.distributed_training):
            return self.main(cfg, **options)
        with TrainScreen(self.log, self.encoder, self.when_loaded) as screen:
            result = self.main(cfg, **options)
            screen.end()
        return result


def _in_a_worker(*words: Any) -> ShownRun:
    run = ShownRun(*words)
    run.logged = logged_to(run.log)  # for as long as the worker lives
    run.logged.__enter__()
    return run
