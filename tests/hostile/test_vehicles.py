"""Whatever object carries a string to a place where fairseq evaluates it, the checkpoint is refused, or the
string does not arrive."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import pickle
import pydoc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from hostile_configurations import State
from omegaconf import OmegaConf
from omegaconf.nodes import AnyNode

from fairseq_adv_compat import checkpoints
from fairseq_adv_compat.allow_list import checked_globals
from fairseq_adv_compat.configurations import EVALUATED

PAYLOAD = "print('run')"


def classes() -> dict[str, Any]:
    """Every class that a checkpoint may name and that can hold a text, as omegaconf and fairseq have it."""
    named = {name: pydoc.locate(name) for _, name in checked_globals()}
    named.update({"builtins.bytes": bytes, "builtins.set": set, "collections.OrderedDict": dict})
    return {name: kind for name, kind in named.items() if _holds_strings(kind)}


def _holds_strings(kind: Any) -> bool:
    without = (bool, float, int)
    return isinstance(kind, type) and kind not in without and kind.__module__ not in ("numpy", "typing")


def carrier(kind: Any, option: str) -> Any:
    """An object of the class in which ``option`` is the payload, wherever such a class may keep it."""
    plain = {
        dict: {option: PAYLOAD}, str: PAYLOAD, bytes: PAYLOAD.encode(), list: [PAYLOAD], tuple: (PAYLOAD,),
        set: {PAYLOAD},
    }  # fmt: skip
    if kind in plain:
        return plain[kind]
    made = kind.__new__(kind)
    if isinstance(made, dict):
        made[option] = PAYLOAD
    with contextlib.suppress(AttributeError):
        held = {
            option: PAYLOAD,
            "_content": {option: PAYLOAD},
            "_val": PAYLOAD,
            "_metadata": None,
            "_parent": None,
        }
        made.__dict__.update(held)
    return made


def _in_a_container(carried: Any, option: str) -> State:
    container = OmegaConf.create({"model": {}})
    container.__dict__["_content"]["model"].__dict__["_content"] = {option: carried}
    return {"cfg": container}


def _in_a_node(carried: Any, option: str) -> State:
    container, node = OmegaConf.create({"model": {}}), AnyNode(None)
    node.__dict__["_val"] = {option: carried}
    container.__dict__["_content"]["model"] = node
    return {"cfg": container}


def _as_a_name(carried: Any, option: str) -> State:
    with contextlib.suppress(Exception):  # no hash
        return {"cfg": {"model": {carried: PAYLOAD}}}
    return {}


PLACES: dict[str, Callable[[Any, str], Any]] = {
    "in cfg": lambda carried, option: {"cfg": carried},
    "as a part": lambda carried, option: {"cfg": {"model": carried}},
    "as an option": lambda carried, option: {"cfg": {"model": {option: carried}}},
    "in a list": lambda carried, option: {"cfg": {"model": {"w2v_args": [{option: carried}]}}},
    "in a namespace": lambda carried, option: {"cfg": {"model": argparse.Namespace(**{option: carried})}},
    "as args": lambda carried, option: {"args": carried},
    "in args": lambda carried, option: {"args": argparse.Namespace(**{option: carried})},
    "below args": lambda carried, option: {
        "args": argparse.Namespace(encoder=argparse.Namespace(**{option: carried}))
    },
    "in a container": _in_a_container,
    "in a node": _in_a_node,
    "as a name": _as_a_name,
    "as everything": lambda carried, option: carried,
}


def arrives(state: Any) -> bool:
    """Whether fairseq would evaluate the payload, once the state was saved and read."""
    buffer = io.BytesIO()
    try:
        torch.save(state, buffer)
    except Exception:
        return False  # Python itself can't write it
    buffer.seek(0)
    try:
        state = checkpoints.load(buffer, "cpu")
    except pickle.UnpicklingError:
        return False
    return isinstance(state, dict) and any(_is_evaluated(state.get(part)) for part in ("cfg", "args"))


def _is_evaluated(part: Any) -> bool:
    """Whether a text stands where fairseq evaluates it, or in an object that something else may unwrap."""
    if type(part) in (list, tuple):
        return any(map(_is_evaluated, part))
    options = vars(part) if type(part) is argparse.Namespace else part
    if type(options) is not dict:
        return type(options) not in (type(None), bool, int, float, str)
    evaluated = [value for name, value in options.items() if name in EVALUATED]
    return PAYLOAD in evaluated or any(map(_is_evaluated, (*options, *options.values())))


def vehicles(options: Iterator[str]) -> Iterator[tuple[str, State]]:
    for (name, kind), (where, place) in itertools.product(classes().items(), PLACES.items()):
        option = next(options)
        yield f"{name} {where} {option}", place(carrier(kind, option), option)


def test_nothing_carries_a_payload() -> None:
    """Each allowed class in each place, with the evaluated options in turn."""
    made = list(vehicles(itertools.cycle(sorted(EVALUATED))))
    assert len(made) > 500 and len(made) >= len(EVALUATED) * len(PLACES)
    assert [name for name, state in made if arrives(state)] == []


def test_a_payload_that_is_a_literal_arrives() -> None:
    """What holds it is not refused for another reason."""
    options = {"decoder_layers": "[(1, 1)]"}
    for cfg in (options, {"model": argparse.Namespace(**options)}, OmegaConf.create({"model": options})):
        buffer = io.BytesIO()
        torch.save({"cfg": cfg}, buffer)
        buffer.seek(0)
        assert "[(1, 1)]" in str(checkpoints.load(buffer, "cpu")["cfg"])
