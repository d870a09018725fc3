"""fairseq 0.12.2 and hydra 1.0.7 on this Python, torch and numpy; and that nobody else notices."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, List, Optional

import pytest
import torch
from support import command, run_command, write_task

from fairseq_adv_compat import checkpoints, newer_versions
from fairseq_adv_compat.hydra_train import report_the_real_message

ROOT = Path(__file__).resolve().parent.parent
PTH = ROOT / "fairseq_adv_compat.pth"

TINY = [
    "--arch", "roberta", "--encoder-layers", "1", "--encoder-embed-dim", "8", "--encoder-ffn-embed-dim", "16",
    "--encoder-attention-heads", "2", "--max-positions", "32", "--batch-size", "4", "--optimizer", "adam",
    "--lr", "0.001", "--cpu", "--num-workers", "0", "--log-format", "simple", "--no-epoch-checkpoints",
]  # fmt: skip


def python(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command(sys.executable, *options, "-c", code, **environment)


# --- start-up -----------------------------------------------------------------------------------


def start_up_imports(bytecode: Path) -> dict[str, int]:
    """Module imported at interpreter start -> cumulative microseconds; compiled at the first call."""
    times = {}
    done = python("pass", "-X", "importtime", PYTHONPYCACHEPREFIX=str(bytecode), PYTHONDONTWRITEBYTECODE="")
    for line in done.stderr.splitlines():
        if line.startswith("import time:") and "|" in line:
            _, cumulative, name = line.split("|")
            if cumulative.strip().isdigit():
                times[name.strip()] = int(cumulative)
    return times


def test_start_up_costs_less_than_a_millisecond(tmp_path: Path) -> None:
    """Best of several: what the machine does besides only ever adds."""
    runs = [start_up_imports(tmp_path) for _ in range(12)]
    assert all("fairseq_adv_compat" in times for times in runs), "the .pth is not active in this environment"
    assert min(times["fairseq_adv_compat"] for times in runs) < 1000
    ours = {name for name in runs[0] if name.startswith(("fairseq", "hydra", "torch", "dataclasses"))}
    assert ours == {"fairseq_adv_compat"}


def run_pth(folder: Path, path: str, code: str) -> subprocess.CompletedProcess[str]:
    """Python with nothing but the .pth in its site-packages, and ``path`` as PYTHONPATH."""
    (folder / PTH.name).write_bytes(PTH.read_bytes())
    return run_site(folder, path, code)


def run_site(folder: Path, path: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import site, sys; site.addsitedir({str(folder)!r}); {code}"],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip


COUNT = "print([getattr(finder, '__module__', '') for finder in sys.meta_path].count('fairseq_adv_compat'))"


def test_pth_installs_the_finder_once(tmp_path: Path) -> None:
    done = run_pth(tmp_path, str(ROOT), COUNT)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "1", "")


@pytest.mark.parametrize("remains", ["nothing", "broken module"])
def test_a_failure_of_the_pth_is_told_when_fairseq_is_imported_and_once(tmp_path: Path, remains: str) -> None:
    (tmp_path / "fairseq.py").write_text("")
    if remains == "broken module":
        (tmp_path / "fairseq_adv_compat.py").write_text("raise RuntimeError('half removed')\n")
    done = run_pth(tmp_path, str(tmp_path), COUNT + "; import json")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "0", "")
    again = "import fairseq; del sys.modules['fairseq']; import fairseq"
    done = run_pth(tmp_path, str(tmp_path), again)
    reason = "half removed" if remains == "broken module" else "No module named 'fairseq_adv_compat'"
    (line,) = done.stderr.splitlines()
    assert line.startswith("fairseq_adv_compat.pth failed: ") and reason in line
    assert line.endswith("Run fairseq-adv doctor") and done.returncode == 0


# --- without the .pth ---------------------------------------------------------------------------

SPAWN = """
if __name__ == "__main__":
    import multiprocessing
    from importlib import import_module
    worker = multiprocessing.get_context("spawn").Process(target=import_module, args=("fairseq.utils",))
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


