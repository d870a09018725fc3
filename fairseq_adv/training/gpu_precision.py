"""What a GPU computes in: fp16 is refused without one, and fp32 multiplies matrices in TF32."""

from __future__ import annotations

import logging
import os

import torch
from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError

logger = logging.getLogger(__name__)
AMPERE = 8  # the first compute capability with TF32


def refuse_fp16_without_gpu(trainer: Trainer) -> None:
    """fairseq/optim/fp16_optimizer.py, line 38, asks for the current GPU; without one it ends in a traceback.
    """
    common = trainer.cfg.common
    elsewhere = trainer.cuda or trainer.tpu
    without = common.memory_efficient_fp16 or common.fp16_no_flatten_grads
    if common.fp16 and not elsewhere and not without:
        raise DataError(
            "--fp16: needs a GPU, and none is used. Leave it out (in a recipe: common.fp16=false)"
        )


def allow_tf32(trainer: Trainer) -> None:
    """Lets a GPU multiply the matrices of an fp32 run in TF32: about 8 times as fast on an A100 or H100.

    TF32 has fp32's range and 10 bits of mantissa, as fp16; sums, weights, optimizer and perturbation stay in
    fp32. torch leaves it off by default. It stays on for the rest of the process. Runs in half precision and
    ``--amp`` are left alone, since their products are not in fp32.
    """
    common = trainer.cfg.common
    if not trainer.cuda or common.fp16 or common.bf16 or common.amp:
        return
    if torch.cuda.get_device_capability()[0] < AMPERE or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return
    torch.set_float32_matmul_precision("high")
    if trainer.is_data_parallel_master:
        logger.info(
            "fp32 on this GPU: matrices are multiplied in TF32, with a mantissa of 10 bits; "
            "NVIDIA_TF32_OVERRIDE=0 in the environment turns that off, --fp16 is faster still"
        )
