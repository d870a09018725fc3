"""examples/glue: one set of numbers, the same for the command line and the hydra yamls; runs that agree."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Sequence

import pytest
import torch
from fairseq import criterions, options, tasks
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.registry import REGISTRIES
from hydra.experimental import compose, initialize_config_dir
from omegaconf import OmegaConf
from support import (
    FLOODING_KEYS,
    PLUGIN,
    build,
    command,
    environment,
    load_script,
    run_command,
    slow,
    train_args,
    weights,
    write_task,
)

ROOT = Path(__file__).resolve().parents[2]
GLUE = ROOT / "examples" / "glue"
TASKS = ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst_2", "sts_b"]
METHODS = ["freelb", "pgd", "freeat", "yopo", "standard", "plain"]
OWN_KEYS = {"freeat": {"freeat_schedule"}, "yopo": {"yopo_steps", "yopo_full_step"}}
TINY = {
    "model.encoder_layers": "2", "model.encoder_embed_dim": "16", "model.encoder_ffn_embed_dim": "32",
    "model.encoder_attention_heads": "2", "task.max_positions": "16", "optimization.max_update": "2",
    "optimization.update_freq": "[2]", "dataset.num_workers": "0", "common.cpu": "true",
    "common.log_interval": "1", "optimization.lr": "[0.01]", "common.seed": "7",
}  # fmt: skip
# Every option of the adversary, none at the value that the recipe gives it.
OTHER_VALUES = {
    "criterion.adv_steps": "3", "criterion.adv_lr": "0.3", "criterion.adv_max_norm": "0.25",
    "criterion.adv_init_mag": "0.2", "criterion.adv_norm_type": "linf", "criterion.adv_start_update": "1",
    "criterion.no_adv_share_dropout": "true", "criterion.positive_label": "0",
    "criterion.classification_head_name": "another_head",
}  # fmt: skip


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    """make_configs.py, which is a script and no package."""
    return load_script(GLUE / "make_configs.py")


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like roberta.large's: model.pt and dict.txt; tiny and untrained."""
    folder = tmp_path_factory.mktemp("roberta")
    data = write_task(folder / "data")
    built = build(train_args(data, None, "sentence_prediction", "--no-save-optimizer-state"))
    built.trainer.save_checkpoint(str(folder / "model.pt"), {})
    shutil.copy(data / "input0" / "dict.txt", folder)
    return folder


def tiny_data(folder: Path, task: str) -> Path:
    classes = {"sts_b": 1, "mnli": 3}.get(task, 2)
    return write_task(folder / f"{task}-bin", train=32, valid=16, classes=classes)


def as_options(overrides: Dict[str, str]) -> List[str]:
    """hydra's overrides as fairseq-train's options."""
    words = []
    for key, value in overrides.items():
        words.append("--" + key.split(".")[1].replace("_", "-"))
        if value != "true":
            words.append(value.strip("[]"))
    return words


