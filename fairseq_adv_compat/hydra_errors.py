"""Makes ``fairseq-hydra-train`` show the actual message of a failure.

hydra 1.0.7's ``run_and_report`` calls ``print_exception(etype=…)``, an argument that Python 3.10 removed, and
asserts that every frame belongs to a module, which is false for generated code (a dataclass's ``__init__``).
Either error would hide the user's own. Errors that fairseq_adv reports to users take one line, as in its
other commands.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any, Callable

from .own_errors import for_the_user


def apply(module: ModuleType) -> None:
    """Replaces ``run_and_report`` of ``hydra._internal.utils``."""
    module.run_and_report = run_and_report  # type: ignore[attr-defined]


def run_and_report(func: Callable[[], Any]) -> Any:
    """Returns ``func()``; reports an exception as hydra intends, and exits with status 1.

    Raises:
        Exception: that of ``func``, if the environment variable ``HYDRA_FULL_ERROR`` is 1.
        SystemExit: status 1, after the report on stderr.
    """
    from hydra.errors import CompactHydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        return func()
    except Exception as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        if isinstance(error, CompactHydraException):
            sys.stderr.write(f"{error}\n")
            if isinstance(error.__cause__, OmegaConfBaseException):
                sys.stderr.write(f"{error.__cause__}\n")
        elif (text := for_the_user(error)) is not None:
            sys.exit(f"error: {text}")
        else:
            traceback.print_exception(type(error), error, _below_run_job(error.__traceback__))
        sys.stderr.write("\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n")
    sys.exit(1)


def _below_run_job(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's own function on; all of it if hydra did not get that far."""
    frame = trace
    while frame is not None:
        if frame.tb_frame.f_code.co_name == "run_job" and frame.tb_next is not None:
            return frame.tb_next
        frame = frame.tb_next
    return trace
