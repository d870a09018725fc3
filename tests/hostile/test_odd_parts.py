"""A checkpoint with parts that no fairseq writes is refused with one line, not with a traceback."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import VERBS
from fairseq import checkpoint_utils
from support import CommandMain

Hostile = Callable[[Any], Path]


def _extra(**parts: Any) -> Any:
    return lambda state, canary: state["extra_state"].update(parts)


def _model(change: Callable[[Any], Any]) -> Any:
    def changed(state: Any, canary: Path) -> None:
        state["model"] = {name: change(value) for name, value in state["model"].items()}

    return changed


# What changes the checkpoint, and the verbs that need what it changes.
ODD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no history": (lambda state, canary: state.update(optimizer_history=[]), ("validate",)),
    "a history of texts": (lambda state, canary: state.update(optimizer_history=["x"]), ("validate",)),
    "a list of more": (lambda state, canary: state.update(extra_state=[1]), ("validate", "export")),
    "a list of meters": (_extra(metrics=[[1]]), ("validate",)),
    "a list of a task": (lambda state, canary: state.update(task_state=[1]), ("validate", "attack")),
    "complex weights": (_model(lambda value: value.to(torch.complex64)), ("validate", "predict --input")),
    "a criterion by a dict": (
        lambda state, canary: state["cfg"].update(criterion={"_name": {"a": 1}}), ("validate", "attack"),
    ),
    "a head that is not there": (
        lambda state, canary: state["cfg"].update(
            criterion={"_name": "standard", "classification_head_name": "x"}
        ),
        ("validate", "attack"),
    ),
    "classes that are parts": (
        lambda state, canary: state["cfg"]["task"].update(class_names=[{"a": 1}, ["b"]]), ("validate",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "verb"), [(name, verb) for name, (_, verbs) in ODD.items() for verb in verbs]
)
def test_a_command_ends_with_one_line(
    name: str, verb: str, films: Path, hostile: Hostile, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = hostile(ODD[name][0])
    done = CommandMain("", capsys)(*VERBS[verb](films, bad))
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {bad.parent}")


@pytest.mark.parametrize("state", [[1], {"model": {}}, {"args": 1}, {}])
def test_fairseq_s_own_reader_names_the_file(state: Any, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"bad\.pt"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "bad.pt"))
