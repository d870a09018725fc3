"""Several values of a key: a run each, in a folder each, with the weights of separate runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from glue_samples import sst2
from hf_encoders import save_encoder
from omegaconf import OmegaConf
from recipes import EXAMPLES, ROOT, TINY, run_py, tiny_data
from support import PLUGIN, command, run_command, weights

from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.run_metrics import EPOCH, read_metrics
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

Encoder = Callable[[str], Path]
SMALL = [*TINY, "task.max_positions=16"]


def test_the_sizes_of_the_page_by_both_launchers(tmp_path: Path) -> None:
    """The yaml and commands of docs/choosing.md. Jobs of joblib and of submitit have the same weights, those
    of each size are its own, and the same command again leaves finished runs alone."""
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    recipe, text = re.findall(r"^```(?:yaml|bash)\n(.*?)^```$", page, re.M | re.S)[-2:]
    files, run, compare = re.split(r"^(?=fairseq-)", text.replace("\\\n", ""), flags=re.M)
    (tmp_path / "sizes").mkdir()
    smaller = {"max_positions: 512": "max_positions: 16", "max_epoch: 3": "max_epoch: 1"}
    for old, new in {**smaller, "batch_size: 16": "batch_size: 16, num_workers: 0"}.items():
        assert old in recipe
        recipe = recipe.replace(old, new)
    (tmp_path / "sizes" / "sizes.yaml").write_text(recipe)
    subprocess.run(["bash", "-ec", files], cwd=tmp_path, check=True)
    encoder = tmp_path / "ENCODER"
    save_encoder(encoder, "bert")
    sst2(tmp_path / "raw")
    prepare(tmp_path / "raw", "SST-2", tmp_path / "DATA", tokenizer_for_encoder(encoder), progress=False)
    given = shlex.split(run.replace("$PWD", str(tmp_path)))
    fewer = {"size": "none,0.02", "common.seed": "1", "common.user_dir": PLUGIN}
    words = [f"{key}={fewer[key]}" if (key := one.split("=")[0]) in fewer else one for one in given]
    assert words[-2:] == ["hydra/launcher=joblib", "hydra.launcher.n_jobs=4"]

    def trained(out: str, *launcher: str) -> dict[str, dict[str, torch.Tensor]]:
        done = run_command(*words[:-2], *launcher, f"hydra.sweep.dir={tmp_path / out}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        return {
            path.parent.parent.name: weights(path)
            for path in (tmp_path / out).glob("*/seed1/checkpoint_last.pt")
        }

    found, others = trained("out/sizes", *words[-2:]), trained("local", "hydra/launcher=submitit_local")
    assert {*found} == {*others} == {"size=none", "size=0.02"}
    for size, expected in found.items():
        assert all(torch.equal(others[size][name], weight) for name, weight in expected.items()), size
    assert not all(torch.equal(found["size=none"][name], one) for name, one in found["size=0.02"].items())
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.pt")}
    trained("out/sizes", *words[-2:])
    assert {path: path.stat().st_mtime_ns for path in written} == written
    table = run_command("bash", "-ec", compare, cwd=tmp_path)
    assert "freelb" in table.stdout and "standard" in table.stdout, table.stderr


@pytest.mark.slow  # what jobs of a process share: test_fairseq_patches.py
def test_the_sweep_of_the_readme_gives_the_weights_of_separate_runs(tmp_path: Path, encoder: Encoder) -> None:
    """Bit for bit, and the best checkpoint of each run is its own; each has its own lines."""
    readme = (EXAMPLES / "glue" / "README.md").read_text(encoding="utf-8")
    documented = re.search(
        r"^examples/run.py examples/glue/config/glue.yaml .* (criterion.adv_lr=\S+,\S+)", readme, re.M
    )
    assert documented is not None
    key, _, values = documented[1].partition("=")
    words = [tiny_data(tmp_path, "glue"), encoder("glue")]
    # The first run's best score stays the best: a second run that was held against it would not save its own.
    more = [*SMALL, "checkpoint.best_checkpoint_metric=loss"]
    done = run_py("glue", *words, tmp_path / "sweep", documented[1], *more)
    assert done.returncode == 0, done.stderr[-4000:]
    value = values.split(",")[-1]  # the first run of a process is one like any other
    alone = run_py("glue", *words, tmp_path / "alone", f"{key}={value}", *more)
    assert alone.returncode == 0, alone.stderr[-4000:]
    folder = tmp_path / "sweep" / f"{key}={value}"
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        found, expected = weights(folder / name), weights(tmp_path / "alone" / name)
        assert all(torch.equal(found[weight], expected[weight]) for weight in expected)
    first = weights(tmp_path / "sweep" / f"{key}={values.split(',')[0]}" / "checkpoint_last.pt")
    assert not all(torch.equal(found[weight], first[weight]) for weight in first)
    for job in values.split(","):  # each job's lines, once
        assert len(read_metrics(tmp_path / "sweep" / f"{key}={job}").of(EPOCH)) == 1


@pytest.mark.slow  # refused for that reason: integration/test_changed_options.py
def test_jobs_that_share_a_folder_are_refused(tmp_path: Path, encoder: Encoder) -> None:
    """fairseq-hydra-train as its users call it: without run.py the second job would continue the first."""
    start = f"checkpoint.finetune_from_model={encoder('glue')}/model.pt"
    done = run_command(
        command("fairseq-hydra-train"), "--config-dir", str(EXAMPLES / "glue" / "config"), "--config-name",
        "glue", "--multirun", f"hydra.sweep.dir={tmp_path}/jobs", "hydra.sweep.subdir=${hydra.job.num}",
        f"common.user_dir={PLUGIN}", f"task.data={tiny_data(tmp_path, 'glue')}", start, *SMALL,
        f"checkpoint.save_dir={tmp_path}/shared", "criterion.adv_lr=0.1,0.3", "model._name=roberta_base",
    )  # fmt: skip
    assert done.returncode != 0
    assert "checkpoint_last.pt was made with other options" in done.stderr
    assert "(--adv-lr: 0.1 -> 0.3)" in done.stderr


def test_the_command_of_a_sweep(tmp_path: Path, encoder: Encoder) -> None:
    """A folder is named after what differs alone: no path and no constant key is in its name."""
    words = [tiny_data(tmp_path, "glue"), encoder("glue"), tmp_path / "save", "--dry-run", "common.seed=1,2"]
    done = run_py("glue", *words, "method=pgd,freelb", "common.fp16=false")
    assert done.returncode == 0 and " --multirun " in done.stdout, done.stderr
    excluded = re.search(r"exclude_keys=\[(\S+)\]", done.stdout)
    assert excluded is not None
    names = set(excluded[1].split(","))
    assert {"common.fp16", "task.data", "checkpoint.save_dir"} <= names and not {
        "common.seed",
        "method",
    } & names
    done = run_py("glue", *words[:-1], "common.seed=interval(1,2)")
    assert done.returncode == 2 and "pass the values of a sweep" in done.stderr


@pytest.mark.fast
def test_every_recipe_gives_a_job_a_folder() -> None:
    paths = [*EXAMPLES.glob("*/config/*.yaml"), *EXAMPLES.glob("*/config/*/*.yaml")]
    recipes = [path for path in paths if path.read_text(encoding="utf-8").startswith("# @package _group_")]
    assert len(recipes) == 15
    for path in recipes:
        found = OmegaConf.to_container(OmegaConf.load(str(path)))["hydra"]
        assert found["sweep"] == {"subdir": "${hydra.job.override_dirname}"}, path
        assert "task.data" in found["job"]["config"]["override_dirname"]["exclude_keys"]
