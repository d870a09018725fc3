"""Work that jobs share: a corpus, documents for questions, the evidence run, a sweep of hydra's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from evidence_samples import small_program, write_evidence_data, write_small_encoder
from jobs import GLUE, NO_DECAY, NO_GPUS, SCRIPT, SMALL, WORDS, Job
from private_cluster import Cluster
from recipes import EXAMPLES, ROOT, SMOOTH, run_py, tiny_data
from support import run_command, verb, weights, write_encoder

Submit = Callable[..., Job]


def wikitext(shared_data: Path, folder: Path) -> list[str]:
    """WikiText-2's test split in four files, with its own words as a vocabulary."""
    lines = (shared_data / "text" / "test.txt").read_text().splitlines()[:1200]
    words = sorted({word for line in lines for word in line.split() if word.isalpha()})
    encoder = write_encoder(folder / "encoder", words)
    (folder / "corpus").mkdir()
    for number in range(4):
        (folder / "corpus" / f"part{number}.txt").write_text("\n".join(lines[number::4]) + "\n")
    valid = folder / "corpus" / "part0.txt"
    return [
        f"{folder}/corpus/*.txt", f"{folder}/bin", "--shards", "4", "--encoder", str(encoder), "--valid",
        str(valid),
    ]  # fmt: skip


def test_a_corpus_is_prepared_by_an_array_checked_and_trained_on(
    cluster: Cluster, submit: Submit, shared_data: Path, tmp_path: Path
) -> None:
    """alum_vat on WikiText-2: two nodes train to the weights of one process."""
    script, words = EXAMPLES / "alum" / "prepare_corpus.sbatch", wikitext(shared_data, tmp_path)
    small = ["--cpus-per-task=2"]
    array = submit("--array=0-1", *small, script, *words)
    check = submit(
        f"--dependency=afterok:{array.number}", "--array=0", *small, script, *words, "--check"
    )  # fmt: skip
    assert set(array.end().split()) == {"COMPLETED"} and check.end() == "COMPLETED"
    data = check.log().splitlines()[-1]
    assert data == ":".join(f"{tmp_path}/bin/shard{number}" for number in range(4))
    recipe = [
        *WORDS, *SMOOTH, *NO_DECAY, "model.max_positions=64", "task.tokens_per_sample=64",
        "method=alum_vat", "optimization.max_update=4", "optimization.max_epoch=9", "dataset.batch_size=4",
    ]  # fmt: skip
    path = "examples/alum/config/pretrain/bert_base.yaml"  # random weights
    one = run_py("bert_base", data, "-", tmp_path / "one", *recipe, "optimization.update_freq=[2]")
    assert one.returncode == 0, one.stderr
    job = submit(
        "--nodes=2", *NO_GPUS, SCRIPT, path, data, "-", tmp_path / "two", *recipe,
        "optimization.update_freq=[1]",
    )  # fmt: skip
    assert job.end() == "COMPLETED"
    left, right = (weights(tmp_path / run / "checkpoint_last.pt") for run in ("one", "two"))
    assert max(float((left[name] - right[name]).abs().max()) for name in left) < 1e-6


def test_a_corpus_that_is_not_whole_is_not_trained_on(
    cluster: Cluster, submit: Submit, shared_data: Path, tmp_path: Path
) -> None:
    """A job of the array fails, and the check that depends on it never starts."""
    script, words = EXAMPLES / "alum" / "prepare_corpus.sbatch", wikitext(shared_data, tmp_path)
    (tmp_path / "corpus" / "part3.txt").write_bytes(b"\xff\xfe not UTF-8\n")
    array = submit("--array=0-1", "--cpus-per-task=1", script, *words)
    check = submit(
        f"--dependency=afterok:{array.number}", "--array=0", "--cpus-per-task=1", script, *words, "--check"
    )
    assert "FAILED" in array.end().split()
    assert "part3.txt:1: not UTF-8" in array.log()
    check.until(lambda: check.field("Reason") == "DependencyNeverSatisfied")
    assert not check.log()


def test_documents_for_questions_as_an_array(
    cluster: Cluster, submit: Submit, shared_data: Path, tmp_path: Path
) -> None:
    """What one command writes, in files of their sets."""
    sentences = (shared_data / "science_text" / "sentences.txt").read_text().splitlines()[:3000]
    (tmp_path / "text.txt").write_text("\n".join(sentences) + "\n")
    index = tmp_path / "index"
    made = run_command(*verb("retrieve index"), str(tmp_path / "text.txt"), str(index))
    assert made.returncode == 0, made.stderr
    files = []
    for name in ("ARC-Easy-Dev", "ARC-Challenge-Dev", "ARC-Challenge-Test"):
        file = tmp_path / "raw" / name.rpartition("-")[0] / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = (shared_data / "arc" / f"{name}.jsonl").read_text().splitlines()[:20]
        file.write_text("\n".join(lines) + "\n")
        files.append(file)
    script = EXAMPLES / "arc" / "retrieve.sbatch"
    job = submit("--array=0-2", "--cpus-per-task=2", script, index, tmp_path / "arc", *files)
    assert set(job.end().split()) == {"COMPLETED"}
    for file in files:
        alone = tmp_path / "alone" / file.name
        done = run_command(*verb("retrieve documents"), str(index), str(file), str(alone))
        assert done.returncode == 0, done.stderr
        found = tmp_path / "arc" / file.parent.name / file.name
        assert found.read_bytes() == alone.read_bytes() and b'"para"' in found.read_bytes()
    wrong = submit("--array=0-1", script, index, tmp_path / "arc", *files)
    assert set(wrong.end().split()) == {"FAILED"} and "error: 3 files want --array=0-2" in wrong.log()


