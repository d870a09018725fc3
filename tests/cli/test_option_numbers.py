"""A number that an option can't have is refused in one line, before anything is built.

Options of the other verbs: test_every_number.py.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fairseq_cli.train
import pytest
from fairseq import options
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf
from support import PLUGIN, CommandMain, command, run_command, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv_compat import configurations
from fairseq_adv_compat.option_numbers import OF_FAIRSEQ, Numbers, declared_by, odd_numbers

INF, NAN = float("inf"), float("nan")
# A kind of numbers, in words, values that an option can't have, and values that it can.
KINDS: list[tuple[Numbers, str, list[Any], list[Any]]] = [
    (Numbers(), "a finite number", [INF, NAN, -INF, "x", True, [1]], [0, -1.5, None]),
    (Numbers(0), "a finite number of 0 or more", [-1, NAN, INF], [0, 0.5]),
    (Numbers(above=0), "a finite number above 0", [0, -1, NAN], [1e-9, 10]),
    (Numbers(0, 1), "a number from 0 to 1", [-0.1, 1.5, NAN, "0.1"], [0, 0.1, 1]),
    (Numbers(1, whole=True), "a whole number of 1 or more", [0, -2, 1.5, NAN, 10**20], [1, 800.0, 1 << 62]),
    (Numbers(0, 9, whole=True), "a whole number from 0 to 9", [-1, 10], [0, 9]),
    (
        Numbers(1, whole=True, items=-1), "whole numbers of 1 or more",
        [0, [1, 0], [], "[]", ",", "", "x", [1.5], {"a": 1}], [4, "4", "4,2", "[2,1]", [1]],
    ),
    (Numbers(0, items=-1), "finite numbers of 0 or more", ["1e-5,1e999", NAN, "", [-1]], ["1e-5,1e-4", [0]]),
    (
        Numbers(0, below=1, items=2), "2 numbers from 0 to less than 1",
        ["(0.9,1.0)", "(0.9,)", "x", "0.9", (NAN, 0.9)], ["(0.9,0.98)", [0, 0]],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "shown", "wrong", "right"), KINDS, ids=lambda one: str(one)[:30])
def test_a_kind_of_numbers(numbers: Numbers, shown: str, wrong: list[Any], right: list[Any]) -> None:
    assert str(numbers) == shown and numbers.fix == f"pass {shown}"
    assert [value for value in wrong if numbers.has(value)] == []
    assert [value for value in right if not numbers.has(value)] == []


MODEL = [
    "--arch", "roberta_base", "--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim",
    "32", "--encoder-attention-heads", "2", "--max-positions", "16", "--cpu",
]  # fmt: skip
# Of each part of a command line; the values are the mechanism's.
WRONG = [
    "--log-interval=0", "--dropout=nan", "--lr=1e-5,1e999", "--lr=", "--seed=4294967296", "--update-freq=[]",
    "--adam-betas=(0.9,)", "--total-num-update=x", "--num-workers=-1", "--init-token=-1", "--adv-lr=inf",
    "--max-positions=99999999999999999999",
]  # fmt: skip
RIGHT = [
    "--log-interval=1000", "--dropout=0", "--lr=[0.1]", "--update-freq=4,2", "--adam-betas=(0.9,0.98)",
    "--seed=4294967295", "--keep-last-epochs=-1", "--stop-min-lr=-1.0", "--adv-lr=0.1", "--max-epoch=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", train=23)


@pytest.fixture
def train(data: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    return lambda *words: CommandMain("train", capsys)(
        data, *MODEL, "--max-update", "20", *words, "--dry-run"
    )


@pytest.mark.parametrize("words", WRONG)
def test_fairseq_adv_train_refuses_it(words: str, train: Callable[..., Any]) -> None:
    option, done = words.partition("=")[0], train(words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(("error: " + option, "error: argument " + option)), done.stderr
    assert done.stderr.count("\n") == 1 and len(done.stderr) < 200


def test_fairseq_adv_train_takes_others(train: Callable[..., Any]) -> None:
    done = train(*RIGHT)
    shown = done.stdout.replace("'", "")
    assert done.returncode == 0 and [words for words in RIGHT if words not in shown] == [], done.stderr


@pytest.fixture(scope="module")
def configuration(data: Path) -> Any:
    """That of a run that ``fairseq-train`` would make."""
    words = train_args(data, None, "freelb", "--lr-scheduler", "polynomial_decay", "--total-num-update", "9")
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=words))


@pytest.mark.parametrize(
    ("part", "name", "value", "fix"),
    [
        ("common", "log_interval", 0, "--log-interval 0: pass a whole number of 1 or more"),
        ("model", "dropout", "0.1", "--dropout 0.1: pass a number from 0 to 1"),
        ("optimizer", "adam_betas", "(1, 1)", r"--adam-betas \(1, 1\): pass 2 numbers from 0 to less than 1"),
        ("lr_scheduler", "warmup_updates", -1, "--warmup-updates -1: pass a whole number of 0 or more"),
        ("criterion", "adv_lr", float("nan"), "--adv-lr nan: pass a finite step length of 0 or more"),
    ],
)
def test_a_configuration_is_checked_before_anything_is_built(
    part: str, name: str, value: Any, fix: str, configuration: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by ``fairseq-train`` and ``fairseq-hydra-train``, which both pass one to this function."""
    cfg = copy.deepcopy(configuration)
    OmegaConf.set_struct(cfg, False)
    if part == "model":
        setattr(cfg.model, name, value)
    else:
        with omegaconf_no_object_check():
            cfg[part] = {**OmegaConf.to_container(cfg[part], resolve=True, enum_to_str=True), name: value}
    monkeypatch.setattr(fairseq_cli.train.tasks, "setup_task", lambda cfg: pytest.fail("it was built"))
    with pytest.raises(DataError, match=fix):
        fairseq_cli.train.main(cfg)
    cfg.criterion._name, cfg.task._name = "cross_entropy", "sentence_prediction"  # those of others
    check_run(cfg)


