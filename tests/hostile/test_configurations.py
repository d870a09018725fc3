"""A configuration in a checkpoint runs nothing, whichever command reads it."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq
import pytest
from commands import VERBS, refusal
from fairseq import checkpoint_utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from hostile_configurations import BUILD, RUN_CODE, in_roberta_s_attention
from support import PLUGIN, CommandMain, command, run_command, train_args

from fairseq_adv import load
from fairseq_adv_compat import checkpoints, configurations

Hostile = Callable[[Any], Path]
REFUSED = r"checkpoint_best\.pt( was not loaded: .*set TORCH_FORCE|: not a checkpoint written by fairseq-tr)"


@pytest.mark.parametrize("name", [*RUN_CODE, *BUILD])
def test_nothing_in_it_is_run(name: str, hostile: Hostile) -> None:
    """By fairseq's own functions, for training and for fairseq-validate and the hub."""
    bad = hostile({**RUN_CODE, **BUILD}[name])
    with pytest.raises(pickle.UnpicklingError, match=REFUSED):
        (read if name in RUN_CODE else build)(bad)
    assert not (bad.parent.parent / "canary").exists()


def read(path: Path) -> None:
    checkpoint_utils.load_checkpoint_to_cpu(str(path))


def build(path: Path) -> None:
    checkpoint_utils.load_model_ensemble_and_task([str(path)])


BUILDING = [verb for verb in VERBS if verb not in ("compare", "export")]


