"""Makes fairseq 0.12.2 and hydra 1.0.7 run on current versions of Python, torch and numpy.

``fairseq-train`` fails on Python >= 3.11 before it reads ``--user-dir``, so the patches must be in place when
the interpreter starts: ``fairseq_adv_compat.pth`` calls :func:`install`, which only puts a finder at the
front of ``sys.meta_path``. The command ``fairseq-adv`` calls it too, and so works without that file. Nothing
else happens until one of ``PATCHED_MODULES`` is imported. The package is separate from ``fairseq_adv``,
because ``--user-dir`` must be the first to import that name. This file runs at every start of Python, so it
is short and imports nothing but ``sys``.
"""

import sys

# Imported module -> our functions, FILE.NAME, that are called with it (before, after) it runs.
PATCHED_MODULES = {
    "fairseq": ("newer_versions.prepare_python", "checkpoints.mark_plain_globals"),
    "hydra": ("newer_versions.prepare_python", ""),
    "hydra._internal.utils": ("", "hydra_train.report_the_real_message"),
    "hydra.core.plugins": ("", "newer_versions.find_plugins"),
    "fairseq.checkpoint_utils": ("", "checkpoints.load_safely"),
    "fairseq.distributed.utils": ("", "checkpoints.trust_workers"),
    "fairseq.dataclass.utils": ("", "newer_versions.read_optional_types"),
    "fairseq.dataclass.initialize": ("", "hydra_train.import_user_dir_first"),
    "fairseq.file_utils": ("", "paths.unpack_inside_the_folder"),
    "fairseq.data.fasta_dataset": ("", "paths.refuse_shell_commands"),
    "fairseq.data.data_utils": ("", "newer_versions.restore_numpy_names"),
    "fairseq.data.language_pair_dataset": ("", "newer_versions.restore_numpy_names"),
    "fairseq.data.token_block_dataset": ("", "newer_versions.restore_numpy_names"),
    "fairseq.modules.dynamic_crf_layer": ("", "newer_versions.restore_numpy_names"),
}
# Compiled modules of fairseq that can't be used without a build; where they aren't built, our files of the
# same names in Python run in their place.
STAND_INS = ("fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast")


class Finder:
    """A ``sys.meta_path`` finder that handles only the patched modules, and those that were not built."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """The other finders' spec; its loader applies the patches. See ``importlib.abc.MetaPathFinder``."""
        if name not in PATCHED_MODULES and name not in STAND_INS:
            return None
        for finder in sys.meta_path:
            spec = None
            if finder is not cls and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and name in PATCHED_MODULES:
                    _patch_on_exec(spec.loader, *PATCHED_MODULES[name])  # type: ignore[no-untyped-call]
                return spec
        if name in STAND_INS:
            from importlib.util import spec_from_file_location

            return spec_from_file_location(name, f"{__path__[0]}/{name.rpartition('.')[2]}.py")
        return None


def _patch_on_exec(loader, before, after):  # type: ignore[no-untyped-def]
    """Wraps ``exec_module`` of this one loader object; its class and its other uses do not change."""
    run_module = loader.exec_module

    def exec_module(module):  # type: ignore[no-untyped-def]
        _apply(before, module)  # type: ignore[no-untyped-call]
        run_module(module)
        _apply(after, module)  # type: ignore[no-untyped-call]

    loader.exec_module = exec_module


def _apply(patch, module):  # type: ignore[no-untyped-def]
    from importlib import import_module

    file, _, name = patch.partition(".")
    if file:
        getattr(import_module(f"{__name__}.{file}"), name)(module)


def install():  # type: ignore[no-untyped-def]
    """Puts the finder at the front of ``sys.meta_path``, once; safe to call again."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
