"""``attach``: methods in transformers' Trainer, against loops of one's own and the Trainer without one."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from loop.tiny_models import LARGE, METHODS, PAD, bert, closure, made
from loop.trained import trainer_of, weights
from support import slow
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import HPSearchBackend

from fairseq_adv.loop import FreeLB, attach
from fairseq_adv.loop.hf_trainer import _logits, _predicts_the_next

NOTHING = {"steps": 1, "step_size": 0.0, "init_mag": 0.0}  # FreeLB without delta
STARTS = {"freelb": {"init_mag": 0.0}, "pgd": {"init_mag": 0.0}}  # without random draws


def fixed(name: str) -> dict[str, Any]:
    """Large sizes, of a method without random draws."""
    return {"relative": False, **LARGE[name], **STARTS[name]}


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}, {"label_smoothing_factor": 0.2},
     {"gradient_checkpointing": True}, {"max_grad_norm": 0.5, "gradient_accumulation_steps": 2}],
    ids=lambda options: "-".join(options) or "plain",
)  # fmt: skip
def test_without_delta_it_is_the_trainer_itself(tmp_path: Path, options: dict[str, Any]) -> None:
    plain = trainer_of(tmp_path, dropout=0.1, **options)
    plain.loss_is_scaled_for_ga = False  # otherwise 5.23 adds up what BERT has not divided
    plain.train()
    attached = trainer_of(tmp_path, "freelb", NOTHING, dropout=0.1, **options)
    states = []
    attached.training_step = _with_the_generators_state(attached.training_step, states)  # type: ignore[method-assign]
    attached.train()
    change = weights(plain) - weights(trainer_of(tmp_path))
    assert (weights(plain) - weights(attached)).norm() <= 1e-6 * change.norm()
    losses = [
        [entry["loss"] for entry in one.state.log_history if "loss" in entry] for one in (plain, attached)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=2e-4) and len(states) > 0


def test_a_loss_of_ones_own_may_divide_by_the_number_of_items(tmp_path: Path) -> None:
    def compute_loss(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        return cross_entropy(model(**inputs).logits, inputs["labels"], reduction="sum") / num_items_in_batch

    trainers = [trainer_of(tmp_path, name, NOTHING, gradient_accumulation_steps=2) for name in ("", "freelb")]
    for trainer in trainers:
        trainer.compute_loss, trainer.loss_is_scaled_for_ga = compute_loss, True  # type: ignore[method-assign]
        trainer.train()
    change = weights(trainers[0]) - weights(trainer_of(tmp_path))
    assert (weights(trainers[1]) - weights(trainers[0])).norm() <= 1e-6 * change.norm()


def _with_the_generators_state(step: Any, states: list[Any]) -> Any:
    """A step that begins with the state it would have if no seed for delta had been drawn."""

    def call(*args: Any) -> Any:
        states.append(torch.get_rng_state())
        randint = torch.randint
        torch.randint = lambda *args: torch.zeros((), dtype=torch.long)  # type: ignore[assignment]
        try:
            return step(*args)
        finally:
            torch.randint = randint

    return call


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("name", STARTS)
def test_it_trains_as_a_loop_of_ones_own(tmp_path: Path, name: str, accumulated: int) -> None:
    trainer, batches = trainer_of(tmp_path, name, fixed(name), gradient_accumulation_steps=accumulated), []
    collate = trainer.data_collator
    trainer.data_collator = lambda rows: batches.append(collate(rows)) or batches[-1]
    trainer.train()
    model = bert()
    optimizer, method = torch.optim.SGD(model.parameters(), lr=0.1), made(name, model, **STARTS[name])
    method.backward = lambda loss: (loss / accumulated).backward()
    logs, losses = [], [[] for _ in range(4)]
    for nth in range(4 * accumulated):
        loss = method(closure(model, batches[nth], method), attention_mask=batches[nth]["attention_mask"])
        losses[nth // accumulated].append(loss)
        logs.append(method.log)
        if nth % accumulated == accumulated - 1:
            optimizer.step()
            optimizer.zero_grad()
    own = torch.cat([p.detach().double().flatten() for p in model.parameters()])
    change = own - torch.cat([p.detach().double().flatten() for p in bert().parameters()])
    assert (weights(trainer) - own).norm() <= 2e-6 * change.norm()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    for nth, entry in enumerate(entries):
        of_update = logs[nth * accumulated : (nth + 1) * accumulated]
        for key in ("adv_norm", "adv_ratio", "adv_loss_first", "adv_loss_last"):
            mean = sum(float(log[key]) for log in of_update) / accumulated
            assert entry[key] == pytest.approx(mean, rel=1e-4)
        assert entry["loss"] == pytest.approx(sum(map(float, losses[nth])) / accumulated, abs=1e-4)


@pytest.mark.parametrize("name", [slow(name) if name != "freelb" else name for name in METHODS])
def test_it_resumes_to_the_bit(tmp_path: Path, name: str) -> None:
    whole = trainer_of(tmp_path / "whole", name, dropout=0.1, save_strategy="steps", save_steps=2)
    whole.train()
    resumed = trainer_of(tmp_path / "other", name, dropout=0.1, max_steps=4)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert torch.equal(weights(whole), weights(resumed))
    others = trainer_of(tmp_path, "" if name != "freelb" else "pgd", dropout=0.1)
    others.train()
    assert not torch.equal(weights(whole), weights(others))


@pytest.mark.parametrize("name", ["freelb", "alum_vat", "smart"])
def test_accumulating_two_halves_is_one_batch(tmp_path: Path, name: str) -> None:
    """Also for methods whose divergence is a mean; sizes so small that the random start is nothing."""
    sizes = {"freelb": NOTHING, "alum_vat": {"init_std": 1e-9, "step_size": 1e-9, "alpha": 1e9}}.get(
        name, {"init_std": 1e-9, "step_size": 1e-9, "mu": 3.0}
    )
    found = []
    for options in ({"per_device_train_batch_size": 4}, {"gradient_accumulation_steps": 2}):
        trainer = trainer_of(tmp_path, name, sizes, **options)
        trainer.train()
        found.append(weights(trainer))
    change = found[0] - weights(trainer_of(tmp_path))
    assert (found[1] - found[0]).norm() <= 1e-5 * change.norm()


@pytest.mark.parametrize("name", [slow(name) if name != "freelb" else name for name in STARTS])
def test_two_workers_are_two_accumulated_batches(tmp_path: Path, name: str) -> None:
    words = [f"size:{key}={value!r}" for key, value in fixed(name).items()]
    script = Path(__file__).parent / "trained.py"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         script, tmp_path, name, *words, "ddp_backend='gloo'"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    both = [torch.load(tmp_path / f"result{rank}.pt") for rank in range(2)]
    assert torch.equal(both[0]["weights"], both[1]["weights"])
    alone = trainer_of(tmp_path, name, fixed(name), gradient_accumulation_steps=2)
    alone.train()
    change = weights(alone) - weights(trainer_of(tmp_path))
    assert (both[0]["weights"] - weights(alone)).norm() <= 2e-6 * change.norm()
    ratios = [[entry["adv_ratio"] for entry in log if "loss" in entry]
              for log in (both[0]["log"], alone.state.log_history)]  # fmt: skip
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-4)


def test_tokens_without_a_label_have_no_divergence(tmp_path: Path) -> None:
    """ALUM on tags: as in a loop whose closure returns the logits of the first tokens, which have labels."""

    def tagged(dropout: float) -> Any:
        return bert(dropout, "TokenClassification")

    trainer, seen = trainer_of(tmp_path, "alum_vat", make=tagged, max_steps=1), []
    for item in trainer.train_dataset.items:  # type: ignore[union-attr]
        item["labels"] = torch.cat([item["labels"].view(1), torch.full((6,), -100)])
    trainer.data_collator = lambda rows: seen.append(torch.utils.data.default_collate(rows)) or seen[-1]
    step, model = trainer.training_step, tagged(0.0)

    def seeded(*args: Any) -> Any:
        torch.manual_seed(1)
        return step(*args)

    trainer.training_step = seeded  # type: ignore[method-assign]
    trainer.train()
    method = made("alum_vat", model)

    def first_tokens() -> Any:
        output = model(**seen[0])
        return output.loss, output.logits[:, 0]

    torch.manual_seed(1)
    method(first_tokens, attention_mask=seen[0]["attention_mask"])
    entry = trainer.state.log_history[0]
    assert entry["divergence"] == pytest.approx(float(method.log["divergence"]), rel=1e-5)
    assert entry["divergence"] > 1e-3


@pytest.mark.parametrize("name", ["alum_vat", "smart", "r3f"])
def test_a_mini_batch_without_labels_changes_nothing(tmp_path: Path, name: str) -> None:
    """As in the Trainer alone, where its loss is NaN and its gradient 0."""

    def tagged(dropout: float) -> Any:
        return bert(dropout, "TokenClassification")

    trainer = trainer_of(tmp_path, name, make=tagged, max_steps=1)
    for item in trainer.train_dataset.items:  # type: ignore[union-attr]
        item["labels"] = torch.full((7,), -100)
    before = weights(trainer)
    trainer.train()
    assert torch.equal(weights(trainer), before)
    assert trainer.state.log_history[0]["divergence"] == 0


@pytest.mark.parametrize("name", METHODS)
def test_the_models_output_is_not_kept_for_the_optimizers_step(tmp_path: Path, name: str) -> None:
    trainer, seen, kept = trainer_of(tmp_path, name, max_steps=1), [], []
    trainer.model.register_forward_hook(lambda *call: seen.append(weakref.ref(call[2].logits)))

    def count(*event: Any, **parts: Any) -> None:
        gc.collect()
        kept.append(sum(one() is not None for one in seen))

    trainer.add_callback(type("Counts", (TrainerCallback,), {"on_pre_optimizer_step": count})())
    trainer.train()
    assert len(seen) > 0 and kept == [0]


def test_a_trial_of_a_search_keeps_its_average_beside_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = ModuleType("wandb")
    wandb.__spec__, wandb.run = ModuleSpec("wandb", None), SimpleNamespace(id=7)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    trainer = trainer_of(tmp_path, "smart", save_strategy="steps", save_steps=2)
    trainer.hp_search_backend, trainer.hp_name = HPSearchBackend.WANDB, None
    trainer.train(trial={"weight_decay": 0.0})
    folders = sorted(path.parent for path in tmp_path.rglob("average.pt"))
    assert folders == [tmp_path / "run-7" / f"checkpoint-{step}" for step in (2, 4)]
    assert all((folder / "model.safetensors").is_file() for folder in folders)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "compiled": ({"torch_compile": True}, "freelb", "torch.compile"),
    "lomo": ({"optim": "lomo"}, "freelb", "LOMO steps within each backward"),
    "other masks": (
        {"gradient_checkpointing": True,
         "gradient_checkpointing_kwargs": {"use_reentrant": False, "preserve_rng_state": False}},
        "freelb", "preserve_rng_state",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    options, name, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, name, **options).train()


def test_one_trainer_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SMART's average is that of the checkpoint, not that of the end; it is read on any device."""
    one = trainer_of(tmp_path, "smart", dropout=0.1, save_strategy="steps", save_steps=2)
    one.train()
    whole = weights(one)
    load, places = torch.load, []

    def noted(path: Any, *args: Any, **options: Any) -> Any:
        places.append((Path(path).name, options.get("map_location")))
        return load(path, *args, **options)

    monkeypatch.setattr(torch, "load", noted)
    one.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.equal(weights(one), whole) and ("average.pt", "cpu") in places
    (tmp_path / "checkpoint-2" / "average.pt").unlink()
    with pytest.raises(ValueError, match="not a checkpoint of SMART"):
        one.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_the_older_checkpoint_stays_until_the_newer_has_its_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the disk is full: what is kept can be resumed."""
    one = trainer_of(tmp_path, "smart", dropout=0.1, save_strategy="steps", save_steps=2, save_total_limit=1)
    save = torch.save

    def full(content: Any, path: Any, *args: Any, **options: Any) -> None:
        save(content, path, *args, **options)
        if "average" in str(path) and "checkpoint-4" in str(path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        one.train()
    monkeypatch.undo()
    assert not (tmp_path / "checkpoint-4" / "average.pt").exists()
    one.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    whole = trainer_of(tmp_path / "whole", "smart", dropout=0.1)
    whole.train()
    assert torch.equal(weights(one), weights(whole))


def _logits_of(output: Any, inputs: dict[str, Any], kind: str = "Model", problem: str | None = None) -> Any:
    model = type(kind, (), {"config": SimpleNamespace(problem_type=problem)})()
    trainer = SimpleNamespace(
        model=model, accelerator=SimpleNamespace(unwrap_model=lambda one: one), label_names=["tags"]
    )
    return _logits(trainer, output, inputs)


def test_which_predictions_are_compared() -> None:
    logits, tags = torch.randn(2, 7, 3), torch.full((2, 7), -100)
    tags[0, 2] = tags[1, 5] = 1
    found = _logits_of({"logits": logits}, {"tags": tags})
    assert torch.equal(found, logits[[0, 1], [2, 5]])
    for kind in ("QwenForCausalLM", "GPT2LMHeadModel", "Gemma3ForConditionalGeneration"):
        shifted = _logits_of({"logits": logits}, {"tags": tags}, kind)
        assert torch.equal(shifted, logits[[0, 1], [1, 4]])  # which predict the next tokens
    assert torch.equal(_logits_of({"logits": logits}, {"tags": tags}, "XLMWithLMHeadModel"), found)
    assert torch.equal(_logits_of({"logits": logits[:, 0]}, {}), logits[:, 0])
    refused = (logits, None), ((logits, logits), None), ({"start_logits": logits}, None)
    for output, problem in (*refused, ({"logits": logits}, "regression")):
        with pytest.raises(ValueError, match="or one number"):
            _logits_of(output, {}, problem=problem)


@pytest.mark.parametrize("several", [False, True])
def test_several_labels_have_their_own_divergence(tmp_path: Path, several: bool) -> None:
    """transformers finds out by the labels, in the first forward pass."""
    trainer = trainer_of(tmp_path, "alum_vat", max_steps=1)
    if several:
        collate = trainer.data_collator
        trainer.data_collator = lambda rows: {
            **collate(rows),
            "labels": torch.tensor([[1.0, 0, 1], [0, 0, 0]]),
        }
    trainer.train()
    assert trainer.training_step.__self__.method.multi_label is several  # type: ignore[attr-defined]


def test_refused_of_the_trainer(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, "alum_vat")
    trainer.compute_loss_func = lambda *args, **options: None
    with pytest.raises(ValueError, match="compute_loss"):
        trainer.train()
    trainer = trainer_of(tmp_path, "freelb")
    trainer.is_deepspeed_enabled = True
    with pytest.raises(ValueError, match="DeepSpeed"):
        trainer.training_step(trainer.model, {})
    with pytest.raises(ValueError, match="has a method already"):
        attach(trainer, FreeLB)
    with pytest.raises(ValueError, match="step_size"):
        attach(trainer_of(tmp_path), FreeLB, step_size=-1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("problem", [None, "single_label_classification", "multi_label_classification"])
@pytest.mark.parametrize("given", [{}, {"multi_label": True}, {"multi_label": False}])
def test_labels_that_the_model_does_not_see(
    tmp_path: Path, given: dict[str, bool], problem: str | None, dtype: torch.dtype
) -> None:
    """A loss of one's own alone knows whether numbers are labels or shares of classes, unless the model does.
    One that was trained before has its earlier problem type.
    """

    def compute_loss(model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        labels = inputs.pop("labels")
        return binary_cross_entropy_with_logits(model(**inputs).logits, labels.float())

    trainer = trainer_of(tmp_path, "alum_vat", {"relative": False, **LARGE["alum_vat"], **given}, max_steps=1)
    for item in trainer.train_dataset.items:  # type: ignore[union-attr]
        item["labels"] = torch.tensor([1, 0, 1], dtype=dtype)
    trainer.compute_loss = compute_loss  # type: ignore[method-assign]
    trainer.model.config.problem_type = problem
    is_several = given.get("multi_label", problem == "multi_label_classification")
    if not (given or is_several):
        with pytest.raises(ValueError, match="multi_label=True if each"):
            trainer.train()
        return
    trainer.train()
    assert trainer.training_step.__self__.method.multi_label is is_several  # type: ignore[attr-defined]


def test_a_mask_of_which_tokens_see_which_is_none_of_padding(tmp_path: Path) -> None:
    found = []
    for whole in (False, True):
        trainer = trainer_of(tmp_path, "freelb", fixed("freelb"), max_steps=1)
        for item in trainer.train_dataset.items:  # type: ignore[union-attr]
            item["input_ids"][item["attention_mask"] == 0] = PAD
            if whole:
                item["attention_mask"] = item["attention_mask"].bool().expand(1, 7, 7)
        trainer.train()
        found.append(weights(trainer))
    torch.testing.assert_close(*found)


def test_a_step_of_ones_own_that_computes_gradients_is_refused(tmp_path: Path) -> None:
    class Own(Trainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            loss = self.compute_loss(model, inputs)
            loss.backward()
            return loss

    plain = trainer_of(tmp_path)
    trainer = Own(plain.model, plain.args, train_dataset=plain.train_dataset)
    attach(trainer, FreeLB)
    with pytest.raises(ValueError, match=r"has to call accelerator\.backward once"):
        trainer.train()


def test_the_losses_of_a_model_in_bf16_are_summed_in_fp32(tmp_path: Path) -> None:
    """bf16 has 8 bits: a sum would stand still after a few hundred updates."""
    trainer = trainer_of(tmp_path, "freelb", NOTHING, make=lambda *sizes: bert(*sizes).bfloat16())
    step, attached, kinds = trainer.training_step, trainer.training_step.__self__, set()  # type: ignore[attr-defined]

    def watched(*args: Any) -> Any:
        loss = step(*args)
        assert loss.dtype == torch.bfloat16
        kinds.update(value.dtype for value in attached.sums.values())
        return loss

    trainer.training_step = watched  # type: ignore[method-assign]
    trainer.train()
    assert kinds == {torch.float32}


def test_an_adapter_is_as_the_model_in_it() -> None:
    """peft's model without a task hides what it adapts."""
    causal = type("TinyForCausalLM", (), {"config": None})()
    adapted = type("PeftModel", (), {"config": None, "get_base_model": lambda _: causal})()
    assert _predicts_the_next(adapted) and _predicts_the_next(causal)
