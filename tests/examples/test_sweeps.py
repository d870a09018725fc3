"""Several values of a key: a run each, in a folder each, with the weights of separate runs."""

from __future__ import annotations

import os
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
from recipes import EXAMPLES, ROOT, run_py, tiny_data
from support import PLUGIN, run_command, weights

from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

Encoder = Callable[[str], Path]


def test_the_sizes_of_the_page_by_both_launchers(tmp_path: Path) -> None:
    """The yaml and commands of docs/choosing.md. Jobs of joblib and of submitit have the same weights, those
    of each size are its own, and the same command again leaves finished runs alone."""
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    recipe, text = re.findall(r"^```(?:yaml|bash)\n(.*?)^```$", page, re.M | re.S)[-2:]
    files, run, compare = re.split(r"^(?=fairseq-)", text.replace("\\\n", ""), flags=re.M)
    (tmp_path / "sizes").mkdir()
    smaller = {"max_positions: 512": "max_positions: 16", "max_epoch: 3": "max_epoch: 1"}
    for old, new in smaller.items():
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
    paths = [encoder("glue") / "model.pt", tmp_path / "b.pt"]
    names_of = ",".join(os.path.relpath(path, ROOT) for path in paths)
    done = run_py("glue", *words, f"checkpoint.finetune_from_model={names_of}")
    swept = f"checkpoint.finetune_from_model={paths[0]},{paths[1]}"
    assert done.returncode == 0 and swept in done.stdout, "each job works in a folder of its own"
    numbered = "hydra.sweep.subdir='${hydra.job.num}'"  # a path would be folders in the folder's name
    assert shlex.quote(numbered) in done.stdout
    for odd in ("common.seed=interval(1,2)", "method=glob(*)"):
        done = run_py("glue", *words[:-1], odd)
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
