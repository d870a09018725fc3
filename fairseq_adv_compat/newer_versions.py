"""What newer Pythons and numpys refuse in the source of fairseq 0.12.2 and hydra 1.0.7."""

from __future__ import annotations

import dataclasses
import pkgutil
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

_ROOTS = ("fairseq", "fairseq_cli", "hydra")


class ModuleView(ModuleType):
    """Stands in for ``original`` in the globals of one module, so that no other module sees the change.

    Args:
        original: the viewed module; names that are not replaced are looked up there.
        replaced: names that this view has in place of, or in addition to, those of ``original``.
    """

    def __init__(self, original: ModuleType, **replaced: Any) -> None:
        super().__init__(original.__name__, original.__doc__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)


def prepare_python(module: ModuleType) -> None:
    """Called before ``fairseq`` or ``hydra`` runs; calling it again has no effect.

    * Since 3.11 ``dataclasses`` refuses every default that can't be hashed, including instances of ordinary
      dataclasses (``common: CommonConfig = CommonConfig()``), which 3.10 accepted. A default factory doesn't
      help, because fairseq reads ``Field.default``. Giving the default's class the identity hash, just before
      the field is made, restores the behaviour of 3.10.
    * 3.13 no longer has ``typing.io``; hydra's grammar and antlr4 4.8 import ``TextIO`` from it.
    """
    if sys.version_info >= (3, 13):
        sys.modules.setdefault("typing.io", typing)
    if sys.version_info >= (3, 11):
        _take_dataclass_defaults()


def _take_dataclass_defaults() -> None:
    # `_get_field` contains the check. Wrapping it, and not the decorator, also works for modules that
    # imported `dataclass` before fairseq was imported, and leaves `dataclasses.dataclass` the same object.
    original = dataclasses._get_field  # type: ignore[attr-defined]
    if hasattr(original, "serves_fairseq"):
        return

    def get_field(cls: type, name: str, *args: Any, **options: Any) -> Any:
        _make_hashable(cls, name)
        return original(cls, name, *args, **options)

    get_field.serves_fairseq = True  # type: ignore[attr-defined]
    dataclasses._get_field = get_field  # type: ignore[attr-defined]


def _make_hashable(cls: type, name: str) -> None:
    """Gives the class of ``cls``'s default for ``name`` the identity hash, if either is fairseq's."""
    default: Any = getattr(cls, name, None)
    if isinstance(default, dataclasses.Field):
        default = default.default
    default_class = type(default)
    unhashable = dataclasses.is_dataclass(default) and default_class.__hash__ is None
    if unhashable and (_is_fairseqs(cls) or _is_fairseqs(default_class)):
        type.__setattr__(default_class, "__hash__", object.__hash__)


def _is_fairseqs(cls: type) -> bool:
    """Whether the class, or one of its bases, belongs to fairseq or hydra."""
    return any(base.__module__.partition(".")[0] in _ROOTS for base in cls.__mro__)


def read_optional_types(module: ModuleType) -> None:
    """Lets fairseq take an option's type from ``Optional[int]`` on Python >= 3.14.

    fairseq/dataclass/utils.py, line 45, ``interpret_dc_type``, looks at the annotation's text, which is now
    "int | None".
    """
    of_text = module.interpret_dc_type

    def interpret_dc_type(field_type: Any) -> Any:
        named, *others = typing.get_args(field_type) or (None,)
        return named if others == [type(None)] else of_text(field_type)

    module.interpret_dc_type = interpret_dc_type  # type: ignore[attr-defined]


def restore_numpy_names(module: ModuleType) -> None:
    """Gives ``module`` a view of numpy with the names that numpy removed (1.24 and 2.0).

    Four modules of fairseq use them: ``np.compat.long`` in ``token_block_dataset`` (every masked_lm and
    language_modeling run) and ``language_pair_dataset``, ``np.int`` in ``data_utils``, ``np.float`` in
    ``dynamic_crf_layer``.
    """
    module.np = ModuleView(  # type: ignore[attr-defined]
        module.np, int=int, float=float, compat=SimpleNamespace(long=int)
    )


def is_fairseqs_hydra() -> bool:
    """Whether hydra is a 1.0, as fairseq needs, and not the later one of another program's environment."""
    return str(getattr(sys.modules["hydra"], "__version__", "")).startswith("1.0.")


def find_plugins(module: ModuleType) -> None:
    """Makes hydra find its plugins on Python >= 3.12.

    ``hydra.core.plugins`` calls ``find_module`` of ``pkgutil``'s finders, which 3.12 removed.
    """
    if sys.version_info >= (3, 12) and is_fairseqs_hydra():
        module.pkgutil = ModuleView(pkgutil, walk_packages=_walk_packages)  # type: ignore[attr-defined]


def _walk_packages(path: Any, prefix: str, onerror: Any) -> Iterator[tuple[_Importer, str, bool]]:
    for _, name, is_package in pkgutil.walk_packages(path, prefix, onerror):
        yield _Importer(), name, is_package


class _Importer:
    """The two calls that hydra makes, implemented with the current import system."""

    def find_module(self, name: str) -> _Importer:
        return self

    def load_module(self, name: str) -> ModuleType:
        return import_module(name)
