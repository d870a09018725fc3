"""Encoders of transformers, and data for fairseq's side."""

from models.conftest import encoders, hf_data  # noqa: F401
