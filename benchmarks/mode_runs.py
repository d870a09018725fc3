"""Runs cells of the mode matrix and keeps their results in a folder.

``OUT/cells/NAME.json`` is a cell's result, ``OUT/emulated/NAME.json`` its result on an emulated GPU,
``OUT/references/*.pt`` a reference's change in weights, ``OUT/logs`` the output of the processes,
``OUT/data`` the data that all of them train on, and ``OUT/start.pt`` the checkpoint that they start from.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measuring import write_rows
from mode_cells import PRECISIONS, Cell, commands, configuration
from torch import Tensor

from fairseq_adv.data.checked_json import FLAG, SIZE, TEXT, checked_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_open, atomic_write, decoded

Weights = dict[str, Tensor]
Result = dict[str, Any]
SENTENCES, WORDS = 16, 40
LAYERS = 4.0  # the layers' initial weights are this many times fairseq's
RESULT = {
    "state": ("ok, reference, failed or refused", ("ok", "reference", "failed", "refused").__contains__),
    "cuda": FLAG, "device": TEXT, "torch": TEXT,
}  # fmt: skip
# fairseq/checkpoint_utils.py, line 331, replaces a function of omegaconf while it reads a checkpoint.
_one_thread = threading.Lock()
# A refusal by fairseq or by one of our criterions names an option.
REFUSAL = re.compile(r"^error: .*--[a-z]")
ERROR = re.compile(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*|error: .*)$")


class RunFailed(DataError):
    """A training run failed; the message is the line with its error."""


@dataclass(frozen=True)
class Machine:
    """What a cell runs on.

    Attributes:
        cuda: whether a GPU is used.
        gpus: how many there are.
        device: its name.
        torch: the version of torch.
        emulated: whether the GPU is an emulated one.
    """

    cuda: bool
    gpus: int
    device: str
    torch: str
    emulated: bool = False

    @property
    def kind(self) -> str:
        return "emulated" if self.emulated else "cuda" if self.cuda else "cpu"


def this_machine(emulated: bool = False) -> Machine:
    """This machine with its GPU, or with the CPU if it has none, or with an emulated GPU."""
    if emulated:
        return Machine(True, 1, "emulated GPU", torch.__version__, emulated)
    cuda = torch.cuda.is_available()
    name = torch.cuda.get_device_name(0) if cuda else "CPU"
    return Machine(cuda, torch.cuda.device_count() if cuda else 0, name, torch.__version__)


def save_whole(path: Path, value: Any) -> None:
    """``torch.save`` into a file that is written completely or not at all."""
    with atomic_open(path) as file:
        torch.save(value, file)


def write_task(folder: Path) -> None:
    """Sentences of 3 to 8 random words; the label is whether the first word is from the upper half."""
    from fairseq.data import Dictionary

    words, labels = Dictionary(), Dictionary()
    for i in range(WORDS):
        words.add_symbol(f"w{i}")
    for label in ("0", "1"):
        labels.add_symbol(label)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 9, (SENTENCES,), generator=generator).tolist()
    rows = [torch.randint(WORDS, (length,), generator=generator) + words.nspecial for length in lengths]
    classes = [int(row[0] - words.nspecial >= WORDS // 2) for row in rows]
    end = torch.tensor([words.eos()])
    write_rows(folder / "input0", words, lambda: [torch.cat([row, end]) for row in rows])
    targets = [torch.tensor([labels.index(str(k)), labels.eos()]) for k in classes]
    write_rows(folder / "label", labels, lambda: targets)


def trained_weights(checkpoint: Path) -> Weights:
    """A checkpoint's weights in fp64, without the copies for inference in fairseq's layers, which are never
    trained.
    """
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu

    with _one_thread:
        state = load_checkpoint_to_cpu(str(checkpoint))["model"]
    copies = ("in_proj_", "out_proj_", "fc1_", "fc2_")
    return {name: w.double() for name, w in state.items() if not name.split(".")[-1].startswith(copies)}


def distance(ours: Weights, expected: Weights) -> float:
    """||ours - expected|| / ||expected||, over all weights together.

    Raises:
        RunFailed: their names differ, one is not finite, or none has changed.
    """
    if ours.keys() != expected.keys():
        raise RunFailed(f"the weights have different names: {sorted(ours.keys() ^ expected.keys())}")
    flat = torch.cat([(ours[name] - expected[name]).flatten() for name in expected])
    size = torch.cat([expected[name].flatten() for name in expected]).norm()
    if not (torch.isfinite(flat).all() and torch.isfinite(size) and size > 0):
        raise RunFailed("a weight is not finite, or none has changed")
    return float(flat.norm() / size)


class Runs:
    """Runs cells into a folder; several threads may share one.

    Args:
        out: the folder, created if necessary.
        machine: what they run on.
        limit: seconds that a run may take.
    """

    def __init__(self, out: Path, machine: Machine, limit: float) -> None:
        self.out, self.machine, self.limit = out.resolve(), machine, limit
        self.stop = threading.Event()  # set: end what is running

    def result(self, cell: Cell) -> Result | None:
        """The kept result of a cell, rather from a run than from an emulated one; ``None``: there is none.

        Raises:
            DataError: the file can't be read.
        """
        return self.kept(cell, emulated=False) or self.kept(cell, emulated=True)

    def kept(self, cell: Cell, *, emulated: bool) -> Result | None:
        """As :meth:`result`, of one kind."""
        path = self._path(cell, emulated)
        if not path.is_file():
            return None
        fix = "Delete the file to run the cell again."
        text = decoded(path.read_bytes(), path)
        kinds = dict(RESULT)
        if '"distance"' in text:
            kinds["distance"] = SIZE
        result = {**checked_object(text, kinds, str(path), fix), "emulated": emulated}
        if result["state"] in ("failed", "refused"):
            checked_object(text, {"why": TEXT}, str(path), fix)
        return result

    def reference_path(self, cell: Cell) -> Path:
        """The weights of a cell's reference, one per kind of device, since a GPU draws other noise."""
        return self.out / "references" / f"{cell.reference.name}-{self.machine.kind}.pt"

    def _path(self, cell: Cell, emulated: bool) -> Path:
        return self.out / ("emulated" if emulated else "cells") / f"{cell.name}.json"

    def prepare(self) -> None:
        """Writes the data and the checkpoint that all runs start from, unless they exist.

        Raises:
            RunFailed: fairseq-train does not work.
        """
        if not (self.out / "start.pt").is_file():
            with tempfile.TemporaryDirectory(prefix="run-", dir=self.out) as name:
                write_task(Path(name) / "data")
                if not (self.out / "data").is_dir():
                    os.replace(Path(name) / "data", self.out / "data")
            self._make_start()

    def run(self, cell: Cell) -> Result:
        """Runs a cell, compares it with its reference, and keeps the result."""
        begin = time.monotonic()
        result: Result = {"method": cell.method, "precision": cell.precision, "mode": cell.mode}
        result.update(vars(self.machine))
        try:
            result["tolerance"] = tolerance = PRECISIONS[cell.precision].tolerance
            change, result["command"] = self._change(cell)
            if cell == cell.reference:
                distance(change, change)  # checks that it is finite and not zero
                save_whole(self.reference_path(cell), change)
                result["state"] = "reference"
            else:
                result["distance"] = found = distance(change, self._expected(cell))
                near = found <= tolerance
                result["state"] = "ok" if near else "failed"
                if not near:
                    result["why"] = (
                        f"the weights' change is {found:.2g} from the reference's, more than {tolerance:g}"
                    )
        except RunFailed as error:
            result.update(state="refused" if REFUSAL.match(str(error)) else "failed", why=str(error))
        result["seconds"] = round(time.monotonic() - begin, 1)
        emulated = self.machine.emulated
        kept = self.kept(cell, emulated=emulated)
        if kept is not None and kept["cuda"] and not self.machine.cuda:
            return result  # a CPU reference, run when a GPU already has this cell's result
        if not self.stop.is_set():
            atomic_write(self._path(cell, emulated), json.dumps(result, indent=1) + "\n")
        return result

    def _expected(self, cell: Cell) -> Weights:
        path = self.reference_path(cell)
        if not path.is_file():
            raise RunFailed(f"nothing to compare with: the reference {cell.reference.name} has not run")
        found: Weights = torch.load(path, weights_only=True)
        return found

    def _change(self, cell: Cell) -> tuple[Weights, list[str]]:
        """(the change in weights, the command lines)."""
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.out) as name:
            save, start = Path(name) / "save", self.out / "start.pt"
            lines = self._train(cell, cell.name, save, start, Path(name), cpu=not self.machine.cuda)
            if not (save / "checkpoint_last.pt").is_file():
                raise RunFailed("the run ended without a checkpoint")
            before, after = trained_weights(start), trained_weights(save / "checkpoint_last.pt")
        if before.keys() != after.keys():
            raise RunFailed(f"the checkpoint has other weights: {sorted(before.keys() ^ after.keys())}")
        return {key: after[key] - before[key] for key in after}, lines

    def _make_start(self) -> None:
        """Random weights that bf16, fp16 and fp32 all represent exactly, so that no run starts with rounding.

        fairseq initialises for hundreds of dimensions. With so small weights, these layers would hardly
        matter, and LayerDrop would change an update less than bf16 does.
        """
        cell = Cell("standard", "fp32", "single")
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.out) as name:
            save = Path(name) / "save"
            self._train(
                cell, "start", save, None, Path(name), cpu=True, changed={"max_update": 1, "lr": [0.0]}
            )
            state = torch.load(save / "checkpoint_last.pt", weights_only=False)  # our own
        state["model"] = {
            name: (LAYERS * w if ".layers." in name and w.dim() == 2 else w).bfloat16().float()
            for name, w in state["model"].items()
        }
        save_whole(self.out / "start.pt", state)

    def _train(
        self, cell: Cell, log: str, save: Path, start: Path | None, folder: Path, *, cpu: bool,
        changed: dict[str, Any] | None = None,
    ) -> list[str]:  # fmt: skip
        """Trains to the end, and returns the command lines."""
        import fairseq_adv

        config = configuration(cell, Path(fairseq_adv.__file__).parent, save, start, cpu)
        config["optimization"].update(changed or {})
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        emulated = self.machine.emulated and not cpu
        lines = commands(cell, config, self.out / "data", folder, port, self.machine.gpus, emulated)
        (self.out / "logs").mkdir(exist_ok=True)
        ranks = [f"-{rank}" for rank in range(len(lines))] if len(lines) > 1 else [""]
        kind = "-emulated" if emulated else ""
        logs = [self.out / "logs" / f"{log}{kind}{rank}.log" for rank in ranks]
        run_side_by_side(lines, logs, self.limit, self.stop)
        return [shlex.join(line) for line in lines]


