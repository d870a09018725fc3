"""fairseq-adv validate: the scores of fairseq-validate, with losses in nats."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from fairseq.models.roberta import RobertaModel
from support import (
    ADVERSARIAL,
    PLUGIN,
    CommandMain,
    batch,
    build,
    command,
    run_command,
    train_args,
    write_corpus,
    write_task,
)

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.attack import Attack, attack_checkpoint
from fairseq_adv.evaluation.trained import load
from fairseq_adv.evaluation.validate import evaluate

SLIM = "--no-save-optimizer-state"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and the checkpoint of one update."""
    folder = tmp_path_factory.mktemp("run")
    run = build(train_args(write_task(folder / "bin", valid=11), folder, "freelb", *ADVERSARIAL, SLIM))
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    run.trainer.save_checkpoint(str(folder / "checkpoint.pt"), {})
    return folder


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("validate", capsys)


def test_the_scores_are_those_of_fairseq_validate(
    saved: Path, validate: CommandMain, recwarn: pytest.WarningsRecorder
) -> None:
    """Which logs six significant digits, and losses in bits."""
    plain = run_command(
        command("fairseq-validate"), str(saved / "bin"), "--user-dir", PLUGIN, "--task",
        "sentence_prediction", "--num-classes", "2", "--criterion", "freelb", "--path",
        str(saved / "checkpoint.pt"), "--cpu", "--batch-size", "4", "--log-format", "json",
    )  # fmt: skip
    line = re.search(r"\| valid \| (\{.*\})", plain.stdout + plain.stderr)
    assert line is not None, plain.stderr[-2000:]
    expected = {name.replace("valid_", ""): float(value) for name, value in json.loads(line[1]).items()}
    done = validate(saved / "checkpoint.pt", "--cpu", "--batch-size", "4", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found.pop("examples") == 11
    assert found["loss"] == pytest.approx(expected["loss"] * math.log(2), abs=1e-3)
    assert not [str(one.message) for one in recwarn if "pin_memory" in str(one.message)]
    scores = {"loss", "accuracy", "mcc", "f1", "acc_and_f1"}
    report = {"classes", "macro avg", "weighted avg", "confusion", "ece"}
    assert set(found) == scores | report
    for name in scores - {"loss"}:
        assert found[name] == pytest.approx(expected[name], abs=0.01), name


def test_losses_are_not_rounded(saved: Path) -> None:
    found = evaluate(str(saved / "checkpoint.pt"), cpu=True)
    exact = torch.nn.functional.cross_entropy(torch.from_numpy(found.logits), torch.from_numpy(found.right))
    assert found.scores["loss"] == pytest.approx(float(exact), rel=1e-6)


def test_a_masked_lm(tmp_path: Path, validate: CommandMain) -> None:
    run = build(train_args(write_corpus(tmp_path / "bin"), tmp_path, "standard", SLIM, task="masked_lm"))
    run.trainer.save_checkpoint(str(tmp_path / "checkpoint.pt"), {})
    found = json.loads(validate(tmp_path / "checkpoint.pt", "--cpu", "--json").stdout)
    assert math.exp(found["loss"]) == pytest.approx(found["ppl"], rel=0.01)
    state = torch.load(tmp_path / "checkpoint.pt")
    state["cfg"]["task"]["data"] = "."  # as convert writes it
    torch.save(state, tmp_path / "checkpoint.pt")
    assert "an encoder written by fairseq-adv convert" in validate(tmp_path / "checkpoint.pt", "--cpu").stderr
    assert validate(tmp_path / "checkpoint.pt", "--cpu", "--data", tmp_path / "bin").returncode == 0


OWN = """
from fairseq.criterions import register_criterion
from fairseq_adv.criterions.pgd import PGDConfig, PGDCriterion

@register_criterion("their_pgd", dataclass=PGDConfig)
class TheirCriterion(PGDCriterion):
    pass
"""


def test_a_method_of_the_users_own_is_in_the_user_dir(
    saved: Path, tmp_path: Path, validate: CommandMain
) -> None:
    state = torch.load(saved / "checkpoint.pt")
    state["cfg"]["criterion"]["_name"] = "their_pgd"
    torch.save(state, tmp_path / "checkpoint.pt")
    told = "checkpoint.pt: trained with --criterion their_pgd, which is unknown here. Pass its folder as"
    assert f"{told} --user-dir" in validate(tmp_path / "checkpoint.pt", "--cpu").stderr
    (tmp_path / "their_methods_to_validate").mkdir()
    (tmp_path / "their_methods_to_validate" / "__init__.py").write_text(OWN)
    own = ["--user-dir", tmp_path / "their_methods_to_validate"]
    assert validate(tmp_path / "checkpoint.pt", "--cpu", *own).returncode == 0


def test_options_that_a_criterion_no_longer_has(saved: Path, tmp_path: Path, validate: CommandMain) -> None:
    """As those of the base method of 0.3's flooding."""
    state = torch.load(saved / "checkpoint.pt")
    state["cfg"]["criterion"]["base_method"] = "freelb"
    torch.save(state, tmp_path / "checkpoint.pt")
    done = validate(tmp_path / "checkpoint.pt", "--cpu")
    assert done.returncode == 0 and done.stdout == validate(saved / "checkpoint.pt", "--cpu").stdout


def test_fairseqs_regularisers_are_refused_in_training_only(
    saved: Path, tmp_path: Path, validate: CommandMain
) -> None:
    """A model that fairseq's own criterion trained with them is one like others."""
    state = torch.load(saved / "checkpoint.pt")
    run = build(train_args(Path(state["cfg"]["task"]["data"]), None, "standard"))
    run.model.args.mha_reg_scale_factor = state["cfg"]["model"].mha_reg_scale_factor = 0.1
    with pytest.raises(DataError, match="--mha-reg-scale-factor has no effect with this project"):
        run.criterion.check_before_training(run.model)
    torch.save(state, tmp_path / "checkpoint.pt")
    assert validate(tmp_path / "checkpoint.pt", "--cpu").returncode == 0


def test_another_split_that_is_not_there(saved: Path, validate: CommandMain) -> None:
    done = validate(saved / "checkpoint.pt", "--cpu", "--split", "dev")
    assert done.returncode == 2 and "no split 'dev'" in done.stderr and done.stderr.startswith("error: ")


def test_a_split_with_rows_that_are_too_long(tmp_path: Path) -> None:
    """As in training, which never reads the test split."""
    run = build(train_args(write_task(tmp_path / "bin"), tmp_path, "standard", "--max-positions", "7", SLIM))
    run.trainer.save_checkpoint(str(tmp_path / "checkpoint.pt"), {})
    with pytest.raises(DataError, match=r"valid: \d of 8 rows have more than 7 tokens"):
        evaluate(str(tmp_path / "checkpoint.pt"))


def test_some_mini_batches_are_of_all_lengths(saved: Path) -> None:
    trained = load(str(saved / "checkpoint.pt"), None, ["valid"], True)
    every = [sample["id"].tolist() for sample in trained.batches("valid", 2)]
    for most, expected in ((1, [3]), (2, [1, 4]), (3, [1, 3, 5]), (6, range(6)), (9, range(6))):
        some = [sample["id"].tolist() for sample in trained.batches("valid", 2, most)]
        assert some == [every[number] for number in expected]


def test_a_gpu_without_enough_memory(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the option that each command has."""

    def forward(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(RobertaModel, "forward", forward)
    path, how = str(saved / "checkpoint.pt"), Attack(0.02, 0.01, 1, relative=True)
    with pytest.raises(DataError, match=r"the GPU is out of memory\. Pass a smaller --batch-size"):
        evaluate(path, cpu=True)
    with pytest.raises(DataError, match="fairseq-adv attack --batch-size takes fewer than 32 rows"):
        attack_checkpoint(path, how, cpu=True)
    trained = load(path, None, ["valid"], cpu=True)
    with pytest.raises(DataError, match="Pass a smaller --max-tokens"):
        next(trained.predictions(trained.task.dataset("valid"), [str(i) for i in range(11)]))
