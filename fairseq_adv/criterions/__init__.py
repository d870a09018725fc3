"""HOW it is learned: one file a method, each readable beside its paper's algorithm.

Importing this room registers every method with fairseq. ``adversarial.py`` holds what they share and
``training_pass.py`` one forward-backward inside fairseq's trainer.
"""

from fairseq_adv.criterions import alum_vat, flooding, freeat, freelb, pgd, smart, standard, yopo

__all__ = ["alum_vat", "flooding", "freeat", "freelb", "pgd", "smart", "standard", "yopo"]
