"""In what a run computes: ``--precision``, and what fp16 and fp32 mean on the device at hand.

fairseq has an option for each precision (``--fp16``, ``--bf16``, ``--amp``, …), which every worker and every
restart must be given again. A criterion has one, :class:`PrecisionOption`, which sets them. ``auto`` is
decided when the optimizer is built, so that the checkpoint is read once, by rank 0, and not before another
run in the same folder has ended. By then fairseq has built the model in fp32; for bf16 it is cast there, to
the weights that ``--bf16`` casts before it reads the checkpoint.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.mixed_precision import computes_on_the_cpu
from fairseq_adv.fairseq_patches.workers import gathered
from fairseq_adv.perturbation.precision import rounds_delta
from fairseq_adv_compat.machine import bf16_products

logger = logging.getLogger(__name__)

AMPERE = 8  # the first compute capability with TF32
PRECISIONS = ("auto", "fp32", "bf16")
_AUTOCAST = "bf16 autocast"
_OTHERS = ("fp16", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp")


class PrecisionOption:
    """``--precision`` of a run. On a CPU, bf16 is autocast (``--amp``); on a GPU, fairseq's ``--bf16``.

    Args:
        value: one of :data:`PRECISIONS`; ``None``: fairseq's own options decide.
    """

    def __init__(self, value: str | None) -> None:
        if value is not None and value not in PRECISIONS:
            raise DataError(f"--precision {value}: pass one of {', '.join(PRECISIONS)}")
        self._value = value
        self._decided: tuple[str, str] | None = None  # fp32, bf16 or amp, and why

    @property
    def is_open(self) -> bool:
        """Whether the checkpoint, or else the device, is still to decide."""
        return self._value == "auto"

    def begin(self, common: Any) -> None:
        """Sets fairseq's options of a run that is about to be built."""
        if self._value is None:
            return
        mine = ""
        if self._value == "bf16":
            mine = "amp" if computes_on_the_cpu(common.cpu) else "bf16"
        other = next((name for name in _OTHERS if name != mine and getattr(common, name, False)), None)
        if other is not None:
            raise DataError(
                f"--precision {self._value} with --{other.replace('_', '-')}: pass only one of them"
            )
        if mine:
            setattr(common, mine, True)

    def follow(self, precision: str, path: str, common: Any) -> None:
        """The run resumes from a checkpoint, which decides. Called where it is read: on rank 0 at least.

        Args:
            precision: of the checkpoint's run: ``fp32``, ``bf16`` or ``amp``.
            path: of the checkpoint.
            common: fairseq's options of this run; set.
        """
        _set(common, precision)
        on_cpu = computes_on_the_cpu(common.cpu)
        told = precision if precision != "amp" else _AUTOCAST if on_cpu else "--amp, fp16 autocast on a GPU"
        told += f", as in {path}"
        if precision != "fp32" and on_cpu and not bf16_products():
            told += "; this processor has no bf16 instructions, so training is slower than in fp32"
        self._decided = (precision, told)

    def decide(self, trainer: Trainer) -> None:
        """Rank 0 decides for all workers, unless it has been decided; all must call this."""
        if not self.is_open:
            return
        precision, told = gathered(trainer, self._decided or _by_the_device(trainer))[0]
        self._value = None
        _set(trainer.cfg.common, precision)
        trainer._amp_retries = 0  # which its constructor sets with --amp only
        if precision == "bf16":
            trainer._model, trainer._criterion = trainer._model.bfloat16(), trainer._criterion.bfloat16()
            # What fairseq wrapped to load a checkpoint: the buckets of torch's DDP are fp32.
            trainer._wrapped_model = trainer._wrapped_criterion = None
        if told:
            logger.info(told)


def _set(common: Any, precision: str) -> None:
    common.amp, common.bf16 = precision == "amp", precision == "bf16"


