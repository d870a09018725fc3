"""``--cuda-graphs``: a mini-batch's whole step, launched as CUDA graphs instead of kernel by kernel.

A step is captured for exactly one shape: rows, tokens, what is masked, whether there is padding. A shape's
first mini-batch is computed as ever, its second is captured, and all further ones are copied into the tensors
that the graphs read. What the host draws or decides stays outside: delta_0 is drawn as ever and copied in,
and dropout masks are repeated by setting the generator back between graphs
(:class:`fairseq_adv.perturbation.capture.CapturedReplay`). The gradients are added into tensors that are
never freed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from torch import Tensor, nn

from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch, Start
from fairseq_adv.models.compiled_layers import has_compiled_layers
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.gathered import workers
from fairseq_adv.perturbation import DropoutReplay
from fairseq_adv.perturbation.capture import Capture, CapturedReplay, Capturing
from fairseq_adv.perturbation.embeddings import parts_of
from fairseq_adv.perturbation.host_copies import host_copy, with_host_copy

if TYPE_CHECKING:
    from fairseq_adv.criterions.method import Method

logger = logging.getLogger(__name__)
Step = Callable[[MiniBatch], Log]
# Of the GPU's memory; graphs of one generation share their memory, and there are up to two generations.
SHARE_OF_A_GENERATION = 1 / 8


class StepGraphs:
    """The graphs of a run.

    Those captured last form a generation. When it has taken its share of memory, the generation before it is
    dropped, since memory that graphs share comes back only with the last of them, and a new one begins.

    Args:
        method: whose steps are captured.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self._is_on: bool | None = None  # not known before the first mini-batch
        self._seen: set[Hashable] = set()
        self._too_large: set[Hashable] = set()
        self._generations: list[_Generation] = []
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._weights: list[tuple[int, bool]] = []

    def run(self, step: Step, batch: MiniBatch) -> Log:
        """``step(batch)``, by graphs if there are some for its shape."""
        if self._is_on is None:
            reason = why_not(self.method, batch)
            self._is_on = not reason
            if reason:
                logger.warning("--cuda-graphs has no effect: %s", reason)
            else:
                self.method.objective.use_fixed_sizes()
        if not self._is_on or batch.ignore_grad or not self.method.is_repeatable(batch):
            return step(batch)
        self._drop_if_weights_moved(batch)
        key = key_of(step, batch)
        steps = (generation.steps.get(key) for generation in self._generations)
        captured = next(filter(None, steps), None)
        if captured is None and key in self._seen and key not in self._too_large:
            captured = self._capture(key, step, batch)
        self._seen.add(key)
        return step(batch) if captured is None else captured.replay(batch)

    def _capture(self, key: Hashable, step: Step, batch: MiniBatch) -> CapturedStep | None:
        try:
            if not self._generations:
                self._generations = [_Generation(batch.device)]
            generation = self._generations[-1]
            before = generation.capturing.taken
            captured = CapturedStep(self.method, step, batch, generation.capturing, self._gradients)
        except Exception as error:  # of any kind: training goes on without graphs
            self._generations, self._gradients, self._is_on = [], {}, False
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            logger.warning("--cuda-graphs: a step could not be captured, the run goes on without: %s", reason)
            return None
        generation.steps[key] = captured
        if generation.capturing.taken > generation.bound:
            if generation.capturing.taken - before > generation.bound:
                self._too_large.add(key)
            self._generations = [generation, _Generation(batch.device)]
        return captured

    def _drop_if_weights_moved(self, batch: MiniBatch) -> None:
        """Graphs read and write the weights where they were; they don't see that one has been frozen."""
        weights = [(weight.data_ptr(), weight.requires_grad) for weight in batch.parts.weights]
        if weights != self._weights:
            self._weights, self._generations, self._gradients = weights, [], {}


class _Generation:
    """Captured steps that share their memory.

    Attributes:
        bound: bytes that they may take.
    """

    def __init__(self, device: torch.device) -> None:
        self.capturing = Capturing(device)
        self.steps: dict[Hashable, CapturedStep] = {}
        self.bound = SHARE_OF_A_GENERATION * torch.cuda.get_device_properties(device).total_memory


