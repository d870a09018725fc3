"""``import fairseq_adv`` changes nothing, ``load`` little; every worker of a training has the plug-in."""

from __future__ import annotations

import pickle
import socket
import sys
from pathlib import Path

import pytest
import torch
from fairseq.distributed import utils
from support import (
    ADVERSARIAL,
    VOCABULARY,
    build,
    fairseq_train,
    run_command,
    train_args,
    weights,
    write_encoder,
    write_task,
)  # fmt: skip

STATE = """
import logging, os, signal, sys
def state():
    import torch.utils.data
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return (sys.excepthook, torch.utils.data.DataLoader.__init__, logging.FileHandler.handleError,
            logging.FileHandler._open, logging.getLogger().handlers[:], handlers, dict(os.environ),
            sys.meta_path[:])
"""


def ask(code: str, *words: str, **changed: str) -> str:
    """The last line that a fresh interpreter prints."""
    done = run_command(sys.executable, "-c", code, *words, **changed)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def test_importing_the_package_or_load_changes_nothing_and_the_plugin_registers_and_patches() -> None:
    code = STATE + (
        "before = state()\nfrom fairseq_adv import load\nimport fairseq_adv\nsame = before == state()\n"
        "import fairseq_adv.plugin\nfrom fairseq.tasks import TASK_REGISTRY\n"
        "from fairseq.criterions import CRITERION_REGISTRY\n"
        "print(same, 'wsc' in TASK_REGISTRY, 'freelb' in CRITERION_REGISTRY, before[:3] != state()[:3])"
    )
    assert ask(code) == "True True True True"


@pytest.mark.parametrize(
    ("module", "made"),
    [("fairseq.optim.adam", "Adam([weight])"), ("fairseq_adv.optim", "_AdamW([weight], 1e-8)")],
)
def test_adam_leaves_the_compiler_out(module: str, made: str) -> None:
    code = (
        f"import sys, torch, fairseq_adv.plugin\nfrom {module} import {made.partition('(')[0]}\n"
        f"weight = torch.nn.Parameter(torch.ones(1))\none = {made}\none.zero_grad()\n"
        "weight.grad = torch.ones(1)\none.step()\none.load_state_dict(one.state_dict())\n"
        "print(weight.item() < 1, 'torch._dynamo' in sys.modules)"
    )
    assert ask(code) == "True False"


def test_a_loaded_model_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    """Also where it predicts. fairseq's own import is not ours, and comes before."""
    data = write_task(tmp_path / "data")
    write_encoder(data / "tokenizer", VOCABULARY)
    fairseq_train(*train_args(data, tmp_path / "out", "freelb", *ADVERSARIAL, "--max-update", "1"))
    code = (
        "import fairseq.trainer" + STATE + "before = state()\nimport fairseq_adv\n"
        "model = fairseq_adv.load(sys.argv[1], device='cpu')\nmodel.predict(['w1 w2'])\n"
        "print(before == state(), 'fairseq_adv.plugin' in sys.modules)"
    )
    assert ask(code, str(tmp_path / "out" / "checkpoint_last.pt")) == "True False"


# What every worker runs of the installed command's file, and what it calls.
SPAWN = """
import sys
import torch
import fairseq_cli.train
if __name__ == "__main__":
    torch.cuda.device_count = lambda: 2  # so many workers does fairseq start
    sys.argv[0] = "fairseq-train"
    fairseq_cli.train.cli_main()
"""


def not_run(cfg: object) -> None:
    """What fairseq would train with; a worker finds it by its name."""


def test_workers_that_fairseq_starts_are_told_to_import_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bytes] = []
    monkeypatch.setattr(
        torch.multiprocessing, "spawn", lambda fn, args, **_: told.append(pickle.dumps(args[0]))
    )
    run = build(train_args(write_task(tmp_path), None, "freelb"))
    run.cfg.distributed_training.distributed_init_method = "tcp://127.0.0.1:1"
    utils.call_main(run.cfg, not_run)
    assert len(told) == 1 and b"fairseq_adv.plugin" in told[0]


@pytest.mark.slow
def test_workers_that_fairseq_starts_have_the_plugin(tmp_path: Path) -> None:
    """As on several GPUs: each worker is a new process, here from a file like the installed command's."""
    data = write_task(tmp_path / "data")
    program = tmp_path / "program.py"
    program.write_text(SPAWN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*ADVERSARIAL, "--max-update", "2", "--distributed-backend", "gloo"]
    words += ["--ddp-backend", "legacy_ddp"]
    alone = ["--distributed-world-size", "2", "--distributed-init-method", f"tcp://127.0.0.1:{port}"]
    args = train_args(data, tmp_path / "spawned", "freelb", *words, *alone)
    done = run_command(sys.executable, str(program), *args)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (tmp_path / "spawned" / ".running").exists()  # patched: save_dir_lock.py
    fairseq_train(*train_args(data, tmp_path / "launched", "freelb", *words), workers=2)
    runs = [weights(tmp_path / name / "checkpoint_last.pt") for name in ("spawned", "launched")]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[1])
