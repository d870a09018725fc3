"""Every method and objective with transformers' encoders, against plain torch over transformers' own.

The restatements give X + delta to transformers as ``inputs_embeds``: no hook, and none of this project's
code.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from criterions.restated import OBJECTIVES, ROWS, assert_near, move_average, one_step
from criterions.test_bf16_restated import OPTIONS, Restated
from hf_encoders import KINDS, hf_run
from support import batch, slow


class OfTransformers(Restated):
    """What differs for an encoder that is not fairseq's."""

    def __init__(self, run: SimpleNamespace, sample: dict[str, Any], objective: str) -> None:
        self.dim = run.model.hf.get_input_embeddings().embedding_dim
        super().__init__(run, sample, objective, is_bf16=False)

    def yopo(self) -> Any:
        """With one shallow step it is FreeLB."""
        return self.freelb()


def cases() -> list[Any]:
    """Each kind, each method and each objective once; the rest are slow."""
    found = []
    for kind in KINDS:
        for method in OPTIONS:
            for objective in OBJECTIVES:
                if objective != "classes" and method in ("tavat", "infobert", "smart"):
                    continue
                if (method, objective) == ("standard", "commonsense_qa"):
                    continue  # the gradients of a question's choices nearly cancel
                is_first = (
                    (method, objective) == ("freelb", "classes")
                    or (kind, objective) == ("deberta-v3", "classes")
                    or (kind, method) == ("electra", "freelb")
                )
                found.append((kind, method, objective) if is_first else slow(kind, method, objective))
    return found


@pytest.mark.parametrize(("kind", "method", "objective"), cases())
def test_the_gradient_is_that_of_the_restated_algorithm(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, method: str, objective: str
) -> None:
    if (kind, objective) == ("deberta", "commonsense_qa"):
        pytest.skip("transformers has no multiple choice for DeBERTa 1")
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