WITHOUT_PTH = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, "__module__", "") != "fairseq_adv_compat"]
sys.modules.pop("fairseq_adv_compat", None)
"""


def run_without_pth(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """A console script in an interpreter as it is without the .pth; so are its spawned workers."""
    script = folder / "script.py"
    script.write_text(WITHOUT_PTH + code)
    return run_command(sys.executable, str(script), PYTHONPATH=str(ROOT))


def test_fairseq_adv_and_its_spawned_workers_need_no_pth(tmp_path: Path) -> None:
    if sys.version_info >= (3, 11):
        done = run_without_pth(tmp_path, SPAWN)
        assert done.returncode == 1 and "mutable default" in done.stderr
    done = run_without_pth(tmp_path, f"import fairseq_adv.cli{SPAWN}")
    assert done.returncode == 0, done.stderr


# --- dataclass defaults -------------------------------------------------------------------------

needs_refusal = pytest.mark.skipif(sys.version_info < (3, 11), reason="dataclasses refuse these from 3.11 on")


@dataclasses.dataclass
class Plain:
    """An ordinary dataclass: mutable, compares by value, cannot be hashed."""

    size: int = 1


@needs_refusal
@pytest.mark.parametrize("wrapped", [False, True])
def test_dataclasses_elsewhere_stay_strict(wrapped: bool) -> None:
    """After `import fairseq` too, an ordinary module's mutable default is refused."""
    default = dataclasses.field(default=Plain()) if wrapped else Plain()
    with pytest.raises(ValueError, match="mutable default"):
        dataclasses.make_dataclass("Ordinary", [("part", Plain, default)])
    with pytest.raises(ValueError, match="mutable default"):
        dataclasses.make_dataclass("WithList", [("parts", list, [])])
    assert Plain.__hash__ is None


@pytest.mark.parametrize("wrapped", [False, True])
def test_plugin_configs_may_have_them(wrapped: bool) -> None:
    """A config that derives from fairseq's, as user code has them, and one that only holds fairseq's."""
    from fairseq.dataclass import FairseqDataclass
    from fairseq.dataclass.configs import CommonConfig

    @dataclasses.dataclass
    class Part:
        size: int = 1

    default = dataclasses.field(default=Part()) if wrapped else Part()
    config = dataclasses.make_dataclass("Config", [("part", Part, default)], bases=(FairseqDataclass,))
    assert config().part == Part(1) and config().part != Part(2)
    holder = dataclasses.make_dataclass("Holder", [("common", CommonConfig, CommonConfig())])
    assert holder().common.seed == 1


# --- types of options ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "value"), [(int | None, 3), (Optional[List[int]], [3]), (str, "3")])
def test_the_type_of_an_option_is_read_as_python_3_14_prints_it(kind: Any, value: object) -> None:
    """There the text of ``Optional[int]`` is "int | None", as that of ``int | None`` is on every Python."""
    from fairseq.dataclass import FairseqDataclass
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    size = dataclasses.field(default=None, metadata={"help": "a size"})
    config = dataclasses.make_dataclass("Config", [("size", kind, size)], bases=(FairseqDataclass,))
    parser = argparse.ArgumentParser()
    gen_parser_from_dataclass(parser, config())
    assert parser.parse_args(["--size", "3"]).size == value


# --- numpy --------------------------------------------------------------------------------------


def test_dropped_numpy_names_are_back_only_where_they_are_used() -> None:
    import numpy as np
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    assert token_block_dataset.np.compat.long is int
    assert language_pair_dataset.np.compat.long is int
    assert data_utils.np.int is int
    assert dynamic_crf_layer.np.float is float
    assert data_utils.np.array is np.array
    if int(np.__version__.split(".")[0]) >= 2:
        assert not hasattr(np, "int") and not hasattr(np, "compat")


# --- fairseq's commands -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked_lm data folder written by fairseq-preprocess with two workers."""
    folder = tmp_path_factory.mktemp("language")
    for name, count in (("train", 24), ("valid", 8)):
        lines = [" ".join(f"w{(i * 7 + j) % 20}" for j in range(5 + i % 5)) for i in range(count)]
        (folder / name).write_text("\n".join(lines) + "\n")
    done = run_command(
        command("fairseq-preprocess"), "--only-source", "--trainpref", str(folder / "train"),
        "--validpref", str(folder / "valid"), "--destdir", str(folder / "data"), "--workers", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "data"


def check(done: subprocess.CompletedProcess[str], *messages: str) -> None:
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-4000:]
    for message in messages:
        assert message in text, text[-4000:]


def test_masked_lm_trains_resumes_and_validates(language: Path, tmp_path: Path) -> None:
    args = [
        str(language), "--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "16",
        "--save-dir", str(tmp_path), *TINY,
    ]  # fmt: skip
    check(run_command(command("fairseq-train"), *args, "--max-update", "3"), "done training")
    resumed = run_command(command("fairseq-train"), *args, "--max-update", "6")
    check(resumed, "Loaded checkpoint", "@ 3 updates", "num_updates 6")
    validate = [command("fairseq-validate"), str(language), "--task", "masked_lm", "--criterion", "masked_lm"]
    validate += ["--path", str(tmp_path / "checkpoint_last.pt"), "--batch-size", "4", "--cpu"]
    check(run_command(*validate), "valid on 'valid' subset")


# --- hydra --------------------------------------------------------------------------------------

