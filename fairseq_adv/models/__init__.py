"""Encoders that fairseq lacks. Importing this package registers them."""

from fairseq_adv.models import hf_encoder

__all__ = ["hf_encoder"]
