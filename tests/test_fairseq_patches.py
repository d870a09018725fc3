"""The patches of fairseq, each with what it is for. tests/training has a run with another criterion."""

from __future__ import annotations

import copy
import ctypes
import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.distributed import LegacyDistributedDataParallel
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from support import build, fairseq_train, run_command, train_args, write_task

import fairseq_adv.plugin  # noqa: F401
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.fairseq_patches import commands, data_loading, save_dir_lock, training_loop
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv.fairseq_patches.signals import _why_not_resumable
from fairseq_adv.fairseq_patches.workers import end_with_torchrun


def test_no_sync_is_fairseqs_own_without_an_error() -> None:
    module = SimpleNamespace(accumulate_grads=False)
    with LegacyDistributedDataParallel.no_sync(module):
        assert module.accumulate_grads is True
    assert module.accumulate_grads is False
    with pytest.raises(RuntimeError), LegacyDistributedDataParallel.no_sync(module):
        raise RuntimeError
    assert module.accumulate_grads is False


def test_a_copy_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave an empty checkpoint_last.pt, and the old one would be gone."""
    (tmp_path / "a").write_bytes(b"checkpoint")
    (tmp_path / "b").write_bytes(b"older")
    done: list[str] = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), sync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), rename(*paths)))
    PathManager.copy(str(tmp_path / "a"), str(tmp_path / "b"), overwrite=True)
    assert done == ["fsync", "replace"] and (tmp_path / "b").read_bytes() == b"checkpoint"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_checkpoint_holds_what_fairseqs_does(tmp_path: Path) -> None:
    save: Any = checkpoint_utils.torch_persistent_save
    (tmp_path / "ours").write_bytes(b"older")
    for write, name in ((save, "ours"), (save.__wrapped__, "theirs")):
        write({"model": {"weight": torch.arange(5.0)}}, str(tmp_path / name))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ours", "theirs"]


def test_a_copy_of_a_part_of_a_configuration_keeps_its_parent_and_shares_nothing_else() -> None:
    whole = OmegaConf.create({"part": {"list": [1, {"same": "${number}"}]}, "number": 5})
    before = OmegaConf.to_container(whole)
    part, number = copy.deepcopy(whole.part), copy.deepcopy(whole._get_node("number"))
    assert part._get_parent() is number._get_parent() is whole
    assert part == whole.part and part.list[1].same == number == 5
    part.list[1].same = 6
    part.list.append(2)
    assert OmegaConf.to_container(whole) == before
    copied = copy.deepcopy(whole)
    copied.number = 7
    assert copied.part.list[1].same == 7 and whole.part.list[1].same == 5
    assert copied.part._get_parent() is copied and copied.part.list._get_parent() is copied.part


def test_a_thread_that_loads_data_keeps_its_random_numbers() -> None:
    """Without the lock, a second thread seeds in the middle of the first one's block."""

    def draw(seed: int, between: Callable[[], object] = lambda: None) -> list[float]:
        with data_utils.numpy_seed(seed):
            first = np.random.rand()
            between()
            return [first, np.random.rand()]

    expected = [draw(1), draw(2)]
    found: list[list[float]] = []
    is_inside, is_done = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: found.append(draw(2, lambda: is_inside.set() or is_done.wait())))

    def meanwhile() -> None:
        other.start()
        is_inside.wait(timeout=0.2)

    mine = draw(1, meanwhile)
    is_done.set()
    other.join()
    assert [mine, *found] == expected


@pytest.mark.skipif(sys.platform != "linux", reason="counts what Linux reads")
def test_a_file_of_rows_is_not_read_before_training(tmp_path: Path) -> None:
    """The kernel is told to read it; fairseq reads it whole, in each worker."""
    write_indexed(tmp_path / "train", [(np.full(40, 5), np.array([40]))], 50)
    os.truncate(tmp_path / "train.bin", 64 << 20)

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = read()
    assert MMapIndexedDataset(str(tmp_path / "train"))[0].tolist() == [5] * 40
    assert read() - before < 1 << 20


