"""torch's own DDP (pytorch_ddp), which fairseq 0.12.2 starts on GPUs only: wrapped by hand, on gloo.

It reduces the gradients during a backward. A method whose update has several backwards must let it do so in
the last one alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.distributed.module_proxy_wrapper import ModuleProxyWrapper
from methods import OF_A_BATCH, OPTIONS
from recipes import PRETRAINING, TINY, completed, composed, methods, tiny_data
from support import (
    ADVERSARIAL,
    assembled,
    batch,
    build,
    flat_gradient,
    on_two_workers,
    train_args,
    write_task,
)
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from criterions.restated import move_average
from criterions.test_contract import LAYERDROP

ROWS = [0, 1, 2, 3]
# Without annotations: torch wants bucket's to be the class itself, not its name.
REDUCE_AND_NOTE: Any = lambda noted, bucket: noted.append(bucket.index()) or allreduce_hook(None, bucket)  # noqa: E731


def test_two_workers_have_the_gradient_of_the_whole_batch_after_one_reduction(tmp_path: Path) -> None:
    """Two workers with two rows each, at once and as two micro-batches of one.

    DDP divides by the number of workers. The workers hold the same gradient, that of four rows in one batch,
    to fp32's rounding, and each bucket of gradients was reduced once (freeat: once in each of its updates).
    awp and sam step for each mini-batch of a worker.
    """
    data = write_task(tmp_path / "data", classes=3)
    lines = {m: train_args(data, None, m, *words, classes=3) for m, words in OPTIONS.items()}
    for method, start in (("freelb", "0.4"), ("pgd", "0.4"), ("freelb", "0"), ("pgd", "0")):
        words = [*OPTIONS[method], "--adv-init-mag", start, "--adv-clean-weight", "2"]
        lines[f"{method}, clean too, {start}"] = train_args(data, None, method, *words, classes=3)
    words = [*OPTIONS["freelb"], "--freeze", "embeddings,0", "--class-weights", "balanced"]
    lines["freelb, frozen"] = train_args(data, None, "freelb", *words, classes=3)
    del lines["infobert"]  # whose loss is not that of the whole batch: below
    on_two_workers(_worker, lines, str(tmp_path))
    for method, words in lines.items():
        first, second = (torch.load(tmp_path / f"{method}{rank}.pt") for rank in range(2))
        run = build(words)
        for kind in ("whole", "parts"):
            assert torch.equal(first[kind], second[kind]), (method, kind)
            own = [ROWS[:2], ROWS[2:]] if kind == "whole" else [[row] for row in ROWS]
            expected = torch.zeros_like(first[kind])
            for rows in own if method in OF_A_BATCH else [ROWS]:
                for _ in range(2):
                    step(run, run.model, [rows])
                expected += flat_gradient(run.model)
            assert (2 * first[kind] - expected).norm() <= 1e-6 * expected.norm(), (method, kind)
        assert first["reductions"] == second["reductions"] == {"whole": 1, "parts": 1}, method


# Passes whose masks differ, and with them the layers that LayerDrop leaves: of a loss of two passes, of
# several backward passes, and of a pass whose gradient is dropped.
UNSHARED = {
    "r3f": ["--r3f-lambda", "2", "--r3f-epsilon", "0.2"],
    "rdrop": OPTIONS["rdrop"],
    "alum_vat": [*OPTIONS["alum_vat"], "--vat-share-dropout", "false"],
    "smart": [*OPTIONS["smart"], "--vat-share-dropout", "false"],
    **{method: [*OPTIONS[method], "--no-adv-share-dropout"] for method in ("creat", "freelb", "awp")},
}


def test_the_passes_of_an_update_may_drop_different_layers(tmp_path: Path) -> None:
    """Of four updates some leave a layer to the first pass only. The gradients are as without DDP."""
    data = write_task(tmp_path / "data", classes=3)
    lines = {m: train_args(data, None, m, *words, *LAYERDROP, classes=3) for m, words in UNSHARED.items()}
    on_two_workers(_dropping_worker, lines, str(tmp_path))
    for method, words in lines.items():
        first, second = (torch.load(tmp_path / f"{method}{rank}.pt") for rank in range(2))
        assert torch.equal(first, second), method
        run = build(words)
        expected = torch.zeros_like(first)
        for rows in [ROWS[:2], ROWS[2:]] if method in OF_A_BATCH else [ROWS]:
            expected += torch.stack([dropping_step(run, run.model, rows, seed) for seed in range(4)])
        assert (2 * first - expected).norm() <= 3e-6 * expected.norm(), method


def dropping_step(run: SimpleNamespace, model: torch.nn.Module, rows: list[int], seed: int) -> torch.Tensor:
    """The gradient of an update without some layers, zeros for a layer that no pass used."""
    torch.manual_seed(seed)
    step(run, model, [rows])
    zeros = (torch.zeros_like(p) if p.grad is None else p.grad for p in run.model.parameters())
    return torch.cat([gradient.double().flatten() for gradient in zeros])


def step(run: SimpleNamespace, model: torch.nn.Module, parts: list[list[int]]) -> None:
    """The gradient of an update of these micro-batches, as the trainer accumulates it."""
    extra: dict[str, Any] = {}
    if run.cfg.ema.store_ema:
        extra["ema_model"] = move_average(run)
    run.trainer.zero_grad()
    for i, rows in enumerate(parts):
        with model.no_sync() if i < len(parts) - 1 else nullcontext():  # type: ignore[operator]
            run.task.train_step(
                sample=batch(run, rows), model=model, criterion=run.criterion,
                optimizer=run.trainer.optimizer, update_num=0, **extra,
            )  # fmt: skip


def wrap_as_fairseq(model: torch.nn.Module) -> Any:
    return ModuleProxyWrapper(DistributedDataParallel(model, find_unused_parameters=True))


def _dropping_worker(rank: int, lines: dict[str, list[str]], out: str) -> None:
    for method, words in lines.items():
        run = build(words)
        wrapped, mine = wrap_as_fairseq(run.model), ROWS[2 * rank : 2 * rank + 2]
        found = torch.stack([dropping_step(run, wrapped, mine, seed) for seed in range(4)])
        torch.save(found, f"{out}/{method}{rank}.pt")


def _worker(rank: int, lines: dict[str, list[str]], out: str) -> None:
    for method, words in lines.items():
        run = build(words)
        wrapped = wrap_as_fairseq(run.model)
        (ddp,) = (part for part in wrapped.modules() if isinstance(part, DistributedDataParallel))
        reduced: list[int] = []
        ddp.register_comm_hook(reduced, REDUCE_AND_NOTE)
        found: dict[str, Any] = {"reductions": {}}
        mine = ROWS[2 * rank : 2 * rank + 2]
        for kind, parts in (("whole", [mine]), ("parts", [[row] for row in mine])):
            for _ in range(2):  # a reduction that was not finished shows in the next forward
                reduced.clear()
                step(run, wrapped, parts)
            found[kind] = flat_gradient(run.model)
            found["reductions"][kind] = max(reduced.count(index) for index in set(reduced))
        torch.save(found, f"{out}/{method}{rank}.pt")
        del run, wrapped, ddp


# The first has the model of roberta_large, too, and bert_base another task.
RECIPES = [*(("roberta_base", method) for method in methods("roberta_base")), ("bert_base", "alum_vat")]


def test_pretraining_gives_each_weight_its_gradient(tmp_path: Path) -> None:
    """So its recipes don't look for unused weights, without which DDP would fail in the next update."""
    for name in PRETRAINING:
        assert composed(name).distributed_training.find_unused_parameters is False, name
    on_two_workers(_pretraining_worker, tiny_data(tmp_path, "roberta_base"), str(tmp_path))
    for name, method in RECIPES:
        first, second = (torch.load(tmp_path / f"{name}-{method}{rank}.pt") for rank in range(2))
        assert torch.equal(first["gradient"], second["gradient"]), (name, method)
        assert first["reductions"] == second["reductions"] == 1, (name, method)
        assert first["weights"] > 40 and not first["unused"], (name, method)


