"""Parts and values of a checkpoint that no training writes are refused with one short line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import VERBS, refusal
from fairseq import checkpoint_utils
from support import CommandMain, fork_command, slow, train_args

from fairseq_adv import load
from fairseq_adv.data.errors import DataError

Hostile = Callable[[Any], Path]
NAN, LONG = float("nan"), "a b " * 25_000


def model(**options: Any) -> Any:
    return lambda state, canary: vars(state["cfg"]["model"]).update(options)


def task(**options: Any) -> Any:
    return lambda state, canary: state["cfg"]["task"].update(options)


def criterion(**options: Any) -> Any:
    return lambda state, canary: state["cfg"]["criterion"].update(options)


# What changes the configuration, and what is said about it.
VALUES: dict[str, tuple[Any, str]] = {
    "no heads": (
        model(encoder_attention_heads=0),
        "cfg.model.encoder_attention_heads is 0; expected a whole number of 1 or more",
    ),
    "heads in words": (
        model(encoder_attention_heads="2"),
        "encoder_attention_heads is '2'; expected a whole",
    ),
    "heads that don't divide": (model(encoder_attention_heads=3), "embed_dim must be divisible by num_heads"),
    "dropout in words": (model(dropout="0.1"), "cfg.model.dropout is '0.1'; expected a number from 0 to 1"),
    "no dropout": (model(attention_dropout=NAN), "attention_dropout is nan; expected a number from 0 to 1"),
    "no width": (model(encoder_embed_dim=0), "encoder_embed_dim is 0; expected a whole number of 1 or more"),
    "no positions": (task(max_positions=-5), "cfg.task.max_positions is -5; expected a whole number of 1"),
    "a token": (task(init_token=10**12), "--init-token 1000000000000: pass the id of a token, from 0 to "),
    "no token": (task(init_token=-1), "cfg.task.init_token is -1; expected a whole number of 0 or more"),
    "classes": (task(class_names=5), "cfg.task.class_names is 5: Invalid value assigned"),
    "classes in words": (task(num_classes="2"), "cfg.task.num_classes is '2'; expected a whole number"),
    "a flag": (task(regression_target="x"), "regression_target is 'x': Value 'x' is not a valid bool"),
    "a list of a part": (
        lambda state, canary: state["cfg"].update(dataset=[1]),
        "not a checkpoint written by fairseq-train: 'dataset'",
    ),
    "a missing part": (
        lambda state, canary: state["cfg"].pop("dataset"),
        "not a checkpoint written by fairseq-train: 'dataset'",
    ),
    "a long activation": (model(activation_fn=LONG), "--activation-fn a b a b"),
    "a long folder": (task(data=LONG), "File name too long"),
    # Parts that no fairseq writes.
    "no history": (lambda state, canary: state.update(optimizer_history=[]), ""),
    "a history of texts": (lambda state, canary: state.update(optimizer_history=["x"]), ""),
    "a list of more": (lambda state, canary: state.update(extra_state=[1]), ""),
    "a list of a task": (lambda state, canary: state.update(task_state=[1]), ""),
    "complex weights": (
        lambda state, canary: state.update(
            model={name: one.to(torch.complex64) for name, one in state["model"].items()}
        ),
        "",
    ),
    "a criterion by a dict": (lambda state, canary: state["cfg"].update(criterion={"_name": {"a": 1}}), ""),
    "a head that is not there": (criterion(classification_head_name="x"), ""),
    "classes that are parts": (task(class_names=[{"a": 1}, ["b"]]), ""),
}
BUILDING = ("validate", "predict --stdin", "predict --input", "attack")


@pytest.mark.parametrize(
    ("name", "verb"),
    [*((name, "validate") for name in VALUES), *(("no heads", verb) for verb in BUILDING[1:])],
)
def test_a_command_ends_with_one_line(
    name: str, verb: str, films: Path, hostile: Hostile, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = VALUES[name]
    bad = hostile(change)
    line = refusal(CommandMain("", capsys), bad.parent.parent, *VERBS[verb](films, bad))
    assert told in line and len(line.replace(str(bad), "")) < 950


@pytest.mark.parametrize("state", [[1], {"model": {}}, {"args": 1}, {}])
def test_fairseq_s_own_reader_names_the_file(state: Any, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"bad\.pt"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "bad.pt"))


@pytest.mark.parametrize("name", ["no heads", "a token"])
def test_from_python(name: str, hostile: Hostile) -> None:
    change, told = VALUES[name]
    with pytest.raises(DataError) as refused:
        load(hostile(change))
    assert told in str(refused.value)


STATE: dict[str, tuple[Any, str]] = {
    "no heads": (VALUES["no heads"][0], "--encoder-attention-heads: 0 -> 2"),
    "a long rate": (
        lambda state, canary: state["cfg"]["optimization"].update(lr=LONG),
        "was made with other options, and this run would resume from it (--lr: a b a b",
    ),
}


@pytest.mark.parametrize("name", ["no heads", *(slow(name) for name in list(STATE)[1:])])
def test_a_training_does_not_resume_from_it(name: str, films: Path, hostile: Hostile) -> None:
    change, told = STATE[name]
    bad = hostile(change)
    more = ["--max-positions", "64", "--max-update", "2", "--restore-file", str(bad)]
    args = train_args(films / "data", None, "standard", *more, task="text_classification")
    done = fork_command("fairseq-train", *args)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ") and told in line and len(line) < 1000