def test_a_second_run_of_a_process_forgets_the_first(data: Path, tmp_path: Path) -> None:
    """What a sweep's jobs share, and a folder for the log. The console's handler stays."""
    from fairseq.dataclass import initialize
    from fairseq_cli import train

    log = tmp_path / "new" / "folder" / "train.log"
    cfg = build(train_args(data, None, "freelb", "--log-file", str(log))).cfg
    bar = logging.getLogger("fairseq.logging.progress_bar")
    console, file = logging.StreamHandler(), logging.FileHandler(tmp_path / "first.log")
    bar.addHandler(console)
    bar.addHandler(file)
    checkpoint_utils.save_checkpoint.best = train.should_stop_early.best = 9.0
    train.should_stop_early.num_runs = 3
    try:
        initialize.add_defaults(cfg)
        assert log.parent.is_dir() and not hasattr(checkpoint_utils.save_checkpoint, "best")
        assert not hasattr(train.should_stop_early, "best") and not hasattr(
            train.should_stop_early, "num_runs"
        )
        assert bar.handlers == [console]
    finally:
        bar.handlers.clear()


def test_each_line_of_a_log_is_written_once(data: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    fairseq_train(*train_args(data, tmp_path, "standard", "--max-epoch", "3", "--log-file", str(log)))
    lines = [line for line in log.read_text().splitlines() if '{"epoch": 3, "update"' in line]
    assert len(lines) == len(set(lines)) > 1


def test_a_stop_at_the_end_of_an_epoch_gives_the_signals_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = OmegaConf.create({"optimization": {"skip_remainder_batch": False}})
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(training_loop, "what_is_done", lambda *_: "")
    monkeypatch.setattr(training_loop, "_was_last", lambda *_: False)
    monkeypatch.setattr(training_loop.signals, "leave", lambda *_: sys.exit(143))

    def original(*_: Any) -> Any:
        training_loop.signals.Stop.leaves = True  # as validate_and_save does
        return [0.5], False

    with pytest.raises(SystemExit):
        training_loop.train(original, cfg, None, None, None)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("folder", "save", "why"),
    [
        ("outputs/${now:%Y-%m-%d}", "checkpoints", "another folder: pass hydra.run.dir=."),
        ("outputs/${now:%Y-%m-%d}", "/there", ""),
        (".", "checkpoints", ""),
    ],
)
def test_a_folder_that_hydra_names_after_the_time_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, folder: str, save: str, why: str
) -> None:
    hydra = {"hydra": {"run": {"dir": folder}, "sweep": {"dir": "multirun"}, "job": {"num": "???"}}}
    monkeypatch.setattr(HydraConfig.instance(), "cfg", OmegaConf.create(hydra))
    cfg = OmegaConf.merge(OmegaConf.structured(CheckpointConfig), {"save_dir": save})
    assert why in _why_not_resumable(cfg) and bool(_why_not_resumable(cfg)) is bool(why)


def test_an_option_that_no_checkpoint_may_hold_is_refused_before_training(data: Path) -> None:
    """Of a user's own model, by a name under which fairseq evaluates text."""
    cfg = build(train_args(data, None, "freelb")).cfg
    cfg.model.pretrained = "${of.another}"  # of a sweep's yaml
    check_run(cfg)
    cfg.model.pretrained = "bert-base"
    with pytest.raises(DataError, match=r"cfg.model.pretrained is 'bert-base'.* rename the option"):
        check_run(cfg)


def test_elsewhere_errors_are_python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    commands.report_mistakes_in_one_line()
    errors: list[Exception] = [DataError("a mistake"), ZeroDivisionError(), ValueError("of nobody")]
    with pytest.raises(FileNotFoundError) as of_a_library:
        os.listdir("/nowhere")
    errors.append(of_a_library.value)
    for error in errors:  # the program is pytest
        sys.excepthook(type(error), error, error.__traceback__)
    assert shown == errors
    monkeypatch.setattr(sys, "argv", ["/some/where/fairseq-train"])
    for error in errors:
        sys.excepthook(type(error), error, error.__traceback__)
    assert shown == [*errors, *errors[1:]]


