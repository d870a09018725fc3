"""A perturbation of an unusual size for the encoder is reported once a run, with what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CREAT_ARGS, batch, build, train_args

LARGE = ["--adv-lr", "0.3", "--adv-max-norm", "0.5", "--adv-init-mag", "0.4"]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["freelb", *LARGE], "larger than the usual 0.001 to 0.1 of the norm of this encoder's embeddings. "
         "Pass a smaller --adv-max-norm, or sizes as shares of the embeddings: --adv-relative"),
        (["pgd", "--adv-lr", "1e-6"], "smaller than the usual 0.001 to 0.1 of the norm of this "
         "encoder's embeddings. Pass a larger --adv-lr, or sizes"),
        (["creat", *CREAT_ARGS], "--adv-relative --adv-max-norm 0.01 --adv-lr 0.01 --creat-init-std 0.005"),
        (["yopo", "--adv-relative", "--adv-lr", "0.3"], "Pass a smaller --adv-lr"),
        (["freelb", "--adv-relative", "--adv-lr", "0.0033", "--adv-max-norm", "0.01"], ""),
        (["freelb", "--adv-steps", "1"], ""),  # plain training, which the user has asked for
    ],
    ids=["large", "small", "creat", "relative", "usual", "plain"],
)  # fmt: skip
def test_an_unusual_ratio_is_reported_once(
    data: Path, words: list[str], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = build(train_args(data, None, *words))
    for rows in ([0, 1, 2], [3, 4, 5]):
        run.trainer.train_step([batch(run, rows)])
    found = [record.getMessage() for record in caplog.records if "adv_ratio" in record.getMessage()]
    assert len(found) == bool(advice) and all(advice in text for text in found)
    assert all(text.endswith(advice) for text in found if "--adv-relative" in words)


def test_validation_reports_nothing(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = build(train_args(data, None, "freelb", *LARGE))
    run.trainer.valid_step(batch(run, [0, 1], "valid"))
    assert "adv_ratio" not in caplog.text