def hydra_run(
    task: str,
    data: Path,
    roberta: Path,
    save: Path,
    overrides: Dict[str, str],
    config: Path = GLUE / "config",
    deleted: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    return run_command(
        command("fairseq-hydra-train"), "--config-dir", str(config), "--config-name", task,
        f"task.data={data}", f"checkpoint.finetune_from_model={roberta / 'model.pt'}",
        f"common.user_dir={PLUGIN}", f"checkpoint.save_dir={save}",
        *(f"{key}={value}" for key, value in overrides.items()), *(f"~{key}" for key in deleted),
    )  # fmt: skip


def shell_run(*words: str) -> subprocess.CompletedProcess[str]:
    """run.sh with this Python's commands first on the path."""
    return run_command(str(GLUE / "run.sh"), *words)


def numbers(done: subprocess.CompletedProcess[str]) -> Dict[str, List[Dict[str, float]]]:
    """All that a run logged, without clocks and memory; hydra and fairseq-train frame it differently."""
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    logs: Dict[str, List[Dict[str, float]]] = {"train_inner": [], "train": [], "valid": []}
    clocks = ("wall", "wps", "ups", "wpb", "bsz", "gb_free")
    for line in (done.stdout + done.stderr).splitlines():
        tag = re.search(r"[\[ ](train_inner|train|valid)[\] ]", line)
        if tag and line.endswith("}") and "{" in line:
            found = json.loads(line[line.index("{") :])
            kept = {k: float(v) for k, v in found.items() if not k.endswith(clocks)}
            logs[tag.group(1)].append(kept)
    assert len(logs["train_inner"]) == 2 and logs["valid"]
    return logs


# --- one place of the numbers


def test_every_yaml_is_what_make_configs_writes(tmp_path: Path) -> None:
    assert run_command(sys.executable, str(GLUE / "make_configs.py"), "--check").returncode == 0
    copy = tmp_path / "glue"
    shutil.copytree(GLUE, copy)
    changed = copy / "config" / "rte.yaml"
    changed.write_text(changed.read_text().replace("adv_lr: 0.03", "adv_lr: 0.06"))
    (copy / "config" / "qqp.yaml").unlink()
    done = run_command(sys.executable, str(copy / "make_configs.py"), "--check")
    assert done.returncode == 1 and "config/rte.yaml" in done.stderr and "config/qqp.yaml" in done.stderr
    assert run_command(sys.executable, str(copy / "make_configs.py")).returncode == 0
    assert sorted(p.read_text() for p in (copy / "config").iterdir()) == sorted(
        p.read_text() for p in (GLUE / "config").iterdir()
    )


def composed(task: str, overrides: List[str]) -> Any:
    """What fairseq-hydra-train makes of the yaml before it trains."""
    hydra_init(task)
    with initialize_config_dir(config_dir=str(GLUE / "config")):
        cfg = compose(config_name=task, overrides=overrides)
    add_defaults(cfg)
    return OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


@pytest.mark.parametrize(
    "task", [task if task in ("cola", "mnli", "sts_b") else slow(task) for task in TASKS]
)
def test_the_yaml_and_the_options_are_one_configuration(
    tmp_path: Path, recipe: ModuleType, hydra_session: None, task: str
) -> None:
    """Every key of every group, fairseq's own defaults too; then the task and the criterion are built."""
    data = tiny_data(tmp_path, task)
    cfg = composed(task, [
        f"task.data={data}", f"common.user_dir={PLUGIN}", "checkpoint.save_dir=/save",
        "checkpoint.finetune_from_model=/model.pt",
    ])  # fmt: skip
    words = [str(data), "--user-dir", PLUGIN, "--save-dir", "/save", "--finetune-from-model", "/model.pt"]
    parser = options.get_training_parser()
    namespace = options.parse_args_and_arch(parser, [*words, *recipe.options(recipe.config(task))])
    converted = convert_namespace_to_omegaconf(namespace)
    converted.model = None  # a namespace, which omegaconf copies nowhere
    expected = OmegaConf.create(OmegaConf.to_container(converted, resolve=True, enum_to_str=True))
    for group in ("common", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset",
                  "distributed_training", "checkpoint", "ema"):  # fmt: skip
        assert dict(cfg[group]) == dict(expected[group]), group
    # The model has no dataclass and its namespace holds everything: compare what the yaml says.
    for key, value in cfg.model.items():
        if key != "_name":
            assert getattr(namespace, key) == value, key
    assert namespace.arch == cfg.model._name
    assert isinstance(cfg.optimization.lr[0], float) and isinstance(cfg.optimizer.adam_eps, float)
    criterion = criterions.build_criterion(cfg.criterion, tasks.setup_task(cfg.task))
    assert criterion.objective.is_regression == (task == "sts_b")
    assert (criterion.objective.positive_class is None) == (task == "sts_b")


def test_no_key_of_the_criterion_is_missing_from_the_yaml(recipe: ModuleType) -> None:
    """A missing one could not be set without a +, and two of them a stock task looks up."""
    from fairseq_adv.criterions.freelb import FreeLBConfig

    fields = FreeLBConfig.__dataclass_fields__
    interpolated = {key for key, field in fields.items() if str(field.default).startswith("${")}
    assert "seed" in interpolated
    assert set(recipe.config("rte")["criterion"]) == set(fields) - interpolated - FLOODING_KEYS


@pytest.mark.parametrize("task", TASKS)
def test_freelb_and_yopo_make_a_pass_more_than_the_authors_count_and_the_others_do_not(
    recipe: ModuleType, task: str
) -> None:
    script = recipe.NUMBERS["adversary"]["authors_script"]
    for method, more in (("freelb", 1), ("yopo", 1), ("pgd", 0), ("freeat", 0)):
        made = recipe.adversary(task, method, "authors_script")["adv_steps"]
        assert made == script[method][task]["steps"] + more, method
    paper = recipe.NUMBERS["adversary"]["paper"]["freelb"][task]
    # Why the paper's m is read as the scripts' adv_steps.
    assert paper["steps"] == script["freelb"][task]["steps"]
    plain = recipe.adversary(task, "plain", "authors_script")
    assert (plain["adv_steps"], plain["adv_init_mag"]) == (1, 0.0)


@pytest.mark.parametrize(
    ("method", "task", "steps", "alpha", "init", "epsilon", "own"),
    [
        ("freeat", "mnli", 2, 0.1, 0.01, 0.2, {"freeat_schedule": "groups"}),
        ("freeat", "cola", 3, 0.05, 0.4, 0.2, {"freeat_schedule": "groups"}),
        ("yopo", "mnli", 3, 0.1, 0.1, 0.2, {"yopo_steps": 3, "yopo_full_step": True}),
        ("yopo", "mrpc", 4, 0.0133, 0.64, 0.4, {"yopo_steps": 2, "yopo_full_step": True}),
    ],
)
def test_freeat_and_yopo_have_the_numbers_of_the_authors_scripts(
    recipe: ModuleType, method: str, task: str, steps: int, alpha: float, init: float, epsilon: float,
    own: Dict[str, Any],
) -> None:  # fmt: skip
    assert recipe.adversary(task, method, "authors_script") == {
        "_name": method, "adv_steps": steps, "adv_lr": alpha, "adv_max_norm": epsilon, "adv_init_mag": init,
        **own,
    }  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_each_method_gets_its_own_options_and_no_others(
    tmp_path: Path, roberta: Path, recipe: ModuleType, method: str
) -> None:
    """What run.sh shows for every task, read by fairseq-train's parser; then the criterion is built."""
    for task in TASKS:
        criterion = recipe.config(task, method)["criterion"]
        adversary = {key for key in criterion if "adv_" in key or key.startswith(("freeat_", "yopo_"))}
        shared = (
            set() if method == "standard" else {k for k in recipe.config(task)["criterion"] if "adv_" in k}
        )
        assert adversary == shared | OWN_KEYS.get(method, set()), task
    data = tiny_data(tmp_path, "sts_b")
    done = shell_run("sts_b", str(data), str(roberta), "save", "--method", method, "--dry-run")
    assert done.returncode == 0, done.stderr
    shown = shlex.split(done.stdout)[1:]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), input_args=shown)
    )
    for key, value in recipe.config("sts_b", method)["criterion"].items():
        assert cfg.criterion[key] == value, key
    built = criterions.build_criterion(cfg.criterion, tasks.setup_task(cfg.task))
    assert type(built) is REGISTRIES["criterion"]["registry"][{"plain": "freelb"}.get(method, method)]


