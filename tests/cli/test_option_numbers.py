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
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf
from support import PLUGIN, CommandMain, build, command, run_command, slow, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv_compat.option_numbers import OF_FAIRSEQ, Numbers, declared_by, odd_numbers

# Options, values that they can't have, and values that they can.
CASES = [
    ("--log-interval", "0 -1", "1 1000"),
    ("--dropout", "inf nan -0.1 1.5", "0 0.1 1"),
    ("--attention-dropout", "nan", "0.1"),
    ("--activation-dropout", "-1", "0"),
    ("--pooler-dropout", "inf", "0.5"),
    ("--encoder-layerdrop", "2", "0.2"),
    ("--encoder-attention-heads", "0 -2", "2"),
    ("--update-freq", "-1 0 1,0 [] ,", "1 4,2 [2,1]"),
    ("--lr", "-1 nan inf [] , 1e-5,1e999 x", "0 1e-5 1e-5,1e-4 [0.1]"),
    ("--clip-norm", "-1 nan inf", "0 0.0 1.5"),
    ("--warmup-updates", "-1", "0 10"),
    ("--total-num-update", "0 -1 nan x", "10"),
    ("--max-update", "-1", "20"),
    ("--max-epoch", "-1", "1"),
    ("--stop-min-lr", "nan", "-1.0 0"),
    ("--stop-time-hours", "-1 inf", "0 0.5"),
    ("--batch-size", "0 -8", "8"),
    ("--batch-size-valid", "0 nan", "8"),
    ("--max-tokens", "0", "4096"),
    ("--required-batch-size-multiple", "0", "1 8"),
    ("--num-workers", "-1", "0 2"),
    ("--seed", "-1 4294967296", "0 4294967295"),
    ("--save-interval", "0", "1"),
    ("--validate-interval", "0", "1"),
    ("--save-interval-updates", "-1", "0 5"),
    ("--keep-last-epochs", "-2", "-1 0 3"),
    ("--keep-best-checkpoints", "-2", "-1 0 3"),
    ("--patience", "-2", "-1 0 3"),
    ("--adam-eps", "-1 nan", "0 1e-6"),
    ("--adam-betas", "(0.9,1.0) (0.9,) x 0.9 (nan,0.9)", "(0.9,0.98) [0,0]"),
    ("--weight-decay", "-0.1 inf", "0 0.01"),
    ("--ema-decay", "1.5 nan", "0.999"),
    ("--fp16-init-scale", "0 -4", "4"),
    ("--init-token", "-1", "0"),
    ("--max-positions", "0 -1 99999999999999999999", "16"),
    ("--adv-lr", "-1 nan inf", "0 0.1"),
    ("--adv-steps", "0 -1", "1"),
    ("--accordance-batches", "1", "2"),
]
MODEL = [
    "--arch", "roberta_base", "--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim",
    "32", "--encoder-attention-heads", "2", "--max-positions", "16", "--cpu",
]  # fmt: skip
WRONG = [(option, value) for option, wrong, _ in CASES for value in [*wrong.split(), ""]]
RIGHT = [(option, value) for option, _, right in CASES for value in right.split()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", train=23)


@pytest.fixture
def train(data: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    return lambda *words: CommandMain("train", capsys)(
        data, *MODEL, "--max-update", "20", *words, "--dry-run"
    )


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_fairseq_adv_train_refuses_it(option: str, value: str, train: Callable[..., Any]) -> None:
    done = train(f"{option}={value}")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(("error: " + option, "error: argument " + option)), done.stderr
    assert done.stderr.count("\n") == 1 and len(done.stderr) < 200


@pytest.mark.parametrize(("option", "value"), RIGHT)
def test_fairseq_adv_train_takes_it(option: str, value: str, train: Callable[..., Any]) -> None:
    done = train(f"{option}={value}")
    assert done.returncode == 0 and f"{option}={value}" in done.stdout.replace("'", ""), done.stderr


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
        ("common", "seed", -1, "--seed -1: pass a whole number from 0 to 4294967295"),
        ("model", "dropout", float("inf"), "--dropout inf: pass a number from 0 to 1"),
        ("model", "dropout", "0.1", "--dropout 0.1: pass a number from 0 to 1"),
        ("optimization", "update_freq", [1, -1], "--update-freq 1,-1: pass whole numbers of 1 or more"),
        ("optimization", "lr", [], "--lr '': pass finite numbers of 0 or more"),
        ("optimization", "clip_norm", -1.0, "--clip-norm -1.0: pass a finite number of 0 or more"),
        ("optimizer", "adam_betas", "(1, 1)", r"--adam-betas \(1, 1\): pass 2 numbers from 0 to less than 1"),
        ("optimizer", "adam_eps", float("nan"), "--adam-eps nan: pass a finite number of 0 or more"),
        ("lr_scheduler", "warmup_updates", -1, "--warmup-updates -1: pass a whole number of 0 or more"),
        ("lr_scheduler", "total_num_update", 0.0, "--total-num-update 0.0: pass a finite number above 0"),
        ("bmuf", "block_lr", float("nan"), "--block-lr nan: pass a finite number"),
        ("task", "init_token", -1, "--init-token -1: pass a whole number of 0 or more"),
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


def test_a_program_that_builds_the_trainer_is_told(data: Path) -> None:
    with pytest.raises(DataError, match=r"--clip-norm -1\.0: pass"):
        build(train_args(data, None, "standard", "--clip-norm", "-1"))


@pytest.mark.parametrize("option", ["--log-interval=0", slow("--lr="), slow("--dropout=inf")])
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
    assert len(checked) > 120 and len(CRITERION_REGISTRY) > 10


def test_the_table_names_options_that_there_are() -> None:
    there: dict[str, set[str]] = {part: set() for part in OF_FAIRSEQ}
    for part, _, given, config_class in all_defaults():
        there[part] |= {*given, *getattr(config_class, "__dataclass_fields__", ())}
    parser = argparse.ArgumentParser()
    ARCH_MODEL_REGISTRY["albert_base"].add_args(parser)
    there["model"] |= {action.dest for action in parser._actions}
    for field in FairseqConfig.__dataclass_fields__.values():
        there["common"] |= set(getattr(field.default, "__dataclass_fields__", ()))
    of_runs = there["common"] | there["optimizer"] | there["lr_scheduler"]
    for part, numbers in OF_FAIRSEQ.items():
        assert set(numbers) <= (there[part] if part in ("task", "model") else of_runs), part


def test_options_of_others_may_have_the_same_names() -> None:
    class Theirs(BaseFairseqModel):
        pass

    @dataclasses.dataclass
    class Options:
        dropout: float = dataclasses.field(default=-1.0, metadata={"numbers": Numbers(-2)})

    assert "encoder_layers" in declared_by("model") and declared_by("model", Theirs) == {}
    assert declared_by("model", Theirs, Options) == {"dropout": Numbers(-2)}
    assert list(odd_numbers({"dropout": -1.0}, declared_by("model", Theirs, Options))) == []
    assert [name for name, *_ in odd_numbers({"dropout": -1.0}, declared_by("model"))] == ["dropout"]


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        (Numbers(), "a finite number"),
        (Numbers(0), "a finite number of 0 or more"),
        (Numbers(above=0), "a finite number above 0"),
        (Numbers(0, 1), "a number from 0 to 1"),
        (Numbers(1, whole=True), "a whole number of 1 or more"),
        (Numbers(1, whole=True, items=-1), "whole numbers of 1 or more"),
        (Numbers(0, below=1, items=2), "2 numbers from 0 to less than 1"),
    ],
)
def test_in_words(numbers: Numbers, shown: str) -> None:
    assert str(numbers) == shown and numbers.fix == f"pass {shown}"
