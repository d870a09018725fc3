"""A perturbation of no useful size for the encoder is reported once a run, with what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CREAT_ARGS, batch, build, train_args

from fairseq_adv.criterions import methods
from fairseq_adv.criterions.ratio import USEFUL_RATIOS

STARTS_FAR = ["--adv-lr", "0.01", "--creat-init-std", "1"]
LARGE = ["--adv-lr", "0.3", "--adv-max-norm", "0.5", "--adv-init-mag", "0.4"]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["freelb", *LARGE], "larger than the useful 0.001 to 0.1 of the norm of this encoder's embeddings. "
         "Pass a smaller --adv-max-norm, or sizes as shares of the embeddings: --adv-relative"),
        (["pgd", "--adv-lr", "1e-6"], "smaller than the useful 0.001 to 0.1 of the norm of this "
         "encoder's embeddings. Pass a larger --adv-lr, or sizes"),
        (["creat", *CREAT_ARGS], "--adv-relative --adv-max-norm 0.01 --adv-lr 0.01 --creat-init-std 0.005"),
        (["creat", *STARTS_FAR, "--adv-max-norm", "0"], "Pass a smaller --creat-init-std"),
        (["freelb", "--adv-lr", "1e-4", "--adv-init-mag", "5"], "Pass a smaller --adv-init-mag"),
        (["yopo", "--adv-relative", "--adv-lr", "0.3"], "Pass a smaller --adv-lr"),
        (["freelb", "--adv-lr", "0.3", "--adv-max-norm", "9"], "smaller --adv-lr, or"),  # never in its reach
        (["freelb", "--adv-relative", "--adv-lr", "0.0033", "--adv-max-norm", "0.01"], ""),
        (["freelb", "--adv-steps", "1"], ""),  # plain training, which the user has asked for
        (["tavat", *LARGE], "Pass a smaller --adv-max-norm, or sizes as shares"),
        (["r3f"], "smaller than the useful 0.001 to 0.1 of the norm of this encoder's embeddings. Pass a "
         "larger --r3f-epsilon, or sizes as shares of the embeddings: --r3f-relative --r3f-epsilon 0.1"),
        (["r3f", "--r3f-epsilon", "0"], ""),  # the divergence of the dropout masks alone
        (["noise", "--noise-relative", "--noise-size", "1"], "a smaller --noise-size"),
        (["alum_vat"], "Pass a larger --vat-epsilon, or sizes as shares of the embeddings: --vat-relative"),
        (["smart", "--store-ema", "--vat-epsilon", "3", "--vat-step-size", "4"], "smaller --vat-epsilon"),
        (["alum_vat", "--vat-projection", "unit"], ""),  # no option changes its size
        (["sift", "--vat-epsilon", "1e-5"], "embeddings. Pass a larger --vat-epsilon"),
        (["sift"], ""),
    ],
)  # fmt: skip
def test_a_useless_ratio_is_reported_once(
    data: Path, words: list[str], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = build(train_args(data, None, *words))
    for rows in ([0, 1, 2], [3, 4, 5]):
        run.trainer.train_step([batch(run, rows)])
    found = [record.getMessage() for record in caplog.records if "adv_ratio" in record.getMessage()]
    assert len(found) == bool(advice) and all(advice in text for text in found)
    has_shares = {"--adv-relative", "--noise-relative", "sift"} & {*words}
    assert all(text.endswith(advice) for text in found if has_shares)


@pytest.mark.parametrize("name", [name for name in methods() if methods()[name].suggested_options])
def test_what_train_fills_in_is_useful(data: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    method = methods()[name]
    run = build(
        train_args(data, None, name, *method.suggested_options.split(), *method.further_options.split())
    )
    run.trainer.train_step([batch(run, [0, 1, 2])])
    assert "adv_ratio" not in caplog.text
    (log,) = run.criterion.update_logs
    if "adv_ratio" in log:
        assert USEFUL_RATIOS[0] < log["adv_ratio"] / log["nexamples"] < USEFUL_RATIOS[1]


def test_every_method_is_filled_in() -> None:
    """standard has no sizes."""
    assert {name for name, method in methods().items() if not method.suggested_options} == {"standard"}


def test_validation_reports_nothing(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = build(train_args(data, None, "freelb", *LARGE))
    run.trainer.valid_step(batch(run, [0, 1], "valid"))
    assert "adv_ratio" not in caplog.text
