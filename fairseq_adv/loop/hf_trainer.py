"""The methods in transformers' Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_adv.loop.methods import SMART, Diverging, LoopMethod


def attach(trainer: Any, method: type[LoopMethod], **options: Any) -> None:
    """Makes a Trainer train by a method::

        trainer = Trainer(model, args, train_dataset=rows)
        attach(trainer, FreeLB)
        trainer.train()

    Everything else stays the Trainer's, a ``compute_loss`` of your own too. What the method logs is in the
    Trainer's logs, as the mean over the mini-batches since the last one.

    Args:
        trainer: of transformers; its ``training_step`` and ``log`` are replaced; with SMART also ``train``
            and ``save_model``.
        method: such as :class:`fairseq_adv.loop.FreeLB`.
        options: those of the method.

    Raises:
        ValueError: a method is attached already; for what the method refuses, a model that the Trainer has
            wrapped in the first step; there also for DeepSpeed, and for a ``compute_loss_func`` with a method
            that has a divergence.
    """
    if trainer.model is not None:
        method(trainer.model, **options)  # so that an error comes now
    if isinstance(getattr(trainer.training_step, "__self__", None), _Attached):
        raise ValueError("attach: this Trainer has a method already; make a new Trainer")
    if "lomo" in str(trainer.args.optim).lower():
        raise ValueError("attach: LOMO steps within each backward; use another optimizer")
    _Attached(trainer, method, options)


class _Attached:
    def __init__(self, trainer: Any, method_class: type[LoopMethod], options: dict[str, Any]) -> None:
        self.trainer, self.method_class, self.options = trainer, method_class, options
        self.their_step, self.their_log = trainer.training_step, trainer.log
        self.method: LoopMethod | None = None
        self.sums: dict[str, Tensor] = {}
        self.calls = 0
        self.resumed: Any = None  # a checkpoint's folder; True: the last one
        self.trial: Any = None  # of a hyperparameter search
        trainer.training_step, trainer.log = self.training_step, self.log
        if issubclass(method_class, SMART):  # its average is part of a checkpoint
            from transformers import TrainerCallback

            self.their_train, trainer.train = trainer.train, self.train
            self.their_save, trainer.save_model = trainer.save_model, self.save_model
            events = {"on_optimizer_step": self.update_average}
            trainer.add_callback(type("WeightsAverage", (TrainerCallback,), events)())

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """``Trainer.training_step``."""
        method, trainer = self.begun(model), self.trainer
        share = 1
        if not self.scales_its_loss:
            # An update's loss is the mean over its mini-batches. The Trainer leaves the mean to the model, if
            # that accepts the number of items; BERT ignores it, and so the losses were added up (5.23).
            num_items_in_batch, share = None, trainer.current_gradient_accumulation_steps
        with _losses_kept(trainer.accelerator, model, isinstance(method, Diverging)) as kept:

            def closure() -> Any:
                self.their_step(model, dict(inputs), num_items_in_batch)
                if kept.loss is None:
                    raise ValueError("attach: training_step has to call accelerator.backward once")
                loss = kept.loss * share
                if not isinstance(method, Diverging):
                    return loss
                logits = _logits(trainer, kept.output, inputs)
                if "multi_label" not in self.options:
                    # transformers sets it in the first forward pass, by the labels
                    method.multi_label = _problem_type(trainer) == "multi_label_classification"
                    if not method.multi_label:
                        _refuse_unclear_labels(trainer, kept.output, inputs)
                return loss, logits

            method.backward = lambda loss: kept.backward(loss / share, **kept.options)
            mask = inputs.get("attention_mask")
            if not isinstance(mask, Tensor) or mask.dim() > 3:  # which tokens see which: no mask of padding
                mask = None
            loss = method(closure, attention_mask=mask) / share
        self.calls += 1
        if self.scales_its_loss:
            for name in method.log.keys() & {"adv_loss_first", "adv_loss_last"}:
                method.log[name] = method.log[name] * trainer.current_gradient_accumulation_steps
        # A model in bf16 has its losses in bf16, whose sums would stand still.
        self.sums = {name: self.sums.get(name, 0) + value.float() for name, value in method.log.items()}
        return loss

    @property
    def scales_its_loss(self) -> bool:
        """Whether the user's loss is a share of an update's already."""
        trainer = self.trainer
        return trainer.compute_loss_func is not None or bool(getattr(trainer, "loss_is_scaled_for_ga", False))

    def begun(self, model: nn.Module) -> LoopMethod:
        """The method on the model that the Trainer has wrapped by now."""
        if self.method is None or self.method.model is not model:
            if self.trainer.is_deepspeed_enabled:
                raise ValueError("attach: DeepSpeed's engine makes an update in each backward; use DDP")
            if issubclass(self.method_class, Diverging) and self.scales_its_loss:
                raise ValueError(
                    f"attach: {self.method_class.__name__} needs the mean loss of each mini-batch: override "
                    "compute_loss instead of passing compute_loss_func, without loss_is_scaled_for_ga"
                )
            self.method = self.method_class(model, **self.options)
            if isinstance(self.method, SMART) and self.trainer.state.global_step > 0:
                path = self.path(self.resumed)
                if not path.is_file():
                    raise ValueError(f"attach: no {path.name} in {path.parent}: not a checkpoint of SMART")
                self.method.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return self.method

    def log(self, logs: dict[str, float], *rest: Any, **options: Any) -> None:
        """``Trainer.log``."""
        if "loss" in logs and self.calls:
            for name, value in self.sums.items():
                every = self.trainer.accelerator.gather(value.reshape(1))
                logs[name] = float(every.mean()) / self.calls
            self.sums, self.calls = {}, 0
        self.their_log(logs, *rest, **options)

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, *rest: Any, **options: Any) -> Any:
        """``Trainer.train``."""
        self.resumed, self.trial, self.method = resume_from_checkpoint, trial, None
        return self.their_train(resume_from_checkpoint, trial, *rest, **options)

    def path(self, folder: Any) -> Path:
        """Where a checkpoint keeps the average of the weights."""
        if not isinstance(folder, (str, Path)):
            runs = self.trainer._get_output_dir(self.trial)
            folder = Path(runs, f"checkpoint-{self.trainer.state.global_step}")
        return Path(folder, "average.pt")

    def update_average(self, *event: Any, **parts: Any) -> None:
        if isinstance(self.method, SMART) and not self.trainer.accelerator.optimizer_step_was_skipped:
            self.method.update_average()

    def save_model(self, output_dir: Any = None, _internal_call: bool = False) -> None:
        """``Trainer.save_model``; in a checkpoint, the average too, before an older checkpoint is deleted."""
        self.their_save(output_dir, _internal_call=_internal_call)
        is_checkpoint = _internal_call and output_dir is not None
        if isinstance(self.method, SMART) and is_checkpoint and self.trainer.args.should_save:
            path = self.path(output_dir)
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.tmp")
            torch.save(self.method.state_dict(), beside)
            beside.replace(path)


@contextmanager
def _losses_kept(accelerator: Any, model: nn.Module, with_output: bool) -> Iterator[SimpleNamespace]:
    """In this context a training step computes no gradients: its loss is kept, and the model's output if that
    is asked for. Afterwards neither is, so that the optimizer's step has their memory.
    """
    kept = SimpleNamespace(backward=accelerator.backward, options={}, loss=None, output=None)

    def keep_loss(loss: Tensor, **options: Any) -> None:
        kept.loss, kept.options = loss, options

    def keep_output(module: nn.Module, inputs: Any, output: Any) -> None:
        kept.output = output if with_output else None

    accelerator.backward = keep_loss
    try:
        with model.register_forward_hook(keep_output):
            yield kept
    finally:
        accelerator.backward = kept.backward
        kept.loss = kept.output = None


def _problem_type(trainer: Any) -> Any:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return getattr(getattr(model, "config", None), "problem_type", None)


def _refuse_unclear_labels(trainer: Any, output: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Raises ValueError if only the user's loss knows what the labels are."""
    labels = inputs.get(trainer.label_names[0]) if trainer.label_names else None
    if labels is None or labels.shape != output["logits"].shape:
        return
    if labels.dim() > 1 and labels.size(-1) > 1:
        raise ValueError(
            "attach: texts have several numbers as labels, and only your compute_loss knows what they are. "
            "Pass multi_label=True if each is of a label of its own, multi_label=False if they are shares of "
            "classes"
        )


def _predicts_the_next(model: Any) -> bool:
    """Whether a token's logits are of the token after it."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # peft's, without a task
    name, config = type(model).__name__, getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) or name.endswith("WithLMHeadModel"):  # XLM's
        return False
    return name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))


def _logits(trainer: Any, output: Any, inputs: dict[str, Any]) -> Tensor:
    """The predictions, (…, classes): of tokens, those that have a label."""
    logits = output.get("logits") if isinstance(output, dict) else None
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not isinstance(logits, Tensor) or (_problem_type(trainer) == "regression" and logits.size(-1) > 1):
        raise ValueError(
            "attach: a method with a divergence needs a model that returns a dict with logits of classes or "
            "labels, or one number for each text; take FreeLB or PGD, or a loop of your own"
        )
    labels = inputs.get(trainer.label_names[0]) if trainer.label_names else None
    if _predicts_the_next(model) and labels is not None:
        logits, labels = logits[:, :-1], labels[:, 1:]
    if labels is not None and labels.dim() > 1 and labels.shape == logits.shape[:-1]:
        return logits[labels != -100]
    return logits
