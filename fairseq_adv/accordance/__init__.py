"""Gradient accordance (Flooding-X): do the classes pull the weights in the same direction?

``probe.py`` measures it on a model, ``sums.py`` has its closed form, and ``crossing.py`` finds where its
curve changes sign. During training ``search.py`` measures it, and ``flood_level.py`` keeps the level that is
found. This package does not depend on criterions.
"""

from fairseq_adv.accordance.crossing import DIRECTIONS, Crossing, changes_sign, crossings
from fairseq_adv.accordance.groups import GROUPS
from fairseq_adv.accordance.probe import Accordance, AccordanceProbe
from fairseq_adv.accordance.sums import AccordanceSums

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