YAML = """# @package _group_
common: {{cpu: true, user_dir: {user_dir}}}
task: {{_name: sentence_prediction, data: {data}, num_classes: 2, init_token: 0, max_positions: 32}}
criterion: {{_name: {criterion}, regression_target: false, classification_head_name: some_head}}
model: {{_name: roberta, max_positions: 32}}
dataset: {{batch_size: 4, num_workers: 0}}
optimizer: {{_name: adam}}
optimization: {{max_update: 1, lr: [0.001]}}
checkpoint: {{no_save: true}}
{further}
"""
PLUGIN = """
from dataclasses import dataclass
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

@dataclass
class Checked:
    size: int
    def __post_init__(self):
        raise ValueError("size has to be even")

@dataclass
class RaisesConfig(FairseqDataclass):
    regression_target: bool = False
    classification_head_name: str = ""

@register_criterion("raises", dataclass=RaisesConfig)
class Raises(FairseqCriterion):
    def __init__(self, task, regression_target, classification_head_name):
        Checked(3)
"""


def hydra_train(
    folder: Path, criterion: str, further: str = "", user_dir: str = ""
) -> subprocess.CompletedProcess[str]:
    plugin = folder / "raising_plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(f"import fairseq_adv\n{PLUGIN}")
    data = write_task(folder / "data")
    (folder / "run.yaml").write_text(
        YAML.format(user_dir=user_dir or plugin, data=data, criterion=criterion, further=further)
    )
    return run_command(
        command("fairseq-hydra-train"), "--config-dir", str(folder), "--config-name", "run",
        f"hydra.run.dir={folder / 'out'}",
    )  # fmt: skip


def test_hydra_shows_the_real_message_of_a_failing_criterion(tmp_path: Path) -> None:
    """Raised in a dataclass's generated __init__, where hydra's printer trips over an assertion, too."""
    done = hydra_train(tmp_path, criterion="raises")
    assert done.returncode == 1
    assert "ValueError: size has to be even" in done.stderr
    assert "print_exception" not in done.stderr and "assert mdl is not None" not in done.stderr
    assert "raising_plugin" in done.stderr and "HYDRA_FULL_ERROR=1" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"further": "optimisation: {max_update: 2}"}, "Key 'optimisation' not in"),
        ({"user_dir": "here"}, "error: common.user_dir: {tmp_path}/out/here: no such folder. Pass its"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_hydra_shows_a_mistake_in_a_yaml_alone(tmp_path: Path, wrong: dict[str, str], message: str) -> None:
    done = hydra_train(tmp_path, **{"criterion": "sentence_prediction", **wrong})
    assert done.returncode == 1
    assert message.format(tmp_path=tmp_path) in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("version", "is_ours"), [("1.0.7", True), ("1.3.2", False)])
def test_a_later_hydra_of_another_program_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, version: str, is_ours: bool
) -> None:
    """Where the package is installed beside it, for the loop."""
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    monkeypatch.setitem(sys.modules, "hydra", ModuleType("hydra"))
    sys.modules["hydra"].__version__ = version  # type: ignore[attr-defined]
    plugins, utils = ModuleType("hydra.core.plugins"), ModuleType("hydra._internal.utils")
    plugins.pkgutil = utils.run_and_report = pkgutil  # type: ignore[attr-defined]
    newer_versions.find_plugins(plugins)
    report_the_real_message(utils)
    assert (plugins.pkgutil is not pkgutil) == (utils.run_and_report is not pkgutil) == is_ours


def test_a_call_that_somebody_has_mended_reads_as_safely(tmp_path: Path) -> None:
    """fairseq's own, with the argument that torch 2.6 asks for."""
    torch.save({"a": 1}, tmp_path / "a.pt")
    assert checkpoints.load(tmp_path / "a.pt", map_location="cpu", weights_only=False) == {"a": 1}
    torch.save({"a": subprocess.Popen}, tmp_path / "b.pt")
    with pytest.raises(checkpoints.Refused, match="Popen"):
        checkpoints.load(tmp_path / "b.pt", weights_only=False)


# Python 3.14 expands each help text when its option is added.
HELP_OF_3_14 = """
import argparse
add = argparse._ActionsContainer.add_argument
def add_argument(self, *words, **options):
    action = add(self, *words, **options)
    if action.help and hasattr(self, "_get_formatter"):
        if "%" in action.help and action.help != argparse.SUPPRESS:
            self._get_formatter()._expand_help(action)
        seen.append(action.dest)
    return action
argparse._ActionsContainer.add_argument = add_argument
seen = []
"""


def test_hydra_s_and_fairseq_s_options_pass_the_check_of_python_3_14() -> None:
    code = "from hydra._internal.utils import get_args_parser as a; from fairseq.options import *\n"
    code += (
        "a(); get_training_parser(); get_preprocessing_parser(); get_generation_parser(); print(len(seen))"
    )
    done = python(HELP_OF_3_14 + code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15
