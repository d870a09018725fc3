"""The copies that fairseq's layers keep for inference are frozen and not saved."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from support import ADVERSARIAL, batch, build, run_command, train_args

from fairseq_adv.fairseq_patches.checkpoint_files import COPIES, inference_copies

DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]


def freelb(data: Path, save: Path, *words: str) -> SimpleNamespace:
    return build(train_args(data, save, "freelb", *ADVERSARIAL, *DROPOUT, *words))


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
    names = {n for n, p in run.model.named_parameters() if not p.requires_grad}
    assert len(names) == 2 * len(COPIES) and {n.split(".")[-1] for n in names} == set(COPIES)
    assert run.trainer.train_step([batch(run, [0, 1, 2])]) is not None
    assert all(copy.grad is None for copy in inference_copies(run.model))
    path = tmp_path / "checkpoint.pt"
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}, "val_loss": None})
    state = torch.load(path)
    extra = state["extra_state"]
    for saved in (state["model"], extra["ema"], extra["ema_fp32_params"]):
        assert saved and not any(name.split(".")[-1] in COPIES for name in saved)

    done = run_command(sys.executable, "-c", IN_PLAIN_FAIRSEQ, str(path), str(tmp_path / "model.pt"))
    assert done.stdout.split()[-1:] == ["False"], done.stderr[-2000:]
    loaded = torch.load(tmp_path / "model.pt")
    assert all(torch.equal(loaded[name], value) for name, value in state["model"].items())
    layer = "encoder.sentence_encoder.layers.1."
    parts = [loaded[f"{layer}self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(loaded[f"{layer}in_proj_weight"], torch.cat(parts))
    assert torch.equal(loaded[f"{layer}fc2_weight"], loaded[f"{layer}fc2.weight"])
