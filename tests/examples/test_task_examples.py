"""examples of the reasoning tasks: one set of numbers for hydra and run.sh, runs that agree, stages,
SLURM.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import torch
from fairseq import criterions, options, tasks
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from hydra.experimental import compose, initialize_config_dir
from omegaconf import OmegaConf
from support import (
    FLOODING_KEYS,
    PLUGIN,
    build,
    command,
    environment,
    run_command,
    train_args,
    write_questions,
    write_wsc,
)
from test_glue_examples import TINY as GLUE_TINY
from test_glue_examples import as_options, numbers

from fairseq_adv.criterions.flooding import FloodingConfig
from fairseq_adv.criterions.freelb import FreeLBConfig

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = ["arc", "commonsense_qa", "qnli_ranking", "race", "wsc"]
YAMLS = {
    "commonsense_qa": "commonsense_qa/config/commonsense_qa.yaml",
    "qnli_ranking": "qnli_ranking/config/qnli_ranking.yaml",
    "wsc": "wsc/config/wsc.yaml",
    "race": "race/config/race.yaml",
    "union": "arc/config/union.yaml",
    "arc": "arc/config/arc.yaml",
}
# The words of run.sh that come before DATA.
RUN = {name: [str(EXAMPLES / name / "run.sh")] for name in ("commonsense_qa", "qnli_ranking", "wsc", "race")}
RUN |= {stage: [str(EXAMPLES / "arc" / "run.sh"), stage] for stage in ("union", "arc")}
TINY = {**GLUE_TINY, "task.max_positions": "24"}


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like roberta.large's with its tokenizer beside it; tiny and untrained."""
    folder = tmp_path_factory.mktemp("roberta")
    data = write_questions(folder / "data")
    built = build(train_args(data, None, "standard", "--no-save-optimizer-state", task="commonsense_qa"))
    built.trainer.save_checkpoint(str(folder / "model.pt"), {})
    for name in ("dict.txt", "vocab.txt"):
        shutil.copy(data / name, folder)
    return folder


def tiny_data(folder: Path, name: str) -> Path:
    """A data set of this example; for ARC's stages two of them, joined by a colon."""
    if name == "wsc":
        return write_wsc(folder / "wsc", train=32, valid=16)
    para = name in ("race", "union", "arc")
    choices = (2,) if name == "qnli_ranking" else (3, 5, 4)
    sets = [
        write_questions(folder / f"{name}-{part}", train=32, valid=16, choices=choices, para=para, seed=part)
        for part in range(2 if name in ("union", "arc") else 1)
    ]
    return Path(":".join(map(str, sets)))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A run.sh with this Python's commands first on the path."""
    return run_command(*words)


def shown(*words: str) -> List[str]:
    """The words of the command that a run.sh would become."""
    done = run(*words, "--dry-run")
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


def value(words: List[str], option: str) -> str:
    """The last value of an option, which is the one that counts."""
    return words[len(words) - 1 - words[::-1].index(option) + 1]


# --- one place of the numbers


@pytest.mark.parametrize("name", YAMLS)
def test_no_key_of_task_or_criterion_is_missing_from_the_yaml(name: str) -> None:
    """A missing one could not be set without a +."""
    config = OmegaConf.load(str(EXAMPLES / YAMLS[name]))
    task = TASK_DATACLASS_REGISTRY[config.task._name].__dataclass_fields__
    assert set(config.task) == set(task) - {"seed"} | {"_name"}
    fields = FreeLBConfig.__dataclass_fields__
    interpolated = {key for key, field in fields.items() if str(field.default).startswith("${")}
    assert "seed" in interpolated and set(config.criterion) == set(fields) - interpolated - FLOODING_KEYS


def composed(name: str, overrides: List[str]) -> Any:
    """What fairseq-hydra-train makes of the yaml before it trains."""
    path = EXAMPLES / YAMLS[name]
    hydra_init(path.stem)
    with initialize_config_dir(config_dir=str(path.parent)):
        cfg = compose(config_name=path.stem, overrides=overrides)
    add_defaults(cfg)
    return OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