def test_gpus_share_the_sentences_of_an_update(recipe: ModuleType) -> None:
    for batch, parts, gpus in [(2, 8, 1), (2, 8, 2), (8, 4, 8), (32, 1, 4), (3, 11, 3), (2, 8, 16)]:
        each, times = recipe.share(batch, parts, gpus)
        assert each * times * gpus == batch * parts and 1 <= each <= batch
    with pytest.raises(ValueError, match="33 sentences"):
        recipe.share(3, 11, 2)


def readme_rows(cells: int) -> Dict[str, List[float]]:
    """The rows of README.md's tables of tasks with so many cells, without the task's own."""
    rows = {}
    for line in (GLUE / "README.md").read_text(encoding="utf-8").splitlines():
        row = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if len(row) == cells and row[0] in TASKS:
            rows[row[0]] = [float(cell) for cell in row[1:]]
    return rows


def test_the_readme_shows_these_numbers(recipe: ModuleType) -> None:
    """The tables of the adversary's sizes: FreeLB's, scripts' and paper's; FreeAT's and YOPO's."""
    sizes = recipe.NUMBERS["adversary"]
    script, order = sizes["authors_script"], ("alpha", "steps", "inner", "init", "epsilon")

    def together(*rows: Dict[str, float]) -> List[float]:
        return [row[key] for row in rows for key in order if key in row]

    freelb, others = readme_rows(9), readme_rows(10)
    for task in TASKS:
        assert freelb[task] == together(script["freelb"][task], sizes["paper"]["freelb"][task]), task
        assert others[task] == together(script["freeat"][task], script["yopo"][task]), task
    pgd = {**script["freeat"], "mnli": {**script["freeat"]["mnli"], "init": 0.2}}
    assert script["pgd"] == pgd, "README.md: PGD's numbers are FreeAT's, but for MNLI's start"


