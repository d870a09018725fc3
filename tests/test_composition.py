"""Remembered configurations are the ones that fairseq and hydra compose from the same command line."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import composition
import pytest
from fairseq import options
from fairseq.dataclass import utils
from hydra import experimental as hydra_experimental
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig, OmegaConf
from support import VIRTUAL, train_args

LINES = {
    "numbers, lists and text like a number": (
        "freelb",
        ["--adv-lr", "1e-4", "--adv-norm-type", "linf", "--lr", "0.1,0.2", "--fp16", "--update-freq", "4,2",
         "--adam-betas", "(0.9, 0.98)", "--max-tokens", "512", "--restore-file", "007",
         "--wandb-project", "true", "--seed", "0"],
    ),
    "none again": ("freelb", []),
    "other groups": (
        "alum_vat", [*VIRTUAL, "--lr-scheduler", "polynomial_decay", "--total-num-update", "10"],
    ),
}  # fmt: skip


@pytest.fixture
def from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """hydra's own ``compose`` until a test has compared with it, and nothing remembered."""
    monkeypatch.setattr(utils, "compose", composition.compose_from_scratch)
    monkeypatch.setattr(utils, "initialize", hydra_experimental.initialize)
    monkeypatch.setattr(ConfigLoaderImpl, "_load_primary_config", composition._load_primary)
    monkeypatch.setattr(composition, "_bases", {})
    monkeypatch.setattr(composition, "_composed", {})
    monkeypatch.setattr(composition, "_primary", {})


def parsed(name: str, data: Path) -> Namespace:
    criterion, words = LINES[name]
    args = train_args(data, None, criterion, *words)
    return options.parse_args_and_arch(options.get_training_parser(), input_args=args)


def plain(cfg: DictConfig) -> dict[str, Any]:
    """All values with their types; the old-style parts are namespaces."""
    made: dict[str, Any] = {}
    for key in cfg:
        part = cfg[key]
        made[key] = vars(part) if isinstance(part, Namespace) else part
        if OmegaConf.is_config(part):
            made[key] = OmegaConf.to_container(part)
    return made


@pytest.mark.usefixtures("from_scratch")
def test_a_remembered_configuration_is_hydra_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [parsed(name, tmp_path / name) for name in LINES]
    expected = [plain(utils.convert_namespace_to_omegaconf(line)) for line in lines]
    monkeypatch.setattr(utils, "compose", composition.compose)
    monkeypatch.setattr(utils, "initialize", composition.initialize)
    monkeypatch.setattr(ConfigLoaderImpl, "_load_primary_config", composition.load_hydra_s_own)
    made = [plain(utils.convert_namespace_to_omegaconf(line)) for line in lines]
    assert len(composition._composed) == 2  # one for each choice of groups; the other is a copy
    for name, ours, theirs in zip(LINES, made, expected):
        assert repr(ours) == repr(theirs), name
