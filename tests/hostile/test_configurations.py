"""A configuration in a checkpoint runs nothing and takes no memory, whichever command reads it."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import VERBS, refusal
from fairseq import checkpoint_utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from hostile_configurations import BUILD, OFTEN, RUN_CODE, in_roberta_s_attention
from support import PLUGIN, CommandMain, command, run_command, slow, train_args

from fairseq_adv import load
from fairseq_adv.evaluation.trained import objective_options
from fairseq_adv_compat import checkpoints, configurations
from fairseq_adv_compat.plain_options import Refused

Hostile = Callable[[Any], Path]
pytestmark = pytest.mark.usefixtures("two_gigabytes_more")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("", capsys)


SELDOM = [*RUN_CODE][: [*RUN_CODE].index("in roberta s attention")]
READ = [slow(name) if name in SELDOM and name not in OFTEN else name for name in RUN_CODE]


@pytest.mark.parametrize("name", READ)
def test_it_is_not_even_read(name: str, hostile: Hostile) -> None:
    """By the function with which --restore-file, --finetune-from-model and all others read a checkpoint."""
    bad = hostile(RUN_CODE[name])
    with pytest.raises(
        pickle.UnpicklingError, match=r"was not loaded: (cfg|args|it can.t be read).*set TORCH_FORCE"
    ):
        checkpoint_utils.load_checkpoint_to_cpu(str(bad))
    assert not (bad.parent.parent / "canary").exists()


@pytest.mark.parametrize("name", BUILD)
def test_nothing_is_built_from_it(name: str, hostile: Hostile) -> None:
    """By fairseq's own function, through which fairseq-validate and the hub load models."""
    bad = hostile(BUILD[name])
    with pytest.raises(pickle.UnpicklingError, match=r"was not loaded: (cfg|args|it can.t be read)"):
        checkpoint_utils.load_model_ensemble_and_task([str(bad)])
    assert not (bad.parent.parent / "canary").exists()


BUILDING = [verb for verb in VERBS if verb != "export"]
DEFAULT = [("in roberta s attention", verb) for verb in VERBS] + [("layers", "predict --stdin")]
ALL = [(name, verb) for name in (*RUN_CODE, *BUILD) for verb in BUILDING]
OF_OTHER_TASKS = ("masked_lm", "bart", "transformer_lm")  # too large only for those who build them


@pytest.mark.parametrize(("name", "verb"), [*DEFAULT, *(slow(*one) for one in ALL if one not in DEFAULT)])
def test_every_command_refuses_it_with_one_line(
    name: str, verb: str, films: Path, hostile: Hostile, run: CommandMain
) -> None:
    bad = hostile({**RUN_CODE, **BUILD}[name])
    line = refusal(run, bad.parent.parent, *VERBS[verb](films, bad))
    if name in OF_OTHER_TASKS and verb.startswith("predict"):
        assert line.startswith(f"error: {bad}: was trained with --task ")
    else:
        assert line.startswith(f"error: {bad} was not loaded: ") and f"{checkpoints.OPT_OUT}=1" in line


def test_from_python(films: Path, hostile: Hostile) -> None:
    bad = hostile(in_roberta_s_attention)
    with pytest.raises(ValueError, match=r"encoder_xformers_att_config is .* and not a literal"):
        load(bad)
    with pytest.raises(pickle.UnpicklingError, match="encoder_xformers_att_config"):
        RobertaModel.from_pretrained(str(bad.parent), bad.name, str(films / "data"), bpe=None)
    assert not (bad.parent.parent / "canary").exists()


@pytest.mark.parametrize("how", ["--restore-file", "--finetune-from-model"])
def test_fairseq_train_and_validate(how: str, films: Path, hostile: Hostile) -> None:
    bad = hostile(in_roberta_s_attention)
    more = ["--max-positions", "64", "--max-update", "2"]
    args = train_args(films / "data", None, "standard", *more, how, str(bad), task="text_classification")
    lines = [[command("fairseq-train"), *args]]
    if how == "--restore-file":
        words = ["--path", str(bad), "--task", "text_classification", "--user-dir", PLUGIN, "--cpu"]
        words += ["--criterion", "standard", "--num-classes", "2", "--batch-size", "4"]
        lines.append([command("fairseq-validate"), str(films / "data"), *words])
    for line in lines:
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