def test_a_mistake_in_a_worker_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq starts one worker for each GPU with this function of torch, which raises their tracebacks."""
    monkeypatch.setattr(sys, "argv", ["/some/where/fairseq-train"])
    for mistake, told in (
        (DataError("a.csv:3: bad.\nFix it."), "error: a.csv:3: bad.\nFix it.\n"),
        (KeyError("x"), ""),
    ):

        def work(rank: int, mistake: Exception = mistake) -> None:
            raise mistake

        with pytest.raises(torch.multiprocessing.ProcessRaisedException) as raised:
            torch.multiprocessing.start_processes(work, start_method="fork")
        capsys.readouterr()
        sys.excepthook(raised.type, raised.value, raised.tb)
        printed = capsys.readouterr().err
        assert printed == told if told else "Traceback" in printed


@pytest.fixture
def death_signal() -> Iterator[Callable[[], int]]:
    """The signal that this process gets when its parent dies: none yet, and after the test what it was."""
    libc, number = ctypes.CDLL(None), ctypes.c_int()

    def get() -> int:
        libc.prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
        return number.value

    before = get()
    libc.prctl(1, 0)  # PR_SET_PDEATHSIG
    yield get
    libc.prctl(1, before)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's service is Linux's")
@pytest.mark.timing
def test_a_worker_ends_with_its_torchrun(
    monkeypatch: pytest.MonkeyPatch, death_signal: Callable[[], int]
) -> None:
    """tests/integration/test_training_under_fire.py kills a real one."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    end_with_torchrun()
    assert death_signal() == 0  # whoever starts a training without torchrun
    listener = socket.create_server(("127.0.0.1", 0))
    worker = {"RUN_ID": "1", "USE_AGENT_STORE": "True"}
    for name, value in worker.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(listener.getsockname()[1]))
    end_with_torchrun()
    assert death_signal() == signal.SIGKILL
    listener.close()
    with pytest.raises(SystemExit, match="torchrun, which started this worker, has ended"):
        end_with_torchrun()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")  # rank 0 opens the store itself
    end_with_torchrun()


