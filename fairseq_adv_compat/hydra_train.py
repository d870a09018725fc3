"""``fairseq-hydra-train`` imports ``common.user_dir`` first, and shows the actual message of a failure.

fairseq_cli/hydra_train.py, line 31, ``_hydra_main``: a yaml's parts get the defaults of their dataclasses,
and what they refer to in each other (``criterion.regression_target``) is looked up. fairseq imports the
plug-in after that, in ``train.py``. So a part that the plug-in registers had no defaults yet: with a task of
fairseq's own, a yaml with ``criterion: {_name: freelb}`` ended in ``ConfigKeyError``.

hydra 1.0.7's ``run_and_report`` calls ``print_exception(etype=…)``, an argument that Python 3.10 removed, and
asserts that every frame belongs to a module, which is false for generated code (a dataclass's ``__init__``).
Either error would hide the user's own. Errors that fairseq_adv reports to users take one line, as in its
other commands.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any, Callable

from fairseq_adv_compat.newer_versions import is_fairseqs_hydra

_DATA_ERROR = ("fairseq_adv.data.errors", "DataError")
_IN_A_WORKER = re.compile(r"^fairseq_adv\.data\.errors\.DataError: (.+)\s*\Z", re.MULTILINE | re.DOTALL)


def import_user_dir_first(module: ModuleType) -> None:
    """Replaces ``add_defaults`` of ``fairseq.dataclass.initialize``."""
    original = module.add_defaults

    def add_defaults(cfg: Any) -> None:
        from fairseq.utils import import_user_module

        import_user_module(cfg.common)
        _check_names(cfg)
        original(cfg)

    module.add_defaults = add_defaults  # type: ignore[attr-defined]


def _check_names(cfg: Any) -> None:
    """Raises ConfigCompositionException, which hydra shows alone, if a part is missing or its name is not
    registered. The schedule that is missing is fairseq-train's, the rate as it is."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY
    from hydra.errors import ConfigCompositionException
    from omegaconf import open_dict

    if cfg.get("lr_scheduler") is None:
        with open_dict(cfg):
            cfg.lr_scheduler = {"_name": "fixed"}
    registries = {"task": TASK_REGISTRY, "model": {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}}
    for part in ("criterion", "optimizer", "lr_scheduler"):
        registries[part] = REGISTRIES[part]["registry"]
    for part, known in registries.items():
        given = cfg.get(part)
        name = given if isinstance(given, str) else getattr(given, "_name", None)
        if given is None or (name is not None and name not in known):
            fault = f"there is no {part} {name!r}. If it is a plug-in's, set common.user_dir"
            raise ConfigCompositionException(
                f"{part}._name: {'none is named. Add one' if given is None else fault}"
            )


def report_the_real_message(module: ModuleType) -> None:
    """Replaces ``run_and_report`` of ``hydra._internal.utils``."""
    if is_fairseqs_hydra():
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
        elif (text := _wrong_option(error) or _missing_user_dir(error) or for_the_user(error)) is not None:
            sys.exit(f"error: {text}")
        else:
            traceback.print_exception(type(error), error, _below_run_job(error.__traceback__))
        sys.stderr.write("\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n")
    sys.exit(1)


def _frames(error: BaseException) -> list[str]:
    """The names of the functions that the error has passed."""
    return [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]


def _wrong_option(error: BaseException) -> str | None:
    """fairseq/dataclass/initialize.py, line 61: omegaconf names the option, and ``k`` is its part."""
    from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, ValidationError

    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}: has no value. Pass {error.full_key}=…"
    if isinstance(error, (ConfigKeyError, ValidationError)):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_name == "add_defaults" and "k" in frame.f_locals:
                return f"{frame.f_locals['k']}.{error.full_key}: {str(error).splitlines()[0]}"
    return None


def _missing_user_dir(error: BaseException) -> str | None:
    """fairseq/utils.py, line 481, names the folder only, in the folder that hydra has changed to."""
    if isinstance(error, FileNotFoundError) and _frames(error)[-1:] == ["import_user_module"]:
        return f"common.user_dir: {error}: no such folder. Pass its absolute path"
    return None


def _below_run_job(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's own function on; all of it if hydra did not get that far."""
    frame = trace
    while frame is not None:
        if frame.tb_frame.f_code.co_name == "run_job" and frame.tb_next is not None:
            return frame.tb_next
        frame = frame.tb_next
    return trace


def for_the_user(error: BaseException) -> str | None:
    """The message of an error that this project reports to users; ``None`` for any other error.

    These are DataError, told by its name since importing this module must not import that package, and the
    OSErrors that this project raises. The workers that fairseq starts, one for each GPU, hand over a
    traceback as text.
    """
    if any((cls.__module__, cls.__name__) == _DATA_ERROR for cls in type(error).__mro__):
        return str(error)
    if isinstance(error, OSError) and _raised_here(error):
        return str(error)
    of_worker = type(error).__name__ == "ProcessRaisedException" and _IN_A_WORKER.search(str(error))
    return of_worker.group(1).rstrip() if of_worker else None


def _raised_here(error: BaseException) -> bool:
    """Whether this project's own code raised the error, and not a library that it called."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).startswith("fairseq_adv")
