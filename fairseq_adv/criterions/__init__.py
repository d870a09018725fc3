"""The training methods: one file per method, with its options, to be read alongside its paper.

Importing this package registers every method with fairseq. ``method.py`` is the only connection to fairseq's
trainer, ``mini_batch.py`` has the mini-batch that a method works on, ``adversarial.py`` the code that FreeLB
and its relatives share, and ``flood.py`` flooding, an option of every method.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fairseq.criterions import CRITERION_REGISTRY

from fairseq_adv.criterions.method import Method

for _file in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")


def methods() -> dict[str, type[Method]]:
    """The criterions that are methods, by name: those of this package, and of a user's that was imported."""
    return {
        name: criterion
        for name, criterion in sorted(CRITERION_REGISTRY.items())
        if issubclass(criterion, Method)
    }
