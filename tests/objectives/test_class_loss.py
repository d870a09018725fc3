"""--class-weights and --label-smoothing: what is asked for, what is logged, and what a checkpoint keeps.

The gradient of each method with them: tests/criterions/test_restated.py.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from criterions.restated import DROPOUT, one_step, run_of, write_all
from fairseq.logging import metrics
from scipy.optimize import minimize
from support import batch, build, fairseq_train, train_args, validate, write_task

from fairseq_adv.evaluation.validate import validate as validate_checkpoint
from fairseq_adv.objectives.class_loss import ClassLoss, read_weights
from fairseq_adv.objectives.scores import entropy

NAMES = ["no", "yes, a lot", "a=b"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("no=2,", [2, 1, 1]),
        ("yes, a lot=0.5,a=b=3", [1, 0.5, 3]),
        ("a=b=1e-3,no=0", [0, 1, 1e-3]),
        ("balanced", [12 / 2 / 9, 1, 12 / 2 / 3]),  # of the two classes that have labels
    ],
)
def test_weights_are_read(text: str, weights: list[float]) -> None:
    assert read_weights(text, NAMES, lambda: [9, 0, 3]) == pytest.approx(weights)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("perhaps=2,no=1", "'perhaps' is not NAME=W .* weights of some of 'no', 'yes, a lot', 'a=b'$"),
        ("no", "'no' is not NAME=W"),
        ("", "'' is not NAME=W"),
        ("no=2,no=3", "'no' is there twice"),
        ("no=-1", "no=-1: pass a finite weight of 0 or more"),
        ("no=nan", "no=nan: pass a finite weight"),
        ("no=inf", "no=inf: pass a finite weight"),
        ("no=many", "no=many: pass a finite weight"),
        ("no=0,yes, a lot=0,a=b=0", "all weights are 0"),
    ],
)
def test_odd_weights_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^--class-weights.*{message}"):
        read_weights(text, NAMES, list)


@pytest.mark.parametrize(
    "objective", ["regression", "commonsense_qa", "wsc", "masked_lm", "span_qa", "multi_label"]
)
def test_tasks_without_classes_refuse_both(folders: dict[str, Path], objective: str) -> None:
    for words in (["--class-weights", "balanced"], ["--label-smoothing", "0.1"]):
        with pytest.raises(ValueError, match=f"^{words[0]}: this task has no classes"):
            run_of(folders, objective, "standard", *words)


@pytest.mark.fast
@pytest.mark.parametrize("value", ["1", "-0.1", "nan"])
def test_smoothing_is_a_share(folders: dict[str, Path], value: str) -> None:
    with pytest.raises(ValueError, match=f"^--label-smoothing {value}.*from 0 to less than 1"):
        run_of(folders, "classes", "standard", f"--label-smoothing={value}")


@pytest.mark.parametrize("objective", ["classes", "tagging"])
def test_validation_has_the_trained_loss_and_the_plain_one(folders: dict[str, Path], objective: str) -> None:
    """As fairseq's label_smoothed_cross_entropy: loss, and nll_loss. Scores don't change."""
    first = {"classes": "1", "tagging": "O"}[objective]
    words = ["--class-weights", f"{first}=0.25", "--label-smoothing", "0.3"]
    run, plain = (run_of(folders, objective, "standard", *own) for own in (words, []))
    found, expected = (validate(one, "valid", 3) for one in (run, plain))
    sample = batch(run, list(range(len(run.task.dataset("valid")))), "valid")
    run.model.eval()
    with torch.no_grad():
        logits = run.criterion.objective.predict(run.model, sample)
    targets = sample["target"].view(-1)
    names = run.criterion.objective.class_names()
    weights = torch.tensor([0.25 if name == first else 1.0 for name in names])
    total = F.cross_entropy(logits, targets, weights, reduction="sum", label_smoothing=0.3)
    assert found["loss"] == pytest.approx(float(total) / len(targets) / math.log(2), abs=6e-4)
    assert found["nll_loss"] == pytest.approx(expected["loss"], abs=1.1e-3) and "nll_loss" not in expected
    assert abs(found["loss"] - found["nll_loss"]) > 0.01
    assert found["accuracy"] == expected["accuracy"]
    log = one_step(run, batch(run, [0, 1, 2]))[2]
    assert "nll_loss" in log


@pytest.mark.fast
def test_the_best_constant_answer_has_the_loss_that_is_told() -> None:
    loss, counts = ClassLoss([0.5, 3.0, 1.0], 0.2), [70.0, 10.0, 20.0]
    with metrics.aggregate(new_root=True) as meters:
        for k, count in enumerate(counts):
            metrics.log_scalar_sum(f"_label_counts_{k}", count)
    targets = torch.arange(3).repeat_interleave(torch.tensor(counts).long())

    def mean(logits: list[float]) -> float:
        rows = torch.tensor(logits, dtype=torch.float32).expand(100, 3)
        return float(loss(rows, targets)) / 100

    best = minimize(mean, [0.0, 0.0, 0.0], method="Nelder-Mead").fun
    assert entropy(meters, 3, loss) == pytest.approx(best, abs=1e-4)
    assert abs(best - float(entropy(meters, 3) or 0)) > 0.05


def test_balanced_weights_are_in_the_checkpoint(tmp_path: Path) -> None:
    """Validation needs no training labels; a run goes on with the same weights only."""
    data, save = write_task(tmp_path / "bin", classes=3, train=16), tmp_path / "save"
    words = ["--class-weights", "balanced", "--label-smoothing", "0.1", *DROPOUT]
    own = train_args(data, save, "freelb", *words, "--max-update", "3", classes=3)
    fairseq_train(*own)
    again = build([*own, "--max-update", "6"])
    again.trainer.load_checkpoint(str(save / "checkpoint_last.pt"))
    assert again.trainer.get_num_updates() == 3
    for more in (["--class-weights", "2=1"], ["--label-smoothing", "0"]):
        with pytest.raises(ValueError, match=f"made with other options.*{more[0]}: .* -> "):
            build([*own, *more]).trainer.load_checkpoint(str(save / "checkpoint_last.pt"))
    for part in (data / "label").glob("train.*"):
        part.unlink()
    found = validate_checkpoint(str(save / "checkpoint_last.pt"), cpu=True)
    assert found["loss"] != pytest.approx(found["nll_loss"])
