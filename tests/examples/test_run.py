"""examples/run.py: the command that it makes, what it refuses, and runs that go on."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from recipes import AS_THEY_ARE, EXAMPLES, TINY, composed, launcher, numbers, recipe, run_py, tiny_data
from safetensors.torch import load_file
from support import PLUGIN, command, run_command

from fairseq_adv.data.processes import loaders
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

Encoder = Callable[[str], Path]
SMALL = [*TINY, "task.max_positions=16"]
ROWS = [*TINY, "model.max_positions=24", "task.tokens_per_sample=24"]


def shown(name: str | Path, *words: object) -> list[str]:
    """The command that run.py would become."""
    done = run_py(name, *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


def value(words: list[str], key: str) -> str:
    """The last value of a key, which is the one that counts."""
    return [word.partition("=")[2] for word in words if word.startswith(f"{key}=")][-1]


# --- the command


def test_the_command_says_what_hydra_has_to_know(tmp_path: Path, encoder: Encoder) -> None:
    """Absolute paths, whatever is in their names, and the user's words after the launcher's."""
    odd = tmp_path / "it's, (a) = b"
    data = tiny_data(odd, "wsc")
    shutil.copytree(encoder("wsc"), odd / "encoder")
    (odd / "encoder" / "model_args.txt").write_text(
        "--arch roberta_base --encoder-layers 6 --max-positions 64 --untie-weights-roberta\n"
    )
    words = shown(
        "wsc", data, odd / "encoder", odd / "save", "model.encoder_layers=5", "common.fp16=false",
        "criterion.adv_lr=0.5", "common.log_file=log",
    )  # fmt: skip
    assert words[:3] == ["fairseq-hydra-train", "--config-dir", str(recipe("wsc").parent)]
    assert words[3:5] == ["--config-name", "wsc"]
    config = launcher().composed(recipe("wsc"), words[5:], strict=False)
    assert (config.task.data, config.task.tokenizer_dir) == (data, f"{odd}/encoder")
    assert config.checkpoint.finetune_from_model == f"{odd}/encoder/model.pt"
    assert (config.checkpoint.save_dir, config.common.user_dir) == (f"{odd}/save", PLUGIN)
    assert (config.model._name, config.model.encoder_layers) == ("roberta_base", 5)
    assert config.task.max_positions == 64 and config.model.untie_weights_roberta is True
    assert Path(config.common.log_file).is_absolute() and config.criterion.adv_lr == 0.5


@pytest.mark.parametrize(
    ("name", "gpus", "own", "expected"),
    [
        ("commonsense_qa", 4, [], (2, 2)),
        ("commonsense_qa", 16, [], (1, 1)),
        ("roberta_base", 1, [], (32, 8)),  # the recipe is for 8
        ("roberta_base", 16, [], (16, 1)),
        ("roberta_base", 64, [], (4, 1)),
        ("glue", 3, ["glue=mnli"], (1, 11)),
    ],
)
def test_gpus_share_the_examples_of_an_update(
    name: str, gpus: int, own: list[str], expected: tuple[int, int]
) -> None:
    config = composed(name, *own)
    made = launcher().shared(config, gpus)
    config = composed(name, *own, *made)
    assert (config.dataset.batch_size, config.optimization.update_freq) == (expected[0], [expected[1]])
    assert config.distributed_training.distributed_world_size == gpus


def test_one_gpu_is_used_unless_the_user_says_how_many(tmp_path: Path, encoder: Encoder) -> None:
    words = [tiny_data(tmp_path, "roberta_base"), encoder("roberta_base"), tmp_path]
    world = "distributed_training.distributed_world_size"
    assert value(shown("roberta_base", *words), world) == "1"
    own = shown("roberta_base", *words, f"{world}=8")
    assert value(own, "dataset.num_workers") == str(loaders(8))
    assert value(shown("roberta_base", *words, "dataset.num_workers=9"), "dataset.num_workers") == "9"
    assert value(own, world) == "8" and not [word for word in own if "update_freq" in word]
    own = shown("roberta_base", *words, "--gpus", 3, "optimization.update_freq=[5]")
    assert (value(own, world), value(own, "optimization.update_freq")) == ("3", "[5]")
    assert not [word for word in own if "batch_size" in word]


def test_workers_that_were_started_share_the_examples_of_an_update(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq goes by torchrun's variables, whatever its options say."""
    for name, value_of_it in {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
        "WORLD_SIZE": "16",
        "RANK": "0",
    }.items():
        monkeypatch.setenv(name, value_of_it)
    words = [tiny_data(tmp_path, "roberta_base"), encoder("roberta_base"), tmp_path]
    world = "distributed_training.distributed_world_size"
    own = shown("roberta_base", *words)
    found = [value(own, key) for key in (world, "dataset.batch_size", "optimization.update_freq")]
    assert found == ["16", "16", "[1]"]
    for wrong in (["--gpus", 8], [f"{world}=8"]):
        done = run_py("roberta_base", *words, *wrong, "--dry-run")
        assert (done.returncode, done.stdout) == (2, "")
        assert "8 workers, but 16 were started. Leave --gpus and" in done.stderr


