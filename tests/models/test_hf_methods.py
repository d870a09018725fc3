"""Every method and objective with transformers' encoders, against plain torch over transformers' own.

The restatements give X + delta to transformers as ``inputs_embeds``: no hook, and none of this project's
code.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from criterions import references
from criterions.restated import OBJECTIVES, ROWS, assert_near, move_average, one_step, parameters_of
from criterions.restatements import EXACT, OPTIONS, SGD, Restated
from hf_encoders import KINDS, hf_run
from support import batch, slow


class OfTransformers(Restated):
    """What differs for an encoder that is not fairseq's."""

    def __init__(
        self, run: SimpleNamespace, sample: dict[str, Any], objective: str, is_bf16: bool = False
    ) -> None:
        self.dim = run.model.hf.get_input_embeddings().embedding_dim
        super().__init__(run, sample, objective, is_bf16)

    def yopo(self) -> Any:
        """With one shallow step it is FreeLB."""
        return references.freelb(self.loss, self.start(), *self.ball(), 0.0)


def cases() -> list[Any]:
    """Each kind, each method and each objective once; slow, each pair of a kind and a method, with the
    objectives in turn.
    """
    found = [(kind, "freelb", "classes") for kind in KINDS]
    found += [("deberta-v3", method, "classes") for method in OPTIONS]
    found += [("electra", "freelb", objective) for objective in OBJECTIVES]
    pairs = []
    for first, kind in enumerate(KINDS):
        for second, method in enumerate(OPTIONS):
            objective = [*OBJECTIVES][(first + second) % len(OBJECTIVES)]
            # The gradients of a question's choices nearly cancel; transformers has none for DeBERTa 1.
            odd = objective == "commonsense_qa" and (method == "standard" or kind == "deberta")
            of_classes = odd or method in ("tavat", "infobert", "smart")
            pairs.append((kind, method, "classes" if of_classes else objective))
    return [*dict.fromkeys(found), *(slow(*pair) for pair in pairs if pair not in found)]


@pytest.mark.parametrize(("kind", "method", "objective"), cases())
def test_the_gradient_is_that_of_the_restated_algorithm(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, method: str, objective: str
) -> None:
    words = [*OPTIONS[method], *(["--yopo-steps", "1"] if method == "yopo" else [])]
    run = hf_run(hf_data, encoders[kind], objective, method, *words)
    sample, more = batch(run, ROWS), {}
    if method == "smart":
        more["ema_model"] = move_average(run)
    one_step(run, sample, **more)
    restated = OfTransformers(run, sample, objective)
    # The gradients of a question's choices nearly cancel.
    sizes = (5e-4, 1e-4) if objective == "commonsense_qa" else (2e-5, 1e-2)
    assert_near(run, getattr(restated, method)(), *sizes)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (kind, method) if method == "freelb" or kind == "modernbert" else slow(kind, method)
        for kind in KINDS
        for method in EXACT
        if method != "yopo" and kind != "deberta"
    ],
)
def test_in_bf16_autocast_it_is_the_restated_algorithm_in_bf16(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, method: str
) -> None:
    """The yardstick is what bf16 does to the restated algorithm itself.

    Of tavat's start, which comes from a table, a rounding of fp32 may come to the other side of one of bf16.
    """
    run = hf_run(hf_data, encoders[kind], "classes", method, *SGD, *OPTIONS[method], "--amp")
    sample = batch(run, ROWS)
    one_step(run, sample)
    ours = torch.cat([p.grad.flatten() for p in parameters_of(run)])
    full, half = (OfTransformers(run, sample, "classes", is_bf16).of(method) for is_bf16 in (False, True))
    yardstick = (half - full).norm()
    assert 0.002 * full.norm() < yardstick < 0.02 * full.norm()
    assert (ours - half).norm() <= (0.5 if method == "tavat" else 1e-4) * yardstick