# --- runs


@pytest.mark.parametrize("task", [slow("rte"), "cola", slow("sts_b")])
def test_the_yaml_and_run_sh_train_to_the_same_numbers(tmp_path: Path, roberta: Path, task: str) -> None:
    data = tiny_data(tmp_path, task)
    yaml = numbers(hydra_run(task, data, roberta, tmp_path / "yaml", TINY))
    shell = numbers(shell_run(task, str(data), str(roberta), str(tmp_path / "shell"), *as_options(TINY)))
    assert yaml == shell
    metric = {"cola": "mcc", "sts_b": "pearson"}.get(task, "accuracy")
    assert yaml["train_inner"][1]["adv_norm"] > 0
    one, other = (torch.load(tmp_path / run / "checkpoint_best.pt") for run in ("yaml", "shell"))
    assert one["extra_state"]["best"] == yaml["valid"][-1][f"valid_{metric}"]
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in other["model"])


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("freeat", {"criterion.adv_steps": "3", "+criterion.freeat_schedule": "groups"}),
        slow("yopo", {"+criterion.yopo_steps": "3", "+criterion.yopo_full_step": "true"}),
        slow("standard", {}),
    ],
)
def test_the_other_methods_from_hydra_and_from_run_sh(
    tmp_path: Path, roberta: Path, recipe: ModuleType, method: str, overrides: Dict[str, str]
) -> None:
    """RTE, where the other sizes of freeat and yopo are FreeLB's. hydra refuses keys that a method lacks."""
    data = tiny_data(tmp_path, "rte")
    unknown = recipe.config("rte")["criterion"].keys() - recipe.config("rte", method)["criterion"].keys()
    assert bool(unknown) == (method == "standard")
    deleted = [f"criterion.{key}" for key in sorted(unknown)]
    given = {**TINY, "criterion._name": method, **overrides}
    yaml = numbers(hydra_run("rte", data, roberta, tmp_path / "yaml", given, deleted=deleted))
    words = ["rte", str(data), str(roberta), str(tmp_path / "shell"), "--method", method]
    shell = numbers(shell_run(*words, *as_options(TINY)))
    assert yaml == shell
    assert [line["num_updates"] for line in shell["train_inner"]] == [1, 2]
    assert ("adv_norm" in shell["train_inner"][0]) == (method != "standard")
    one, other = (weights(tmp_path / run / "checkpoint_last.pt") for run in ("yaml", "shell"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    state = torch.load(tmp_path / "yaml" / "checkpoint_last.pt")
    saved = state["cfg"]["criterion"]
    assert {key: saved[key] for key in OWN_KEYS.get(method, ())} == {
        key: recipe.config("rte", method)["criterion"][key] for key in OWN_KEYS.get(method, ())
    }
    steps = {int(of["step"]) for of in state["last_optimizer_state"]["state"].values()}
    assert steps == {6 if method == "freeat" else 2}, "freeat: three steps of Adam count as one update"


def test_freeat_whose_replays_are_updates_ends_by_updates(tmp_path: Path, roberta: Path) -> None:
    """As README.md has it: the options win over the recipe's, and the run ends within the second group."""
    words = ["rte", str(tiny_data(tmp_path, "rte")), str(roberta), str(tmp_path / "save"), "--method=freeat"]
    done = shell_run(*words, *as_options(TINY), "--freeat-schedule", "passes", "--max-update", "4")
    assert done.returncode == 0, done.stderr[-3000:]
    state = torch.load(tmp_path / "save" / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 4
    assert {int(of["step"]) for of in state["last_optimizer_state"]["state"].values()} == {4}


def test_standard_and_plain_are_one_training(tmp_path: Path, roberta: Path) -> None:
    data = str(tiny_data(tmp_path, "cola"))
    logs, ends = [], []
    for method in ("standard", "plain"):
        words = ["cola", data, str(roberta), str(tmp_path / method), "--method", method, *as_options(TINY)]
        logs.append(numbers(shell_run(*words)))
        ends.append(weights(tmp_path / method / "checkpoint_last.pt"))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1])
    assert logs[0]["valid"] == logs[1]["valid"] and "valid_mcc" in logs[0]["valid"][0]


def test_every_option_of_the_adversary_has_the_same_effect_from_both(tmp_path: Path, roberta: Path) -> None:
    data = tiny_data(tmp_path, "mrpc")
    overrides = {**TINY, **OTHER_VALUES}
    yaml = numbers(hydra_run("mrpc", data, roberta, tmp_path / "yaml", overrides))
    shell = numbers(shell_run("MRPC", str(data), str(roberta), str(tmp_path / "sh"), *as_options(overrides)))
    assert yaml == shell
    first, second = yaml["train_inner"]
    assert "adv_norm" not in first and second["adv_norm"] > 0, "adv_start_update=1: the first update is plain"
    state = torch.load(tmp_path / "yaml" / "checkpoint_last.pt")
    assert any(name.startswith("classification_heads.another_head.") for name in state["model"])
    saved = state["cfg"]["criterion"]
    for key, value in OTHER_VALUES.items():
        assert str(saved[key.split(".")[1]]).lower() == value, key


def test_a_stopped_run_goes_on_from_its_last_checkpoint(tmp_path: Path, roberta: Path) -> None:
    """What slurm.sbatch builds upon, for a job that is queued again."""
    data = str(tiny_data(tmp_path, "rte"))
    words = ["rte", data, str(roberta), str(tmp_path / "save"), "--method", "pgd", *as_options(TINY)]
    assert "loading pretrained model from" in shell_run(*words, "--max-update", "1").stdout
    again = shell_run(*words, "--max-update", "3")
    assert again.returncode == 0 and "loading pretrained model from" not in again.stdout
    assert re.search(r"Loaded checkpoint \S*checkpoint_last.pt \(epoch \d+ @ 1 updates\)", again.stdout)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"criterion.adv_steps": "0"}, "--adv-steps 0: pass 1 or more"),
        ({"criterion.adv_step": "3"}, "criterion.adv_step"),
    ],
    ids=["out-of-range", "unknown-key"],
)
def test_a_mistake_in_a_yaml_is_named(
    tmp_path: Path, roberta: Path, overrides: Dict[str, str], message: str
) -> None:
    """As an override; in the file itself they take the same way."""
    done = hydra_run("rte", tiny_data(tmp_path, "rte"), roberta, tmp_path / "save", {**TINY, **overrides})
    assert done.returncode != 0 and message in done.stdout + done.stderr
    assert not list(tmp_path.glob("save/*.pt"))


