"""Makes fairseq 0.12.2 and hydra 1.0.7 run on current versions of Python, torch and numpy.

``fairseq-train`` fails on Python >= 3.11 before it reads ``--user-dir``, so the patches must be in place when
the interpreter starts: ``fairseq_adv_compat.pth`` calls :func:`install`, which only puts a finder at the
front of ``sys.meta_path``. The command ``fairseq-adv`` calls it too, and so works without that file. Nothing
else happens until one of ``PATCHED_MODULES`` is imported. The package is separate from ``fairseq_adv``,
because ``--user-dir`` must be the first to import that name. This file runs at every start of Python, so it
is short and imports nothing but ``sys``.
"""

import sys

# Imported module -> our modules whose `apply(module)` is called (before, after) it runs. Each fixes one fault
# of fairseq 0.12.2 or hydra 1.0.7, which is described at the top of the module.
PATCHED_MODULES = {
    "fairseq": ("interpreter", "safe_globals"),
    "hydra": ("interpreter", ""),
    "hydra._internal.utils": ("", "hydra_errors"),
    "hydra.core.plugins": ("", "hydra_plugins"),
    "fairseq.checkpoint_utils": ("", "checkpoints"),
    "fairseq.distributed.utils": ("", "checkpoints"),
    "fairseq.file_utils": ("", "archives"),
    "fairseq.data.fasta_dataset": ("", "fasta_names"),
    "fairseq.data.data_utils": ("", "numpy_names"),
    "fairseq.data.language_pair_dataset": ("", "numpy_names"),
    "fairseq.data.token_block_dataset": ("", "numpy_names"),
    "fairseq.modules.dynamic_crf_layer": ("", "numpy_names"),
}


class Finder:
    """A ``sys.meta_path`` finder that handles only the patched modules."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """See ``importlib.abc.MetaPathFinder.find_spec``."""
        if name in PATCHED_MODULES:
            from .specs import patched_spec

            return patched_spec(name, path, target)
        return None


def install():  # type: ignore[no-untyped-def]
    """Puts the finder at the front of ``sys.meta_path``, once; safe to call again."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
