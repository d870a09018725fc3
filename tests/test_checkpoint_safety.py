"""Checkpoints load, and nothing in them is ever run."""

from __future__ import annotations

import argparse
import collections
import fractions
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, meters
from fairseq.models.roberta import RobertaModel
from omegaconf import DictConfig, OmegaConf
from support import command, run_command, write_task

from fairseq_adv_compat import checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoint_last.pt of the stock sentence_prediction task, and its data in data/."""
    folder = tmp_path_factory.mktemp("trained")
    done = run_command(*train_words(folder, 2))
    assert done.returncode == 0, done.stderr
    return folder


def train_words(folder: Path, updates: int) -> list[str]:
    data = folder / "data"
    if not data.exists():
        write_task(data)
    return [
        command("fairseq-train"), str(data), "--task", "sentence_prediction", "--criterion",
        "sentence_prediction", "--num-classes", "2", "--init-token", "0", "--arch", "roberta",
        "--encoder-layers", "1", "--encoder-embed-dim", "8", "--encoder-ffn-embed-dim", "16",
        "--encoder-attention-heads", "2", "--max-positions", "16", "--batch-size", "4", "--optimizer", "adam",
        "--lr", "0.001", "--cpu", "--num-workers", "0", "--no-epoch-checkpoints", "--log-format", "simple",
        "--save-dir", str(folder), "--max-update", str(updates),
    ]  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """The checkpoint as it lies in the file, by fairseq's own function."""
    with path.open("rb") as file:
        return checkpoints.load(file, "cpu")  # type: ignore[no-any-return]


def old_style(state: dict[str, Any]) -> dict[str, Any]:
    """``state`` as fairseq wrote it before 0.9: a Namespace, and meters as whole objects."""
    train_meters: collections.OrderedDict[str, Any] = collections.OrderedDict()
    for name in ("train_loss", "train_nll_loss", "valid_loss", "gnorm", "clip", "oom"):
        train_meters[name] = meters.AverageMeter()
        train_meters[name].update(1.5)
    train_meters["wps"] = train_meters["ups"] = train_meters["wall"] = meters.TimeMeter()
    train_meters["train_wall"] = meters.StopwatchMeter()
    for kind in (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter):
        assert kind.__module__ == "fairseq.logging.meters"
    history = {"criterion_name": "MaskedLmLoss", "optimizer_name": "FairseqAdam", "num_updates": 3}
    history["lr_scheduler_state"] = {"best": None}
    iterator = {"epoch": 1, "iterations_in_epoch": 0, "shuffle": True}
    extra = {"train_iterator": iterator, "train_meters": train_meters, "best": 2.5, "val_loss": 2.5}
    return {
        "args": state["cfg"]["model"], "model": state["model"], "optimizer_history": [history],
        "extra_state": extra, "last_optimizer_state": None,
    }  # fmt: skip


# --- what has to load ---------------------------------------------------------------------------


def test_a_trained_checkpoint_loads_whole(trained: Path) -> None:
    state = checkpoint_utils.load_checkpoint_to_cpu(str(trained / "checkpoint_last.pt"))
    assert isinstance(state["cfg"], DictConfig)
    assert isinstance(state["cfg"].model, argparse.Namespace)
    assert state["last_optimizer_state"]["state"][0]["exp_avg"].dtype == torch.float32
    model = RobertaModel.from_pretrained(str(trained), "checkpoint_last.pt", str(trained / "data"), bpe=None)
    assert model.extract_features(torch.tensor([0, 5, 6, 2])).shape == (1, 4, 8)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("module", ["fairseq.logging.meters", "fairseq.meters"])
def test_an_old_checkpoint_loads(trained: Path, tmp_path: Path, zipped: bool, module: str) -> None:
    """As the published RoBERTa models are: Namespace, meters under either module name, either file format."""
    old = old_style(read(trained / "checkpoint_last.pt"))
    with pytest.MonkeyPatch.context() as patch:
        for kind in (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter):
            patch.setattr(kind, "__module__", module)
        torch.save(old, tmp_path / "old.pt", _use_new_zipfile_serialization=zipped)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "old.pt"))
    assert state["cfg"].model.encoder_embed_dim == 8
    restored = read(tmp_path / "old.pt")["extra_state"]["train_meters"]
    assert restored["train_loss"].avg == 1.5 and type(restored["wall"]) is meters.TimeMeter


