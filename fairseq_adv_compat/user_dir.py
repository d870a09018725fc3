"""``fairseq-hydra-train`` imports ``common.user_dir`` before it reads the options, as ``fairseq-train`` does.

fairseq_cli/hydra_train.py, line 31, ``_hydra_main``: a yaml's parts get the defaults of their dataclasses,
and what they refer to in each other (``criterion.regression_target``) is looked up. fairseq imports the
plug-in after that, in ``train.py``. So a part that the plug-in registers had no defaults yet: with a task of
fairseq's own, a yaml with ``criterion: {_name: freelb}`` ended in ``ConfigKeyError``.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def import_user_dir_first(module: ModuleType) -> None:
    """Replaces ``add_defaults`` of ``fairseq.dataclass.initialize``."""
    plain = module.add_defaults

    def add_defaults(cfg: Any) -> None:
        from fairseq.utils import import_user_module

        import_user_module(cfg.common)
        plain(cfg)
        _check_names(cfg)

    module.add_defaults = add_defaults  # type: ignore[attr-defined]


def _check_names(cfg: Any) -> None:
    """Raises ConfigCompositionException, which hydra shows alone, if a part's name is not registered."""
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY
    from hydra.errors import ConfigCompositionException

    models = {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}
    for part, known in (("task", TASK_REGISTRY), ("model", models), ("criterion", CRITERION_REGISTRY)):
        name = getattr(cfg.get(part), "_name", None)
        if name is not None and name not in known:
            raise ConfigCompositionException(
                f"{part}._name: there is no {part} {name!r}. If it is a plug-in's, set common.user_dir"
            )
