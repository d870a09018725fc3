"""Lets fairseq 0.12.2 and hydra 1.0.7 import and run on today's Python, torch and numpy.

``fairseq-train`` fails on Python >= 3.11 before it looks at ``--user-dir``, so the mends have to be
in place when the interpreter starts: ``fairseq_adv_compat.pth`` calls :func:`install`, which only
puts a finder in front of ``sys.meta_path``. Nothing else happens until one of the modules named in
``_MENDS`` is imported. The package stands outside ``fairseq_adv`` because ``--user-dir`` must be the
first to import that name, and imports only ``sys`` here, to cost nothing at start-up.
"""

import sys

# Annotations that need an import are left out here: it would cost start-up time.
__all__ = ["install"]

# Module that is imported -> our module whose `apply(module)` runs (before it, after it). Each is one
# fault of fairseq 0.12.2 or hydra 1.0.7; what it is and where it lies stands at the top of ours.
_MENDS = {
    "fairseq": ("interpreter", "safe_globals"),
    "hydra": ("interpreter", None),
    "hydra._internal.utils": (None, "hydra_errors"),
    "fairseq.checkpoint_utils": (None, "checkpoints"),
    "fairseq.distributed.utils": (None, "checkpoints"),
    "fairseq.data.data_utils": (None, "numpy_names"),
    "fairseq.data.language_pair_dataset": (None, "numpy_names"),
    "fairseq.data.token_block_dataset": (None, "numpy_names"),
    "fairseq.modules.dynamic_crf_layer": (None, "numpy_names"),
}


class _Finder:
    """Hands out the import system's own specs; those of ``_MENDS`` apply their mend when they run."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """See ``importlib.abc.MetaPathFinder.find_spec``."""
        if name not in _MENDS:
            return None
        for finder in sys.meta_path:
            spec = None
            if finder is not cls and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _mend_on_exec(spec.loader, *_MENDS[name])  # type: ignore[no-untyped-call]
                return spec
        return None


def _mend_on_exec(loader, before, after):  # type: ignore[no-untyped-def]
    """Wraps ``exec_module`` of this one loader object; its class and its other uses stay as they are."""
    run_module = loader.exec_module

    def exec_module(module):  # type: ignore[no-untyped-def]
        from importlib import import_module

        if before:
            import_module(f"{__name__}.{before}").apply(module)
        run_module(module)
        if after:
            import_module(f"{__name__}.{after}").apply(module)

    loader.exec_module = exec_module


def install() -> None:
    """Puts the finder in front of ``sys.meta_path``, once; safe to call again."""
    if not any(finder is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)
