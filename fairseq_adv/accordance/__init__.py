"""Gradient accordance (Flooding-X): do the classes pull the weights in the same direction?

``probe.py`` measures it on a model, and ``sums.py`` has its closed form. During training ``flood_level.py``
measures it, and keeps the level that is found. This package does not depend on criterions.
"""

from fairseq_adv.accordance.flood_level import DIRECTIONS, Crossing, changes_sign, crossings
from fairseq_adv.accordance.probe import Accordance, AccordanceProbe
from fairseq_adv.accordance.sums import GROUPS, AccordanceSums

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
