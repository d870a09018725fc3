"""What every objective keeps to, whatever it learns: one test for each promise, over all objectives."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from criterions.restated import OBJECTIVES, run_of, write_all
from support import batch, validate

SCORES = {
    "accuracy", "mcc", "f1", "acc_and_f1", "em", "precision", "pearson", "spearman", "f1_Gene", "micro_f1",
    "map",
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_of_nans_has_no_score(folders: dict[str, Path], objective: str) -> None:
    """The arg max of NaNs would be the first class, and right at times; so would one NaN among numbers."""
    run = run_of(folders, objective, "standard")
    found = validate(run, "valid", 5)
    names = SCORES & found.keys()
    assert names and not any(math.isnan(found[name]) for name in names)
    embedding = run.model.encoder.sentence_encoder.embed_tokens.weight
    with torch.no_grad():
        embedding[int(batch(run, [0], "valid")["net_input"]["src_tokens"][0, 1])] = math.nan  # of some rows
    spoilt = validate(run, "valid", 5)
    assert all(math.isnan(spoilt[name]) for name in names), spoilt


@pytest.mark.parametrize("objective", ["commonsense_qa", "wsc", "tagging", "span_qa"])
def test_a_split_without_answers_has_no_loss_and_no_score(folders: dict[str, Path], objective: str) -> None:
    """Its log has the keys of any other: workers add them up key by key."""
    run = run_of(folders, objective, "standard")
    run.task.load_dataset("test")
    loss, size, log = run.criterion(run.model, batch(run, [0, 1], "test"))
    assert loss.item() == 0.0 and size == 0 and log["ntargets"] == 0
    known = run.criterion(run.model, batch(run, [0, 1], "valid"))[2]
    assert {*log, "gathered"} == {*known, "gathered"}
    found = validate(run, "test", 2)
    assert found["loss"] == 0.0 and not SCORES & found.keys()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_without_the_head_is_refused(folders: dict[str, Path], objective: str) -> None:
    run = run_of(folders, objective, "standard")
    run.criterion.objective.check_model(run.model)
    del run.model.encoder.lm_head
    run.model.classification_heads.clear()
    with pytest.raises(ValueError, match=r"has no (masked-LM|classification) head"):
        run.criterion.objective.check_model(run.model)