def _pretraining_worker(rank: int, data: str, out: str) -> None:
    small = [
        *TINY, f"task.data={data}", "task.tokens_per_sample=24", "model.max_positions=24",
        "checkpoint.finetune_from_model=null", f"checkpoint.save_dir={out}/unused",
        "distributed_training.distributed_world_size=1", "optimization.max_epoch=5",
    ]  # fmt: skip
    for name, method in RECIPES:
        run = assembled(completed(composed(name, f"method={method}", *small)))
        ddp = DistributedDataParallel(run.model, find_unused_parameters=False)
        reduced: list[int] = []
        ddp.register_comm_hook(reduced, REDUCE_AND_NOTE)
        for _ in range(3):
            reduced.clear()
            step(run, ModuleProxyWrapper(ddp), [[rank, 2 + rank]])
        trained = [(name, weight) for name, weight in run.model.named_parameters() if weight.requires_grad]
        found = {
            "gradient": flat_gradient(run.model), "weights": len(trained),
            "reductions": max(reduced.count(index) for index in set(reduced)),
            "unused": [name for name, weight in trained if weight.grad is None],
        }  # fmt: skip
        torch.save(found, f"{out}/{name}-{method}{rank}.pt")


# --- infobert, whose network passes through no forward of DDP's ------------------------------------

