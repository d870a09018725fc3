"""``--adv-clean-weight`` of freelb and pgd: the clean loss beside the perturbed one; FGM as people use it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from support import batch, build, flat_gradient, frozen, train_args

from criterions.restated import (
    ROWS,
    START,
    loss_at,
    one_step,
    options,
    recorded,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from loop_copies_sides import Table

WEIGHT = 1.5
CLEAN = ["--adv-clean-weight", str(WEIGHT)]
BOTH = pytest.mark.parametrize("method", ["freelb", "pgd"])
STARTS = pytest.mark.parametrize("start", [0.0, START], ids=["at X", "random"])


@BOTH
@STARTS
def test_a_start_at_x_saves_the_clean_pass(data: Path, method: str, start: float) -> None:
    """freelb has three passes, pgd three that freeze the weights and one that doesn't."""
    run = build(train_args(data, None, method, *options(start=start), *CLEAN))
    forwards, of_weights, of_words = [], [], []
    encoder = run.model.encoder.sentence_encoder
    encoder.register_forward_hook(lambda *_: forwards.append(1))
    encoder.layers[0].fc1.weight.register_hook(lambda gradient: of_weights.append(1))
    encoder.embed_tokens.weight.register_hook(lambda gradient: of_words.append(1))
    one_step(run, batch(run, ROWS))
    own = int(start > 0)
    assert len(forwards) == {"freelb": 3, "pgd": 4}[method] + own
    assert len(of_weights) == {"freelb": 3 + own, "pgd": 2}[method]
    assert len(of_words) == 1 + own  # a pass that starts at X leaves its part to the last one
    assert not frozen(run.model)


# --- FGM ----------------------------------------------------------------------------------------

RADIUS = 0.7
AS_FGM = [
    "--adv-steps", "1", "--adv-init-mag", "0", "--adv-lr", str(RADIUS), "--adv-max-norm", str(RADIUS),
    "--adv-clean-weight", "1",
]  # fmt: skip


def difference_from_fgm(data: Path, rows: list[int]) -> float:
    """As a share of FGM's gradient."""
    run = build(train_args(data, None, "pgd", *AS_FGM))
    with torch.no_grad():  # In an untrained model <s> hardly depends on the other words.
        for layer in run.model.encoder.sentence_encoder.layers:
            for weight in (weight for weight in layer.parameters() if weight.dim() == 2):
                weight.mul_(4)
    sample = batch(run, rows)
    with recorded() as deltas:
        one_step(run, sample)
    assert float(deltas[-1][0].norm()) == pytest.approx(RADIUS, rel=1e-5)
    ours = flat_gradient(run.model)
    run.trainer.zero_grad()
    none = torch.zeros_like(deltas[0])
    loss_at(run, sample, none).backward()
    clean = flat_gradient(run.model)
    fgm = Table(run.model, "embed_tokens")
    fgm.move(RADIUS)
    loss_at(run, sample, none).backward()
    fgm.restore()
    theirs = flat_gradient(run.model)
    assert (theirs - 2 * clean).norm() > 0.05 * theirs.norm()  # the step matters
    return float((ours - theirs).norm() / theirs.norm())


def test_pgd_is_fgm_on_a_text_without_repeated_words_but_not_on_several(data: Path) -> None:
    """FGM has one norm for the matrix, and moves a word wherever it stands."""
    dataset = build(train_args(data, None, "standard")).task.dataset("train")
    texts = [dataset[row]["net_input.src_tokens"].tolist() for row in range(len(dataset))]
    without = next(row for row, text in enumerate(texts) if len(text) > 4 and len(set(text)) == len(text))
    repeated = next(row for row, text in enumerate(texts) if len(set(text)) < len(text))
    assert difference_from_fgm(data, [without]) <= 1e-5
    assert difference_from_fgm(data, [repeated]) > 1e-3
    assert difference_from_fgm(data, [without, (without + 1) % len(texts)]) > 1e-3
