"""HOW it is learned: one file a method, each readable beside its paper's algorithm.

Importing this room registers every method with fairseq. ``adversarial.py`` holds what they share and
``training_pass.py`` one forward-backward inside fairseq's trainer. FreeAT and YOPO will stand here, a file
each.
"""

from fairseq_adv.criterions import alum_vat, flooding, freelb, pgd, smart, standard

__all__ = ["alum_vat", "flooding", "freelb", "pgd", "smart", "standard"]
