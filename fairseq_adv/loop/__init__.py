"""Adversarial training in a training loop of your own, or in Hugging Face's Trainer.

The methods run the algorithms that fairseq's criterions run. Importing this package imports torch, but
neither fairseq nor transformers.
"""

from fairseq_adv.loop.hf_trainer import attach
from fairseq_adv.loop.methods import ALUM, PGD, R3F, SMART, FreeLB, LoopMethod, Noise

__all__ = ["ALUM", "PGD", "R3F", "SMART", "FreeLB", "LoopMethod", "Noise", "attach"]
