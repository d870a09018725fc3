"""examples/alum: one set of numbers for hydra and the shell lines, runs that agree, two processes, SLURM."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from fairseq import options
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from hydra.experimental import compose, initialize_config_dir
from omegaconf import OmegaConf
from support import (
    FLOODING_KEYS,
    PLUGIN,
    VOCABULARY,
    build,
    command,
    environment,
    run_command,
    slow,
    weights,
    write_encoder,
    write_task,
)
from test_glue_examples import as_options, numbers

ROOT = Path(__file__).resolve().parents[2]
ALUM = ROOT / "examples" / "alum"
PRETRAIN, FINETUNE = ALUM / "config" / "pretrain", ALUM / "config" / "finetune"
GLUE = ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst_2", "sts_b"]
SIZES = {
    "model.encoder_layers": "2", "model.encoder_embed_dim": "16", "model.encoder_ffn_embed_dim": "32",
    "model.encoder_attention_heads": "2", "optimization.max_update": "2", "optimization.update_freq": "[2]",
    "dataset.num_workers": "0", "common.cpu": "true", "common.log_interval": "1", "optimization.lr": "[0.01]",
    "common.seed": "7", "lr_scheduler.warmup_updates": "0",
}  # fmt: skip
TINY = {**SIZES, "model.max_positions": "24", "task.tokens_per_sample": "24"}
TINY_TASK = {**SIZES, "task.max_positions": "24"}
ON_CPU = {"common.fp16": "false", "distributed_training.distributed_world_size": "1"}  # of hydra alone


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like roberta.base's: model.pt and dict.txt; tiny and untrained. Its corpus lies in data."""
    folder = tmp_path_factory.mktemp("encoder")
    data = write_shards(folder / "data", 2, words=sorted(VOCABULARY))  # as write_task orders them
    built = build(pretraining_args(data, folder / "save", "masked_lm", "--no-save-optimizer-state"))
    built.trainer.save_checkpoint(str(folder / "model.pt"), {})
    shutil.copy(str(data).split(":")[0] + "/dict.txt", folder)
    return folder


def corpus(encoder: Path) -> str:
    return f"{encoder}/data/shard0:{encoder}/data/shard1"


