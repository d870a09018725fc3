"""YOPO in fairseq's trainer against FreeLB, and its shallow passes. Its gradient: test_restated.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import batch, build, flat_gradient, train_args

from criterions.restated import (
    FP16,
    ROWS,
    one_step,
    options,
    recorded,
    run_of,
)
from fairseq_adv.perturbation import Pass, Perturbation, find_layers

RANDOM = [
    "--dropout", "0.3", "--attention-dropout", "0.3", "--activation-dropout", "0.2",
    "--pooler-dropout", "0.5",
]  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "norm", "objective"),
    [([], "l2", "classes"), (RANDOM, "linf", "classes"), (["--encoder-layerdrop", "0.5"], "l2", "classes"),
     ([FP16], "l2", "classes"), ([], "linf", "commonsense_qa")],
)  # fmt: skip
def test_one_shallow_step_is_freelb_to_the_bit(
    folders: dict[str, Path], extra: list[str], norm: str, objective: str
) -> None:
    gradients = []
    for method in (["yopo", "--yopo-steps", "1"], ["freelb"]):
        run = run_of(folders, objective, *method, *options(), "--adv-norm-type", norm, *extra)
        one_step(run, batch(run, ROWS))
        gradients.append(flat_gradient(run.model))
    assert torch.equal(*gradients) and gradients[0].any()


def gradients_of_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """From now on: the gradient of delta in each shallow pass, and that in the pass before it, first."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    before: list[torch.Tensor] = []
    ascend, repeat = Perturbation.ascend, Pass.repeat

    def noted(self: Perturbation, length: float) -> None:
        before.append(self.gradient().clone())
        ascend(self, length)

    def compared(self: Pass, gradient: Any) -> None:
        repeat(self, gradient)
        delta = self._passes.delta
        assert delta is not None
        found.append((before[-1], delta.gradient().clone()))

    monkeypatch.setattr(Perturbation, "ascend", noted)
    monkeypatch.setattr(Pass, "repeat", compared)
    return found


@pytest.mark.parametrize(
    ("extra", "objective"),
    [([], "classes"), (["--encoder-layerdrop", "0.5"], "classes"), ([FP16], "classes"),
     (["--no-adv-share-dropout"], "classes"), ([], "commonsense_qa")],
)  # fmt: skip
def test_a_shallow_pass_where_the_full_one_was_has_its_gradient(
    folders: dict[str, Path], extra: list[str], objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is why the first of n shallow passes is not made: steps of 0 leave delta where the full pass was.

    Dropout and LayerDrop are those of that full pass, whether the full passes share theirs or not.
    """
    run = run_of(folders, objective, "yopo", *options(alpha=0.0), *RANDOM, *extra)
    found = gradients_of_passes(monkeypatch)
    for update in range(4):  # LayerDrop draws other layers each time
        one_step(run, batch(run, ROWS), update)
    assert found
    # fp16: 11 significant bits, one more rounding of p.
    tolerance = 5e-3 if FP16 in extra else 1e-6
    for full, shallow in found:
        assert (full - shallow).norm() <= tolerance * full.norm() and full.norm() > 0


def test_shallow_passes_draw_none_of_the_full_passes_numbers(data: Path) -> None:
    """Where masks are not shared, those of the full passes do not depend on the shallow ones between."""
    run = build(train_args(data, None, "yopo", *options(), *RANDOM, "--no-adv-share-dropout"))
    after = []
    for n in (1, 3):
        run.criterion.cfg.yopo_steps = n
        one_step(run, batch(run, ROWS))
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


def test_without_any_layer_it_is_freelb(data: Path) -> None:
    """LayerDrop has left none; no error, and the same deltas."""
    found = []
    for method in (["yopo", "--yopo-steps", "2"], ["freelb"]):
        run = build(train_args(data, None, *method, *options(), "--encoder-layerdrop", "0.999"))
        with recorded() as deltas:
            one_step(run, batch(run, ROWS))
        found.append(torch.stack(deltas))
    assert torch.equal(*found) and len(found[0]) == 3 and not torch.equal(found[0][0], found[0][1])


def test_a_model_without_a_list_of_layers_is_refused() -> None:
    model = torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(3, 2)})
    with pytest.raises(
        ValueError, match=r"has no list of layers next to its token embedding.*choose another"
    ):
        find_layers(model)
