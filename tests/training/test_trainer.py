"""Each run that the plug-in starts has our trainer; one with a criterion of others trains as in fairseq's."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairseq.trainer
import fairseq_cli.train
import pytest
import torch
from corpus_shards import pretraining_args
from fairseq import checkpoint_utils
from fairseq.models import FairseqEncoder, distributed_fairseq_model
from omegaconf import DictConfig
from support import (
    ADVERSARIAL,
    PLUGIN,
    assembled,
    batch,
    build,
    command,
    launched,
    on_two_workers,
    run_command,
    tensors,
    train_args,
    verb,
    write_corpus,
)

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.checkpoint_files import COPIES
from fairseq_adv.fairseq_patches.training_loop import patience, validate_and_save
from fairseq_adv.training.trainer import AdversarialTrainer, Trainer

YAML = """
common: {{cpu: true, user_dir: {plugin}}}
task: {{_name: sentence_prediction, data: {data}, num_classes: 2, init_token: 0, max_positions: 16}}
criterion: {{_name: freelb}}
model: {{_name: roberta, encoder_layers: 1, encoder_embed_dim: 16, encoder_ffn_embed_dim: 16,
  encoder_attention_heads: 2, max_positions: 16}}
dataset: {{batch_size: 4, num_workers: 0}}
optimizer: {{_name: adam}}
optimization: {{max_epoch: 1, max_update: 9, lr: [0.01]}}
lr_scheduler: {{_name: fixed}}
checkpoint: {{save_dir: {save}, save_interval: 2}}
"""
STARTS = [
    "fairseq-train",
    "python -m fairseq_cli.train",
    "torchrun",
    "fairseq-adv train",
    "fairseq-hydra-train",
]


def start(name: str, data: Path, save: Path) -> list[str]:
    words = train_args(data, save, "freelb", *ADVERSARIAL, "--max-epoch", "1", "--save-interval", "2")
    if name == "fairseq-hydra-train":
        (save.parent / "run.yaml").write_text(YAML.format(plugin=PLUGIN, data=data, save=save))
        where = ["--config-dir", str(save.parent), f"hydra.run.dir={save.parent / 'out'}"]
        return [command(name), *where, "--config-name", "run"]
    return {
        "fairseq-train": [command(name), *words],
        "python -m fairseq_cli.train": [sys.executable, "-m", "fairseq_cli.train", *words],
        "torchrun": launched([command("fairseq-train"), *words], 2),
        "fairseq-adv train": [*verb("train"), *words],
    }[name]


@pytest.mark.parametrize("name", STARTS)
def test_each_way_to_start_a_run_has_our_trainer(data: Path, tmp_path: Path, name: str) -> None:
    """Its checkpoint has what our trainer adds to fairseq's, and has not what it leaves out; fairseq's loop
    would save none at the end of the first epoch.
    """
    done = run_command(*start(name, data, tmp_path / "save"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    state = torch.load(tmp_path / "save" / "checkpoint_last.pt")
    assert {"data", "first_update"} <= state["extra_state"].keys()
    assert not any(weight.split(".")[-1] in COPIES for weight in state["model"])


@pytest.mark.parametrize("backend", ["legacy_ddp", "pytorch_ddp"])
def test_two_workers_make_the_update_of_both_mini_batches(data: Path, tmp_path: Path, backend: str) -> None:
    """With torch's DDP, to which fairseq gives the number of a GPU, without that number."""
    words = train_args(data, None, "freelb", *ADVERSARIAL, "--optimizer", "sgd", "--lr", "0.1")
    two = ["--distributed-world-size", "2", "--distributed-no-spawn", "--distributed-backend", "gloo"]
    on_two_workers(_worker, [*words, *two, "--ddp-backend", backend, "--find-unused-parameters"], tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    run = build(words)
    run.trainer.train_step([batch(run, [0, 1]), batch(run, [2, 3])])
    for name, weight in run.model.named_parameters():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], weight.detach(), rtol=0, atol=1e-6)


