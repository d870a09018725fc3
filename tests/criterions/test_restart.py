"""A checkpoint that was made with other options is refused, unless the user agrees."""

from __future__ import annotations

import copy
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig, FairseqConfig
from fairseq.logging import metrics
from omegaconf import OmegaConf
from support import ADVERSARIAL, batch, build, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches import progress
from fairseq_adv.models import hf_encoder
from fairseq_adv.training.changed_options import (
    CHOSEN,
    LIMITS,
    MAY_CHANGE,
    PATHS,
    SCHEDULE,
    Changes,
    _own_options,
    _same,
    compare,
)
from fairseq_adv.training.restart import check_restart, check_start

BATCH = "--batch-size x --update-freq x workers"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin")


@pytest.fixture(scope="module")
def saved(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save folder with the checkpoint_last.pt of one update."""
    folder = tmp_path_factory.mktemp("save")
    one_update(freelb(data, folder), folder)
    return folder


def one_update(run: SimpleNamespace, folder: Path) -> None:
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    iterator = {"epoch": 1, "iterations_in_epoch": 1, "version": 2, "shuffle": True}
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(folder / "checkpoint_last.pt"), {"train_iterator": iterator})


def freelb(data: Path, save: Path, *more: str) -> SimpleNamespace:
    return build(train_args(data, save, "freelb", *ADVERSARIAL, *more))


def load(run: SimpleNamespace, save: Path) -> None:
    reset = run.cfg.checkpoint
    run.trainer.load_checkpoint(
        str(save / "checkpoint_last.pt"), reset.reset_optimizer, reset.reset_lr_scheduler,
        reset_meters=reset.reset_meters,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (["--adv-lr", "0.2", "--adv-steps", "4"], "--adv-steps: 3 -> 4; --adv-lr: 0.3 -> 0.2"),
        (["--flood-level", "0.05"], "--flood-level: None -> 0.05"),
        (["--task", "text_classification"], "--task: sentence_prediction -> text_classification"),
        (["--criterion", "pgd"], "--criterion: freelb -> pgd"),
        (["--no-shuffle"], "--no-shuffle: False -> True"),
        (["--dropout", "0.1"], "--dropout: 0.0 -> 0.1"),
        (["--lr", "0.02", "--seed", "8"], "--seed: 7 -> 8; --lr: 0.01 -> 0.02"),
        (["--adam-betas", "(0.8, 0.9)"], "--adam-betas: 0.9,0.999 -> (0.8, 0.9)"),
        (["--batch-size", "2"], f"{BATCH}: 4 x 1 x 1 -> 2 x 1 x 1"),
        (["--batch-size", "2", "--update-freq", "2,4"], f"{BATCH}: 4 x 1 x 1 -> 2 x 2,4 x 1"),
        (["--clip-norm", "1"], "--clip-norm: 0.0 -> 1.0"),
        (["--store-ema"], "--store-ema: False -> True"),
        (["--amp"], "--amp: False -> True"),
        (["--bf16"], "--bf16: False -> True"),
        (["--best-checkpoint-metric", "accuracy"], "--best-checkpoint-metric: loss -> accuracy"),
        (["--finetune-from-model", "other.pt"], "--finetune-from-model: None -> other.pt"),
        (["--lr-scheduler", "polynomial_decay", "--total-num-update", "9"],
         "--lr-scheduler: fixed -> polynomial_decay"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_other_options_are_refused(data: Path, saved: Path, more: list[str], found: str) -> None:
    run = freelb(data, saved, *more)
    with pytest.raises(DataError) as caught:
        load(run, saved)
    assert str(caught.value).startswith(f"{saved}/checkpoint_last.pt was made with other options")
    assert f"({found})" in str(caught.value) and "\n" not in str(caught.value)
    assert "another --save-dir" in str(caught.value) and "--allow-changed-options" in str(caught.value)
    assert run.trainer.get_num_updates() == 0


def test_other_data_are_refused(saved: Path, tmp_path: Path) -> None:
    run = freelb(write_task(tmp_path / "other"), saved)
    with pytest.raises(DataError, match=rf"\(data: \S+/bin -> {tmp_path}/other\)"):
        load(run, saved)


@pytest.mark.parametrize(
    "more",
    [
        ["--lr", "1e-2", "--adv-lr", "0.30", "--adam-betas", "(0.9,0.999)"],  # other words for the same
        ["--batch-size", "2", "--update-freq", "2"],
        ["--max-epoch", "9", "--max-update", "40", "--patience", "3"],
        ["--log-interval", "5", "--num-workers", "1", "--keep-last-epochs", "1", "--batch-size-valid", "3"],
        ["--adv-lr", "0.2", "--reset-dataloader"],
        ["--lr", "0.2", "--reset-optimizer", "--reset-lr-scheduler"],
    ],
    ids=" ".join,
)
def test_what_goes_on_as_before(data: Path, saved: Path, more: list[str]) -> None:
    """Options that may change, and a user who has asked for it."""
    run = freelb(data, saved, *more)
    load(run, saved)
    assert run.trainer.get_num_updates() == (0 if "--reset-optimizer" in more else 1)


def test_a_run_of_kept_layers_goes_on(data: Path, saved: Path, tmp_path: Path) -> None:
    """fairseq drops layers when it starts, saves that it keeps all, and drops layers again."""
    start, keep = str(saved / "checkpoint_last.pt"), ["--encoder-layers-to-keep", "1", "--store-ema"]
    first, second = (freelb(data, tmp_path, *keep, "--finetune-from-model", start) for _ in range(2))
    first.trainer.load_checkpoint(start, reset_optimizer=True)
    one_update(first, tmp_path)
    load(second, tmp_path)
    there = torch.load(tmp_path / "checkpoint_last.pt")
    average = second.trainer.ema.get_model()
    for model, kept in ((second.model, there["model"]), (average, there["extra_state"]["ema"])):
        found = model.state_dict()
        assert all(torch.equal(found[name], weight) for name, weight in kept.items())
    assert second.trainer.get_num_updates() == 1
    anew = freelb(data, tmp_path, *keep, "--reset-optimizer")
    load(anew, tmp_path)
    assert all(torch.equal(anew.model.state_dict()[name], weight) for name, weight in there["model"].items())
    with pytest.raises(DataError, match=r"\(--encoder-layers: 1 -> 2; --encoder-layers-to-keep: None"):
        load(freelb(data, tmp_path, "--encoder-layers-to-keep", "0,1", "--store-ema"), tmp_path)


def test_a_checkpoint_that_the_user_names_is_compared_too(data: Path, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes((saved / "checkpoint_last.pt").read_bytes())
    told = rf"^{path} was made with other options.*--adv-lr: 0.3 -> 0.2.*Pass --finetune-from-model {path} "
    with pytest.raises(DataError, match=told):
        load(freelb(data, saved, "--adv-lr", "0.2", "--restore-file", str(path)), tmp_path)
    run = freelb(data, saved, "--restore-file", str(path))
    load(run, tmp_path)
    assert run.trainer.get_num_updates() == 1


def test_agreed_changes_take_effect_and_are_recorded(data: Path, saved: Path, tmp_path: Path) -> None:
    """Twice, each with its update; the second run's flag is stale for the third, which changes nothing."""
    iterator = {"epoch": 1, "iterations_in_epoch": 1, "version": 2, "shuffle": True}
    folder, changes = saved, [["--lr", "0.02", "--adam-betas", "(0.8, 0.9)"], ["--adv-lr", "0.2"], []]
    given: list[str] = []
    for i, more in enumerate(changes):
        given += more
        run = freelb(data, folder, *given, *(["--allow-changed-options"] if more else []))
        load(run, folder)
        run.trainer.begin_epoch(1)
        (group,) = run.trainer.optimizer.param_groups
        assert (group["lr"], tuple(group["betas"])) == (0.02, (0.8, 0.9))
        run.trainer.train_step([batch(run, [0, 1, 2])])
        folder = tmp_path / str(i)
        folder.mkdir()
        run.trainer.consolidate_optimizer()
        run.trainer.save_checkpoint(str(folder / "checkpoint_last.pt"), {"train_iterator": dict(iterator)})
    state = torch.load(folder / "checkpoint_last.pt")
    assert state["extra_state"]["changed_options"] == [
        {"update": 1, "changes": ["--lr: 0.01 -> 0.02", "--adam-betas: 0.9,0.999 -> (0.8, 0.9)"]},
        {"update": 2, "changes": ["--adv-lr: 0.3 -> 0.2"]},
    ]
    assert "changed_options_now" not in state["extra_state"]


def test_a_new_run_doesnt_inherit_the_record_and_the_hours(data: Path, saved: Path, tmp_path: Path) -> None:
    state = torch.load(saved / "checkpoint_last.pt")
    state["extra_state"]["previous_training_time"] = 7200.0
    state["extra_state"]["changed_options"] = [{"update": 1, "changes": ["--lr: 1 -> 2"]}]
    torch.save(state, tmp_path / "checkpoint_last.pt")
    for more, expected in (([], 1), (["--reset-optimizer"], 0)):
        run = freelb(data, tmp_path, *more)
        load(run, tmp_path)
        assert len(run.trainer.extra_state()) == 1 + 2 * expected  # the digests of the data are its own
        assert run.trainer.cumulative_training_time() // 7200 == expected


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        (["--lr", "0.02"], True),
        (["--best-checkpoint-metric", "accuracy"], False),
        (["--maximize-best-checkpoint-metric"], False),
        (["--valid-subset", "train"], False),
        (["--max-valid-steps", "1"], False),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_scores_that_new_ones_cant_be_compared_with_are_dropped(
    data: Path, saved: Path, more: list[str], kept: bool
) -> None:
    state = torch.load(saved / "checkpoint_last.pt")
    state["extra_state"].update(best=0.1, patience={"best": 0.1, "num_runs": 1}, plateau={})
    run = freelb(data, saved, *more)
    check_restart(state, run.trainer, True, run.trainer.extra_state()["data"])
    assert [name in state["extra_state"] for name in ("best", "patience", "plateau")] == 3 * [kept]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("fixed", "polynomial_decay"),
        ("fixed", "reduce_lr_on_plateau"),
        ("polynomial_decay", "reduce_lr_on_plateau"),
    ],
)
def test_another_scheduler_begins_anew(data: Path, tmp_path: Path, before: str, now: str) -> None:
    polynomial = ["--total-num-update", "9"]
    first, then = (
        ["--lr-scheduler", name, *(polynomial if name == "polynomial_decay" else [])]
        for name in (before, now)
    )
    one_update(freelb(data, tmp_path, *first), tmp_path)
    run = freelb(data, tmp_path, *then, "--allow-changed-options")
    load(run, tmp_path)
    run.trainer.lr_step(1, 0.5)
    assert run.trainer.get_num_updates() == 1 and run.trainer.get_lr() > 0


