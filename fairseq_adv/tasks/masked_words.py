"""The model card of the tasks whose models predict masked words."""

from __future__ import annotations

from pathlib import Path

from fairseq_adv.tasks.task_record import ModelCard, pipeline_use


def _use(folder: str, data: Path) -> str:
    return pipeline_use("fill-mask", folder, '"The sky is " + model.tokenizer.mask_token + "."')


MASKED_WORDS = ModelCard("ForMaskedLM", "It is a masked language model.", _use, "fill-mask")