def test_flooding_compares_the_loss_of_all_workers(data: Path, tmp_path: Path) -> None:
    """By its own loss alone one worker would descend, and the other ascend."""
    words = train_args(data, None, "flooding", "--optimizer", "sgd", "--lr", "0.1", "--flood-level")
    run = build([*words, "0.1"])
    losses = [float(run.criterion(run.model, batch(run, rows))[0]) / 2 for rows in ([0, 1], [2, 3])]
    level = repr(0.25 * min(losses) + 0.75 * max(losses))  # above their mean
    two = ["--distributed-world-size", "2", "--distributed-no-spawn", "--distributed-backend", "gloo"]
    on_two_workers(_worker, [*words, level, *two, "--ddp-backend", "legacy_ddp"], tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    run = build([*words, level])
    run.trainer.train_step([batch(run, [0, 1]), batch(run, [2, 3])])
    for name, weight in run.model.named_parameters():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], weight.detach(), rtol=0, atol=1e-6)


def _worker(rank: int, words: list[str], out: Path) -> None:
    plain: Any = distributed_fairseq_model.DistributedDataParallel
    distributed_fairseq_model.DistributedDataParallel = lambda device_ids, output_device, **o: plain(**o)
    run = build(words)
    assert isinstance(run.trainer, AdversarialTrainer)
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [[0, 1], [2, 3]][rank])])
    torch.save({name: weight.detach() for name, weight in run.model.named_parameters()}, out / f"{rank}.pt")


def test_a_run_with_fairseqs_own_criterion_is_as_without_the_plugin(data: Path, tmp_path: Path) -> None:
    """All tensors of its checkpoints, average and copies included: an epoch, and another after a restart."""
    args = train_args(
        data, None, "sentence_prediction", "--dropout", "0.1", "--store-ema", "--clip-norm", "1"
    )
    del args[args.index("--no-save")]
    place = args.index("--user-dir")
    without = [*args[:place], *args[place + 2 :]]
    for name, words in (("with", args), ("without", without)):
        for epochs in ("1", "2"):
            done = run_command(
                command("fairseq-train"), *words, "--save-dir", str(tmp_path / name), "--max-epoch", epochs
            )
            assert done.returncode == 0, done.stderr[-2000:]
    ours, plain = (tensors(tmp_path / name / "checkpoint_last.pt") for name in ("with", "without"))
    assert ours == plain and any("ema" in place for place in plain)


def test_the_trainer_follows_the_criterion(data: Path) -> None:
    assert fairseq.trainer.Trainer is Trainer
    for criterion, kind in (("sentence_prediction", Trainer), ("freelb", AdversarialTrainer)):
        assert type(build(train_args(data, None, criterion)).trainer) is kind