def test_embeddings_from_a_file_are_a_start_like_others() -> None:
    """Checkpoints don't keep the name, so it would always be another."""
    assert not {"encoder_embed_path", "decoder_embed_path"} & _own_options("model", "lstm").keys()


def test_a_suffix_belongs_to_the_checkpoint_to_start_from(tmp_path: Path) -> None:
    (tmp_path / "model-part0.pt").touch()
    saving = CheckpointConfig()
    saving.restore_file, saving.checkpoint_suffix = str(tmp_path / "model.pt"), "-part0"
    check_start(saving)
    saving.checkpoint_suffix = ""
    with pytest.raises(DataError, match=r"model.pt: no such file"):
        check_start(saving)


def test_another_criterion_goes_on_if_the_user_agrees(data: Path, saved: Path) -> None:
    run = build(train_args(data, saved, "pgd", *ADVERSARIAL, "--allow-changed-options"))
    load(run, saved)
    assert run.trainer.get_num_updates() == 1
    one_update(run, saved.parent)


@pytest.mark.parametrize(
    ("criterion", "words", "option"),
    [
        ("freelb", [*ADVERSARIAL, "--optimizer", "torch_adamw"], "--optimizer"),
        ("infobert", ["--adv-steps", "2"], "--criterion"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(
    data: Path, saved: Path, criterion: str, words: list[str], option: str
) -> None:
    run = build(train_args(data, saved, criterion, *words, "--allow-changed-options"))
    with pytest.raises(DataError, match=rf"no run goes on from it with another .*{option}.*-finetune-from"):
        load(run, saved)


PLATEAU = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", "1", "--lr-shrink", "0.5"]


def epoch_of(run: SimpleNamespace, epoch: int, score: float) -> float:
    """One update, a checkpoint, and a validation that is no better than the one before."""
    run.trainer.begin_epoch(epoch)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    iterator = {"epoch": epoch + 1, "iterations_in_epoch": 0, "version": 2, "shuffle": True}
    run.trainer.consolidate_optimizer()
    path = Path(run.cfg.checkpoint.save_dir) / "checkpoint_last.pt"
    at_its_end = SimpleNamespace(epoch=epoch, end_of_epoch=lambda: True)

    def write(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> None:
        trainer.save_checkpoint(str(path), {"train_iterator": iterator, "val_loss": val_loss})

    progress.save(write, run.cfg.checkpoint, run.trainer, at_its_end, score)
    run.trainer.lr_step(epoch, score)
    return float(run.trainer.get_lr())


@pytest.mark.parametrize("score", [0.5, math.nan])
def test_a_plateau_is_counted_through_restarts(data: Path, tmp_path: Path, score: float) -> None:
    straight = freelb(data, tmp_path / "straight", *PLATEAU)
    (tmp_path / "straight").mkdir()
    expected = [epoch_of(straight, epoch, score) for epoch in range(1, 7)]
    found = []
    for epoch in range(1, 7):
        run = freelb(data, tmp_path, *PLATEAU, "--adv-lr", f"0.{epoch}", "--allow-changed-options")
        if found:
            load(run, tmp_path)
            run.trainer.lr_step(epoch)  # as fairseq does before an epoch
        found.append(epoch_of(run, epoch, score))
    assert found == expected and len({*expected}) > 2


def test_without_the_optimizers_state_only_a_finished_run_starts_again(
    data: Path, saved: Path, tmp_path: Path
) -> None:
    """fairseq would begin the optimizer and the schedule anew, in the middle of the data."""
    state = torch.load(saved / "checkpoint_last.pt")
    del state["last_optimizer_state"]
    state["extra_state"] |= {"previous_training_time": 7200.0, "patience": {"best": 0.5, "num_runs": 3}}
    own = tmp_path / "own"
    own.mkdir()
    for path in (own / "checkpoint_last.pt", tmp_path / "model.pt"):
        torch.save(state, path)
    for goes_on in ([], ["--patience", "4"], ["--stop-time-hours", "3"]):
        told = rf"^{own}/checkpoint_last\.pt has no optimizer's state \(--no-save"
        with pytest.raises(DataError, match=told):
            load(freelb(data, own, *goes_on), own)
    start = str(tmp_path / "model.pt")
    for save, more, updates in (
        (own, ["--max-update", "1"], 1),
        (own, ["--patience", "3"], 1),
        (own, ["--stop-time-hours", "1"], 1),
        (own, ["--reset-optimizer"], 0),
        (tmp_path, ["--restore-file", start], 0),
        (tmp_path, ["--continue-once", start], 0),
    ):
        run = freelb(data, save, *more)
        load(run, own)
        assert run.trainer.get_num_updates() == updates, more


# --- the comparison alone


def of(data: Path, *more: str) -> Any:
    return freelb(data, data, *more).cfg


POLYNOMIAL = ["--lr-scheduler", "polynomial_decay"]


@pytest.mark.parametrize(
    ("there", "here", "refused", "told"),
    [
        (["--total-num-update", "8"], ["--total-num-update", "9"], ["--total-num-update: 8.0 -> 9.0"], []),
        (["--total-num-update", "8"], ["--total-num-update", "16", "--max-epoch", "4"], [],
         ["--max-epoch: 2 -> 4", "--total-num-update: 8.0 -> 16.0"]),
        (["--total-num-update", "8"], ["--total-num-update", "4", "--max-epoch", "1"],
         ["--total-num-update: 8.0 -> 4.0"], ["--max-epoch: 2 -> 1"]),
        (["--max-update", "8", "--total-num-update", "8"], ["--max-update", "16", "--total-num-update", "16"],
         [], ["--max-update: 8 -> 16"]),
        (["--total-num-update", "8", "--warmup-updates", "1"],
         ["--total-num-update", "8", "--warmup-updates", "2"], ["--warmup-updates: 1 -> 2"], []),
    ],
)  # fmt: skip
def test_a_schedule_grows_only_with_the_run(
    data: Path, there: list[str], here: list[str], refused: list[str], told: list[str]
) -> None:
    found = compare(of(data, *POLYNOMIAL, *there), of(data, *POLYNOMIAL, *here))
    assert found == Changes(refused, told)


def test_the_schedule_of_a_finished_run_doesnt_matter(data: Path) -> None:
    """fairseq-adv train with fewer epochs than were made shortens it."""
    there, here = (of(data, *POLYNOMIAL, "--total-num-update", number) for number in ("8", "4"))
    assert compare(there, here, is_over=True).refused == []
    assert compare(there, here).refused == ["--total-num-update: 8.0 -> 4.0"]


def test_the_size_of_an_update_is_one_product(data: Path) -> None:
    """Also with --max-tokens, and with a number of mini-batches for each epoch."""
    there = of(data, "--max-tokens", "64", "--update-freq", "4,8")
    here = copy.deepcopy(there)
    here.dataset.batch_size, here.dataset.max_tokens = 2, 32
    here.distributed_training.distributed_world_size = 4
    here.optimization.update_freq = [2, 4, 4]
    found = compare(there, here)
    tokens = BATCH.replace("batch-size", "max-tokens")
    assert found == Changes(
        [], [f"{BATCH}: 4 x 4,8 x 1 -> 2 x 2,4,4 x 4", f"{tokens}: 64 x 4,8 x 1 -> 32 x 2,4,4 x 4"]
    )
    here.dataset.max_tokens = 64
    assert compare(there, here).refused == [found.told[1].replace("32", "64")]


def test_a_yaml_that_sets_a_copy_of_an_option_is_noticed(data: Path) -> None:
    """criterion.seed is a copy of common.seed unless a yaml sets it alone."""
    there = of(data)
    here = copy.deepcopy(there)
    here.criterion.seed = 9
    assert compare(there, here).refused == ["--seed: 7 -> 9"]


def test_the_same_folder_by_another_path_is_the_same(data: Path, tmp_path: Path) -> None:
    cfg = freelb(data, tmp_path).cfg
    other = copy.deepcopy(cfg)
    other.task.data = os.path.relpath(data)
    assert compare(cfg, other) == Changes([], [])
    (tmp_path / "link").symlink_to(data)
    other.task.data = str(tmp_path / "link")
    assert compare(cfg, other) == Changes([], [])
    other.task.data = str(tmp_path)
    assert compare(cfg, other).refused == [f"data: {data} -> {tmp_path}"]
    other.task.data, cfg.task.data = str(data), str(tmp_path / "gone")  # moved since
    assert compare(cfg, other) == Changes([], [f"data: {tmp_path}/gone -> {data}"])


def test_a_hugging_face_folder_may_move_too(data: Path, tmp_path: Path) -> None:
    cfg = freelb(data, tmp_path).cfg
    other = copy.deepcopy(cfg)
    for one, folder in ((cfg, tmp_path / "old"), (other, tmp_path / "new")):
        vars(one.model).update(_name="hf_encoder", hf_model=str(folder))
    moved = f"--hf-model: {tmp_path}/old -> {tmp_path}/new"
    assert compare(cfg, other) == Changes([], [moved])
    (tmp_path / "old").mkdir()
    assert compare(cfg, other).refused == [moved]


def test_what_an_older_checkpoint_lacks_counts_as_the_default(data: Path, tmp_path: Path) -> None:
    cfg = freelb(data, tmp_path).cfg
    old = copy.deepcopy(cfg)
    OmegaConf.set_struct(old, False)
    del old.criterion["adv_steps"], old.criterion["allow_changed_options"], old.task["no_shuffle"]
    old.criterion.gone = 3
    assert compare(old, cfg).refused == []  # 3 is the default
    cfg.criterion.adv_steps = 4
    assert compare(old, cfg).refused == ["--adv-steps: 3 -> 4"]


@pytest.mark.parametrize(("before", "now", "same"), [(None, 0, True), (0.0, None, True), (None, 0.1, False)])
def test_no_layerdrop_is_none_or_zero(before: Any, now: Any, same: bool) -> None:
    """Encoders of transformers had None from a yaml and 0 from a command line."""
    assert _same("encoder_layerdrop", before, now) is same
    args = OmegaConf.create({"_name": "hf_encoder"})
    hf_encoder.base_architecture(args)
    assert args.encoder_layerdrop == 0 and args.checkpoint_activations is False


@pytest.mark.parametrize(
    ("options", "version", "done"),
    [({}, 2, 6), ({"batch_size": 2}, 1, 12), ({"batch_size": 50}, 2, 0), ({"max_tokens": 90}, 1, 6),
     ({"batch_size": None, "max_tokens": 90}, 1, 6), ({"required_batch_size_multiple": 3}, 1, 8)],
)  # fmt: skip
def test_a_converted_position_may_be_past_the_end(
    data: Path, saved: Path, options: dict[str, Any], version: int, done: int
) -> None:
    """fairseq takes that for the end of the epoch with version 1 only."""
    run = freelb(data, saved, "--allow-changed-options")
    state = torch.load(saved / "checkpoint_last.pt", weights_only=False)
    position = {"epoch": 1, "iterations_in_epoch": 6, "version": 2}
    state["extra_state"]["train_iterator"] = position
    OmegaConf.set_struct(run.cfg, False)
    run.cfg.dataset.update(options)
    check_restart(state, run.trainer, True, run.trainer.extra_state()["data"])
    assert (position["version"], position["iterations_in_epoch"]) == (version, done)


def test_a_validation_before_the_restart_is_not_repeated(data: Path, saved: Path, tmp_path: Path) -> None:
    """If the first update after it overflows: it is that of the checkpoint."""
    shutil.copy(saved / "checkpoint_last.pt", tmp_path)
    run = freelb(data, tmp_path)
    assert run.trainer.validated_update == -1
    checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
    assert run.trainer.validated_update == run.trainer.get_num_updates() == 1


def test_a_named_file_without_an_optimizers_state_gives_its_weights_alone(data: Path, tmp_path: Path) -> None:
    """Another run starts from it, which has its own best score, epochs and hours."""
    other = freelb(data, tmp_path / "other", "--no-save-optimizer-state")
    position = {"epoch": 11, "iterations_in_epoch": 3, "version": 2, "shuffle": True}
    known = {"best": 0.1, "val_loss": 0.2, "previous_training_time": 7200, "train_iterator": position}
    other.trainer.save_checkpoint(str(tmp_path / "other.pt"), {**known, "patience": {"num_runs": 3}})
    run = freelb(data, tmp_path / "save", "--restore-file", str(tmp_path / "other.pt"))
    extra = run.trainer.load_checkpoint(str(tmp_path / "other.pt"))
    assert not {"best", "val_loss", "previous_training_time", "patience"} & extra.keys()
    assert (extra["train_iterator"]["epoch"], extra["train_iterator"]["iterations_in_epoch"]) == (1, 0)


@pytest.mark.parametrize("reset", ["--reset-lr-scheduler", "--reset-meters", "--reset-optimizer"])
@pytest.mark.parametrize(
    ("more", "done"), [([], 6), (["--reset-dataloader"], 6), (["--batch-size", "2"], 12)]
)
def test_a_position_is_converted_with_fairseqs_resets_too(
    data: Path, saved: Path, tmp_path: Path, reset: str, more: list[str], done: int
) -> None:
    state = torch.load(saved / "checkpoint_last.pt", weights_only=False)
    state["extra_state"]["train_iterator"] |= {"epoch": 1, "iterations_in_epoch": 6}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    run = freelb(data, tmp_path, reset, *more)
    extra = run.trainer.load_checkpoint(
        str(tmp_path / "checkpoint_last.pt"), **dict.fromkeys([reset[2:].replace("-", "_")], True)
    )
    assert extra["train_iterator"]["iterations_in_epoch"] == done


@pytest.mark.parametrize(
    ("now", "done"),
    [("{0}:{0}-more", 0), ("{0}-more:{0}", 6), ("{0}", 6), ("{0}-copy", 6), ("{0}-copy:{0}", 6)],
)
def test_a_position_in_another_shard_is_its_beginning(data: Path, saved: Path, now: str, done: int) -> None:
    run = freelb(data, saved, "--allow-changed-options")
    state = torch.load(saved / "checkpoint_last.pt", weights_only=False)
    position = {"epoch": 2, "iterations_in_epoch": 6, "version": 2}  # of the only one
    state["extra_state"]["train_iterator"] = position
    OmegaConf.set_struct(run.cfg, False)
    run.cfg.task.data = now.format(data)
    files = run.trainer.extra_state()["data"]
    same = [{"train": "other"} if "more" in part else files["folders"][0] for part in now.split(":")]
    check_restart(state, run.trainer, True, {**files, "folders": same})
    assert position == {"epoch": 2, "iterations_in_epoch": done, "version": 1 if done and now != "{0}" else 2}


@pytest.mark.parametrize("more", [["--reset-lr-scheduler"], ["--adv-lr", ".2", "--allow-changed-options"]])
def test_an_epochs_means_are_its_own_after_a_change(
    data: Path, saved: Path, tmp_path: Path, more: list[str]
) -> None:
    """fairseq adds those of the epoch that a checkpoint ends to the next epoch's, unless it has dropped
    them.
    """
    path = tmp_path / "checkpoint_last.pt"
    state = torch.load(saved / "checkpoint_last.pt", weights_only=False)
    position = state["extra_state"]["train_iterator"]
    state["extra_state"]["train_iterator"] = {**position, "epoch": 2, "iterations_in_epoch": 0}
    metrics.reset()
    with metrics.aggregate("train"):
        metrics.log_scalar("loss", 7.0, 1)
    state["extra_state"]["metrics"] = metrics.state_dict()
    torch.save(state, path)
    metrics.reset()
    freelb(data, tmp_path, *more).trainer.load_checkpoint(
        str(path), reset_lr_scheduler="--reset-lr-scheduler" in more
    )
    assert "loss" not in (metrics.get_meters("train") or {})


def test_every_option_that_may_change_is_one_of_fairseqs_and_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    table = page[page.index("## What may change") : page.index("## What was tested")]
    for group, names in MAY_CHANGE.items():
        if group not in CHOSEN:
            assert names <= set(getattr(FairseqConfig(), group).__dataclass_fields__), group
        for name in names:
            assert f"`{name}`" in table or name.startswith("reset_"), name
    for name in (*LIMITS, *SCHEDULE, *PATHS):
        assert f"`{name}`" in table, name