def shell(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script of the folder with this Python's commands first on the path."""
    return run_command(str(ALUM / script), *words)


def shown(script: str, *words: str) -> List[str]:
    """The words of the command that a script would become."""
    done = shell(script, *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


def hydra_run(config: Path, name: str, overrides: Dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run_command(
        command("fairseq-hydra-train"), "--config-dir", str(config), "--config-name", name,
        f"common.user_dir={PLUGIN}", *(f"{key}={value}" for key, value in overrides.items()),
    )  # fmt: skip


def assert_same_weights(one: Path, other: Path) -> None:
    left, right = (torch.load(path / "checkpoint_last.pt")["model"] for path in (one, other))
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


# --- one place of the numbers


@pytest.mark.parametrize(
    "path", sorted(ALUM.glob("config/*/method/*.yaml")), ids=lambda p: f"{p.parts[-3]}-{p.stem}"
)
def test_no_key_of_the_criterion_is_missing(path: Path) -> None:
    """A missing one could not be set without a +; and the numbers are the paper's in every preset."""
    keys = OmegaConf.load(str(path)).criterion
    assert set(keys) == own_keys(CRITERION_DATACLASS_REGISTRY[keys._name]) - FLOODING_KEYS
    if keys._name != "standard":
        assert (keys.vat_steps, keys.vat_step_size, keys.vat_epsilon, keys.vat_init_std) == (
            1,
            1e-3,
            1e-5,
            1e-5,
        )
        assert keys.vat_alpha == (10 if path.is_relative_to(PRETRAIN) else 1)


@pytest.mark.parametrize(
    "path", [*sorted(PRETRAIN.glob("*.yaml")), FINETUNE / "glue.yaml"], ids=lambda p: p.stem
)
def test_no_key_of_the_task_is_missing(path: Path) -> None:
    task = OmegaConf.load(str(path)).task
    assert set(task) == own_keys(TASK_DATACLASS_REGISTRY[task._name]) | {"_name"}


def own_keys(config: Any) -> Set[str]:
    """The keys of a dataclass but those that it looks up in other groups."""
    fields = config.__dataclass_fields__
    return {name for name, field in fields.items() if not str(field.default).startswith("${")}


def composed(config: Path, name: str, overrides: List[str]) -> Any:
    """What fairseq-hydra-train makes of the yaml before it trains."""
    hydra_init(name)
    with initialize_config_dir(config_dir=str(config)):
        cfg = compose(config_name=name, overrides=overrides)
    add_defaults(cfg)
    return OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


def assert_one_configuration(cfg: Any, words: List[str]) -> None:
    """Every key of every group, fairseq's own defaults too."""
    namespace = options.parse_args_and_arch(options.get_training_parser(), words[1:])
    converted = convert_namespace_to_omegaconf(namespace)
    converted.model = None  # a namespace, which omegaconf copies nowhere
    expected = OmegaConf.create(OmegaConf.to_container(converted, resolve=True, enum_to_str=True))
    for group in ("common", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset",
                  "distributed_training", "checkpoint", "ema"):  # fmt: skip
        assert dict(cfg[group]) == dict(expected[group]), group
    for key, wanted in cfg.model.items():
        # fairseq-train has no option for checkpoint_activations of a RoBERTa; its yaml does.
        if key not in ("_name", "checkpoint_activations"):
            assert getattr(namespace, key) == wanted, key
    assert namespace.arch == cfg.model._name


@pytest.mark.parametrize(
    ("recipe", "method"),
    [("roberta_base", "alum_mtdnn"), ("roberta_large", "standard"), ("bert_base", None),
     slow("roberta_base", None), slow("roberta_base", "alum_paper"), slow("bert_base", "standard")],
)  # fmt: skip
def test_pretrain_sh_and_the_yaml_are_one_configuration(
    encoder: Path, hydra_session: None, recipe: str, method: str | None
) -> None:
    """On the 16 GPUs of the paper."""
    chosen = [] if method is None else [f"method={method}"]
    scratch = recipe == "bert_base"
    cfg = composed(PRETRAIN, recipe, [
        f"task.data={corpus(encoder)}", f"common.user_dir={PLUGIN}", "checkpoint.save_dir=/save", *chosen,
        "optimization.max_epoch=70" if scratch else f"checkpoint.finetune_from_model={encoder}/model.pt",
    ])  # fmt: skip
    words = shown(
        "pretrain.sh", recipe, corpus(encoder), "-" if scratch else str(encoder), "/save", "--gpus", "16",
        *([] if method is None else ["--method", method]), "--user-dir", PLUGIN,
        *(["--max-epoch", "70"] if scratch else []),
    )  # fmt: skip
    assert_one_configuration(cfg, words)
    assert cfg.dataset.batch_size * cfg.optimization.update_freq[0] * 16 == 256
    assert cfg.criterion.get("vat_start_update", 0) == (500000 if scratch and method is None else 0)


@pytest.mark.parametrize(
    ("task", "method", "size"),
    [*((task, "alum_vat", "base") for task in ("mnli", "sts_b")), ("rte", "smart", "large"),
     *(slow(task, "alum_vat", "base") for task in GLUE if task not in ("mnli", "sts_b")),
     *(slow("rte", m, "large") for m in ("alum_paper", "alum_mtdnn", "standard"))],
)  # fmt: skip
def test_finetune_sh_and_the_yaml_are_one_configuration(
    tmp_path: Path, encoder: Path, hydra_session: None, task: str, method: str, size: str
) -> None:
    data = write_task(tmp_path / "data", classes={"sts_b": 1, "mnli": 3}.get(task, 2))
    cfg = composed(FINETUNE, "glue", [
        f"glue={task}", f"method={method}", f"encoder=roberta_{size}", f"task.data={data}",
        f"common.user_dir={PLUGIN}", "checkpoint.save_dir=/save",
        f"checkpoint.finetune_from_model={encoder}/model.pt",
    ])  # fmt: skip
    words = shown(
        "finetune.sh", task.upper().replace("_", "-"), str(data), str(encoder), "/save", "--method", method,
        f"--encoder=roberta_{size}", "--user-dir", PLUGIN,
    )  # fmt: skip
    assert_one_configuration(cfg, words)
    assert cfg.dataset.batch_size * cfg.optimization.update_freq[0] == 32
    assert cfg.ema.store_ema == (method == "smart")


def test_gpus_share_the_rows_of_an_update(encoder: Path) -> None:
    for gpus, batch, parts in [(1, 8, 32), (8, 8, 4), (16, 8, 2), (64, 4, 1)]:
        words = shown("pretrain.sh", "roberta_base", corpus(encoder), str(encoder), "s", "--gpus", str(gpus))
        assert [words[words.index(f"--{key}") + 1] for key in ("batch-size", "update-freq")] == [
            str(batch),
            str(parts),
        ]
    assert "--fp16" in words
    assert "--fp16" not in shown("pretrain.sh", "roberta_base", corpus(encoder), str(encoder), "s", "--fp32")


# --- runs


def test_pre_training_from_yaml_and_shell_is_the_same_to_the_bit(tmp_path: Path, encoder: Path) -> None:
    """And it is ALUM on the pre-trained weights."""
    yaml = hydra_run(PRETRAIN, "roberta_base", {
        **TINY, **ON_CPU, "task.data": corpus(encoder), "checkpoint.save_dir": str(tmp_path / "yaml"),
        "checkpoint.finetune_from_model": f"{encoder}/model.pt",
    })  # fmt: skip
    words = [
        "roberta_base",
        corpus(encoder),
        str(encoder),
        str(tmp_path / "shell"),
        "--fp32",
        *as_options(TINY),
    ]
    line = shell("pretrain.sh", *words)
    logged = numbers(yaml)
    assert logged == numbers(line) and "vat_divergence" in logged["train_inner"][1]
    assert "loading pretrained model from" in line.stdout
    assert_same_weights(tmp_path / "yaml", tmp_path / "shell")
    again = shell("pretrain.sh", *words, "--max-update", "3")
    assert again.returncode == 0 and "loading pretrained model from" not in again.stdout
    assert re.search(r"Loaded checkpoint \S*checkpoint_last.pt \(epoch \d+ @ 2 updates\)", again.stdout)


@pytest.mark.parametrize("method", ["alum_paper", "alum_mtdnn", slow("standard")])
def test_the_other_methods_run_from_a_yaml(tmp_path: Path, encoder: Path, method: str) -> None:
    logged = numbers(hydra_run(PRETRAIN, "roberta_base", {
        **TINY, **ON_CPU, "method": method, "task.data": corpus(encoder),
        "checkpoint.save_dir": str(tmp_path),
        "checkpoint.finetune_from_model": f"{encoder}/model.pt",
    }))  # fmt: skip
    assert ("vat_norm_inf" in logged["train_inner"][1]) == (method != "standard")
    if method == "alum_mtdnn":
        # Less than 1 by mt-dnn's guard of 1e-6; the paper's bound is 1e-5.
        assert 0.9 < logged["train_inner"][1]["vat_norm_inf"] <= 1
    if method == "alum_paper":
        assert logged["train_inner"][1]["vat_norm_inf"] <= 1e-5


def test_bert_from_scratch_changes_rate_and_method_in_one_run(tmp_path: Path, encoder: Path) -> None:
    """Ten epochs, five rates; VAT from the middle on."""
    tiny = {**TINY, "optimization.max_update": "1000", "dataset.batch_size": "2"}
    done = shell(
        "pretrain.sh", "bert_base", corpus(encoder), "-", str(tmp_path), "--fp32", *as_options(tiny),
        "--max-epoch", "10", "--vat-start-update", "9",
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    lines = [line for line in done.stdout.splitlines() if "| train |" in line]
    rates = [float(found) for line in lines for found in re.findall(r'"train_mask_prob": "([\d.]+)"', line)]
    assert rates == [0.05, 0.05, 0.1, 0.1, 0.15, 0.15, 0.2, 0.2, 0.25, 0.25]
    inner = [line for line in done.stdout.splitlines() if "| train_inner |" in line]
    assert len(inner) > 12
    for update, line in enumerate(inner, start=1):
        assert ("vat_norm_inf" in line) == (update > 9), update


def test_the_line_of_pretrain_sh_as_two_processes(tmp_path: Path, encoder: Path) -> None:
    """The update is that of one process: --gpus shares its rows out.

    Adam with a large epsilon doesn't divide small gradients by their own size, and so shows differences of
    rounding as what they are.
    """
    smooth = ["--dropout", "0", "--attention-dropout", "0", "--adam-eps", "1", "--lr", "1"]
    smooth += ["--batch-size", "1"]  # no update has a batch missing on one of the two
    first = ["roberta_base", corpus(encoder), str(encoder)]
    one = shell(
        "pretrain.sh",
        *first,
        str(tmp_path / "one"),
        "--fp32",
        *as_options(TINY),
        *smooth,
        "--update-freq",
        "4",
    )
    assert one.returncode == 0, f"{one.stdout[-2000:]}\n{one.stderr[-4000:]}"
    words = shown(
        "pretrain.sh", *first, str(tmp_path / "two"), "--fp32", *as_options(TINY), *smooth, "--gpus", "2",
        "--update-freq", "2", "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp",
    )  # fmt: skip
    done = run_command(
        command("torchrun"), "--standalone", "--nproc_per_node", "2", command(words[0]), *words[1:]
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    left, right = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("one", "two"))
    start = weights(encoder / "model.pt")
    assert left.keys() == right.keys()
    for name in right:
        torch.testing.assert_close(right[name], left[name], rtol=0, atol=1e-5)
    assert any((left[name] - start[name]).abs().max() > 1e-3 for name in left)


@pytest.mark.parametrize("method", [slow("alum_vat"), "smart", slow("standard")])
def test_fine_tuning_starts_from_the_pre_trained_checkpoint(
    tmp_path: Path, encoder: Path, method: str
) -> None:
    """From yaml and shell, to the bit; smart keeps its average of the weights in the checkpoint."""
    data = write_task(tmp_path / "data", train=32)
    yaml = hydra_run(FINETUNE, "glue", {
        **TINY_TASK, "glue": "mrpc", "method": method, "task.data": str(data),
        "checkpoint.save_dir": str(tmp_path / "yaml"),
        "checkpoint.finetune_from_model": f"{encoder}/model.pt",
    })  # fmt: skip
    moved = tmp_path / "pretrained.pt"  # --from: a checkpoint of pretrain.sh, in a folder without dict.txt
    shutil.copy(encoder / "model.pt", moved)
    line = shell(
        "finetune.sh", "MRPC", str(data), str(encoder), str(tmp_path / "shell"), "--from", str(moved),
        "--method", method, *as_options(TINY_TASK),
    )  # fmt: skip
    logged = numbers(yaml)
    assert logged == numbers(line) and "valid_accuracy" in logged["valid"][-1]
    assert f"loading pretrained model from {moved}" in line.stdout
    assert ("smart_proximal" in logged["train_inner"][1]) == (method == "smart")
    assert_same_weights(tmp_path / "yaml", tmp_path / "shell")
    state = torch.load(tmp_path / "yaml" / "checkpoint_last.pt")
    assert ("ema" in state["extra_state"]) == (method == "smart")


# --- what is refused


def test_the_scripts_name_what_is_missing(tmp_path: Path, encoder: Path) -> None:
    data, save = corpus(encoder), str(tmp_path / "save")
    task = str(write_task(tmp_path / "task"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.pt").touch()
    (other / "dict.txt").write_text("hello 1\n")
    start = str(encoder)
    for words, message in [
        (["pretrain.sh", "roberta", data, start, save], "roberta: no such recipe"),
        (
            ["pretrain.sh", "roberta_base", f"{data}:{tmp_path}/none", start, save],
            f"{tmp_path}/none/train.idx: no such",
        ),
        (["pretrain.sh", "roberta_base", data, str(tmp_path), save], f"{tmp_path}/model.pt: no such file"),
        (["pretrain.sh", "roberta_base", data, "-", save], "goes on from a pre-trained encoder"),
        (["pretrain.sh", "bert_base", data, start, save, "--max-epoch", "5"], "begins with random weights"),
        (["pretrain.sh", "bert_base", data, "-", save], "Pass --max-epoch N"),
        (
            ["pretrain.sh", "roberta_base", data, start, save, "--method", "freelb"],
            "there are alum_mtdnn, alum_paper",
        ),
        (
            ["pretrain.sh", "roberta_base", data, start, save, "--encoder", "x"],
            "--encoder: roberta_base.yaml has no",
        ),
        (["pretrain.sh", "roberta_base", data, start, save, "--gpus", "3"], "cannot be shared out evenly"),
        (["pretrain.sh", "roberta_base", data, start, save, "--method"], "--method needs a value"),
        (["pretrain.sh", "roberta_base", data], "usage: pretrain.sh"),
        (["finetune.sh", "wnli", task, start, save], "--glue wnli: no such choice; there are cola"),
        (["finetune.sh", "rte", str(tmp_path), start, save], "input0/dict.txt: no such file"),
        (["finetune.sh", "rte", task, str(other), save], "another dictionary"),
        (["finetune.sh", "rte", task, start, save, "--from", "none.pt"], "none.pt: no such file"),
        (["finetune.sh", "rte", task], "usage: finetune.sh"),
    ]:
        done = shell(*words)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, (
            words,
            done.stderr,
        )
    assert not Path(save).exists()
    for script in ("pretrain.sh", "finetune.sh"):
        assert shell(script, "--help").stdout.startswith(f"usage: {script}")


def test_a_converted_encoder_brings_its_sizes_and_the_user_has_the_last_word(
    tmp_path: Path, encoder: Path
) -> None:
    converted = tmp_path / "encoder"
    shutil.copytree(encoder, converted, ignore=shutil.ignore_patterns("data", "save"))
    (converted / "model_args.txt").write_text("--arch roberta_base --encoder-layers 6\n")
    words = shown(
        "pretrain.sh", "roberta_base", corpus(encoder), str(converted), "s", "--encoder-layers", "5"
    )
    assert [words[i + 1] for i, w in enumerate(words) if w == "--encoder-layers"] == ["12", "6", "5"]


# --- SLURM


@pytest.mark.parametrize(
    "name", ["../launch.sh", "pretrain.sh", "finetune.sh", "slurm.sbatch", "prepare_corpus.sbatch"]
)
def test_bash_reads_the_scripts(name: str) -> None:
    assert run_command("bash", "-n", str(ALUM / name)).returncode == 0


def stand_ins(folder: Path, **bodies: str) -> Dict[str, str]:
    """SLURM's commands, of which only the way they are called counts; the environment of a job."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, body in bodies.items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_folder / name).chmod(0o755)
    path = os.pathsep.join([str(bin_folder), environment()["PATH"]])
    return {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "1234567", "SLURM_NNODES": "2",
            "SLURM_GPUS_ON_NODE": "8", "CHECKPOINT_POLL": "1", "CHECKPOINT_SETTLE": "3",
            "PATH": path}  # fmt: skip


def submitted(folder: Path, srun: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """slurm.sbatch with a checkpoint there already, and an srun that is told how to go on."""
    slurm = stand_ins(
        folder,
        srun=f'echo "srun $*" >> {folder}/calls; trap "exit 7" TERM; {srun}',
        scontrol=f'echo "scontrol $*" >> {folder}/calls; ls {folder}/out >> {folder}/calls; '
        f'kill "$(cat {folder}/pid)"',
    )
    (folder / "out").mkdir()
    (folder / "out" / "checkpoint_last.pt").write_text("old")
    script = shutil.copy(ALUM / "slurm.sbatch", folder / "slurm_script")  # as SLURM does
    words = ["roberta_base", "a:b", "roberta.base", f"{folder}/out", "--method", "alum_vat"]
    return run_command("bash", str(script), *words, **{**slurm, **environment})


def test_a_signal_waits_for_the_next_checkpoint_and_queues_again(tmp_path: Path) -> None:
    """The checkpoint grows while fairseq copies it: the job isn't stopped before it is whole."""
    last = tmp_path / "out" / "checkpoint_last.pt"
    done = submitted(
        tmp_path,
        f"echo $$ > {tmp_path}/pid; sleep 0.3; kill -USR1 $PPID; sleep 2; for part in 1 2 3 4; do echo part "
        f">> {last}; sleep 0.5; done; echo whole >> {last}; touch {tmp_path}/out/whole; sleep 60 > "
        "/dev/null 2>&1 & wait",
    )
    assert done.returncode == 7, f"the job ends as srun does\n{done.stdout}{done.stderr}"
    started, queued, *files = (tmp_path / "calls").read_text().splitlines()
    assert started == (
        f"srun --kill-on-bad-exit=1 --cpus-per-task=32 {ALUM}/pretrain.sh roberta_base a:b roberta.base "
        f"{tmp_path}/out --gpus 16 --distributed-port "
        "24567 --method alum_vat"
    )
    assert queued == "scontrol requeue 1234567" and "whole" in files
    assert "queued again once the next checkpoint is there" in done.stdout
    assert not list((tmp_path / "out").glob(".signalled*"))


def test_without_a_checkpoint_in_time_it_is_queued_all_the_same(tmp_path: Path) -> None:
    done = submitted(
        tmp_path,
        f"echo $$ > {tmp_path}/pid; sleep 0.5; kill -USR1 $PPID; sleep 60 > /dev/null 2>&1 & wait",
        CHECKPOINT_WAIT="2",
    )
    assert done.returncode == 7 and "scontrol requeue 1234567" in (tmp_path / "calls").read_text()
    assert "no checkpoint came in time" in done.stdout


@pytest.mark.parametrize("signal", ["", "kill -USR1 $PPID; sleep 0.5;"], ids=["unsignalled", "signalled"])
@pytest.mark.parametrize("status", [0, 3])
def test_a_job_that_ends_by_itself_is_not_queued_again(tmp_path: Path, signal: str, status: int) -> None:
    done = submitted(tmp_path, f"{signal} exit {status}")
    assert done.returncode == status and "scontrol" not in (tmp_path / "calls").read_text()


def test_slurm_scripts_want_to_be_called_in_the_projects_folder(tmp_path: Path) -> None:
    for name, words in (("slurm.sbatch", ["a", "b", "c", "d"]), ("prepare_corpus.sbatch", ["a", "b"])):
        done = run_command("bash", str(ALUM / name), *words, SLURM_SUBMIT_DIR=str(tmp_path))
        assert done.returncode == 2 and "call sbatch in the project's folder" in done.stderr
    done = run_command("bash", str(ALUM / "slurm.sbatch"), "a", **stand_ins(tmp_path))
    assert done.returncode == 2 and "usage: pretrain.sh" in done.stderr


def test_the_array_prepares_the_corpus_and_the_last_step_prints_the_data_argument(tmp_path: Path) -> None:
    """The real script; srun runs what it is given. Then pretrain.sh's line takes what the check printed."""
    slurm = stand_ins(tmp_path, srun='while [[ $1 == --* ]]; do shift; done; exec "$@"')
    encoder = write_encoder(tmp_path / "encoder")
    (tmp_path / "corpus").mkdir()
    for number in range(3):
        text = "".join(f"w{i % 40} w{(i + number) % 40} w3\n{'' if i % 4 else chr(10)}" for i in range(50))
        (tmp_path / "corpus" / f"part{number}.txt").write_text(text)
    words = [
        "bash", str(ALUM / "prepare_corpus.sbatch"), f"{tmp_path}/corpus/*.txt", str(tmp_path / "bin2"),
        "--shards", "4", "--encoder", str(encoder), "--valid", f"{tmp_path}/corpus/part0.txt",
    ]  # fmt: skip
    array = {"SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "0"}
    first = run_command(*words, **slurm, **array, SLURM_ARRAY_TASK_ID="0")
    assert first.returncode == 0, first.stderr
    early = run_command(*words, "--check", **slurm, **array, SLURM_ARRAY_TASK_ID="0")
    assert early.returncode == 1 and "shard" in early.stderr
    assert run_command(*words, **slurm, **array, SLURM_ARRAY_TASK_ID="1").returncode == 0
    check = run_command(*words, "--check", **slurm, **array, SLURM_ARRAY_TASK_ID="0")
    assert check.returncode == 0, check.stderr
    data = check.stdout.splitlines()[-1]
    assert data == ":".join(f"{tmp_path}/bin2/shard{number}" for number in range(4))
    line = shell(
        "pretrain.sh",
        "bert_base",
        data,
        "-",
        str(tmp_path / "save"),
        "--fp32",
        *as_options(TINY),
        "--max-epoch",
        "8",
    )
    assert line.returncode == 0, line.stderr[-3000:]


def test_prepare_corpus_sbatch_names_mistakes(tmp_path: Path) -> None:
    slurm = stand_ins(tmp_path)
    words = ["bash", str(ALUM / "prepare_corpus.sbatch"), f"{tmp_path}/*.txt", "out"]
    done = run_command(*words, **slurm)
    assert done.returncode == 2 and f"{tmp_path}/*.txt: no such files" in done.stderr
    (tmp_path / "a.txt").touch()
    assert "not an array" in run_command(*words, **slurm).stderr
    slurm.update(SLURM_ARRAY_TASK_ID="1", SLURM_ARRAY_TASK_MIN="1")
    assert "count the array from 0" in run_command(*words, **slurm).stderr


def test_the_submitit_launcher_takes_the_cluster_yaml() -> None:
    """The plugin for hydra 1.0, where it is installed."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    done = hydra_run(PRETRAIN, "roberta_base", {
        "hydra/launcher": "submitit_slurm", "+cluster": "two_nodes", "task.data": "/data",
        "checkpoint.save_dir": "/save", "checkpoint.finetune_from_model": "/model.pt", "--cfg": "hydra",
    })  # fmt: skip
    assert done.returncode == 0, done.stderr
    launcher = OmegaConf.create(done.stdout[done.stdout.index("hydra:") :]).hydra.launcher
    assert launcher._target_.endswith("SlurmLauncher")
    found = (launcher.nodes, launcher.tasks_per_node, launcher.gpus_per_node, launcher.max_num_timeout)
    assert found == (2, 1, 8, 20)


# --- the README


def test_what_the_readme_names_is_there() -> None:
    """Its links, the project's files, the methods' names, and every option."""
    text = (ALUM / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert "://" in link or (ALUM / link).exists(), link
    for path in re.findall(r"\b(?:scripts|examples)/[\w./]+\.(?:py|sh|sbatch|yaml|md)\b", text):
        assert (ROOT / path).is_file() or path.startswith("examples/roberta/"), path  # that is fairseq's
    known = {"--array", "--dependency", "--parsable", "--partition", "--account", "--config-dir",
             "--config-name", "--multirun", "--signal", "--no-deps"}  # fmt: skip
    for path in [*ROOT.glob("scripts/*.py"), *ALUM.glob("*.sh"), *ALUM.glob("*.py")]:
        known |= set(re.findall(r"--[a-z][a-z0-9-]+", path.read_text(encoding="utf-8")))
    known |= {name for action in options.get_training_parser()._actions for name in action.option_strings}
    configs = [TASK_DATACLASS_REGISTRY["scheduled_masked_lm"], CRITERION_DATACLASS_REGISTRY["smart"]]
    known |= {"--" + key.replace("_", "-") for config in configs for key in config.__dataclass_fields__}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text):
        assert option in known, option
    for path in ALUM.glob("config/*/method/*.yaml"):
        assert f"`{path.stem}`" in text, path.stem


def test_the_readme_shows_the_presets_as_they_are() -> None:
    """Rows of its table: | `method` | projection | shared dropout | divergence |."""
    text = (ALUM / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(alum_\w+)` \| (`\w+` \| \w+ \| `[\w-]+`) \|", text, re.MULTILINE))
    assert set(rows) == {"alum_vat", "alum_paper", "alum_mtdnn"}
    for name, told in rows.items():
        for folder in (PRETRAIN, FINETUNE):
            keys = OmegaConf.load(str(folder / "method" / f"{name}.yaml")).criterion
            shared = {"true": "yes", "false": "no"}[keys.vat_share_dropout]
            assert told == f"`{keys.vat_projection}` | {shared} | `{keys.vat_divergence}`", name