class CapturedStep:
    """The graphs of one shape, and the tensors that they read and write.

    Args:
        method: whose step it is.
        step: computes a mini-batch.
        batch: a mini-batch of that shape; captured, but not computed.
        capturing: makes the capture.
        gradients: those of the weights, which all graphs write; completed here.
    """

    def __init__(
        self, method: Method, step: Step, batch: MiniBatch, capturing: Capturing,
        gradients: dict[nn.Parameter, Tensor],
    ) -> None:  # fmt: skip
        self._method = method
        objective = method.objective
        self._draws = step == method.step and hasattr(method, "perturbation")
        self._sample = _copied(batch.sample)
        self._start = self._drawn(batch) if self._draws else None
        self._prepared = objective.fixed_batch(batch.sample)
        weights = batch.parts.weights
        # Of earlier mini-batches of this update. The graphs' own tensors are written to meanwhile.
        before = [w.grad.clone() if w.grad is not None and w in gradients else w.grad for w in weights]

        def static(capture: Capture | None) -> Log:
            objective.set_batch_cache(self._sample, self._prepared)
            return step(_StaticBatch(batch, self._sample, self._start, capture))

        def warm_up() -> None:
            static(None)
            for weight in weights:
                if weight.grad is not None and weight not in gradients:
                    gradients[weight] = torch.zeros_like(weight)
            self._gradients = {w: gradients[w] for w in weights if w.grad is not None}
            for weight, gradient in self._gradients.items():
                weight.grad = gradient

        try:
            for weight in weights:
                weight.grad = None
            with torch.random.fork_rng([batch.device]):
                self._capture, self._log = capturing.capture(warm_up, static)
        finally:
            for weight, gradient in zip(weights, before):
                weight.grad = gradient

    def replay(self, batch: MiniBatch) -> Log:
        """The step of another mini-batch of this shape."""
        for static, fresh in zip(_tensors(self._sample), _tensors(batch.sample)):
            static.copy_(fresh, non_blocking=True)
        self._method.objective.copy_batch(self._prepared, batch.sample)
        if self._start is not None:
            self._start.copy_(self._drawn(batch))
        self._use_gradients()
        self._capture.replay()
        if isinstance(batch.optimizer, FP16Optimizer):
            batch.optimizer._needs_sync = True  # as its backward does
        # The next replay writes over them.
        log = {
            name: value.clone() if isinstance(value, Tensor) else value for name, value in self._log.items()
        }
        return {**log, **self._method.sizes_of_batch(log["loss"], batch.sample)}

    def _drawn(self, batch: MiniBatch) -> Tensor:
        """delta_0, (rows, tokens, dim) fp32."""
        tokens, padding = batch.sample["net_input"]["src_tokens"], self._method.objective.padding_idx
        mask = with_host_copy(tokens.ne(padding), host_copy(tokens).ne(padding))
        start: Start = self._method.perturbation(batch).start  # type: ignore[attr-defined]
        return start(mask, batch.embedding.weight.size(1))  # type: ignore[operator]

    @torch.no_grad()
    def _use_gradients(self) -> None:
        """The weights' gradients are those that the graphs add to: zero, or with what they had."""
        cleared = []
        for weight, static in self._gradients.items():
            if weight.grad is static:
                continue
            if weight.grad is None:
                cleared.append(static)
            else:
                static.copy_(weight.grad)
            weight.grad = static
        if cleared:
            torch._foreach_zero_(cleared)


class _StaticBatch(MiniBatch):
    """A mini-batch in the tensors that graphs read."""

    def __init__(
        self, batch: MiniBatch, sample: Sample, start: Tensor | None, capture: Capture | None
    ) -> None:
        super().__init__(batch.objective, sample, batch.parts, batch.optimizer, batch.update)
        self._start = start
        self._capture = capture

    def noise(self, *args: Any, **options: Any) -> Start:
        start = self._start
        assert start is not None  # for mypy: a step that draws none has none
        return lambda mask, dim: start.clone()

    def replay(self, enabled: bool) -> DropoutReplay:
        if self._capture is None:
            return super().replay(enabled)
        return CapturedReplay(self._capture, self.device, enabled)


def key_of(step: Step, batch: MiniBatch) -> Hashable:
    """What two mini-batches have to have in common to be computed by the same graphs."""
    objective, tokens = batch.objective, batch.sample["net_input"]["src_tokens"]
    has_padding = bool(host_copy(tokens).eq(objective.padding_idx).any())
    shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in _tensors(batch.sample))
    return step, has_padding, shapes, objective.fixed_key(batch.sample)


def why_not(method: Method, batch: MiniBatch) -> str:
    """Why steps can't be captured in this run; "": they can."""
    model, optimizer = batch.model, batch.optimizer
    args, modules = getattr(model, "args", None), list(model.modules())
    if batch.device.type != "cuda":
        return f"the run computes on the {batch.device.type.upper()}"
    # Not what is inherited: a method that derives from one of them may decide something on the host.
    if not vars(type(method)).get("has_graphs", False):
        return f"--criterion {method.cfg._name} is not captured; standard, pgd, freelb and alum_vat are"
    if not vars(type(method.objective)).get("has_graphs", False):
        return "of the tasks, those with classes or numbers of texts and masked_lm are captured"
    if "example" in batch.sample:
        return "--long-texts windows is not captured"
    if method.flood is not None:
        return "flooding and measurements of accordance are not captured"
    if workers() > 1:
        return "runs of several workers are not captured"
    if isinstance(optimizer, (AMPOptimizer, MemoryEfficientFP16Optimizer)) or getattr(
        optimizer, "scaler", None
    ):
        return "only --bf16 and fp32 are captured, not --fp16, --amp and --memory-efficient-bf16"
    if parts_of(model) is not None:
        return "encoders of transformers are not captured"
    if has_compiled_layers(model):
        return "--compile is not captured"
    if any(hasattr(module, "precheckpoint_forward") for module in modules):
        return "activation checkpointing is not captured"
    for option in ("encoder_layerdrop", "quant_noise_pq", "spectral_norm_classification_head"):
        if getattr(args, option, 0):
            return f"--{option.replace('_', '-')} is not captured"
    return ""


def _tensors(sample: Sample) -> Iterator[Tensor]:
    for value in sample.values():
        if isinstance(value, dict):
            yield from _tensors(value)
        elif isinstance(value, Tensor):
            yield value


def _copied(sample: Sample) -> Sample:
    """A copy in tensors of its own, of which the host knows whether there is padding."""

    def copy(value: Any) -> Any:
        if isinstance(value, dict):
            return _copied(value)
        return with_host_copy(value.clone(), host_copy(value)) if isinstance(value, Tensor) else value

    return {name: copy(value) for name, value in sample.items()}
