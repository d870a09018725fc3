"""Virtual adversarial training in bf16 and under autocast, and its gradients through torch's own DDP."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.distributed.module_proxy_wrapper import ModuleProxyWrapper
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from support import batch, build, flat_gradient, gradients, train_args, write_corpus, write_task
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from criterions.test_vat import ROWS, built, vat_options

OPTIONS = {
    "alum_vat": vat_options(),
    "smart": [*vat_options(), "--store-ema", "--ema-decay", "0.9"],
    "freelb": ["--adv-lr", "0.3", "--adv-init-mag", "0.3"],
    "pgd": ["--adv-lr", "0.3", "--adv-init-mag", "0.3"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "classes": write_task(tmp_path_factory.mktemp("classes"), classes=3),
        "masked_lm": write_corpus(tmp_path_factory.mktemp("corpus")),
    }


def relative_difference(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == expected.keys()
    difference = torch.cat([(ours[n].float() - g).flatten() for n, g in expected.items()])
    return float(difference.norm() / torch.cat([g.flatten() for g in expected.values()]).norm())


def step_of_criterion(run: SimpleNamespace, **autocast: Any) -> dict[str, torch.Tensor]:
    """Forward and backward as ``FairseqTask.train_step`` makes them, under the CPU's autocast."""
    torch.manual_seed(0)
    run.model.zero_grad()
    run.model.train()
    with torch.autocast("cpu", **autocast):
        loss, _, _ = run.criterion(run.model, batch(run, ROWS))
    loss.backward()
    return gradients(run.model)


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
@pytest.mark.parametrize("interval", ["1", "1000"], ids=["measured-at-0", "not-measured"])
def test_autocast_gives_the_gradient_of_fp32(folders: dict[str, Path], objective: str, interval: str) -> None:
    """bf16 has 8 significant bits (4e-3). A pass without a graph, in an update that is logged, must not leave
    weights in autocast's cache that were cast without one: they would get no gradient.
    """
    run = built(folders, objective, *vat_options(), "--log-interval", interval)
    expected = step_of_criterion(run, enabled=False)
    ours = step_of_criterion(run, enabled=True, dtype=torch.bfloat16)
    assert relative_difference(ours, expected) <= 0.05


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
def test_bf16_gives_the_gradient_of_fp32(folders: dict[str, Path], objective: str) -> None:
    """All weights in bf16, as --bf16 has them."""
    run = built(folders, objective, *vat_options())
    expected = step_of_criterion(run, enabled=False)
    run.model.bfloat16()
    assert relative_difference(step_of_criterion(run, enabled=False), expected) <= 0.08


def test_recomputed_activations_under_torchs_ddp_are_refused(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch stops there with a riddle about variables marked ready twice, with fairseq's own criterions
    too.
    """
    run = built(folders, "masked_lm", *vat_options())
    checkpoint_wrapper(run.model.encoder.sentence_encoder.layers[0])
    run.criterion.check_before_training(run.model)  # one worker
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match=r"pytorch_ddp can't train .* pass --ddp-backend legacy_ddp"):
        run.criterion.check_before_training(run.model)
    legacy = built(folders, "masked_lm", *vat_options(), "--ddp-backend", "legacy_ddp")
    checkpoint_wrapper(legacy.model.encoder.sentence_encoder.layers[0])
    legacy.criterion.check_before_training(legacy.model)


def test_torchs_ddp_gives_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    """pytorch_ddp, which fairseq 0.12.2 starts on GPUs only, wrapped by hand: two workers with two rows each.

    It reduces during the backward, and only in the last pass's; it divides by the number of workers. The
    workers hold the same gradient, that of four rows in one batch, to fp32's rounding.
    """
    data = write_task(tmp_path / "data", classes=3)
    lines = {m: train_args(data, None, m, *words, classes=3) for m, words in OPTIONS.items()}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_worker, (lines, port, str(tmp_path)), nprocs=2)
    for method, words in lines.items():
        first, second = (torch.load(tmp_path / f"{method}{rank}.pt") for rank in range(2))
        assert torch.equal(first, second), method
        run = build(words)
        for _ in range(2):
            step(run, run.model, ROWS)
        expected = flat_gradient(run.model)
        assert (2 * first - expected).norm() <= 1e-6 * expected.norm(), method


def step(run: SimpleNamespace, model: torch.nn.Module, rows: list[int]) -> None:
    extra: dict[str, Any] = {}
    if run.cfg.ema.store_ema:
        extra["ema_model"] = average = run.trainer.ema.get_model()
        with torch.no_grad():  # other than the model, so that the term has a gradient
            for p in average.parameters():
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(3)) * 0.1)
    run.trainer.zero_grad()
    run.task.train_step(
        sample=batch(run, rows), model=model, criterion=run.criterion, optimizer=run.trainer.optimizer,
        update_num=0, **extra,
    )  # fmt: skip


def _worker(rank: int, lines: dict[str, list[str]], port: int, out: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    for method, words in lines.items():
        run = build(words)
        wrapped = ModuleProxyWrapper(DistributedDataParallel(run.model, find_unused_parameters=True))
        for _ in range(2):  # a reduction that was not finished shows in the next forward
            step(run, wrapped, ROWS[2 * rank : 2 * rank + 2])
        torch.save(flat_gradient(run.model), f"{out}/{method}{rank}.pt")
        del run, wrapped
    distributed.barrier()  # neither leaves while the other still talks to it
    distributed.destroy_process_group()
