"""What fairseq needs to know to build and read this project's models.

Importing this module registers the criterions, the tasks, the optimizer, ALBERT and the tokenizers with
fairseq, and patches how fairseq reads and computes models. Code that reads checkpoints imports it; code that
trains imports :mod:`fairseq_adv.plugin`, which adds the patches for training.
"""

import fairseq_adv.criterions
import fairseq_adv.data.tokenizers.registered_bpe
import fairseq_adv.models
import fairseq_adv.optim
import fairseq_adv.tasks  # noqa: F401
from fairseq_adv.fairseq_patches.checkpoint_files import read_heads_with_spectral_norm
from fairseq_adv.fairseq_patches.data_loading import refuse_large_dictionaries
from fairseq_adv.fairseq_patches.mixed_precision import compute_gelu_in_bf16, recompute_in_autocast

read_heads_with_spectral_norm()
refuse_large_dictionaries()
recompute_in_autocast()
compute_gelu_in_bf16()