def test_help_lists_the_recipes_and_their_choices() -> None:
    done = run_command(str(EXAMPLES / "run.py"), "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: run.py RECIPE DATA ENCODER_DIR SAVE_DIR")
    assert "glue/config/glue.yaml" in done.stdout and "method/pgd.yaml" not in done.stdout
    assert (
        "method=awp|creat|freeat|freelb|freelb_paper|freelb_plus_plus|infobert|noise"
        "|pgd|plain|r3f|rdrop|sam|standard|tavat|yopo"
    ) in done.stdout
    assert "      model=" not in done.stdout  # no recipe has a yaml of that group yet


def test_a_converted_encoders_yaml_is_a_choice_of_a_recipe(tmp_path: Path) -> None:
    """For fairseq-hydra-train without run.py, as examples/glue/README.md says."""
    shutil.copytree(recipe("glue").parent, tmp_path / "config")
    (tmp_path / "config" / "model").mkdir()
    (tmp_path / "config" / "model" / "minilm.yaml").write_text(
        "# @package _group_\n_name: roberta_base\nencoder_layers: 6\nencoder_embed_dim: 384\n"
        "max_positions: 64\n"
    )
    given = ["model=minilm", "task.data=/data", f"common.user_dir={PLUGIN}", "checkpoint.save_dir=/save"]
    model = launcher().composed(tmp_path / "config" / "glue.yaml", given).model
    assert (model._name, model.encoder_layers, model.encoder_embed_dim) == ("roberta_base", 6, 384)
    assert model.max_positions == 64 and model.dropout == 0.1  # the recipe's other keys stay


# --- what is refused


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> dict[str, str]:
    """What stands in braces in the cases below."""
    tmp = tmp_path_factory.mktemp("places")
    (tmp / "other").mkdir()
    (tmp / "other" / "model.pt").touch()
    (tmp / "bare").mkdir()
    shutil.copy(tmp / "other" / "model.pt", tmp / "bare")
    (tmp / "other" / "dict.txt").write_text("hello 1\n")
    (tmp / "short.yaml").write_text("task: {_name: wsc}\n")
    made = {"tmp": str(tmp), "other": f"{tmp}/other", "bare": f"{tmp}/bare"}
    for name in ("glue", "wsc", "arc", "roberta_base"):
        made[name] = tiny_data(tmp / name, name)
        made[f"{name}_encoder"] = str(encoder(name))
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.yaml {glue} {glue_encoder}", "none.yaml: no such recipe. Choose one of"),
        ("{tmp}/short.yaml {glue} {glue_encoder}", "short.yaml is not a recipe: it has no common"),
        ("glue {glue} {glue_encoder} method=free_at", "\tfreelb_paper"),
        ("glue {glue} {glue_encoder} criterion.adv_step=3", "adv_init_mag, adv_lr, adv_max_norm"),
        ("glue {glue} {glue_encoder} optimization.lr=2e-5", "not a list. Pass optimization.lr=[2e-05]"),
        ("glue {glue} {tmp}", "{tmp}/model.pt: no such file"),
        ("glue {glue} {other}", "a different dictionary"),
        ("glue {glue} {glue_encoder} --gpus 2 glue=mnli", "33 examples"),
        ("flooding {glue} {glue_encoder}", "add criterion.flood_level=… (b in nats"),
        ("wsc {wsc} {bare}", "{bare}/dict.txt: no such file"),
        ("union {arc} {arc_encoder}", "add checkpoint.finetune_from_model=… (RACE's checkpoint_best.pt"),
        (
            "glue {glue} {glue_encoder} common.cpu=true common.fp16=true",
            "fp16 needs a GPU. Add common.fp16=false",
        ),
        ("bert_base {roberta_base} -", "add optimization.max_epoch=… (epochs that make 1M updates"),
    ],
)
def test_a_mistake_is_named(places: dict[str, str], words: str, message: str) -> None:
    name, data, folder, *own = words.format(**places).split()
    path = Path(name) if name.endswith(".yaml") else recipe(name)
    done = run_py(path, data, folder, f"{places['tmp']}/save", "--dry-run", *own)
    assert done.returncode == 2 and message.format(**places) in done.stderr, done.stderr
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


