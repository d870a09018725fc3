"""The recipes on two nodes: without GPUs to the weights of one process, with GPUs a process for each."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from jobs import GLUE, NO_DECAY, NO_GPUS, SCRIPT, SMALL, WORDS, Job
from recipes import CLASSES, RECIPES, SMOOTH, run_py, tiny_data, tiny_encoder
from support import weights

Submit = Callable[..., Job]
FURTHER = {
    "flooding": ["criterion.flood_level=0.1"], "bert_base": ["optimization.max_epoch=9"],
    "squad": ["task.window_overlap=2", "task.max_answer_tokens=4"],
    **{name: ["checkpoint.finetune_from_model=ENCODER_DIR/model.pt"] for name in ("union", "arc")},
}  # fmt: skip
PLACES = {
    **{name: ["task.max_positions=16"] for name in CLASSES},
    **{name: ["model.max_positions=24", "task.tokens_per_sample=24"]
       for name in ("roberta_base", "roberta_large", "bert_base")},
}  # fmt: skip


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def encoder(name: str) -> Path:
        kind = name if name in PLACES else "commonsense_qa"
        if kind not in made:
            made[kind] = tiny_encoder(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return encoder


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_on_two_nodes_without_gpus(
    tmp_path: Path, submit: Submit, encoders: Callable[[str], Path], name: str
) -> None:
    encoder = encoders(name)
    words = [
        *WORDS, *PLACES.get(name, ["task.max_positions=24"]), *FURTHER.get(name, []),
        "optimization.max_update=2",
    ]  # fmt: skip
    path, data = f"examples/{RECIPES[name]}", tiny_data(tmp_path / "data", name)
    start = "-" if name == "bert_base" else encoder
    job = submit("--nodes=2", *NO_GPUS, SCRIPT, path, data, start, tmp_path / "save", *words)
    assert job.end() == "COMPLETED"
    assert "done training" in job.log() and max(job.updates()) == 2
    assert "'distributed_world_size': 2" in job.log()


@pytest.mark.parametrize(
    ("name", "method"), [("glue", "freelb"), ("roberta_base", "alum_vat"), ("glue", "freeat")]
)
def test_two_nodes_train_to_the_weights_of_one_process(
    tmp_path: Path, submit: Submit, encoders: Callable[[str], Path], name: str, method: str
) -> None:
    encoder, data = encoders(name), tiny_data(tmp_path / "data", name)
    words = [*WORDS, *PLACES[name], *SMOOTH, *NO_DECAY, f"method={method}", "optimization.max_update=6"]
    whole = ["dataset.batch_size=2", "optimization.update_freq=[2]"]
    parts = ["dataset.batch_size=2", "optimization.update_freq=[1]"]
    one = run_py(name, data, encoder, tmp_path / "one", *words, *whole)
    assert one.returncode == 0, one.stderr
    path = f"examples/{RECIPES[name]}"
    job = submit("--nodes=2", *NO_GPUS, SCRIPT, path, data, encoder, tmp_path / "two", *words, *parts)
    assert job.end() == "COMPLETED"
    left, right = (weights(tmp_path / run / "checkpoint_last.pt") for run in ("one", "two"))
    start = weights(encoder / "model.pt")
    for weight in right:
        torch.testing.assert_close(right[weight], left[weight], rtol=0, atol=1e-6)
    assert any((left[weight] - start[weight]).abs().max() > 1e-3 for weight in set(left) & set(start))


@pytest.mark.parametrize("bound", [[], ["--gpu-bind=single:1"]], ids=["all", "its own"])
def test_a_process_is_started_for_each_gpu(
    tmp_path: Path, submit: Submit, rows: tuple[str, Path], bound: list[str]
) -> None:
    """GPUs as SLURM sees them; there are none, so the processes compute on the CPU."""
    words = [*SMALL, "optimization.max_update=400", "optimization.max_epoch=0"]
    job = submit(
        "--nodes=2", "--gpus-per-node=2", *bound, SCRIPT, GLUE, *rows, tmp_path / "save", *words
    )  # fmt: skip
    job.until_update(2)
    found = job.environments()
    seen = [{name: one.get(name) for name in ("RANK", "LOCAL_RANK", "SLURMD_NODENAME")} for one in found]
    assert seen == [
        {"RANK": str(rank), "LOCAL_RANK": str(rank % 2 if not bound else 0), "SLURMD_NODENAME": node}
        for rank, node in enumerate(["n1", "n1", "n2", "n2"])
    ]
    assert {one["WORLD_SIZE"] for one in found} == {"4"} and {one["MASTER_ADDR"] for one in found} == {"n1"}
    assert len({one["MASTER_PORT"] for one in found}) == 1
    gpus = [one["CUDA_VISIBLE_DEVICES"] for one in found]
    if bound:
        assert [sorted(gpus[:2]), sorted(gpus[2:])] == [["0", "1"]] * 2
    else:
        assert gpus == ["0,1"] * 4
    assert "'update_freq': [2]" in job.log() and "'batch_size': 2" in job.log()  # 16 rows, shared by four


def test_an_array_is_a_run_a_seed_and_several_share_a_node(
    tmp_path: Path, submit: Submit, rows: tuple[str, Path]
) -> None:
    words = [*SMALL, "optimization.max_update=60", "optimization.max_epoch=0"]
    words = [word for word in words if not word.startswith("common.seed")]
    job = submit(
        "--array=0-2", "--nodes=1", "--nodelist=n1", "--ntasks-per-node=2", *NO_GPUS, SCRIPT, GLUE, *rows,
        tmp_path / "save", *words,
    )  # fmt: skip
    job.until(lambda: len(job.environments()) == 6)
    found = job.environments()
    ports = {one["SLURM_ARRAY_TASK_ID"]: one["MASTER_PORT"] for one in found}
    assert len(ports) == len(set(ports.values())) == 3 and {one["SLURMD_NODENAME"] for one in found} == {"n1"}
    assert set(job.end().split()) == {"COMPLETED"}
    assert sorted(path.name for path in (tmp_path / "save").iterdir()) == [
        "seed-2333", "seed-7456", "seed-9017",
    ]  # fmt: skip
    trained = [weights(path / "checkpoint_last.pt") for path in (tmp_path / "save").iterdir()]
    name = "encoder.sentence_encoder.layers.0.fc1.weight"
    assert not torch.equal(trained[0][name], trained[1][name])
    for log in job.logs.glob("*.log"):
        assert len(re.findall("done training", log.read_text())) == 1


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path, submit: Submit, rows: tuple[str, Path]) -> None:
    words = [*SMALL, "optimization.max_update=2"]
    first = submit("--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, tmp_path / "one", *words)
    port = 10000 + (int(first.number) + 1) % 20000
    with socket.create_server(("127.0.0.1", port)):
        second = submit("--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, tmp_path / "two", *words)
        second.until(lambda: bool(second.environments()))
        assert {one["MASTER_PORT"] for one in second.environments()} == {str(port + 1)}
        assert second.end() == "COMPLETED"
    assert first.end() == "COMPLETED"