@pytest.mark.parametrize("option", ["--log-interval=0"])
def test_fairseq_train(option: str, data: Path) -> None:
    done = run_command(command("fairseq-train"), *train_args(data, None, "standard", option))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"error: {option.replace('=', ' ')}") and len(line) < 200


def test_hydra(data: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"common: {{cpu: true, user_dir: {PLUGIN}}}\n"
        f"task: {{_name: sentence_prediction, data: {data}, num_classes: 2}}\n"
        "criterion: {_name: standard}\nmodel: {_name: roberta, dropout: .nan}\ndataset: {batch_size: 4}\n"
        "optimizer: {_name: adam}\nlr_scheduler: {_name: fixed}\n"
    )
    where = ["--config-dir", str(tmp_path), "--config-name", "run", f"hydra.run.dir={tmp_path / 'out'}"]
    done = run_command(command("fairseq-hydra-train"), *where)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: --dropout nan: pass a number from 0 to 1" in done.stderr.splitlines()


# --- the table


def own(config_class: Any) -> dict[str, Any]:
    """The defaults of a dataclass, without those that it takes from elsewhere or that are missing."""
    found = OmegaConf.to_container(OmegaConf.structured(config_class()))
    return {name: value for name, value in found.items() if not str(value).startswith(("${", "???"))}


def all_defaults() -> Iterator[tuple[str, Any, dict[str, Any], Any]]:
    """Part, class, options and their dataclass, of all that fairseq and this project can build."""
    for part, field in FairseqConfig.__dataclass_fields__.items():
        if part in OF_FAIRSEQ and dataclasses.is_dataclass(field.default):
            yield part, None, own(type(field.default)), None
    for part in ("criterion", "optimizer", "lr_scheduler"):
        for name, config_class in REGISTRIES[part]["dataclass_registry"].items():
            if config_class is not None:
                yield part, REGISTRIES[part]["registry"][name], own(config_class), config_class
    for name, config_class in TASK_DATACLASS_REGISTRY.items():
        yield "task", TASK_REGISTRY[name], own(config_class), config_class
    for name, fill in ARCH_CONFIG_REGISTRY.items():
        filled = argparse.Namespace()
        with contextlib.suppress(AttributeError):  # some expect options that others set
            fill(filled)
        yield "model", ARCH_MODEL_REGISTRY[name], vars(filled), None


def test_all_defaults_of_fairseq_and_of_ours_pass() -> None:
    checked = set()
    for part, kind, given, config_class in all_defaults():
        numbers = declared_by(part, kind, config_class)
        assert list(odd_numbers(given, numbers)) == [], (part, kind)
        checked |= {(part, name) for name in given if name in numbers}
        configurations._check_types(part, given, config_class)  # of a checkpoint
    assert len(checked) > 120 and len(CRITERION_REGISTRY) > 10


def test_the_table_names_options_that_there_are() -> None:
    there: dict[str, set[str]] = {part: set() for part in OF_FAIRSEQ}
    for part, _, given, config_class in all_defaults():
        there[part] |= {*given, *getattr(config_class, "__dataclass_fields__", ())}
    parser = argparse.ArgumentParser()
    ARCH_MODEL_REGISTRY["roberta_base"].add_args(parser)
    there["model"] |= {action.dest for action in parser._actions}
    for field in FairseqConfig.__dataclass_fields__.values():
        there["common"] |= set(getattr(field.default, "__dataclass_fields__", ()))
    of_runs = there["common"] | there["optimizer"] | there["lr_scheduler"]
    for part, numbers in OF_FAIRSEQ.items():
        assert set(numbers) <= (there[part] if part in ("task", "model") else of_runs), part
