"""Adversarial training of language models as a fairseq plug-in.

This is the module that ``fairseq-train --user-dir`` imports. Importing it registers the criterions, the
tasks, the optimizer, ALBERT and the tokenizers with fairseq, and applies the patches that must be in place
before a criterion is built. :func:`load` loads a trained model for prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairseq_adv import criterions, models, optim, tasks
from fairseq_adv.data.tokenizers import albert_bpe, wordpiece_bpe
from fairseq_adv.fairseq_patches.checkpoints import keep_checkpoints_whole, read_heads_with_spectral_norm
from fairseq_adv.fairseq_patches.commands import (
    ask_for_huge_pages,
    exit_on_full_log_disk,
    log_printable_text,
    report_mistakes_in_one_line,
    train_in_bf16_without_tpu,
)
from fairseq_adv.fairseq_patches.precision import (
    compute_gelu_in_bf16,
    recompute_in_autocast,
    train_in_mixed_precision,
)
from fairseq_adv.fairseq_patches.save_dir_lock import lock_save_dir
from fairseq_adv.fairseq_patches.signals import (
    end_with_torchrun,
    leave_signals_to_the_training,
    stop_on_a_signal,
)
from fairseq_adv.fairseq_patches.training_loop import leave_finished_runs_alone, start_runs_afresh

if TYPE_CHECKING:
    from fairseq_adv.evaluation.predict.text_model import TextModel

__all__ = ["albert_bpe", "criterions", "load", "models", "optim", "tasks", "wordpiece_bpe"]
__version__ = "0.2.1"

ask_for_huge_pages()
end_with_torchrun()
start_runs_afresh()
report_mistakes_in_one_line()
exit_on_full_log_disk()
log_printable_text()
keep_checkpoints_whole()
lock_save_dir()
leave_signals_to_the_training()
read_heads_with_spectral_norm()
stop_on_a_signal()
leave_finished_runs_alone()
train_in_bf16_without_tpu()
train_in_mixed_precision()
recompute_in_autocast()
compute_gelu_in_bf16()


def load(
    checkpoints: Any, tokenizer_dir: Any = None, device: Any = None, data: Any = None, precision: str = "fp32"
) -> TextModel:
    """Loads a trained model, or an ensemble of several, for prediction on texts.

    ``load("out/run/checkpoint_best.pt").predict(["a text"])`` returns a list of ``Prediction``, each with
    ``label`` and ``probabilities``, or ``value`` for a regression. ``precision="bf16"`` computes in bf16
    autocast, faster on processors with products of bf16 numbers. For the other arguments see
    :func:`fairseq_adv.evaluation.predict.loading.load`.
    """
    from fairseq_adv.evaluation.predict import loading  # here, because training doesn't need it
    from fairseq_adv.evaluation.predict.running import Running

    return loading.load(checkpoints, tokenizer_dir, device, data, Running(precision=precision))
