"""Small trained checkpoints with a converted encoder, what fairseq answers with them, and changed copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import glue_samples
import hf_models
import support
import torch
from hf_encoders import of_transformers, save_encoder

from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer, tokenizer_for_encoder
from fairseq_adv.evaluation.trained import load
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv_compat import checkpoints


def encoder(folder: Path, kind: str) -> Path:
    """A random encoder with a masked-LM head in Hugging Face's layout; a RoBERTa's conversion."""
    if kind != "roberta":
        save_encoder(folder / "hf", kind, max_position_embeddings=514)
        return folder / "hf"
    hf_models.save_roberta(folder / "hf", max_position_embeddings=514)
    convert_hf_checkpoint(folder / "hf", folder / "fairseq")
    return folder / "fairseq"


def glue(folder: Path, name: str, converted: Path) -> Path:
    """A GLUE task of awkward texts, tokenised for the encoder, which is kept beside the data."""
    glue_samples.WRITERS[name](folder / "raw" / name)
    tokenizer = tokenizer_for_encoder(converted)
    prepare(folder / "raw", name, folder / name, tokenizer, progress=False)
    (folder / name / "tokenizer").mkdir(exist_ok=True)
    save_tokenizer(folder / name / "tokenizer", tokenizer)
    return folder / name


def train(path: Path, converted: Path, data: Path, *options: str, task: str = "sentence_prediction") -> Path:
    """A checkpoint as fairseq's trainer saves it, with random weights."""
    words = support.train_args(data, None, "freelb", "--pooler-dropout", "0", *options, task=task)
    if (converted / "model_args.txt").is_file():
        words += (converted / "model_args.txt").read_text().split()
    else:
        words = [*of_transformers(words, converted), "--max-positions", "512"]
    run = support.build([*words, "--best-checkpoint-metric", "accuracy", "--no-save-optimizer-state"])
    hf_models.randomise(run.model)
    run.trainer.set_num_updates(3)
    path.parent.mkdir(parents=True, exist_ok=True)
    run.trainer.save_checkpoint(str(path), {"best": 81.5, "val_loss": 80.25})
    return path


def changed(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint whose content ``change`` has changed in place."""
    with source.open("rb") as file:
        state = checkpoints.load(file, "cpu")
    change(state)
    target.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, target)
    return target


def answers(checkpoint: Path, data: Path, split: str = "valid") -> list[tuple[list[list[int]], list[float]]]:
    """fairseq's own: for each example of a split its rows' ids and the probabilities (or the number)."""
    trained = load(str(checkpoint), str(data), [split], cpu=True)
    trained.model.eval()
    dataset, found = trained.task.dataset(split), []
    for index in range(len(dataset)):
        sample = dataset.collater([dataset[index]])
        with torch.no_grad():
            predictions = trained.objective.log_probabilities(
                trained.objective.predict(trained.model, sample)
            )
        if not getattr(trained.task.cfg, "regression_target", False):
            predictions = predictions.exp()
        lengths = sample["net_input"]["src_lengths"].tolist()
        rows = [row[:n].tolist() for row, n in zip(sample["net_input"]["src_tokens"], lengths)]
        found.append((rows, predictions[0].tolist()))
    return found