def run_side_by_side(
    lines: Sequence[list[str]], logs: Sequence[Path], limit: float, stop: threading.Event
) -> None:
    """Runs the processes of one training; when one fails, the others are ended.

    Args:
        lines: the command line of each.
        logs: the file for the output of each.
        limit: seconds that they may take.
        stop: ends them when it is set.

    Raises:
        RunFailed: one failed, or took too long.
    """
    # fp32 cells are compared within 1e-4, which TF32 products would not keep.
    own = {"PYTHONWARNINGS": "ignore", "NVIDIA_TF32_OVERRIDE": "0"}
    env = {"OMP_NUM_THREADS": "1", **os.environ, **own}
    deadline = time.monotonic() + limit
    with ExitStack() as open_ones:
        running: list[tuple[subprocess.Popen[bytes], Path]] = []
        try:
            for line, log in zip(lines, logs):
                file = open_ones.enter_context(open(log, "wb"))
                process = subprocess.Popen(  # own session: only this program gets Ctrl-C
                    line, stdout=file, stderr=subprocess.STDOUT, env=env, start_new_session=True
                )  # fmt: skip
                running.append((process, log))
            while any(process.poll() is None for process, _ in running):
                _tell_failure(running)
                if stop.wait(0.1):
                    raise RunFailed("stopped")
                if time.monotonic() > deadline:
                    raise RunFailed(f"not done after {limit:.0f} seconds; raise --limit")
            _tell_failure(running)
        finally:
            for process, _ in running:
                process.kill()
                process.wait()


def _tell_failure(running: Sequence[tuple[subprocess.Popen[bytes], Path]]) -> None:
    """Raises RunFailed if a process has failed."""
    for process, log in running:
        if process.poll():
            raise RunFailed(error_line(log.read_text(encoding="utf-8", errors="replace"), process.returncode))


def error_line(log: str, status: int) -> str:
    """The line of a log that describes the error: that of the last exception, or else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [found.group(1) for found in map(ERROR.match, lines) if found]
    return (errors or lines or [f"ended with exit status {status} and no output"])[-1]