@pytest.mark.parametrize("name", YAMLS)
def test_the_yaml_and_run_sh_are_one_configuration(
    tmp_path: Path, roberta: Path, hydra_session: None, name: str
) -> None:
    """Every key of every group, fairseq's own defaults too; then the task and the criterion are built."""
    data, start = tiny_data(tmp_path, name), f"{roberta}/model.pt"
    cfg = composed(name, [
        f"task.data={data}", f"task.tokenizer_dir={roberta}", f"common.user_dir={PLUGIN}",
        "checkpoint.save_dir=/save", f"checkpoint.finetune_from_model={start}",
    ])  # fmt: skip
    words = shown(
        *RUN[name], str(data), str(roberta), "/save", "--method", "freelb", "--from", start,
        "--user-dir", PLUGIN,
    )  # fmt: skip
    namespace = options.parse_args_and_arch(options.get_training_parser(), words[1:])
    converted = convert_namespace_to_omegaconf(namespace)
    converted.model = None  # a namespace, which omegaconf copies nowhere
    expected = OmegaConf.create(OmegaConf.to_container(converted, resolve=True, enum_to_str=True))
    for group in ("common", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset",
                  "distributed_training", "checkpoint", "ema"):  # fmt: skip
        assert dict(cfg[group]) == dict(expected[group]), group
    for key, wanted in cfg.model.items():
        if key != "_name":
            assert getattr(namespace, key) == wanted, key
    assert namespace.arch == cfg.model._name
    task = tasks.setup_task(cfg.task)
    task.load_dataset("valid")
    assert criterions.build_criterion(cfg.criterion, task).objective.task is task


def test_the_methods_are_those_that_run_sh_names(tmp_path: Path, roberta: Path) -> None:
    words = [*RUN["wsc"], str(tiny_data(tmp_path, "wsc")), str(roberta), "save"]
    assert value(shown(*words), "--adv-steps") == "3"
    # FreeLB's adv_steps counts passes, PGD's ascent steps: the ascent is the same.
    pgd = shown(*words, "--method=pgd")
    assert value(pgd, "--criterion") == "pgd" and value(pgd, "--adv-steps") == "2"
    plain = shown(*words, "--method", "standard")
    assert value(plain, "--criterion") == "standard" and not [word for word in plain if "adv-" in word]
    assert "invalid choice: 'fgm'" in run(*words, "--method", "fgm").stderr


def test_gpus_share_the_examples_of_an_update(tmp_path: Path, roberta: Path) -> None:
    words = [*RUN["commonsense_qa"], str(tiny_data(tmp_path, "commonsense_qa")), str(roberta), "save"]
    for gpus, batch, parts in [(1, 2, 8), (4, 2, 2), (16, 1, 1)]:
        found = shown(*words, "--gpus", str(gpus))
        assert [value(found, f"--{key}") for key in ("batch-size", "update-freq")] == [str(batch), str(parts)]
        assert value(found, "--distributed-world-size") == str(gpus)
    done = run(*words, "--gpus=3")
    assert done.returncode == 2 and "cannot be shared out evenly" in done.stderr


def test_a_converted_encoder_brings_its_sizes_and_the_user_has_the_last_word(
    tmp_path: Path, roberta: Path
) -> None:
    encoder = tmp_path / "encoder"
    shutil.copytree(roberta, encoder)
    (encoder / "model_args.txt").write_text("--arch roberta_base --encoder-layers 6\n")
    data = str(tiny_data(tmp_path, "wsc"))
    words = shown(*RUN["wsc"], data, str(encoder), "save", "--encoder-layers", "5")
    assert [words[i + 1] for i, w in enumerate(words) if w == "--encoder-layers"] == ["24", "6", "5"]


# --- runs


def test_the_yaml_and_run_sh_train_to_the_same_weights(tmp_path: Path, roberta: Path) -> None:
    """Another head's name, too: in the yaml one key sets it for task and criterion."""
    data = tiny_data(tmp_path, "commonsense_qa")
    overrides = {**TINY, "criterion.classification_head_name": "another_head"}
    yaml = EXAMPLES / YAMLS["commonsense_qa"]
    hydra = run_command(
        command("fairseq-hydra-train"), "--config-dir", str(yaml.parent), "--config-name", yaml.stem,
        f"task.data={data}", f"task.tokenizer_dir={roberta}", f"common.user_dir={PLUGIN}",
        f"checkpoint.finetune_from_model={roberta}/model.pt", f"checkpoint.save_dir={tmp_path / 'yaml'}",
        *(f"{key}={value}" for key, value in overrides.items()),
    )  # fmt: skip
    shell = run(
        *RUN["commonsense_qa"], str(data), str(roberta), str(tmp_path / "shell"), *as_options(overrides)
    )
    logged = numbers(hydra)
    assert logged == numbers(shell) and logged["train_inner"][1]["adv_norm"] > 0
    one, other = (torch.load(tmp_path / name / "checkpoint_best.pt")["model"] for name in ("yaml", "shell"))
    assert any(name.startswith("classification_heads.another_head.") for name in one)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in other)


