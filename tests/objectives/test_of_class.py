"""The examples of one class as a mini-batch of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import batch, build, train_args, write_task

ROWS = list(range(12))


def test_the_classes_are_the_batch_in_parts(tmp_path: Path) -> None:
    """Every row once, with its label; no column that only other classes fill; the losses add up to the
    batch's, to fp32's rounding.
    """
    run = build(train_args(write_task(tmp_path, classes=3), None, "standard", classes=3))
    objective, sample = run.criterion.objective, batch(run, ROWS)
    assert objective.classes() == 3
    parts = {k: objective.of_class(sample, k) for k in range(3)}
    there = {k: part for k, part in parts.items() if part is not None}
    assert len(there) > 1
    assert sorted(i for part in there.values() for i in part["id"].tolist()) == ROWS
    widths = set()
    for k, part in there.items():
        assert set(part["target"].view(-1).tolist()) == {k}
        tokens, lengths = part["net_input"]["src_tokens"], part["net_input"]["src_lengths"]
        assert tokens.shape == (part["nsentences"], int(lengths.max()))
        assert part["ntokens"] == int(tokens.ne(objective.padding_idx).sum()) == int(lengths.sum())
        for row, i in zip(tokens, part["id"].tolist()):
            assert torch.equal(row, sample["net_input"]["src_tokens"][i, : len(row)])
        widths.add(tokens.size(1))
    assert len(widths) > 1
    run.model.train()
    losses = [objective.loss(objective.predict(run.model, part), part) for part in there.values()]
    whole = objective.loss(objective.predict(run.model, sample), sample)
    assert float(sum(losses)) == pytest.approx(float(whole), rel=1e-6)
    k, part = next(iter(there.items()))
    assert all(objective.of_class(part, other) is None for other in range(3) if other != k)
    run.task.cfg.num_classes = 1
    with pytest.raises(ValueError, match="there is only one class"):
        objective.classes()