INFOBERT = [*ADVERSARIAL, "--infobert-alpha", "0.4", "--infobert-beta", "0.3"]
HALVES = [[0, 1, 2], [3, 4, 5]]


def gradient_of(*modules: torch.nn.Module) -> torch.Tensor:
    return torch.cat(
        [p.grad.double().flatten() for m in modules for p in m.parameters() if p.grad is not None]
    )


def test_infobert_on_two_workers_has_the_gradient_of_two_micro_batches(tmp_path: Path) -> None:
    """Also of the network, which passes through no forward of DDP's. Both divide by the number of workers."""
    args = train_args(write_task(tmp_path / "data"), None, "infobert", *INFOBERT)
    on_two_workers(_infobert_worker, args, str(tmp_path))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    run = build(args)
    parts = []
    for rows in HALVES:
        step(run, run.model, [rows])
        run.trainer.optimizer.all_reduce_grads(run.criterion)  # of one worker: nothing
        parts.append(gradient_of(run.model, run.criterion))
    expected = parts[0] + parts[1]
    assert (parts[0] - parts[1]).norm() > 0.1 * expected.norm()
    assert (2 * first - expected).norm() <= 1e-6 * expected.norm()
    of_network = run.criterion.estimate.first.weight.numel()
    assert (2 * first - expected)[-of_network:].norm() <= 1e-5 * expected[-of_network:].norm()
    for rank in range(2):  # a mean of 4e4 fits into fp16, a sum of 8e4 doesn't
        half = torch.load(tmp_path / f"half{rank}.pt")
        assert torch.equal(half, torch.full_like(half, 4e4))


def _infobert_worker(rank: int, args: list[str], out: str) -> None:
    run = build(args)
    model = ModuleProxyWrapper(DistributedDataParallel(run.model, find_unused_parameters=True))
    criterion = ModuleProxyWrapper(DistributedDataParallel(run.criterion))
    for _ in range(2):  # what the first left unfinished would show in the second
        step(run, model, [HALVES[rank]])
        run.trainer.optimizer.all_reduce_grads(criterion)
    torch.save(gradient_of(run.model, run.criterion), f"{out}/{rank}.pt")
    run.criterion.half()  # as --fp16 does
    for weight in run.criterion.parameters():
        weight.grad = torch.full_like(weight, 4e4)
    run.criterion.all_reduce_grads()
    torch.save(gradient_of(run.criterion), f"{out}/half{rank}.pt")
