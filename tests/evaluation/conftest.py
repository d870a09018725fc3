"""A finished training, which several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import fairseq_train, train_args, write_task


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A freelb run of two epochs in ``freelb/``, with what it printed; its data in ``data/``."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_task(folder / "data", train=48)
    args = train_args(data, folder / "freelb", "freelb", "--adv-init-mag", "0.2", "--no-epoch-checkpoints")
    best = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    (folder / "freelb" / "output.txt").write_text(fairseq_train(*args, *best).stdout)
    return folder
