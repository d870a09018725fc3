"""Masked language modelling: loss and scores by hand, and what is refused before the training starts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.logging import metrics
from support import batch, build, fairseq_train, fork_command, train_args, write_corpus


def args(data: Path | str, *extra: str, save: Path | None = None, criterion: str = "standard") -> list[str]:
    return train_args(Path(data), save, criterion, *extra, task="masked_lm")


def test_loss_and_scores_by_hand(tmp_path: Path) -> None:
    """Three masked positions, four words; log-probabilities set by hand."""
    run = build(args(write_corpus(tmp_path)))
    objective = run.criterion.objective
    target = torch.tensor([[1, 6, 1], [7, 1, 5]])  # 1 is padding: not masked
    sample = {"target": target}
    probabilities = torch.full((3, 8), 1e-9)
    probabilities[0, 6], probabilities[0, 7] = 0.5, 0.5 - 1e-3  # right
    probabilities[1, 7], probabilities[1, 4] = 0.25, 0.75  # wrong
    probabilities[2, 5] = 1.0  # right
    loss = objective.loss(probabilities.log(), sample)
    assert loss.item() == pytest.approx(math.log(2) + math.log(4), abs=2e-3)
    log = objective.logging_output(probabilities.log(), sample, gather=False)
    assert (log["ntargets"], int(log["ncorrect"])) == (3, 2)
    with metrics.aggregate() as meters:
        logging = [{"loss": loss.detach(), "sample_size": 3, **log}]
        run.task.reduce_metrics(logging, run.criterion)
    assert meters.get_smoothed_value("ppl") == pytest.approx(2.0, abs=0.01)  # (2 * 4 * 1) ** (1/3)
    assert meters.get_smoothed_value("accuracy") == pytest.approx(66.67)


def test_a_missing_shard_stops_the_run_before_the_first_update(tmp_path: Path) -> None:
    criterion = "alum_vat"
    first, second = write_corpus(tmp_path / "a"), write_corpus(tmp_path / "b")
    (second / "train.idx").unlink()
    done = fork_command("fairseq-train", *args(f"{first}:{second}", criterion=criterion))
    assert done.returncode != 0 and f"{second / 'train.idx'}: no such file" in done.stderr
    assert "train_inner" not in done.stdout + done.stderr
    # Validation alone asks for no training shards.
    run = build(args(f"{first}:{second}", criterion=criterion))
    assert run.criterion(run.model.eval(), batch(run, [0, 1], "valid"))[0].isfinite()


def test_another_dictionary_than_the_checkpoints_is_refused_when_the_run_is_built(tmp_path: Path) -> None:
    option = "--finetune-from-model"
    data = write_corpus(tmp_path / "data")
    fairseq_train(*args(data, "--max-update", "1", save=tmp_path / "start"))
    start = tmp_path / "start" / "checkpoint_last.pt"
    build(args(data, option, str(start)))
    with (data / "dict.txt").open("a") as more:
        more.write("another 1\n")
    with pytest.raises(ValueError, match=rf"{option} .*: has embeddings for \d+ words, but .*dict.txt has"):
        build(args(data, option, str(start)))


def lines_of(folder: Path, *lengths: int) -> Path:
    """A corpus whose first shard has lines of these lengths, with </s>."""
    data = write_corpus(folder, train=8)
    words = Dictionary.load(str(data / "dict.txt"))
    builder = indexed_dataset.make_builder(str(data / "train.bin"), impl="mmap", vocab_size=len(words))
    for length in lengths:
        builder.add_item(torch.tensor([*[words.nspecial] * (length - 1), words.eos()]))
    builder.finalize(str(data / "train.idx"))
    return data


@pytest.mark.parametrize("mode", ["complete", "complete_doc", "eos"])
def test_a_line_of_more_than_65535_tokens_is_left_out(tmp_path: Path, mode: str) -> None:
    """fairseq's lengths are uint16, so that it counted as one of 10, and died in the position embedding."""
    data = lines_of(tmp_path, 6, 65535, 65546, 7)
    run = build(args(data, "--sample-break-mode", mode))
    run.task.load_dataset("train")
    rows = run.task.datasets["train"]
    assert sorted(rows.size(i) for i in range(len(rows))) == [7, 8, 65536, 65547]
    kept, skipped = rows.filter_indices_by_size(np.arange(len(rows)), run.model.max_positions())
    assert (len(kept), len(skipped)) == (2, 2)


def test_lines_that_are_left_out_are_told_as_a_share_of_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One row of 5, but 3 of 4 tokens. What a break mode divides isn't left out."""
    data = lines_of(tmp_path, *[10] * 4, 116)
    told = "% of the tokens of train are not trained on: they are in rows of more than 16 tokens"
    for mode, length, share, fix in (
        ("complete", "16", "73", "Pass --sample-break-mode none"),
        ("none", "16", "", ""),
        ("none", "40", "100", "Pass --tokens-per-sample 16"),
    ):
        run = build(args(data, "--sample-break-mode", mode, "--tokens-per-sample", length))
        run.task.load_dataset("train")
        caplog.clear()
        run.criterion.objective.check_model(run.model)
        assert (f"{share}{told}" in caplog.text) == (share != "") and fix in caplog.text, mode
    run = build(args(data, "--sample-break-mode", "eos", "--max-tokens", "10"))
    run.task.load_dataset("train")
    run.criterion.objective.check_model(run.model)
    assert "than 10 tokens, which --max-tokens leaves out. Pass --max-tokens 16" in caplog.text
