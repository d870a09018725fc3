"""The training methods: one file per method, readable next to its paper, with its options next to its class.

Importing this package registers every method with fairseq. ``method.py`` is the only connection to fairseq's
trainer, ``mini_batch.py`` is what a method works on, ``adversarial.py`` is what FreeLB and its relatives
share, and ``flood.py`` is flooding, an option of every method.
"""

from fairseq_adv.criterions import (
    alum_vat,
    creat,
    flooding,
    freeat,
    freelb,
    infobert,
    noise,
    pgd,
    r3f,
    smart,
    standard,
    tavat,
    yopo,
)

__all__ = [
    "alum_vat",
    "creat",
    "flooding",
    "freeat",
    "freelb",
    "infobert",
    "noise",
    "pgd",
    "r3f",
    "smart",
    "standard",
    "tavat",
    "yopo",
]
