"""Options of virtual adversarial training out of range are refused with a message, before training."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from support import build, train_args, write_task


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize("method", ["alum_vat", "smart"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--vat-alpha", "-1", "--vat-alpha -1.0: pass a finite weight"),
        ("--vat-alpha", "nan", "--vat-alpha nan"),
        ("--vat-steps", "0", "--vat-steps 0: pass 1 or more; for training without a step"),
        ("--vat-step-size", "0", "--vat-step-size 0.0: pass a finite length above 0"),
        ("--vat-step-size", "inf", "--vat-step-size inf"),
        ("--vat-epsilon", "0", "--vat-epsilon 0.0: pass a finite radius above 0"),
        ("--vat-init-std", "0", "--vat-init-std 0.0: .* the divergence has no gradient"),
        ("--vat-start-update", "-1", "--vat-start-update -1: pass 0 or more"),
        ("--vat-share-dropout", "perhaps", "--vat-share-dropout perhaps: pass true or false"),
    ],
)
def test_options_out_of_range(data: Path, method: str, option: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, method, "--store-ema", f"{option}={value}"))


@pytest.mark.parametrize(("option", "value"), [("--vat-projection", "l7"), ("--vat-divergence", "tv")])
def test_an_unknown_choice_is_refused_by_the_parser(
    data: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build(train_args(data, None, "alum_vat", option, value))
    assert f"invalid choice: '{value}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], True), (["--vat-share-dropout"], True), (["--vat-share-dropout", "false"], False),
     (["--vat-share-dropout", "True"], True)],
)  # fmt: skip
def test_the_switch_of_shared_dropout(data: Path, words: list[str], expected: bool) -> None:
    run = build(train_args(data, None, "alum_vat", *words))
    assert run.criterion.shares_dropout is expected


def test_every_option_has_a_help_text() -> None:
    for method in ("alum_vat", "smart"):
        parser = argparse.ArgumentParser()
        CRITERION_REGISTRY[method].add_args(parser)
        own = [
            a for a in parser._actions if any(s.startswith(("--vat", "--smart")) for s in a.option_strings)
        ]
        assert len(own) == (10 if method == "alum_vat" else 11)
        assert all(action.help for action in own)
