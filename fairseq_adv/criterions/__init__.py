"""HOW it is learned: one file a method, readable beside its paper, its options beside its class.

Importing this room registers every method with fairseq. ``method.py`` is the one seam to fairseq's trainer,
``mini_batch.py`` what a method is given, ``adversarial.py`` what FreeLB and its relatives share, and
``flood.py`` flooding, an option of all.
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
