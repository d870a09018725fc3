"""Virtual adversarial training in bf16, under autocast and with re-computed activations."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from support import batch, gradients, write_corpus, write_task
from torch import distributed

from criterions.test_methods import one_step
from criterions.test_vat import ROWS, built, vat_options
from fairseq_adv.criterions.mini_batch import MiniBatch

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "classes": write_task(tmp_path_factory.mktemp("classes"), classes=3),
        "masked_lm": write_corpus(tmp_path_factory.mktemp("corpus")),
    }


def relative_difference(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == expected.keys()
    difference = torch.cat([(ours[n].float() - g).flatten() for n, g in expected.items()])
    return float(difference.norm() / torch.cat([g.flatten() for g in expected.values()]).norm())


def step_of_criterion(run: SimpleNamespace, **autocast: Any) -> dict[str, torch.Tensor]:
    """A training step whose forward passes are under the CPU's autocast; fairseq's --amp needs a GPU."""

    @contextmanager
    def in_autocast(self: MiniBatch) -> Iterator[None]:
        with torch.autocast("cpu", **autocast):
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiniBatch, "autocast", in_autocast)
        one_step(run, batch(run, ROWS))
    return gradients(run.model)


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
@pytest.mark.parametrize("interval", ["1", "1000"], ids=["measured-at-0", "not-measured"])
def test_autocast_gives_the_gradient_of_fp32(folders: dict[str, Path], objective: str, interval: str) -> None:
    """bf16 has 8 significant bits (4e-3). A pass without a graph, in an update that is logged, must not leave
    weights in autocast's cache that were cast without one: they would get no gradient.
    """
    run = built(folders, objective, *vat_options(), "--log-interval", interval)
    expected = step_of_criterion(run, enabled=False)
    ours = step_of_criterion(run, enabled=True, dtype=torch.bfloat16)
    assert relative_difference(ours, expected) <= 0.05


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
def test_bf16_gives_the_gradient_of_fp32(folders: dict[str, Path], objective: str) -> None:
    """All weights in bf16, as --bf16 has them."""
    run = built(folders, objective, *vat_options())
    expected = step_of_criterion(run, enabled=False)
    run.model.bfloat16()
    assert relative_difference(step_of_criterion(run, enabled=False), expected) <= 0.08


def test_recomputed_activations_under_torchs_ddp_are_refused(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch stops there with a riddle about variables marked ready twice, with fairseq's own criterions
    too.
    """
    run = built(folders, "masked_lm", *vat_options())
    checkpoint_wrapper(run.model.encoder.sentence_encoder.layers[0])
    run.criterion.check_before_training(run.model)  # one worker
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match=r"pytorch_ddp can't train .* pass --ddp-backend legacy_ddp"):
        run.criterion.check_before_training(run.model)
    legacy = built(folders, "masked_lm", *vat_options(), "--ddp-backend", "legacy_ddp")
    checkpoint_wrapper(legacy.model.encoder.sentence_encoder.layers[0])
    legacy.criterion.check_before_training(legacy.model)
