"""Encoders that fairseq lacks. Importing this package registers them."""

from fairseq_adv.models import albert, hf_encoder

__all__ = ["albert", "hf_encoder"]
