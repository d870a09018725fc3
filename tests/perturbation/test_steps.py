"""The ascent steps of virtual adversarial training on numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from fairseq_adv.perturbation import Groups
from fairseq_adv.perturbation.geometry import gaussian_start
from fairseq_adv.perturbation.steps import cosine

pytestmark = pytest.mark.fast


def test_cosine_is_per_example() -> None:
    x = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
    y = torch.tensor([[[1.0, 1.0]], [[0.0, -3.0]]])
    torch.testing.assert_close(cosine(x, y, None), torch.tensor([0.5**0.5, -1.0]))
    joint = cosine(x, y, Groups(torch.tensor([0, 0]), 1))
    torch.testing.assert_close(joint, torch.tensor([(1 - 6) / (5 * 11) ** 0.5]))
    assert cosine(torch.zeros(1, 1, 2), y[:1], None).item() == 0.0


def test_the_gaussian_start() -> None:
    mask = torch.ones(2, 500, dtype=torch.bool)
    mask[1, 200:] = False
    start = gaussian_start(mask, 16, 0.5, [1, 2])
    assert not start[1, 200:].any()
    # 8000 and 3200 draws: the standard deviation is known to about 1 %.
    assert start[0].std().item() == pytest.approx(0.5, rel=0.04) and abs(start[0].mean()) < 0.03
    assert start[1, :200].std().item() == pytest.approx(0.5, rel=0.06)
    assert torch.equal(gaussian_start(mask[1:, :300], 16, 0.5, [2])[0], start[1, :300])