def test_a_stopped_run_goes_on_from_its_last_checkpoint(tmp_path: Path, roberta: Path) -> None:
    """What slurm_seeds.sh builds upon, for a job that is queued again."""
    data = str(tiny_data(tmp_path, "wsc"))
    words = [*RUN["wsc"], data, str(roberta), str(tmp_path / "save"), *as_options(TINY)]
    first = run(*words, "--max-update", "1")
    assert first.returncode == 0 and "loading pretrained model from" in first.stdout
    again = run(*words, "--max-update", "3")
    assert again.returncode == 0 and "loading pretrained model from" not in again.stdout
    assert re.search(r"Loaded checkpoint \S*checkpoint_last.pt \(epoch \d+ @ 1 updates\)", again.stdout)


def test_a_stage_of_arc_goes_on_with_weights_and_head_of_the_one_before(
    tmp_path: Path, roberta: Path
) -> None:
    """A step of length 0, so that what the stage starts from is what it saves."""
    before = tmp_path / "before"
    arc = str(EXAMPLES / "arc" / "run.sh")
    race = [arc, "race", str(tiny_data(tmp_path, "race")), str(roberta), str(before), *as_options(TINY)]
    done = run(*race)
    assert done.returncode == 0 and "adv_norm" not in done.stdout, f"{done.stdout[-2000:]}{done.stderr}"
    two = str(tiny_data(tmp_path, "arc"))
    words = [arc, "arc", two, str(roberta), str(tmp_path / "after"), "--from", f"{before}/checkpoint_best.pt"]
    still = {**TINY, "optimization.lr": "[0]", "optimization.max_update": "1"}
    done = run(*words, *as_options(still), "--best-checkpoint-metric", "accuracy_arc-1")
    assert done.returncode == 0 and "valid_accuracy_arc-1" in done.stdout, (
        f"{done.stdout[-2000:]}{done.stderr}"
    )
    assert "adv_norm" in done.stdout
    one, other = (
        torch.load(path)["model"]
        for path in (before / "checkpoint_best.pt", tmp_path / "after" / "checkpoint_last.pt")
    )
    head = "classification_heads.sentence_classification_head.out_proj.weight"
    start = torch.load(roberta / "model.pt")["model"]
    assert torch.equal(one[head], other[head]) and not torch.equal(one[head], start[head])


# --- the shell scripts


@pytest.mark.parametrize(
    "path",
    ["run_task.sh", "slurm_seeds.sh", *(f"{f}/{n}" for f in FOLDERS for n in ("run.sh", "slurm.sbatch"))],
)
def test_bash_reads_the_scripts(path: str) -> None:
    assert run_command("bash", "-n", str(EXAMPLES / path)).returncode == 0


@pytest.mark.parametrize("folder", FOLDERS)
def test_run_sh_says_its_usage(folder: str) -> None:
    script = str(EXAMPLES / folder / "run.sh")
    done = run(script, "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: run.sh") and "--method" in done.stdout
    short = run(script, "race", "data")
    assert short.returncode == 2 and short.stderr == done.stdout


def test_run_sh_names_what_is_missing(tmp_path: Path, roberta: Path) -> None:
    data, save = str(tiny_data(tmp_path, "commonsense_qa")), str(tmp_path / "save")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "model.pt").touch()
    cqa, union = RUN["commonsense_qa"], RUN["union"]
    untold = tmp_path / "untold"
    shutil.copytree(bare, untold)
    shutil.copy(roberta / "dict.txt", untold)
    for words, message in [
        ([*cqa, data, str(tmp_path), save], f"{tmp_path}/model.pt: no such file"),
        ([*cqa, data, str(bare), save], f"{bare}/dict.txt: no such file"),
        ([*cqa, data, str(untold), save], f"{untold}: holds no tokeniser"),
        ([*cqa, f"{data}:{tmp_path}/none", str(roberta), save], f"{tmp_path}/none: no such folder"),
        ([*cqa, data, str(roberta), save, "--from", "none.pt"], "--from none.pt: no such file"),
        ([*cqa, data, str(roberta), save, "--from"], "--from needs a value"),
        ([*cqa, data, str(roberta), save, "--gpus", "0"], "--gpus 0: pass 1 or more"),
        ([*union, data, str(roberta), save], "add --from CHECKPOINT"),
        ([str(EXAMPLES / "arc" / "run.sh"), "squad", data, str(roberta), save], "squad: no such stage"),
    ]:
        done = run(*words)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, words
    assert not Path(save).exists()