# --- runs


def test_a_stopped_run_goes_on_from_its_last_checkpoint(tmp_path: Path, encoder: Encoder) -> None:
    """What the SLURM scripts build upon, for a job that is queued again. A yaml of the user's own."""
    folder = tmp_path / "recipes"
    shutil.copytree(recipe("glue").parent, folder)
    yaml = folder / "glue.yaml"
    yaml.write_text(yaml.read_text().replace("pooler_dropout: 0.0", "pooler_dropout: 0.25"))
    words = [tiny_data(tmp_path, "glue"), encoder("glue"), tmp_path / "save", "method=freeat", *SMALL]
    first = run_py(yaml, *words, "optimization.max_update=1")
    assert len(numbers(first)["train_inner"]) == 1
    assert f"loading pretrained model from {encoder('glue')}/model.pt" in first.stdout
    again = run_py(yaml, *words, "optimization.max_update=3")
    assert again.returncode == 0 and "loading pretrained model from" not in again.stdout
    assert re.search(r"Loaded checkpoint \S*checkpoint_last.pt \(epoch \d+ @ 1 updates\)", again.stdout)
    state = torch.load(tmp_path / "save" / "checkpoint_last.pt")
    assert state["cfg"]["model"]["pooler_dropout"] == 0.25
    steps = {int(of["step"]) for of in state["last_optimizer_state"]["state"].values()}
    assert steps == {9}, "freeat: three steps of Adam count as one update"


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_a_recipe_of_transformers_encoder_trains_a_folder_as_it_is(
    tmp_path: Path, encoder: Encoder, name: str
) -> None:
    """Data that were prepared with another encoder are refused."""
    run = ["optimization.max_update=2", "common.cpu=true", "dataset.num_workers=0", "common.log_interval=1"]
    run += ["task.max_positions=16", *(["criterion.flood_level=0.05"] if name == "flooding" else [])]
    data, folder = Path(tiny_data(tmp_path, name)), encoder(name)
    words = [name, data, folder, tmp_path / "save", *run]
    done = run_py(*words)
    assert done.returncode != 0
    assert "prepared with another encoder's dictionary" in done.stdout + done.stderr
    tokenizer_for_encoder(folder).dictionary.save(str(data / "input0" / "dict.txt"))
    logged = numbers(run_py(*words))
    assert [line["num_updates"] for line in logged["train_inner"]] == [1, 2]
    kept = torch.load(tmp_path / "save" / "checkpoint_last.pt", weights_only=False)["model"]
    prefix = f"hf.{AS_THEY_ARE[name]}.embeddings."
    start = load_file(folder / "model.safetensors")[f"{prefix[3:]}position_embeddings.weight"]
    assert 0 < (kept[f"{prefix}position_embeddings.weight"] - start).abs().max() < 1e-3
    (tmp_path / "empty").mkdir()
    done = run_py(name, data, tmp_path / "empty", tmp_path / "other", *run)
    assert done.returncode == 2 and "empty/config.json: no such file. Pass the encoder's" in done.stderr


def test_the_submitit_launcher_takes_the_cluster_yaml() -> None:
    """The plugin for hydra 1.0, where it is installed; the keys of cluster/ in any case."""
    cluster: Any = OmegaConf.load(str(recipe("roberta_base").parent / "cluster" / "two_nodes.yaml"))
    found = cluster.hydra.launcher
    assert (found.nodes, found.tasks_per_node, found.gpus_per_node, found.max_num_timeout) == (2, 8, 8, 20)
    assert cluster.distributed_training.distributed_port == 29500
    assert list(cluster.hydra) == ["launcher"], "the jobs of a sweep keep their own folders"
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    done = run_command(
        command("fairseq-hydra-train"), "--config-dir", str(recipe("roberta_base").parent), "--config-name",
        "roberta_base", "--cfg", "hydra", "hydra/launcher=submitit_slurm", "+cluster=two_nodes",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = OmegaConf.create(done.stdout[done.stdout.index("hydra:") :]).hydra.launcher
    assert made._target_.endswith("SlurmLauncher") and (made.nodes, made.gpus_per_node) == (2, 8)
