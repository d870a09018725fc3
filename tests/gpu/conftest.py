"""What a run sets on a GPU, for tests that begin none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def attention() -> Iterator[None]:
    """None by cuDNN: see :func:`fairseq_adv.training.precision_option.set_up_gpu`."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)