def test_a_yaml_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "torn.yaml").write_text("task: {\n")
    for name in ("list.yaml", "torn.yaml", "none.yaml"):
        done = run_command(sys.executable, str(EXAMPLES / "yaml_options.py"), str(tmp_path / name))
        assert done.returncode == 2 and f"{name}: cannot be read" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_arc_trains_plainly_before_its_last_stage(tmp_path: Path, roberta: Path) -> None:
    data, start = str(tiny_data(tmp_path, "arc")), f"{roberta}/model.pt"
    arc = str(EXAMPLES / "arc" / "run.sh")
    for stage, method in [("race", "standard"), ("union", "standard"), ("arc", "freelb")]:
        words = shown(arc, stage, data, str(roberta), "save", "--from", start)
        assert value(words, "--criterion") == method
    words = shown(arc, "union", data, str(roberta), "save", f"--from={start}", "--method", "pgd")
    assert value(words, "--criterion") == "pgd", "the user's choice wins"


@pytest.mark.parametrize("folder", [*FOLDERS, "flooding"])
def test_slurm_runs_a_seed_and_queues_the_job_again_when_time_runs_out(tmp_path: Path, folder: str) -> None:
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
    copy = shutil.copy(EXAMPLES / folder / "slurm.sbatch", tmp_path / "slurm_script")  # as SLURM does
    before = [*{"arc": ["arc"], "flooding": ["mrpc"]}.get(folder, []), "data", "roberta"]
    words = ["bash", str(copy), *before, "out", "--from", "start.pt"]
    done = run_command(*words, SLURM_ARRAY_TASK_ID="1", **slurm)
    assert done.returncode == 3, "the job ends as srun does"
    started, queued = calls.read_text().splitlines()
    assert started == (
        f"srun {EXAMPLES / folder}/run.sh {' '.join(before)} out/seed-7456 --gpus 4 --distributed-port 34567 "
        "--seed 7456 --from start.pt"
    )
    assert queued == "scontrol requeue 1234567"
    done = run_command(*words, SLURM_ARRAY_TASK_ID="5", **slurm)
    assert done.returncode == 2 and "there are 5 seeds: 0 to 4" in done.stderr
    done = run_command(*words[:4], **slurm)
    assert done.returncode == 2 and "usage: run.sh" in done.stderr
    done = run_command(*words, **{**slurm, "SLURM_SUBMIT_DIR": str(tmp_path)})
    assert done.returncode == 2 and "call sbatch in the project's folder" in done.stderr


# --- the READMEs


@pytest.mark.parametrize("folder", [*FOLDERS, "flooding"])
def test_what_a_readme_names_is_there(folder: str) -> None:
    """Its links, the project's scripts, and every option of its commands and sentences."""
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert "://" in link or (EXAMPLES / folder / link).exists(), link
    for path in re.findall(r"\b(?:scripts|examples)/[\w./]+\.(?:py|sh|sbatch|yaml|md)\b", text):
        assert (ROOT / path).is_file() or path.startswith("examples/roberta/"), path  # that is fairseq's
    known = {word for group in known_options() for word in group}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
        assert option in known, option
    yamls = [*YAMLS.values(), "flooding/config/glue.yaml", "flooding/config/method/flooding.yaml"]
    configs = [OmegaConf.to_container(OmegaConf.load(str(EXAMPLES / yaml))) for yaml in yamls]
    for key in re.findall(r"\b(?:task|criterion|common|optimization|checkpoint)\.[a-z_]+", text):
        group, _, name = key.partition(".")
        assert any(name in config.get(group, {}) for config in configs), key


def known_options() -> Iterator[List[str]]:
    for path in [*(ROOT / "scripts").glob("*.py"), *EXAMPLES.glob("*.sh"), *EXAMPLES.glob("*.py")]:
        yield re.findall(r"--[a-z][a-z-]+", path.read_text(encoding="utf-8"))
    yield ["--array", "--gpus-per-node", "--config-dir", "--config-name", "--partition", "--account"]
    parser = options.get_training_parser()
    yield [option for action in parser._actions for option in action.option_strings]
    for config in (
        *(TASK_DATACLASS_REGISTRY[n] for n in ("arc_retrieval", "wsc")),
        FreeLBConfig,
        FloodingConfig,
    ):
        yield ["--" + key.replace("_", "-") for key in config.__dataclass_fields__]
    yield ["--path"]  # fairseq-validate


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_readme_shows_the_numbers_of_the_yaml(folder: str) -> None:
    """Rows of its table: | `key` | value | source |."""
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    rows: Dict[str, str] = dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+?) \|", text, re.MULTILINE))
    assert "criterion.adv_lr" in rows and "optimization.lr" in rows
    config = OmegaConf.load(str(next((EXAMPLES / folder / "config").glob(f"{folder}.yaml"))))
    for key, told in rows.items():
        found: Any = config
        for part in key.split("."):
            found = found[part]
        plain = found[0] if OmegaConf.is_list(found) else found
        same = told == str(plain).lower() if isinstance(plain, (bool, str)) else float(told) == float(plain)
        assert same, key
