"""A trained model of single texts."""

from __future__ import annotations

from pathlib import Path

import glue_samples
from support import fairseq_train, train_args

from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer, tokenizer_for_encoder


def train_films(folder: Path, task: str = "sentence_prediction") -> Path:
    """Makes ``raw``, ``data`` and ``save/checkpoint_best.pt``, of two updates, with its tokenizer beside."""
    tokenizer = tokenizer_for_encoder(glue_samples.small_wordpiece(folder / "encoder"))
    glue_samples.sst2(folder / "raw")
    prepare(folder / "raw", "SST-2", folder / "data", tokenizer, progress=False)
    more = ["--max-positions", "64", "--max-update", "2", "--no-epoch-checkpoints"]
    fairseq_train(*train_args(folder / "data", folder / "save", "standard", *more, task=task))
    (folder / "save" / "tokenizer").mkdir()
    save_tokenizer(folder / "save" / "tokenizer", tokenizer)
    return folder
