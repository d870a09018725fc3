"""fairseq-train with one fault in it, and what each worker ends with. A script, for torchrun or without.

FAULT      oom: a forward pass of the last worker raises; nan: it gives NaN; kill: it is killed there with
           SIGKILL; idle: that worker has no mini-batch in an update; save, copy: the process is killed with
           SIGKILL when it has written half of a checkpoint, or of the copy of one; INT, TERM, HUP, USR1: that
           signal comes to the last worker and to the processes that load its data, or one after the other;
           elsewhere: that worker is in another folder, FAULT_OUT's neighbour; impatient: none, but it waits a
           second for another run to end
FAULT_AT   the number of that pass, update or file, from 1
FAULT_OUT  gets RANK.pt: the weights at the end, and how many hooks are left
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from fairseq_cli.train import cli_main  # first: where fairseq is imported before it, the log goes to stderr

# isort: split
from fairseq.models.roberta import RobertaEncoder
from fairseq.trainer import Trainer

import fairseq_adv.plugin  # noqa: F401 (this file imports the package: --user-dir is then ignored)
from fairseq_adv.fairseq_patches import save_dir_lock
from fairseq_adv.fairseq_patches.checkpoint_files import inference_copies

SIGNALS = {
    **{name: [name] for name in ("INT", "TERM", "HUP", "USR1")},
    "INT, Ctrl-C": ["INT", "INT"],
    "TERM, Ctrl-C": ["TERM", "INT"],
}
FAULT, AT = os.environ["FAULT"], int(os.environ["FAULT_AT"])
RANK = int(os.environ.get("RANK", "0"))
IS_LAST = int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK


def fail_in_a_pass() -> None:
    """Once, in a forward pass of training, where its first layer begins: so also in yopo's shallow passes."""
    passes, plain = 0, RobertaEncoder.forward

    def forward(self: RobertaEncoder, *args: Any, **kwargs: Any) -> Any:
        nonlocal passes
        passes += self.training
        if not (self.training and IS_LAST and passes == AT):
            return plain(self, *args, **kwargs)
        handle = self.sentence_encoder.layers[0].register_forward_pre_hook(fault)
        try:
            return plain(self, *args, **kwargs)
        finally:
            handle.remove()

    RobertaEncoder.forward = forward


def fault(module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    if FAULT == "oom":
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
    if FAULT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return (inputs[0] * float("nan"), *inputs[1:])


def be_idle_in_an_update() -> None:
    """As with uneven shards: fairseq takes a dummy mini-batch, whose gradient it ignores."""
    plain = Trainer.train_step

    def train_step(self: Trainer, samples: Any, raise_oom: bool = False) -> Any:
        idle = IS_LAST and self.get_num_updates() == AT - 1
        return plain(self, [None] * len(samples) if idle else samples, raise_oom)

    Trainer.train_step = train_step


def be_signalled_in_an_update() -> None:
    """As by SLURM, or a terminal: from another process, and to all."""
    plain = Trainer.train_step

    def train_step(self: Trainer, samples: Any, raise_oom: bool = False) -> Any:
        if IS_LAST and self.get_num_updates() == AT - 1:
            for number, name in enumerate(SIGNALS[FAULT]):
                time.sleep(1.1 * number)
                pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
                # Unchecked: a process that loads data may have ended by itself since it was listed.
                subprocess.run(["kill", f"-{name}", *map(str, pids)], check=False)
        return plain(self, samples, raise_oom)

    Trainer.train_step = train_step


def be_killed_in_a_save() -> None:
    """Half of what should be written is there; the rest never comes."""
    files, save, copy = 0, torch.save, shutil.copyfile

    def reached() -> bool:
        nonlocal files
        files += 1
        return files == AT

    def half_save(state: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if not reached():
            save(state, file, *args, **kwargs)
            return
        whole = io.BytesIO()
        save(state, whole)
        _half_and_die(whole.getvalue(), file)

    def half_copy(source: str, target: str, **kwargs: Any) -> Any:
        if reached():
            with open(target, "wb") as file:
                _half_and_die(Path(source).read_bytes(), file)
        return copy(source, target, **kwargs)

    if FAULT == "save":
        torch.save = half_save
    else:
        shutil.copyfile = half_copy


def _half_and_die(content: bytes, file: Any) -> None:
    file.write(content[: len(content) // 2])
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    trainers: list[Trainer] = []
    plain = Trainer.__init__

    def init(self: Trainer, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        trainers.append(self)

    Trainer.__init__ = init
    if FAULT in ("save", "copy"):
        be_killed_in_a_save()
    elif FAULT == "elsewhere":
        save_dir_lock.PATIENCE_WITH_FILES = 1.0
        os.chdir(Path(os.environ["FAULT_OUT"]).parent / ("elsewhere" if IS_LAST else ""))
    elif FAULT == "impatient":
        save_dir_lock.PATIENCE = 1.0
    elif FAULT in SIGNALS:
        be_signalled_in_an_update()
    elif FAULT == "idle":
        be_idle_in_an_update()
    else:
        fail_in_a_pass()
    # A shell that started the tests in the background has left it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cli_main()
    finally:
        model = trainers[0].get_model()
        hooks = sum(len(module._forward_hooks) for module in model.modules())
        copies = {id(copy) for copy in inference_copies(model)}
        frozen = sum(not p.requires_grad for p in model.parameters() if id(p) not in copies)
        state = {name: p.detach() for name, p in model.named_parameters()}
        end = {"weights": state, "hooks": hooks, "frozen": frozen, "updates": trainers[0].get_num_updates()}
        out = Path(os.environ["FAULT_OUT"])
        torch.save(end, out / f"{RANK}.new")
        os.replace(out / f"{RANK}.new", out / f"{RANK}.pt")
        if FAULT == "nan":
            wait_for_the_others()
        elif FAULT == "elsewhere" and not IS_LAST:
            time.sleep(3)  # a busy machine: it tells the reason late


def wait_for_the_others() -> None:
    """torchrun ends all workers when one fails: each has to have written what it ended with."""
    out, workers = Path(os.environ["FAULT_OUT"]), int(os.environ.get("WORLD_SIZE", "1"))
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.pt"))) < workers and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    main()