def test_fairseq_s_own_defaults_pass() -> None:
    """Training and loading other architectures in the same environment is not disturbed."""
    checked = 0
    for defaults in ARCH_CONFIG_REGISTRY.values():
        options = argparse.Namespace()
        with contextlib.suppress(AttributeError):  # some expect options that others set
            defaults(options)
        checked += sum(name in configurations.EVALUATED and isinstance(value, str)
                       for name, value in vars(options).items())  # fmt: skip
        configurations.check_strings({"cfg": {"model": options}, "args": None})
    registries = (TASK_REGISTRY, CRITERION_REGISTRY, OPTIMIZER_REGISTRY, ARCH_MODEL_REGISTRY)
    for kind in (kind for registry in registries for kind in registry.values()):
        parser = argparse.ArgumentParser(allow_abbrev=False)
        if hasattr(kind, "add_args"):
            kind.add_args(parser)
        for action in parser._actions:
            value = {action.dest: action.default}
            checked += action.dest in configurations.EVALUATED and isinstance(action.default, str)
            configurations.check_strings({"cfg": {"part": value}})
    assert checked > 20


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("decoder_layers", "[(1268, 4)] + [(1268, 4)] * 12"),
        ("decoder_layers", "12"),
        ("encoder_layers", "((512, 3),) * 20"),
        ("conv_feature_layers", "[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)] + [(512,2,2)]"),
        ("adaptive_softmax_cutoff", "10000,50000,200000"),
        ("adam_betas", "(0.9, 0.98)"),
        ("adafactor_eps", "(1e-30, -1e-3)"),
        ("left_pad_source", "True"),
        ("encoder_xformers_att_config", '{"name": "scaled_dot_product"}'),
        ("pretrained", "False"),
    ],
)
def test_literals_pass(name: str, text: str) -> None:
    configurations.check_strings({"cfg": {"model": argparse.Namespace(**{name: text})}})


def test_files_that_fairseq_fetches() -> None:
    """Its own pass; and each option that a line of fairseq fetches is in the table."""
    import re

    import fairseq

    own = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/encoder.json"
    for where in (own, "/a/file", "a file", None):
        configurations.check_types({"cfg": {"bpe": {"gpt2_encoder_json": where}}})
    found = set()
    for path in (Path(fairseq.__file__).parent / "data").rglob("*.py"):
        found |= set(re.findall(r"cached_path\((?:args|cfg)\.(\w+)", path.read_text(encoding="utf-8")))
    assert len(found) > 5 and found <= set(configurations._FETCHED)


@pytest.mark.parametrize("name", ["gpt2_encoder_json", "bpe_vocab_file", "replace_unk"])
def test_a_file_that_never_ends_is_not_read(name: str, tmp_path: Path) -> None:
    """``from_pretrained`` would read all of it."""
    os.mkfifo(tmp_path / "pipe")
    for where in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises(Refused, match=rf"cfg\.bpe\.{name} is '{where[:30]}.*, a device or pipe"):
            configurations.check_types({"cfg": {"bpe": {name: where}}})
    (tmp_path / "file").touch()
    for where in (str(tmp_path / "file"), str(tmp_path), "/a/file", "\0", "a" * 10_000, None):
        configurations.check_types({"cfg": {"bpe": {name: where}}})


def test_every_eval_of_fairseq_is_known() -> None:
    """Each option that a line of fairseq hands to eval is in the table."""
    import re

    import fairseq

    root, found = Path(fairseq.__file__).parent, set()
    pattern = re.compile(
        r"\b(?:eval|eval_bool|eval_str_list|eval_str_dict)\(\s*(?:self\.)?(?:args|cfg)\.(\w+)"
    )
    for path in root.rglob("*.py"):
        if "examples" not in path.relative_to(root).parts:
            found |= set(pattern.findall(path.read_text(encoding="utf-8")))
    assert len(found) > 20 and found <= set(configurations.EVALUATED)


def test_files_that_fairseq_would_write_or_read_are_not_the_checkpoints_to_name(tmp_path: Path) -> None:
    """fairseq's sentence_ranking opens save_predictions for writing when built; lstm reads embeddings."""
    mine = str(tmp_path / "mine.txt")
    own = {"_name": "sentence_ranking", "save_predictions": mine}
    for part in ({"criterion": own}, {"criterion": [{"deep": dict(own)}]}):
        state: dict[str, Any] = {"cfg": {**part, "model": {"encoder_embed_path": mine}}, "model": {}}
        state["cfg"]["model"]["encoder"] = {"embed_path": mine}  # also of lightconv and others
        with pytest.raises(Refused, match=r"save_predictions is .*, a file that fairseq would empty"):
            configurations.check_before_building({"cfg": state["cfg"], "model": {}})
        configurations.check_types(state)
        assert mine not in str(state["cfg"]) and "save_predictions" in str(state["cfg"])


def test_a_file_for_training_is_not_read_to_measure() -> None:
    saved = SimpleNamespace(finetune_from_model="/dev/zero", restore_file="/dev/zero")
    found = objective_options(SimpleNamespace(criterion=saved))
    assert (found.finetune_from_model, found.restore_file) == (None, "checkpoint_last.pt")
