"""The training methods: one file per method, with its options, to be read alongside its paper.

Importing this package registers every method with fairseq. ``method.py`` is the only connection to fairseq's
trainer, ``mini_batch.py`` has the mini-batch that a method works on, ``adversarial.py`` the code that FreeLB
and its relatives share, and ``flood.py`` flooding, an option of every method.
"""

from importlib import import_module

from fairseq_adv.criterion_names import CRITERIONS

for _name in CRITERIONS:
    import_module(f"{__name__}.{_name}")
