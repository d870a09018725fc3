"""InfoBERT's network on two workers under torch's own DDP, wrapped by hand as in test_torch_ddp.py."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import torch
from fairseq.distributed.module_proxy_wrapper import ModuleProxyWrapper
from support import ADVERSARIAL, build, train_args, write_task
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from criterions.test_torch_ddp import step

WORDS = [*ADVERSARIAL, "--infobert-alpha", "0.4", "--infobert-beta", "0.3"]
HALVES = [[0, 1, 2], [3, 4, 5]]


def flat(*modules: torch.nn.Module) -> torch.Tensor:
    return torch.cat(
        [p.grad.double().flatten() for m in modules for p in m.parameters() if p.grad is not None]
    )


def test_two_workers_have_the_gradient_of_two_micro_batches(tmp_path: Path) -> None:
    """Also of the network, which passes through no forward of DDP's. Both divide by the number of workers."""
    args = train_args(write_task(tmp_path / "data"), None, "infobert", *WORDS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(_worker, (args, port, str(tmp_path)), nprocs=2, start_method="fork")
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    run = build(args)
    parts = []
    for rows in HALVES:
        step(run, run.model, [rows])
        run.trainer.optimizer.all_reduce_grads(run.criterion)  # of one worker: nothing
        parts.append(flat(run.model, run.criterion))
    expected = parts[0] + parts[1]
    assert (parts[0] - parts[1]).norm() > 0.1 * expected.norm()
    assert (2 * first - expected).norm() <= 1e-6 * expected.norm()
    of_network = run.criterion.estimate.first.weight.numel()
    assert (2 * first - expected)[-of_network:].norm() <= 1e-5 * expected[-of_network:].norm()
    for rank in range(2):  # a mean of 4e4 fits into fp16, a sum of 8e4 doesn't
        half = torch.load(tmp_path / f"half{rank}.pt")
        assert torch.equal(half, torch.full_like(half, 4e4))


def _worker(rank: int, args: list[str], port: int, out: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    run = build(args)
    model = ModuleProxyWrapper(DistributedDataParallel(run.model, find_unused_parameters=True))
    criterion = ModuleProxyWrapper(DistributedDataParallel(run.criterion))
    for _ in range(2):  # what the first left unfinished would show in the second
        step(run, model, [HALVES[rank]])
        run.trainer.optimizer.all_reduce_grads(criterion)
    torch.save(flat(run.model, run.criterion), f"{out}/{rank}.pt")
    run.criterion.half()  # as --fp16 does
    for weight in run.criterion.parameters():
        weight.grad = torch.full_like(weight, 4e4)
    run.criterion.all_reduce_grads()
    torch.save(flat(run.criterion), f"{out}/half{rank}.pt")
    distributed.barrier()  # neither leaves while the other still talks to it
    distributed.destroy_process_group()