def test_a_mistake_in_the_yaml_file_is_named(tmp_path: Path, roberta: Path) -> None:
    config = tmp_path / "config"
    shutil.copytree(GLUE / "config", config)
    rte = config / "rte.yaml"
    rte.write_text(rte.read_text().replace("  adv_lr: 0.03", "  adv_learning_rate: 0.03"))
    done = hydra_run("rte", tiny_data(tmp_path, "rte"), roberta, tmp_path / "save", TINY, config)
    assert done.returncode != 0 and "adv_learning_rate" in done.stdout + done.stderr


# --- the shell scripts


@pytest.mark.fast
@pytest.mark.parametrize("name", ["run.sh", "slurm.sbatch"])
def test_bash_reads_the_scripts(name: str) -> None:
    assert run_command("bash", "-n", str(GLUE / name)).returncode == 0


def test_run_sh_names_what_is_missing(tmp_path: Path, roberta: Path) -> None:
    data = str(tiny_data(tmp_path, "rte"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.pt").touch()
    (other / "dict.txt").write_text("hello 1\n")
    save = str(tmp_path / "save")
    for words, message in [
        (["wnli", data, str(roberta), save], "invalid choice: 'wnli'"),
        (["rte", data, str(tmp_path), save], f"{tmp_path}/model.pt: no such file"),
        (["rte", str(tmp_path), str(roberta), save], "input0/dict.txt: no such file"),
        (["rte", data, str(other), save], "another dictionary"),
        (
            ["rte", data, str(roberta), save, "--numbers", "paper", "--method", "pgd"],
            "has none for --method pgd",
        ),
        (["rte", data, str(roberta), save, "--numbers=paper", "--method=yopo"], "none for --method yopo"),
        (["rte", data, str(roberta), save, "--method", "free_at"], "invalid choice: 'free_at'"),
        (["mnli", data, str(roberta), save, "--gpus", "2"], "33 sentences"),
        (["rte", data, str(roberta), save, "--method"], "--method needs a value"),
        (["rte", data], "usage: run.sh"),
    ]:
        done = shell_run(*words)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, words
    assert not Path(save).exists()


def test_a_converted_encoder_brings_its_sizes_and_the_user_has_the_last_word(
    tmp_path: Path, roberta: Path
) -> None:
    encoder = tmp_path / "encoder"
    shutil.copytree(roberta, encoder)
    (encoder / "model_args.txt").write_text("--arch roberta_base --encoder-layers 6\n")
    data = str(tiny_data(tmp_path, "rte"))
    done = shell_run(
        "RTE", data, str(encoder), "save", "--dry-run", "--method=plain", "--encoder-layers", "5"
    )
    words = done.stdout.split()
    assert [words[i + 1] for i, w in enumerate(words) if w == "--encoder-layers"] == ["24", "6", "5"]
    assert words[words.index("--adv-steps") + 1] == "1"


def test_slurm_runs_a_seed_and_queues_the_job_again_when_time_runs_out(tmp_path: Path) -> None:
    """With stand-ins for SLURM's commands, of which only the way they are called counts."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    calls = tmp_path / "calls"
    for name, body in {
        "srun": f'echo "srun $*" >> {calls}; kill -USR1 $PPID; sleep 0.5; exit 3',
        "scontrol": f'echo "scontrol $*" >> {calls}',
    }.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_folder / name).chmod(0o755)
    path = os.pathsep.join([str(bin_folder), environment()["PATH"]])
    slurm = {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "4",
             "SLURM_JOB_ID": "1234567", "PATH": path}  # fmt: skip
    words = ["bash", str(GLUE / "slurm.sbatch"), "qqp", "data", "roberta", "out", "--fp16"]
    done = run_command(*words, SLURM_ARRAY_TASK_ID="1", **slurm)
    assert done.returncode == 3, "the job ends as srun does"
    started, queued = calls.read_text().splitlines()
    assert started == (
        f"srun {GLUE}/run.sh qqp data roberta out/seed-7456 --gpus 4 --distributed-port 34567 "
        "--seed 7456 --fp16"
    )
    assert queued == "scontrol requeue 1234567"
    done = run_command(*words, SLURM_ARRAY_TASK_ID="5", **slurm)
    assert done.returncode == 2 and "there are 5 seeds: 0 to 4" in done.stderr