def test_the_evidence_run_as_an_array(cluster: Cluster, submit: Submit, tmp_path: Path) -> None:
    """A small grid, with its real commands: each cell once, in one file of records."""
    data = write_evidence_data(tmp_path / "data")
    out = tmp_path / "out"
    out.mkdir()
    encoder = write_small_encoder(tmp_path / "small")
    (out / "minilm").symlink_to(encoder)
    (out / "reviews").symlink_to(data / "reviews")
    more = "every = grid.cells()\ngrid.cells = lambda: [one for one in every if one.task == 'movie-reviews']"
    (tmp_path / "fill.py").write_text(small_program(encoder, more))
    line = f"{sys.executable} {tmp_path}/fill.py {data} {out} --records {tmp_path}/records"
    job = submit("--array=0-1", f"--wrap={line}")
    assert set(job.end(600).split()) == {"COMPLETED"}
    lines = (tmp_path / "records" / "movie-reviews.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len({record["name"] for record in records}) == len(records) == 7
    assert {record["method"] for record in records if record["word_attacks"]} == {"standard", "freelb"}
    logs = [log.read_text() for log in job.logs.glob("*.log")]
    assert sum(log.count("7 of 7 cells are done") for log in logs) >= 1
    assert sum(log.count(": done, ") for log in logs) == 7, "no cell is made twice"


def test_a_sweep_by_hydras_submitit_launcher(
    cluster: Cluster, rows: tuple[str, Path], tmp_path: Path
) -> None:
    """Each job in a folder of its own, the weights those of a run by itself, and one table of all."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="pip install '.[sweeps]'")
    data, encoder = rows
    words = [*SMALL, "optimization.max_update=3"]
    save = tmp_path / "sweep"
    done = cluster.run(
        EXAMPLES / "run.py", GLUE, data, encoder, save, *words, "criterion.adv_lr=0.1,0.2",
        "hydra/launcher=submitit_slurm", "hydra.launcher.gpus_per_node=0", "hydra.launcher.mem_gb=4",
        cwd=ROOT,
    )  # fmt: skip
    assert "#1" in done.stdout
    folders = [save / f"criterion.adv_lr={size}" for size in ("0.1", "0.2")]
    alone = run_py("glue", data, encoder, tmp_path / "alone", *words, "criterion.adv_lr=0.2")
    assert alone.returncode == 0, alone.stderr
    left, right = (
        weights(folders[1] / "checkpoint_last.pt"),
        weights(tmp_path / "alone" / "checkpoint_last.pt"),
    )
    assert all(bool((left[name] == right[name]).all()) for name in right)
    table = run_command(*verb("compare"), *map(str, folders))
    assert table.returncode == 0
    for size in ("0.1", "0.2"):
        (row,) = [line for line in table.stdout.splitlines() if line.startswith(f"criterion.adv_lr={size} ")]
        assert "freelb" in row and f"lr {size}," in row


def test_two_nodes_by_hydras_submitit_launcher(cluster: Cluster, tmp_path: Path) -> None:
    """The yaml of the recipe, on nodes without GPUs: two processes on each."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="pip install '.[sweeps]'")
    words = [
        *WORDS, "model.max_positions=24", "task.tokens_per_sample=24", "optimization.max_update=2",
        "optimization.max_epoch=9",
    ]  # fmt: skip
    launcher = {"gpus_per_node": 0, "tasks_per_node": 2, "cpus_per_task": 1, "mem_gb": 4}
    cluster.run(
        EXAMPLES / "run.py", "examples/alum/config/pretrain/bert_base.yaml", tiny_data(tmp_path, "bert_base"),
        "-", tmp_path / "save", "--gpus", "4", *words, "hydra/launcher=submitit_slurm", "+cluster=two_nodes",
        *(f"hydra.launcher.{key}={value}" for key, value in launcher.items()), cwd=ROOT,
    )  # fmt: skip
    log = (tmp_path / "save" / "hydra_train.log").read_text()
    assert "done training" in log and "'distributed_world_size': 4" in log
    assert weights(tmp_path / "save" / "checkpoint_last.pt")
