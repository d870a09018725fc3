"""An update by two workers, a script for torchrun: prints for each method how far the gradient is from that
of one worker, and which buckets of gradients were reduced.
"""

import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from loop.tiny_models import METHODS, SEEDS, bert, closure, distance, gradient, made, part, rows

distributed.init_process_group("gloo")
rank, reduced = distributed.get_rank(), []


# DDP looks at the annotations, which must be no strings.
def counted(state: None, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    reduced.append(bucket.index())
    return allreduce_hook(None, bucket)  # type: ignore[arg-type]


for name in METHODS:
    alone = bert()
    method = made(name, alone)
    method(closure(alone, rows(), method), seeds=SEEDS)
    expected = gradient(alone)
    model = DistributedDataParallel(bert())
    model.register_comm_hook(None, counted)
    method = made(name, model)
    mine = (0, 2) if rank == 0 else (1, 3)
    found = []
    for _ in range(2):  # buckets are made again after the first update
        reduced.clear()
        method(closure(model, part(rows(), *mine), method), seeds=[SEEDS[row] for row in mine])
        found.append(gradient(model))
    assert distance(*found) < 1e-6
    if rank == 0:
        print(name, distance(found[0], expected), reduced)
distributed.destroy_process_group()
