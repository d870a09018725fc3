"""examples/flooding: one set of numbers for hydra and run.sh, runs that agree, what is refused."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf
from support import FLOODING_KEYS, PLUGIN, build, run_command, slow, train_args, write_task
from test_alum_examples import (
    assert_one_configuration,
    assert_same_weights,
    composed,
    hydra_run,
    own_keys,
)
from test_glue_examples import TINY, as_options, numbers

FLOODING = Path(__file__).resolve().parents[2] / "examples" / "flooding"
CONFIG = FLOODING / "config"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a converted BERT's: model.pt and dict.txt; tiny and untrained."""
    folder = tmp_path_factory.mktemp("encoder")
    data = write_task(folder / "data")
    built = build(train_args(data, None, "standard", "--no-save-optimizer-state"))
    built.trainer.save_checkpoint(str(folder / "model.pt"), {})
    shutil.copy(data / "input0" / "dict.txt", folder)
    return folder


def run_sh(*words: str) -> subprocess.CompletedProcess[str]:
    """run.sh with this Python's commands first on the path."""
    return run_command(str(FLOODING / "run.sh"), *words)


@pytest.mark.parametrize("method", ["flooding", "auto", "standard"])
def test_no_key_is_missing(method: str) -> None:
    """A missing one could not be set without a +."""
    keys = OmegaConf.load(str(CONFIG / "method" / f"{method}.yaml")).criterion
    # Those of the dataclass of `flooding` that `standard` lacks are there for older configurations alone.
    known = own_keys(CRITERION_DATACLASS_REGISTRY["standard"])
    assert set(keys) == (known - FLOODING_KEYS if method == "standard" else known)
    task = OmegaConf.load(str(CONFIG / "glue.yaml")).task
    assert set(task) == own_keys(TASK_DATACLASS_REGISTRY[task._name]) | {"_name"}


@pytest.mark.parametrize(
    ("task", "method", "rows", "batch"),
    [("sst_2", "flooding", 67349, 32), ("mrpc", "auto", 3668, 32), ("qnli", "standard", 104743, 16)],
)
def test_run_sh_and_the_yaml_are_one_configuration(
    tmp_path: Path, encoder: Path, hydra_session: None, task: str, method: str, rows: int, batch: int
) -> None:
    data = write_task(tmp_path / "data")
    level = method == "flooding"
    cfg = composed(CONFIG, "glue", [
        f"glue={task}", f"method={method}", f"task.data={data}", f"common.user_dir={PLUGIN}",
        "checkpoint.save_dir=/save", f"checkpoint.finetune_from_model={encoder}/model.pt",
        *(["criterion.flood_level=0.1"] if level else []),
    ])  # fmt: skip
    done = run_sh(
        task.upper().replace("_", "-"), str(data), str(encoder), "/save", "--method", method, "--dry-run",
        *(["--flood-level", "0.1"] if level else []), "--user-dir", PLUGIN,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert_one_configuration(cfg, shlex.split(done.stdout))
    # Ten epochs, of which the first is the warm-up.
    updates = -(-rows // batch)
    schedule = (cfg.lr_scheduler.warmup_updates, cfg.lr_scheduler.total_num_update)
    assert cfg.dataset.batch_size == batch and schedule == (updates, 10 * updates)
    assert cfg.optimization.max_epoch == 10 and cfg.optimization.lr == [2e-5]


@pytest.mark.parametrize("method", [slow("flooding"), "auto", slow("standard")])
def test_yaml_and_shell_train_the_same_to_the_bit(tmp_path: Path, encoder: Path, method: str) -> None:
    """Twice over, since the second run.sh goes on from what the first one saved."""
    data = write_task(tmp_path / "data", train=32)
    chosen = dict(TINY)
    if method == "flooding":
        chosen["criterion.flood_level"] = "9.0"  # above any loss here: every update is flooded
    elif method == "auto":
        chosen |= {"criterion.accordance_interval": "1", "criterion.accordance_batch_size": "4"}
    yaml = hydra_run(CONFIG, "glue", {
        **chosen, "glue": "mrpc", "method": method, "task.data": str(data),
        "checkpoint.save_dir": str(tmp_path / "yaml"),
        "checkpoint.finetune_from_model": f"{encoder}/model.pt",
    })  # fmt: skip
    words = ["MRPC", str(data), str(encoder), str(tmp_path / "shell"), "--method", method]
    line = run_sh(*words, *as_options(chosen))
    logged = numbers(yaml)
    assert logged == numbers(line) and "loading pretrained model from" in line.stdout
    assert_same_weights(tmp_path / "yaml", tmp_path / "shell")
    flooded = [values.get("flooded") for values in logged["train_inner"]]
    assert flooded == {"flooding": [1, 1], "auto": [0, 0], "standard": [None, None]}[method]
    measured = [values.get("accordance_update") for values in logged["train_inner"]]
    assert measured == ([1, 2] if method == "auto" else [None, None])
    again = run_sh(*words, *as_options(chosen), "--max-update", "3")
    assert again.returncode == 0 and "loading pretrained model from" not in again.stdout
    assert re.search(r"Loaded checkpoint \S*checkpoint_last.pt \(epoch \d+ @ 2 updates\)", again.stdout)


def test_a_level_has_to_be_given(tmp_path: Path, encoder: Path) -> None:
    """The paper prints none, so the recipe has none."""
    data = write_task(tmp_path / "data")
    line = run_sh("MRPC", str(data), str(encoder), str(tmp_path / "save"), *as_options(TINY))
    assert line.returncode != 0 and "needs --flood-level" in line.stdout + line.stderr
    yaml = hydra_run(CONFIG, "glue", {
        **TINY, "task.data": str(data), "checkpoint.save_dir": str(tmp_path / "yaml"),
        "checkpoint.finetune_from_model": f"{encoder}/model.pt",
    })  # fmt: skip
    assert yaml.returncode != 0 and "flood_level" in yaml.stdout + yaml.stderr
    assert not list(tmp_path.glob("*/*.pt"))


def test_run_sh_names_what_is_missing(tmp_path: Path, encoder: Path) -> None:
    data, save, start = str(write_task(tmp_path / "data")), str(tmp_path / "save"), str(encoder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.pt").touch()
    (other / "dict.txt").write_text("hello 1\n")
    for words, message in [
        (["wnli", data, start, save], "--glue wnli: no such choice; there are mrpc, qnli, sst_2"),
        (["mrpc", data, start, save, "--method", "freelb"], "there are auto, flooding, standard"),
        (["mrpc", str(tmp_path), start, save], "input0/dict.txt: no such file"),
        (["mrpc", data, str(other), save], "another dictionary"),
        (["mrpc", data, start, save, "--from", "none.pt"], "none.pt: no such file"),
        (["mrpc", data, start, save, "--gpus", "7"], "cannot be shared out evenly"),
        (["mrpc", data], "usage: run.sh"),
    ]:
        done = run_sh(*words)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, words
    assert not Path(save).exists()
    assert run_sh("--help").stdout.startswith("usage: run.sh TASK DATA_BIN")


@pytest.mark.parametrize("name", ["run.sh", "slurm.sbatch"])
def test_bash_reads_the_scripts(name: str) -> None:
    assert run_command("bash", "-n", str(FLOODING / name)).returncode == 0