def _by_the_device(trainer: Trainer) -> tuple[str, str]:
    if why := trainer.method.objective.no_bf16:
        return "fp32", f"fp32: {why}"
    if trainer.cuda:
        return _by_the_gpu(trainer)
    if trainer.device.type != "cpu":
        return "fp32", ""
    flag, not_with = bf16_products(), _no_autocast(trainer)
    if not_with:
        return "fp32", f"fp32: {not_with}"
    if flag:
        return "amp", f"{_AUTOCAST}: this processor has {flag}; --precision fp32 turns it off"
    return "fp32", "fp32: this processor has no bf16 instructions"


def _by_the_gpu(trainer: Trainer) -> tuple[str, str]:
    """bf16, unless this run would fail in it, or lose what its method is about."""
    cfg, method, model = trainer.cfg, trainer.method, trainer.get_model()
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp32", "fp32: this GPU has no bf16"
    why = method.no_bf16
    if trainer.is_fsdp:
        why = "--ddp-backend fully_sharded has no bf16"
    elif cfg.ema.store_ema and not cfg.ema.ema_fp32:
        why = "an average in bf16 would round away each update's change; with --ema-fp32 bf16 is used"
    elif len(cfg.optimization.update_freq) > 1 and cfg.common.fp16_scale_window is None:
        why = "with several --update-freq fairseq's bf16 needs --fp16-scale-window"
    elif method.rounding_advice and rounds_delta(model):
        why = f"{type(model).__name__} has no layer norm after its embeddings: bf16 would round delta away"
    return (
        ("fp32", f"fp32: {why}")
        if why
        else ("bf16", "bf16, which this GPU has; --precision fp32 turns it off")
    )


def _no_autocast(trainer: Trainer) -> str:
    """Why the model can't be trained with autocast; "" if it can."""
    return str(getattr(trainer.get_model(), "no_autocast", ""))


def refuse_precision(trainer: Trainer) -> None:
    """Raises DataError for a precision that this model or device can't have.

    fairseq/optim/fp16_optimizer.py, line 38, asks for the current GPU: without one, a traceback.
    """
    common = trainer.cfg.common
    if common.amp and (why := _no_autocast(trainer)):
        raise DataError(f"{why}: pass --precision fp32, and no --amp")
    elsewhere = trainer.cuda or trainer.tpu
    without = common.memory_efficient_fp16 or common.fp16_no_flatten_grads
    if common.fp16 and not elsewhere and not without:
        raise DataError(
            "--fp16: needs a GPU, and none is used. Leave it out (in a recipe: common.fp16=false)"
        )


def set_up_gpu(trainer: Trainer) -> None:
    """Sets what torch leaves open on a GPU, for the rest of the process.

    Attention by cuDNN is left out: some of its kernels round the dropout probability to sixteenths
    (pytorch/pytorch#174245), and it disturbs captures of CUDA graphs (#167101).
    """
    if trainer.cuda:
        torch.backends.cuda.enable_cudnn_sdp(False)
        _allow_tf32(trainer)


def _allow_tf32(trainer: Trainer) -> None:
    """Lets a GPU multiply the matrices of an fp32 run in TF32: about 8 times as fast on an A100 or H100.

    TF32 has fp32's range and 10 bits of mantissa, as fp16; sums, weights, optimizer and perturbation stay in
    fp32. torch leaves it off by default. Runs in half precision and ``--amp`` are left alone, since their
    products are not in fp32.
    """
    common = trainer.cfg.common
    if common.fp16 or common.bf16 or common.amp:
        return
    if torch.cuda.get_device_capability()[0] < AMPERE or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return
    torch.set_float32_matmul_precision("high")
    if trainer.is_data_parallel_master:
        logger.info(
            "fp32 on this GPU: matrices are multiplied in TF32, with a mantissa of 10 bits; "
            "NVIDIA_TF32_OVERRIDE=0 in the environment turns that off, --precision bf16 is faster still"
        )
