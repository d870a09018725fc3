"""Data of all objectives, and encoders of transformers, whose words have the same ids in all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from criterions.restated import write_all
from hf_encoders import KINDS, SELDOM, WORDS, save_encoder

from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind."""
    root = tmp_path_factory.mktemp("encoders")
    for kind in (*KINDS, *SELDOM):
        save_encoder(root / kind, kind, WORDS)
    return {kind: root / kind for kind in (*KINDS, *SELDOM)}


@pytest.fixture(scope="session")
def hf_data(tmp_path_factory: pytest.TempPathFactory, encoders: dict[str, Path]) -> dict[str, Path]:
    """A folder for each objective."""
    folders = write_all(tmp_path_factory.mktemp)
    dictionary = tokenizer_for_encoder(encoders["bert"]).dictionary
    of_texts = [folders[name] / "input0" for name in ("classes", "regression", "windows", "multi_label")]
    for part in (*of_texts, folders["masked_lm"]):
        dictionary.save(str(part / "dict.txt"))
    return folders