def test_omegaconf_containers_and_numpy_numbers_load(tmp_path: Path) -> None:
    """Checkpoints of fairseq 0.10 hold a DictConfig; a metric computed with numpy leaves numpy numbers."""
    config = OmegaConf.create({"task": {"data": "x", "sizes": [1, 2.5, None, True]}})
    numbers = [np.float64(0.25), np.float32(0.5), np.int64(-3), np.bool_(True)]
    torch.save({"cfg": config, "best": numbers, "counts": collections.defaultdict(int)}, tmp_path / "x.pt")
    state = read(tmp_path / "x.pt")
    assert state["cfg"] == OmegaConf.to_container(config) and type(state["cfg"]["task"]["sizes"]) is list
    assert state["best"] == numbers and [type(n) for n in state["best"]] == [type(n) for n in numbers]


def test_a_users_own_torch_load_reads_it_too(trained: Path) -> None:
    state = read(trained / "checkpoint_last.pt")
    torch.save({**state, "best": np.float64(0.5)}, trained / "own.pt")
    state = torch.load(trained / "own.pt", weights_only=True)
    assert isinstance(state["cfg"]["model"], argparse.Namespace) and state["best"] == 0.5


def test_others_may_allow_numpys_own_types(tmp_path: Path) -> None:
    """As transformers' Trainer does for the states of generators; torch takes either of two with one name."""
    torch.save(np.random.get_state(), tmp_path / "state.pt")
    build = np.zeros(1).__reduce__()[0]
    for _ in range(2):
        with torch.serialization.safe_globals([build, np.ndarray, np.dtype, type(np.dtype("u4"))]):  # type: ignore[list-item]
            state = torch.load(tmp_path / "state.pt", weights_only=True)
        assert np.array_equal(state[1], np.random.get_state()[1])
        torch.save({"best": np.float64(0.5)}, tmp_path / "x.pt")
        assert read(tmp_path / "x.pt")["best"] == 0.5  # with stand-ins, which are gone afterwards


def test_torch_load_is_left_alone_for_everybody_else() -> None:
    assert torch.load.__module__ == "torch.serialization"
    assert checkpoint_utils.torch.load is checkpoints.load
    assert checkpoint_utils.torch.save is torch.save


