"""``fairseq-hydra-train`` with a yaml of one's own, in which ``_name`` and ``common.user_dir`` are enough."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq_cli import hydra_train
from methods import METHODS
from omegaconf import OmegaConf
from support import PLUGIN, assembled, batch, command, run_command

from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv_compat.hydra_train import run_and_report

YAML = """
common: {{cpu: true, user_dir: {user_dir}}}
task: {{_name: {task}, data: {data}, num_classes: 2, init_token: 0, max_positions: 16}}
criterion: {{_name: {criterion}}}
model: {{_name: roberta, encoder_layers: 1, encoder_embed_dim: 16, encoder_ffn_embed_dim: 16,
  encoder_attention_heads: 2, max_positions: 16}}
dataset: {{batch_size: 4, num_workers: 0}}
optimizer: {{_name: adam}}
optimization: {{max_update: 2, lr: [0.01]}}
lr_scheduler: {{_name: fixed}}
checkpoint: {{no_save: true}}
{further}
"""
# What a method has no default for.
NEEDED = {
    "flooding": {"criterion": "flooding, flood_level: 5"},
    "smart": {"further": "ema: {store_ema: true, ema_decay: 0.5, ema_fp32: true}"},
}
OWN_METHOD = """
from fairseq.criterions import register_criterion
import fairseq_adv.plugin
from fairseq_adv.criterions.freelb import FreeLBConfig, FreeLBCriterion

register_criterion("mine", dataclass=FreeLBConfig)(type("Mine", (FreeLBCriterion,), {}))
"""


def yaml(data: Path, **values: str) -> str:
    stock = {"user_dir": PLUGIN, "task": "sentence_prediction", "further": ""}
    return YAML.format(**{"data": data, **stock, **values})


def configured(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration that ``fairseq-hydra-train`` passes to the training."""
    passed: list[Any] = []
    monkeypatch.setattr(hydra_train.distributed_utils, "call_main", lambda cfg, main: passed.append(cfg))
    hydra_train._hydra_main(OmegaConf.merge(OmegaConf.structured(FairseqConfig), OmegaConf.create(text)))
    return passed[0]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_by_its_name(data: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    cfg = configured(yaml(data, **{"criterion": method, **NEEDED.get(method, {})}), monkeypatch)
    run = assembled(cfg)
    run.trainer.begin_epoch(1)
    before = copy.deepcopy(run.model.state_dict())
    run.trainer.train_step([batch(run, [0, 1, 2, 3])])
    assert any(not torch.equal(weight, before[name]) for name, weight in run.model.state_dict().items())
    assert all(weight.isfinite().all() for weight in run.model.parameters())


def test_a_method_of_ones_own_trains_from_a_shell(data: Path, tmp_path: Path) -> None:
    """Where nothing has imported the plug-in."""
    (tmp_path / "own_method").mkdir()
    (tmp_path / "own_method" / "__init__.py").write_text(OWN_METHOD)
    text = yaml(data, user_dir=str(tmp_path / "own_method"), criterion="mine, adv_lr: 0.1")
    (tmp_path / "run.yaml").write_text(text)
    words = ["--config-dir", str(tmp_path), "--config-name", "run", f"hydra.run.dir={tmp_path / 'out'}"]
    done = run_command(command("fairseq-hydra-train"), *words, "checkpoint.no_save=false")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "done training" in (tmp_path / "out" / "hydra_train.log").read_text()
    run = read_metrics(tmp_path / "out" / "checkpoints")
    assert run.option("criterion", "_name") == "mine" and run.of("valid")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"criterion": "freelb, adv_lrr: 1"}, "criterion.adv_lrr: Key 'adv_lrr' not in 'FreeLBConfig'"),
        ({"criterion": "pgd, adv_norm_type: l7"},
         "criterion.adv_norm_type: Invalid value 'l7', expected one of [l2, linf]"),
        ({"criterion": "standard", "task": "tagging, length: 8"}, "task.length: Key 'length' not"),
        ({"criterion": "frelb"}, "criterion._name: there is no criterion 'frelb'. If it is a"),
        ({"criterion": "standard", "task": "sentence"}, "task._name: there is no task 'sentence'. If it"),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_mistake_in_a_part_is_one_line(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    values: dict[str, str], message: str,
) -> None:  # fmt: skip
    with pytest.raises(SystemExit) as end:
        run_and_report(lambda: configured(yaml(data, **values), monkeypatch))
    shown = str(end.value.code) if end.value.code != 1 else capsys.readouterr().err
    assert message in shown.splitlines()[0]
    assert "Traceback" not in shown


WRONG: dict[str, tuple[str, Any, str]] = {
    "a key of the model": (
        "model",
        {"dropuot": 0.3},
        "model.dropuot: the model roberta has no such option. Did you",
    ),
    "an optimizer": ("optimizer", {"_name": "adamw"}, "optimizer._name: there is no optimizer 'adamw'"),
    "a schedule": (
        "lr_scheduler",
        {"_name": "linear"},
        "lr_scheduler._name: there is no lr_scheduler 'linear'",
    ),
    "a text": ("criterion", "frelb", "criterion._name: there is no criterion 'frelb'"),
    "no optimizer": ("optimizer", None, "optimizer._name: none is named"),
    "checkpoints at the same time": (
        "checkpoint",
        {"write_checkpoints_asynchronously": True},
        "--write-checkpoints-asynchronously: of several checkpoints that are due, fairseq then",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_part_is_told_in_one_line(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    part, changed, message = WRONG[name]
    cfg = OmegaConf.create(yaml(data, criterion="freelb"))
    cfg[part] = OmegaConf.merge(cfg[part], changed) if isinstance(changed, dict) else changed
    with pytest.raises(SystemExit) as end:
        run_and_report(lambda: configured(OmegaConf.to_yaml(cfg), monkeypatch))
    shown = str(end.value.code) if end.value.code != 1 else capsys.readouterr().err
    assert message in shown.splitlines()[0] and "Traceback" not in shown


def test_a_value_that_is_missing_is_told_in_one_line() -> None:
    cfg = OmegaConf.create({"task": {"data": "???"}})
    with pytest.raises(SystemExit, match=r"^error: task\.data: has no value\. Pass task\.data=…$"):
        run_and_report(lambda: cfg.task.data)


def test_what_a_yaml_leaves_out_is_as_on_a_command_line(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml(data, criterion="freelb").replace("lr_scheduler: {_name: fixed}", "")
    cfg = configured(text.replace("{cpu: true,", "{cpu: true, memory_efficient_fp16: true,"), monkeypatch)
    assert cfg.lr_scheduler._name == "fixed" and cfg.common.fp16 and not cfg.common.bf16
