"""Gradient accordance (Flooding-X): do the classes pull the weights in the same direction?

``probe.py`` measures it on a model, ``sums.py`` has its closed form, and ``crossing.py`` finds where its
curve changes sign. This package does not depend on criterions or the trainer.
"""

from fairseq_adv.flooding_x.crossing import DIRECTIONS, Crossing, changes_sign, crossings
from fairseq_adv.flooding_x.groups import GROUPS
from fairseq_adv.flooding_x.probe import Accordance, AccordanceProbe
from fairseq_adv.flooding_x.sums import AccordanceSums

__all__ = [
    "DIRECTIONS",
    "GROUPS",
    "Accordance",
    "AccordanceProbe",
    "AccordanceSums",
    "Crossing",
    "changes_sign",
    "crossings",
]
