"""Workers that share the probe batches get the numbers of one that has them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.distributed.module_proxy_wrapper import ModuleProxyWrapper
from support import build, on_two_workers, train_args, write_task
from torch.nn.parallel import DistributedDataParallel

from fairseq_adv.accordance import Accordance, AccordanceProbe

# 7 batches of 4 for two workers: one has four of them, and in some a class is missing. "rare": each worker
# has one example, and so no sum of two of the three classes.
CASES: dict[str, dict[str, Any]] = {
    "plain": {"batches": 7, "batch_size": 4},
    "dropout": {"batches": 7, "batch_size": 4, "dropout": True},
    "rare": {"batches": 2, "batch_size": 1, "seed": 9},
}


def measured(words: list[str], wrapped: bool = False) -> dict[str, Accordance]:
    run = build(words)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            if "classification_heads" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    model = run.model
    if wrapped:
        model = ModuleProxyWrapper(DistributedDataParallel(model, find_unused_parameters=True))
    probes = {
        name: AccordanceProbe(run.criterion.objective, run.task, "train", **{"seed": 3, **options})
        for name, options in CASES.items()
    }
    return {name: probe.measure(model) for name, probe in probes.items()}


def test_two_workers_give_the_numbers_of_one(tmp_path: Path) -> None:
    """To fp32's rounding of sums, the same to the bit on both; also wrapped in torch's own DDP, which would
    reduce in each backward.
    """
    data = write_task(tmp_path / "data", train=40, classes=3)
    words = train_args(data, None, "standard", "--dropout", "0.2", classes=3)
    on_two_workers(_worker, words, str(tmp_path))
    expected = measured(words)
    assert expected["rare"].pairs == 1
    assert abs(expected["plain"].cosine["all"] - expected["dropout"].cosine["all"]) > 1e-3
    for wrapped in (False, True):
        first, second = (
            torch.load(tmp_path / f"{rank}-{wrapped}.pt", weights_only=False) for rank in range(2)
        )
        assert first == second
        for name, one in expected.items():
            both = first[name]
            assert both.cosine == pytest.approx(one.cosine, abs=1e-6), (name, wrapped)
            assert both.loss == pytest.approx(one.loss, rel=1e-6)
            assert (both.pairs, both.batches) == (one.pairs, one.batches)


def _worker(rank: int, words: list[str], out: str) -> None:
    for wrapped in (False, True):
        torch.save(measured(words, wrapped), f"{out}/{rank}-{wrapped}.pt")