@pytest.mark.parametrize(
    ("name", "verb"),
    [*(("in roberta s attention", verb) for verb in VERBS), *zip(BUILD, BUILDING)],
)
def test_every_command_refuses_it_with_one_line(
    name: str, verb: str, films: Path, hostile: Hostile, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = hostile({**RUN_CODE, **BUILD}[name])
    line = refusal(CommandMain("", capsys), bad.parent.parent, *VERBS[verb](films, bad))
    assert line.startswith(f"error: {bad} was not loaded: ") and f"{checkpoints.OPT_OUT}=1" in line


def test_from_python(films: Path, hostile: Hostile) -> None:
    bad = hostile(in_roberta_s_attention)
    with pytest.raises(ValueError, match=r"encoder_xformers_att_config is .* and not a literal"):
        load(bad)
    with pytest.raises(pickle.UnpicklingError, match="encoder_xformers_att_config"):
        RobertaModel.from_pretrained(str(bad.parent), bad.name, str(films / "data"), bpe=None)
    assert not (bad.parent.parent / "canary").exists()


def test_fairseq_train_and_validate(films: Path, hostile: Hostile) -> None:
    bad = hostile(in_roberta_s_attention)
    more = ["--max-positions", "64", "--max-update", "2", "--finetune-from-model", str(bad)]
    args = train_args(films / "data", None, "standard", *more, task="text_classification")
    words = ["--path", str(bad), "--task", "text_classification", "--user-dir", PLUGIN, "--cpu"]
    words += ["--criterion", "standard", "--num-classes", "2", "--batch-size", "4"]
    for line in (
        [command("fairseq-train"), *args],
        [command("fairseq-validate"), str(films / "data"), *words],
    ):
        done = run_command(*line)
        assert done.returncode != 0 and f"{bad} was not loaded: cfg.model.encoder_xformers" in done.stderr
    assert not (bad.parent.parent / "canary").exists()


def test_trusted_it_runs(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The payloads are real ones."""
    carried = ("in a node of a dict", "in a configuration of fairseq", "in a meter", "in yaml")
    for name in ("fconv_lm", "in roberta s attention", "in old args", *carried):
        bad = hostile(RUN_CODE[name])
        canary = bad.parent.parent / "canary"
        with monkeypatch.context() as patch:
            patch.setenv(checkpoints.OPT_OUT, "1")
            with contextlib.suppress(TypeError, AttributeError, ImportError):  # of what the code returns
                checkpoint_utils.load_model_ensemble_and_task([str(bad)])
        assert canary.exists(), name
        canary.unlink()


def texts(options: dict[str, Any]) -> int:
    """How many of the options would be evaluated; each is a literal."""
    configurations.checked({"cfg": {"part": dict(options)}})
    return sum(name in configurations.EVALUATED and isinstance(one, str) for name, one in options.items())


def test_fairseq_s_own_defaults_pass() -> None:
    """Training and loading other architectures in the same environment is not disturbed."""
    checked = 0
    for defaults in ARCH_CONFIG_REGISTRY.values():
        options = Namespace()
        with contextlib.suppress(AttributeError):  # some expect options that others set
            defaults(options)
        checked += texts({name: one for name, one in vars(options).items() if isinstance(one, str)})
    registries = (TASK_REGISTRY, CRITERION_REGISTRY, OPTIMIZER_REGISTRY, ARCH_MODEL_REGISTRY)
    for kind in (kind for registry in registries for kind in registry.values()):
        parser = argparse.ArgumentParser(allow_abbrev=False)
        if hasattr(kind, "add_args"):
            kind.add_args(parser)
        checked += sum(texts({one.dest: one.default}) for one in parser._actions if type(one.default) is str)
    assert checked > 20


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("decoder_layers", "[(1268, 4)] + [(1268, 4)] * 12"),
        ("encoder_layers", "((512, 3),) * 20"),
        ("adaptive_softmax_cutoff", "10000,50000,200000"),
        ("adafactor_eps", "(1e-30, -1e-3)"),
        ("left_pad_source", "True"),
        ("encoder_xformers_att_config", '{"name": "scaled_dot_product"}'),
    ],
)
def test_literals_pass(name: str, text: str) -> None:
    assert texts({name: text}) == 1


def named_in_fairseq(pattern: str, folder: str = "") -> set[str]:
    root, found = Path(fairseq.__file__).parent, set()
    for path in (root / folder).rglob("*.py"):
        if "examples" not in path.relative_to(root).parts:
            found |= set(re.findall(pattern, path.read_text(encoding="utf-8")))
    return found


def test_each_option_that_fairseq_evaluates_or_fetches_is_known() -> None:
    calls = r"\b(?:eval|eval_bool|eval_str_list|eval_str_dict)\(\s*(?:self\.)?(?:args|cfg)\.(\w+)"
    evaluated = named_in_fairseq(calls)
    fetched = named_in_fairseq(r"cached_path\((?:args|cfg)\.(\w+)", "data")
    assert len(evaluated) > 20 and evaluated <= configurations.EVALUATED
    assert len(fetched) > 5 and fetched <= set(configurations._FETCHED)


@pytest.mark.parametrize("name", ["gpt2_encoder_json", "bpe_vocab_file", "replace_unk"])
def test_a_file_that_never_ends_is_not_read(name: str, tmp_path: Path) -> None:
    """``from_pretrained`` would read all of it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for where in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises(checkpoints.Refused, match=rf"cfg\.bpe\.{name} is .*, a device or pipe"):
            configurations.checked({"cfg": {"bpe": {name: where}}})
    own = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/encoder.json"
    for where in (own, str(tmp_path / "file"), str(tmp_path), "/a/file", "a file", "\0", "a" * 10_000, None):
        configurations.checked({"cfg": {"bpe": {name: where}}})


def test_files_that_fairseq_would_write_or_read_are_not_the_checkpoints_to_name(tmp_path: Path) -> None:
    """fairseq's sentence_ranking opens save_predictions for writing when built; lstm reads embeddings."""
    mine = str(tmp_path / "mine.txt")
    own = {"_name": "sentence_ranking", "save_predictions": mine}
    for part in ({"criterion": own}, {"criterion": [{"deep": dict(own)}]}):
        cfg: dict[str, Any] = {**part, "model": {"encoder_embed_path": mine, "encoder": {"embed_path": mine}}}
        state = configurations.checked({"cfg": cfg, "model": {}})
        assert mine not in str(state["cfg"]) and "save_predictions" in str(state["cfg"])
