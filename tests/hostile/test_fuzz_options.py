"""Options of any value are taken as they are or refused by name, on the command line and in yaml."""

from __future__ import annotations

import argparse
import dataclasses
import math
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any, NoReturn

import pytest
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fuzzing import ODD_TEXTS, fuzz
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from support import build, train_args, write_task

from fairseq_adv.cli import number_types
from fairseq_adv.data.errors import DataError

NUMBERS = st.sampled_from(
    ["0", "-0", "1", "-1", "3", "0.5", "1e400", "-1e400", "nan", "inf", "-inf", "1e-400", "1e308", "1e-45",
     "9" * 30, "9" * 5000, "", " 1", "1 ", "1_0", "0x10", "1,2", "²", "None", "true", "auto", "1e3", ".5"]
)  # fmt: skip
VALUES = NUMBERS | st.integers().map(str) | st.floats().map(repr) | ODD_TEXTS


def is_told(error: ValueError, *names: str) -> bool:
    """False: the value was refused, in a line that names one of the options; it may quote a line end."""
    assert any(f"--{name.replace('_', '-')}" in str(error) for name in names), repr(error)
    assert str(error).count("\n") < 4 and len(str(error)) < 1000, repr(error)
    assert type(error) in (ValueError, DataError), repr(error)
    return False


@pytest.mark.parametrize("name", ["finite", "positive", "not_negative", "count"])
def test_numbers(name: str) -> None:
    kind = getattr(number_types, name)

    def check(text: str) -> bool:
        try:
            value = kind(text)
        except (ArgumentTypeError, ValueError):  # which argparse shows in one line
            return False
        assert math.isfinite(value) and value == (int if name == "count" else float)(text)
        assert value > 0 or (value == 0 and name == "not_negative") or name == "finite"
        return True

    assert fuzz(check, VALUES, 100)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


class Quiet(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(message)


def own_options(method: str) -> list[str]:
    """Those that a person sets, and not fairseq itself."""
    kind = CRITERION_DATACLASS_REGISTRY[method]
    return [one.name for one in dataclasses.fields(kind) if "help" in one.metadata and one.type is not bool]


OFTEN = [("freelb", "yaml"), ("alum_vat", "command line"), ("infobert", "yaml"), ("tavat", "command line")]


@pytest.mark.parametrize(("method", "how"), OFTEN)
def test_criterions(method: str, how: str, data: Path) -> None:
    """A value that is taken is finite and the one that was given; one that isn't is refused by its name."""
    run = build(train_args(data, None, method, "--flood-level", "0.1"))
    kind = CRITERION_DATACLASS_REGISTRY[method]
    good = OmegaConf.merge(
        OmegaConf.structured(kind()), OmegaConf.to_container(run.cfg.criterion, resolve=True)
    )
    parser = Quiet(allow_abbrev=False)
    gen_parser_from_dataclass(parser, kind())

    def parsed(given: dict[str, str]) -> dict[str, Any]:
        if how == "yaml":
            return dict(given)
        words = parser.parse_args([f"--{name.replace('_', '-')}={value}" for name, value in given.items()])
        return {name: getattr(words, name) for name in given}

    def check(given: dict[str, str]) -> bool:
        try:
            cfg = OmegaConf.merge(good, parsed(given))
            CRITERION_REGISTRY[method](cfg, run.task)
        except (OmegaConfBaseException, SystemExit):  # no number, or none of the choices: told in one line
            return False
        except ValueError as error:
            return is_told(error, *given)
        for name, text in given.items():
            value = cfg[name]
            assert value == type(value)(text) if isinstance(value, (int, float)) else str(value) == text
            assert not isinstance(value, float) or math.isfinite(value), (name, value)
        return True

    likely = st.sampled_from(["1", "2", "0.5", "0.1", "all", "up", "update", "l2", "kl"])
    values = st.booleans().flatmap(lambda is_likely: likely if is_likely else VALUES)
    names = st.sampled_from(own_options(method))
    assert fuzz(check, st.dictionaries(names, values, min_size=1, max_size=2), 40)
