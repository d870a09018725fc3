"""Adversarial training of language models as a fairseq plug-in.

Importing this package imports neither torch nor fairseq, and changes nothing in the process. What
``fairseq-train --user-dir`` sets up is in :mod:`fairseq_adv.plugin`; a program that calls fairseq itself
imports that. :func:`load` loads a trained model for prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_adv.evaluation.predict.text_model import TextModel

__all__ = ["load"]
__version__ = "0.4.0"


def load(
    checkpoints: Any, tokenizer_dir: Any = None, device: Any = None, data: Any = None, precision: str = "fp32"
) -> TextModel:
    """Loads a trained model, or an ensemble of several, for prediction on texts.

    ``load("out/run/checkpoint_best.pt").predict(["a text"])`` returns a list of ``Prediction``, each with
    ``label`` and ``probabilities``, or ``value`` for a regression. ``precision="bf16"`` computes in bf16
    autocast, faster on a GPU and on processors with bf16 instructions. For the other arguments see
    :func:`fairseq_adv.evaluation.predict.loading.load`.

    The first call registers this project's tasks, models and criterions with fairseq, and patches how fairseq
    reads and computes models (:mod:`fairseq_adv.registration`). The patches for training, such as handlers of
    signals and of errors, belong to :mod:`fairseq_adv.plugin` and are not applied.
    """
    from fairseq_adv.evaluation.inference import InferenceConfig
    from fairseq_adv.evaluation.predict import loading  # here, because it imports torch and fairseq

    return loading.load(checkpoints, tokenizer_dir, device, data, InferenceConfig(precision=precision))