@pytest.fixture(params=["fork", "forkserver"])
def start_method(request: pytest.FixtureRequest) -> Iterator[None]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method(request.param, force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.timing
@pytest.mark.usefixtures("start_method")
def test_processes_that_load_data_end_with_their_epoch(tmp_path: Path) -> None:
    """fairseq's own outlive it: then a validation waits 5 seconds for those that loaded its data. They are
    forked on Python 3.14 too, whose own children of a server wouldn't know a signal of the training.
    """
    words = ["--num-workers", "2", "--data-buffer-size", "1"]  # so that not all is read ahead
    run = build(train_args(write_task(tmp_path, train=64), None, "sentence_prediction", *words))
    others = set(multiprocessing.active_children())  # of tests before this one
    epoch = run.trainer.get_train_iterator(1).next_epoch_itr()
    next(epoch)
    children = set(multiprocessing.active_children()) - others
    assert {child._popen.method for child in children} == {"fork"}  # type: ignore[attr-defined]
    assert len(list(epoch)) == 15
    until = time.monotonic() + 60
    for child in children:
        # The thread that reads ahead waits for it too, and for a moment it alone knows the exit code.
        while child.exitcode is None and time.monotonic() < until:
            time.sleep(0.01)
        assert child.exitcode == 0
    assert epoch is not None  # it is not the garbage collector that has ended them


# What a run's thread does when the run ends: adds tensors, or waits to hand over what it has loaded.
LOADS_AHEAD = """
import sys, time, torch, fairseq_adv.plugin
from fairseq.data.iterators import BufferedIterator, CountingIterator
from torch.utils.data import DataLoader
torch.set_num_threads(1)
def collated(rows):
    for _ in range({sums}):
        torch.stack([torch.zeros(500) + 1 for _ in rows])
    return rows
source = CountingIterator(DataLoader(range(10**6), 20, collate_fn=collated, num_workers={workers}))
batches = BufferedIterator({size}, source)
next(batches), next(batches)
if {full}:
    while not batches._queue.full():
        pass
print(time.time())
{end}
"""


@pytest.mark.parametrize(
    ("end", "sums", "size", "full", "workers", "status"),
    [
        ("sys.exit(3)", 50, 10**6, False, 0, 3),  # stopped, or a mistake in one line
        ("1 / 0", 50, 10**6, False, 2, 1),
        ("", 1, 1, True, 0, 0),  # --max-update, with --data-buffer-size 1
    ],
)
def test_a_run_that_still_loads_data_ends_with_its_own_status(
    end: str, sums: int, size: int, full: bool, workers: int, status: int
) -> None:
    code = LOADS_AHEAD.format(end=end, sums=sums, size=size, full=full, workers=workers)
    done = run_command(sys.executable, "-c", code)
    assert done.returncode == status, done.stderr
    assert time.time() - float(done.stdout) < data_loading._LONGEST  # nothing was waited for in vain


@pytest.mark.parametrize("words", [[], ["--spectral-norm-classification-head"]], ids=["plain", "spectral"])
def test_heads_with_and_without_spectral_norm_are_read_from_a_checkpoint(
    data: Path, words: list[str]
) -> None:
    """Nothing is left in what was read that the model has no place for."""
    runs = [build(train_args(data, None, "standard", *words, "--seed", seed)) for seed in "12"]
    first, second = (run.model for run in runs)
    saved = {name: value.clone() for name, value in first.state_dict().items()}
    read = dict(saved)
    second.load_state_dict(read, strict=True, model_cfg=runs[1].cfg.model)
    assert read.keys() == saved.keys()
    heads = {name: value for name, value in second.state_dict().items() if "heads" in name}
    assert heads and all(torch.equal(value, saved[name]) for name, value in heads.items())
    assert any(name.endswith("weight_orig") for name in saved) is bool(words)


def test_a_score_named_best_is_not_the_best_score_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans have a best_f1, which fairseq overwrites from the second validation on."""
    from fairseq_cli import train

    options = {"best_checkpoint_metric": "f1", "maximize_best_checkpoint_metric": True}
    cfg = SimpleNamespace(checkpoint=SimpleNamespace(**options))
    trainer = SimpleNamespace(task=None, get_num_updates=lambda: 7)
    monkeypatch.setattr(checkpoint_utils.save_checkpoint, "best", 30.0, raising=False)
    original = getattr(train.get_valid_stats, "__wrapped__", train.get_valid_stats)
    found = training_loop.get_valid_stats(original, cfg, trainer, {"f1": 25.0, "best_f1": 40.0}, True)
    assert (found["f1"], found["best_f1"], found["num_updates"]) == (25.0, 40.0, 7)


def test_reports_of_an_earlier_job_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of a sweep share a process; but a program's own first run of W&B is left alone."""
    ended: list[str] = []
    aim_run = lru_cache(lambda repo: ended.append(repo))  # type: ignore[func-returns-value]
    wandb = SimpleNamespace(run=object(), finish=lambda: ended.append("wandb"))
    monkeypatch.setattr(progress_bar, "wandb", wandb, raising=False)
    monkeypatch.setattr(progress_bar, "get_aim_run", aim_run, raising=False)
    monkeypatch.setattr(training_loop, "_is_first", True)
    for expected in (["repo"], ["repo", "wandb", "repo"]):
        training_loop._end_reports()
        aim_run("repo")
        aim_run("repo")
        assert ended == expected


@pytest.mark.parametrize("has_locks", [True, False])
def test_what_a_killed_run_left_of_a_checkpoint_is_overwritten(
    has_locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is as large as the checkpoint. Where nothing can be locked, it may be that of another run."""
    if not has_locks:
        monkeypatch.setattr(fcntl, "lockf", Mock(side_effect=OSError(errno.ENOLCK, "no locks")))
    monkeypatch.setattr(save_dir_lock, "_unlocked", [])
    save_dir_lock._lock(tmp_path, "run")
    names = ["checkpoint1.pt", "checkpoint_last.pt"]
    for name in names:
        (tmp_path / f"{name}.tmp").write_bytes(b"half of it")
    checkpoint_utils.torch_persistent_save({"a": 1}, str(tmp_path / names[0]))
    PathManager.copy(*(str(tmp_path / name) for name in names), overwrite=True)
    left = {path.name: path.read_bytes() for path in tmp_path.glob("*.tmp")}
    assert left == ({} if has_locks else {f"{name}.tmp": b"half of it" for name in names})
    assert torch.load(tmp_path / names[1]) == {"a": 1}
    assert has_locks != ("this file system has no locks" in caplog.text)
    save_dir_lock._held.pop().close()