def test_what_fairseq_writes_passes(tmp_path: Path) -> None:
    weights = collections.OrderedDict(w=torch.nn.Parameter(torch.ones(2)), tied=torch.ones(4)[:2])
    weights._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    extra = {"names": {"a", "b"}, "bytes": b"x" * 1000, "large": 1 << 70, 3: (torch.Size([2]), torch.half)}
    for zipped in (True, False):
        kept = {"model": weights, "x": extra}
        torch.save(kept, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        state = read(tmp_path / "x.pt")
        assert state["x"] == extra and list(state["model"]) == ["w", "tied"]
        assert state["model"]._metadata == weights._metadata  # type: ignore[attr-defined]


def test_a_torch_whose_own_check_has_holes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({}, tmp_path / "x.pt")
    for version, lines in (("2.13.0+cpu", 0), ("2.10.0", 0), ("2.9.1", 1), ("2.6.0", 1)):
        monkeypatch.setattr(torch, "__version__", version)
        read(tmp_path / "x.pt")
        shown = capsys.readouterr().err
        assert shown.count("\n") == lines
    assert shown.startswith(f"warning: {tmp_path / 'x.pt'}: a checkpoint may run code in torch 2.6.0, which")


# --- what has to be refused; more in hostile/hostile_files.py ------------------------------------


class Touch:
    """Pickled, it is a call of os.system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.path}'",)


def test_the_refusal_names_the_global(trained: Path, tmp_path: Path) -> None:
    state = read(trained / "checkpoint_last.pt")
    state["extra_state"]["best"] = fractions.Fraction(1, 2)
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"bad\.pt.*`fractions\.Fraction`.*files you trust"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "bad.pt"))


def test_averaged_weights_refuse_it_too(tmp_path: Path) -> None:
    weights = {"w": torch.ones(2)}
    torch.save({"extra_state": {"ema": weights}}, tmp_path / "good.pt")
    assert checkpoint_utils.load_ema_from_checkpoint(str(tmp_path / "good.pt"))["model"]["w"].sum() == 2
    torch.save({"extra_state": {"ema": weights, "x": Touch(tmp_path / "touched")}}, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"bad\.pt.*`posix\.system`"):
        checkpoint_utils.load_ema_from_checkpoint(str(tmp_path / "bad.pt"))
    assert not (tmp_path / "touched").exists()


def test_the_command_refuses_it_and_the_opt_out_loads_it(trained: Path, tmp_path: Path) -> None:
    """The second half shows that the payload is a real one: trusted, it runs."""
    state, touched = read(trained / "checkpoint_last.pt"), tmp_path / "touched"
    state["extra_state"]["best"] = Touch(touched)
    torch.save(state, tmp_path / "bad.pt")
    words = [*train_words(trained, 2), "--restore-file", str(tmp_path / "bad.pt")]
    words += ["--reset-meters", "--no-save"]
    refused = run_command(*words)
    assert refused.returncode != 0 and "`posix.system`" in refused.stderr and "bad.pt" in refused.stderr
    assert not touched.exists()
    trusted = run_command(*words, **{checkpoints.OPT_OUT: "1"})
    assert trusted.returncode == 0, trusted.stderr
    assert touched.exists()


# What no pickler writes but an attacker can, in instructions of protocol 2; and what the refusal says.
X = b"X\x01\x00\x00\x00x"
REDUCE_EX = b"X\x0d\x00\x00\x00__reduce_ex__"
METER = b"cfairseq.logging.meters\nSumMeter\n)\x81"
RAW = {
    "state of a class": (b"cargparse\nNamespace\n}(" + X + b"K\x01ub.", "build"),
    "append to a listed object": (b"cargparse\nNamespace\n)RK\x01a.", "append to lists"),
    "items of a listed object": (b"cargparse\nNamespace\n)R" + X + b"K\x01s.", "SETITEM"),
    "call of a result": (b"cargparse\nNamespace\n)R)R.", "unrecognized function"),
    "new object of a result": (b"cargparse\nNamespace\n)R)\x81.", "new object"),
    "INST": (b"(" + X + b"icollections\nOrderedDict\n.", "Unsupported operand"),
    "OBJ": (b"(ccollections\nOrderedDict\no.", "Unsupported operand"),
    "dotted name": (b"cargparse\nNamespace.__init__\n)R.", "names `argparse.Namespace.__init__`"),
    "module through a listed one": (b"cargparse\n_sys.modules\n.", "names `argparse._sys.modules`"),
    "persistent id": (b"N" + X + b"Q.", "persistent_load"),
    "a class": (b"}" + X + b"cargparse\nNamespace\ns.", "x is a type, which fairseq"),
    # What a pickler would call, when the contents are saved or sent again.
    "a method of a meter": (b"}" + X + METER + b"}" + REDUCE_EX + b"cbuiltins\nstr\nsbs.", "__reduce_ex__"),
    "a method of a dictionary": (
        b"}" + X + b"ccollections\nOrderedDict\n)R}" + REDUCE_EX + b"cbuiltins\nstr\nsbs.", "with attributes",
    ),
    "a factory": (b"}" + X + b"ccollections\ndefaultdict\ncargparse\nNamespace\n\x85Rs.", "with attributes"),
    "numpy's type of objects": (
        b"}" + X + b"cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nX\x01\x00\x00\x00O\x85R"
        + X + b"\x86Rs.", "a number of numpy that is none",
    ),
    "numpy's type of bytes": (
        b"}" + X + b"cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\x00\x00\x00S4\x85R"
        + X + b"\x86Rs.", "a number of numpy that is none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_instructions_that_no_checkpoint_holds_are_refused(tmp_path: Path, name: str) -> None:
    instructions, message = RAW[name]
    torch.save({"x": 1}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as good, zipfile.ZipFile(tmp_path / "bad.pt", "w") as bad:
        for entry in good.infolist():
            is_pickle = entry.filename.endswith("data.pkl")
            bad.writestr(entry, b"\x80\x02" + instructions if is_pickle else good.read(entry))
    with pytest.raises(pickle.UnpicklingError, match=rf"bad\.pt .*{message}"):
        read(tmp_path / "bad.pt")
