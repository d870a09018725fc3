"""The copies that fairseq's layers keep for inference are frozen and not saved; runs that trained them resume
exactly.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf
from support import ADVERSARIAL, batch, build, run_from_scratch, train_args, write_task

from fairseq_adv.criterions.method import Method
from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.inference_copies import COPIES, inference_copies

DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]
PRECISIONS = {
    "fp32": [],
    "memory-efficient-fp16": ["--memory-efficient-fp16"],
    "fp16-flat": ["--fp16"],
    "fp16-not-flat": ["--fp16", "--fp16-no-flatten-grads"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


def freelb(data: Path, save: Path, *words: str) -> SimpleNamespace:
    return build(train_args(data, save, "freelb", *ADVERSARIAL, *DROPOUT, "--fp16-init-scale", "4", *words))


def trained(run: SimpleNamespace) -> int:
    return sum(p.numel() for group in run.trainer.optimizer.param_groups for p in group["params"])


def weights_of(run: SimpleNamespace) -> dict[str, torch.Tensor]:
    named = run.model.named_parameters()
    return {n: p.detach().clone() for n, p in named if n.split(".")[-1] not in COPIES}


def train(run: SimpleNamespace, groups: list[list[int]]) -> None:
    for rows in groups:
        assert run.trainer.train_step([batch(run, rows)]) is not None


def test_only_the_copies_are_frozen(data: Path, tmp_path: Path) -> None:
    run = freelb(data, tmp_path)
    names = {n for n, p in run.model.named_parameters() if not p.requires_grad}
    assert len(names) == 2 * len(COPIES) and {n.split(".")[-1] for n in names} == set(COPIES)
    whole = sum(p.numel() for p in run.model.parameters())
    copies = sum(p.numel() for p in inference_copies(run.model))
    assert trained(run) == whole - copies and copies > 0


def test_a_copy_has_no_gradient_after_an_update(data: Path, tmp_path: Path) -> None:
    run = freelb(data, tmp_path)
    train(run, [[0, 1, 2]])
    assert all(copy.grad is None for copy in inference_copies(run.model))
    assert all(p.grad is not None for n, p in run.model.named_parameters() if "layers.0.fc1." in n)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_run_that_trained_them_goes_on_to_the_bit(
    data: Path, tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version's optimizer has moments for the copies too, in each of fairseq's layouts.

    Compared with that version's own resuming, which with --fp16 is not to the bit that of a run without a
    stop: fairseq keeps no fp32 weights.
    """
    # --fp16 keys its flat vector by the GPU, and is refused without one.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr("fairseq_adv.criterions.method.refuse_fp16_without_gpu", lambda trainer: None)
    words = PRECISIONS[precision]
    path, groups = str(tmp_path / "checkpoint_last.pt"), [[0, 1, 2], [3, 4, 5, 6], [7, 8], [9, 10, 11]]
    with monkeypatch.context() as patch:
        patch.setattr(Method, "freezes_inference_copies", False)
        before = freelb(data, tmp_path, *words)
        train(before, groups[:2])
        before.trainer.consolidate_optimizer()
        iterator = {"epoch": 1, "iterations_in_epoch": 2}
        before.trainer.save_checkpoint(path, {"train_iterator": iterator, "val_loss": None})
        earlier = freelb(data, tmp_path, *words)
        earlier.trainer.load_checkpoint(path)
        train(earlier, groups[2:])

    resumed = freelb(data, tmp_path, *words)
    resumed.trainer.load_checkpoint(path)
    assert trained(resumed) < trained(earlier) and resumed.trainer.get_num_updates() == 2
    train(resumed, groups[2:])
    expected, found = weights_of(earlier), weights_of(resumed)
    assert all(torch.equal(found[name], expected[name]) for name in expected)

    # And what the resumed run writes is read as it is.
    resumed.trainer.consolidate_optimizer()
    resumed.trainer.save_checkpoint(path, {"train_iterator": iterator, "val_loss": None})
    again = freelb(data, tmp_path, *words)
    again.trainer.load_checkpoint(path)
    expected, found = (run.trainer.optimizer.state_dict()["state"] for run in (resumed, again))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[n]["exp_avg"], expected[n]["exp_avg"]) for n in expected)


IN_PLAIN_FAIRSEQ = """
import sys, torch
from fairseq import checkpoint_utils
(model,), _ = checkpoint_utils.load_model_ensemble([sys.argv[1]], strict=True)
torch.save(model.state_dict(), sys.argv[2])
print("fairseq_adv" in sys.modules)
"""


def test_a_checkpoint_has_no_copies_and_fairseq_makes_them(data: Path, tmp_path: Path) -> None:
    """fairseq alone, without this package, loads it strictly; the average in it has none either."""
    run = freelb(data, tmp_path, "--store-ema", "--ema-fp32")
    train(run, [[0, 1, 2], [3, 4]])
    path = tmp_path / "checkpoint.pt"
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}, "val_loss": None})
    state = torch.load(path)
    extra = state["extra_state"]
    for saved in (state["model"], extra["ema"], extra["ema_fp32_params"]):
        assert saved and not any(name.split(".")[-1] in COPIES for name in saved)

    done = run_from_scratch(sys.executable, "-c", IN_PLAIN_FAIRSEQ, str(path), str(tmp_path / "model.pt"))
    assert done.stdout.split()[-1:] == ["False"], done.stderr[-2000:]
    loaded = torch.load(tmp_path / "model.pt")
    assert all(torch.equal(loaded[name], value) for name, value in state["model"].items())
    layer = "encoder.sentence_encoder.layers.1."
    parts = [loaded[f"{layer}self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(loaded[f"{layer}in_proj_weight"], torch.cat(parts))
    assert torch.equal(loaded[f"{layer}fc2_weight"], loaded[f"{layer}fc2.weight"])


def test_a_checkpoint_of_flooding_with_a_base_method_is_resumed(data: Path, tmp_path: Path) -> None:
    """--criterion flooding --base-method freelb is --criterion freelb --flood-level now."""
    words = ["--flood-level", "0.5"]
    run = freelb(data, tmp_path, *words)
    train(run, [[0, 1, 2]])
    path = str(tmp_path / "checkpoint_last.pt")
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(path, {"train_iterator": {"epoch": 1, "iterations_in_epoch": 1}})
    state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(path)
    state["optimizer_history"][-1]["criterion_name"] = "FloodingCriterion"
    state["cfg"] = OmegaConf.to_container(state["cfg"])
    state["cfg"]["criterion"].update(_name="flooding", base_method="freelb")
    torch.save(state, path)

    resumed = freelb(data, tmp_path, *words)
    resumed.trainer.load_checkpoint(path)
    for one in (run, resumed):
        train(one, [[3, 4, 5]])
    expected, found = weights_of(run), weights_of(resumed)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    other = build(train_args(data, tmp_path, "pgd", *ADVERSARIAL, *words))
    with pytest.raises(DataError, match="--criterion: flooding -> pgd"):
        other.trainer.load_checkpoint(path)
