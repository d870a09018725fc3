"""Encoders that fairseq lacks. Importing this package registers them."""

from fairseq_adv.models import albert

__all__ = ["albert"]