def test_a_subclass_of_a_user_is_adversarial_too(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it overrides comes first."""
    called = []

    class Own(fairseq.trainer.Trainer):  # type: ignore[misc]
        def train_step(self, samples: Any, raise_oom: bool = False) -> Any:
            called.append(len(samples))
            return super().train_step(samples, raise_oom)

    updated = []
    cfg = build(train_args(data, None, "freeat", *ADVERSARIAL, "--lr", "0.1")).cfg
    for kind in (Trainer, Own):
        monkeypatch.setattr("support.Trainer", kind)
        run = assembled(cfg)
        run.trainer.train_step([batch(run, [0, 1])])
        assert isinstance(run.trainer, (kind, AdversarialTrainer)) and run.trainer.get_num_updates() == 3
        updated.append({name: weight.detach() for name, weight in run.model.named_parameters()})
    assert called == [1] and all(torch.equal(updated[1][name], one) for name, one in updated[0].items())


BEFORE_THE_PLUGIN = """
import sys, fairseq_cli.train, fairseq.trainer
class Own(fairseq.trainer.Trainer):
    pass
fairseq_cli.train.Trainer = Own
sys.argv[0] = "fairseq-train"
fairseq_cli.train.cli_main()
"""


@pytest.mark.parametrize(("criterion", "code"), [("freelb", 1), ("sentence_prediction", 0)])
def test_a_subclass_made_before_the_plugin_was_loaded_trains_criterions_of_others_alone(
    data: Path, tmp_path: Path, criterion: str, code: int
) -> None:
    args = train_args(data, tmp_path, criterion, "--max-update", "1")
    done = run_command(sys.executable, "-c", BEFORE_THE_PLUGIN, *args)
    assert done.returncode == code, done.stderr[-2000:]
    if code:
        assert "Traceback" not in done.stderr and not list(tmp_path.glob("*.pt"))
        assert done.stderr.splitlines()[-1].startswith("error: --criterion freelb in fairseq's own trainer: ")


def test_finite_gradients_that_differ_between_workers_are_another_error(data: Path) -> None:
    """fairseq compares their norms on GPUs; NaN is unlike NaN too."""
    run = build(train_args(data, None, "standard"))
    for norms, is_divergence in (([1.0, 2.0], False), ([1.0, math.nan], True)):
        run.trainer._grad_norm_buf = torch.tensor(norms)
        try:
            raise FloatingPointError("Fatal error: gradients are inconsistent between workers.")
        except FloatingPointError:
            with pytest.raises(DataError) if is_divergence else contextlib.nullcontext():
                run.trainer.consolidate_optimizer()


def test_an_update_repeats_nothing_that_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build(train_args(data, None, "freelb", *ADVERSARIAL))
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1])])
    seen: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: (seen.update([name]), original(*args))[1])

    (
        count(DictConfig, "__getattr__"),
        count(torch.nn.Module, "train"),
        count(FairseqEncoder, "set_num_updates"),
    )
    run.trainer.train_step([batch(run, [2, 3])])
    assert seen["train"] <= 2, "the criterion, and its parts"
    assert seen["__getattr__"] <= 2, "the schedule of the learning rate"
    assert not seen["set_num_updates"]

    layer = run.model.encoder.sentence_encoder.layers[0]
    layer.eval()
    noted: list[int] = []
    monkeypatch.setattr(type(layer.fc1), "set_num_updates", lambda _, n: noted.append(n), raising=False)
    run.criterion._parts.clear()
    run.trainer.train_step([batch(run, [4, 5])])
    assert all(module.training for module in run.model.modules())
    assert 2 in noted


def test_what_is_saved_in_an_update_has_the_configuration(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build(train_args(data, None, "standard"))
    run.trainer.begin_epoch(1)
    trainer, saved = run.trainer, []
    step = run.task.optimizer_step

    def save(*args: Any, **options: Any) -> None:
        trainer.consolidate_optimizer()
        saved.append(trainer.state_dict()["cfg"])
        step(*args, **options)

    monkeypatch.setattr(run.task, "optimizer_step", save)
    trainer.train_step([batch(run, [0, 1])])
    trainer.consolidate_optimizer()
    assert saved == [trainer.state_dict()["cfg"]]
    assert saved[0]["criterion"]["_name"] == "standard"


def test_rows_of_validation_that_are_too_long_are_told_before_training(data: Path) -> None:
    told = r"valid: \d+ of \d+ rows have more than 7 tokens. Train with --skip-invalid-size-inputs-valid-test"
    left_out = ["--skip-invalid-size-inputs-valid-test"]

    def begin(*more: str) -> None:
        run = build(train_args(data, None, "standard", "--max-positions", "7", *more))
        checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)

    with pytest.raises(DataError, match=told):
        begin()
    for more in (["--shorten-method", "truncate"], left_out, ["--disable-validation"]):
        begin(*more)


def test_a_curriculum_ends_also_in_an_iterator_that_is_used_again(tmp_path: Path) -> None:
    """As of a masked LM on one shard. And a run that resumes in a later epoch has its order."""
    order: list[list[list[int]]] = []
    words = pretraining_args(write_corpus(tmp_path / "corpus"), tmp_path, "standard", "--curriculum", "1")
    for start in (1, 2):
        run = build(words)
        iterator = run.trainer.get_train_iterator(start)
        for _ in range(start, 4):
            batches = iterator.next_epoch_itr(shuffle=iterator.next_epoch_idx > run.cfg.dataset.curriculum)
            order.append([sample["id"].tolist() for sample in batches])
            assert run.trainer.get_train_iterator(iterator.next_epoch_idx, load_dataset=False) is iterator
    assert order[1] != order[2] and order[0] not in order[1:]
    assert order[1:3] == order[3:]


def test_loading_ends_with_the_validation_that_it_is_for(data: Path) -> None:
    """After --max-valid-steps nobody takes the other mini-batches."""
    run = build(train_args(data, None, "standard"))

    def begin(*rest: Any) -> Any:
        iterator = run.task.get_batch_iterator(
            run.task.dataset("train"), max_sentences=1, num_workers=1, data_buffer_size=2
        )
        next(iterator.next_epoch_itr(shuffle=False))
        return [None], False

    def running() -> int:
        return threading.active_count() + len(torch.multiprocessing.active_children())

    before, ended = running(), time.monotonic() + 20
    for _ in range(2):
        validate_and_save(begin, run.cfg, run.trainer, run.task, None, ["valid"], False)
    while running() > before and time.monotonic() < ended:
        time.sleep(0.05)
    assert running() <= before


def test_a_due_validation_is_not_repeated_after_an_overflow(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--patience would count it as one that is no better."""
    words = ["--validate-interval-updates", "2", "--patience", "1", "--best-checkpoint-metric", "loss"]
    run = build(train_args(data, tmp_path, "standard", *words))
    epochs, calls = run.trainer.get_train_iterator(1), list[int]()
    monkeypatch.setattr(run.trainer, "remark", lambda meters: "")

    def original(cfg: Any, trainer: Any, *rest: Any) -> Any:
        calls.append(trainer.get_num_updates())
        return [None], False

    for updates, is_end in (
        (1, False),
        (2, False),
        (2, False),
        (3, False),
        (3, False),
        (4, True),
        (4, False),
    ):
        monkeypatch.setattr(run.trainer, "_num_updates", updates)
        found = validate_and_save(original, run.cfg, run.trainer, run.task, epochs, ["valid"], is_end)
        assert found == ([None], False)
    assert calls == [1, 2, 3, 3, 4]


@pytest.fixture
def no_scores() -> Iterator[None]:
    """Of other runs: fairseq has the best ones as attributes of functions."""
    kept = {
        fairseq_cli.train.should_stop_early: ("best", "num_runs"),
        checkpoint_utils.save_checkpoint: ("best",),
    }

    def forget() -> None:
        for function, names in kept.items():
            for name in names:
                vars(function).pop(name, None)

    forget()
    yield
    forget()


@pytest.mark.usefixtures("no_scores")
def test_no_number_is_the_best_score_of_patience(data: Path, tmp_path: Path) -> None:
    run = build(train_args(data, tmp_path, "standard", "--patience", "2"))
    stop = fairseq_cli.train.should_stop_early

    def original(cfg: Any, *rest: Any) -> Any:
        return [None], stop(cfg, scores.pop(0))

    scores = [math.nan, 3.0, 2.0, 1.0, 1.5]
    ended = [
        validate_and_save(original, run.cfg, run.trainer, run.task, None, ["valid"], False)[1]
        for _ in range(5)
    ]
    assert not any(ended) and (stop.best, stop.num_runs) == (1.0, 1)
    stop.best = math.nan  # at a checkpoint within a validation
    assert patience() == {}


@pytest.mark.usefixtures("no_scores")
def test_a_score_that_is_no_number_does_not_cost_the_best_checkpoint(data: Path, tmp_path: Path) -> None:
    words = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    run = build(train_args(data, tmp_path, "standard", *words, "--no-epoch-checkpoints"))
    epochs, best = run.trainer.get_train_iterator(1), tmp_path / "checkpoint_best.pt"
    epochs.next_epoch_itr()
    for score, expected in ((math.nan, None), (90.0, 90.0), (math.nan, 90.0), (50.0, 90.0), (95.0, 95.0)):
        checkpoint_utils.save_checkpoint(run.cfg.checkpoint, run.trainer, epochs, score)
        assert best.exists() == (expected is not None)
        for path in (best, tmp_path / "checkpoint_last.pt") if expected else ():
            extra = torch.load(path, weights_only=False)["extra_state"]
            assert extra["best"] == expected and (path != best or extra["val_loss"] == expected)


def test_out_of_memory_under_torchs_ddp_ends_the_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that went on would wait in another collective than the others."""
    run = build(train_args(data, None, "freelb", *ADVERSARIAL))
    run.trainer.begin_epoch(1)
    assert run.model is run.trainer.model
    monkeypatch.setattr(AdversarialTrainer, "data_parallel_world_size", 2)
    monkeypatch.setattr("fairseq_adv.training.trainer.torchs_ddp", lambda model: model)

    def fail(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(run.task, "train_step", fail)
    with pytest.raises(DataError, match="out of memory on one of several workers"):
        run.trainer.train_step([batch(run, [0, 1, 2])])
