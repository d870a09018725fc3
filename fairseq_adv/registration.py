"""What fairseq needs to know to build and read this project's models.

Importing this module registers the criterions, the tasks, the optimizer and the encoders with fairseq, and
patches how fairseq reads and computes models. Code that reads checkpoints imports it; code that trains
imports :mod:`fairseq_adv.plugin`, which adds the patches for training.
"""

import sys

from fairseq import modules
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models.roberta import RobertaModel
from fairseq.modules.checkpoint_activations import CheckpointFunction
from fairseq.tasks.masked_lm import MaskedLMTask

import fairseq_adv.criterions
import fairseq_adv.models
import fairseq_adv.optim
import fairseq_adv.tasks  # noqa: F401
from fairseq_adv.data.corpus import masked_rows
from fairseq_adv.fairseq_patches import checkpoint_files, data_loading, mixed_precision
from fairseq_adv.fairseq_patches.replace import replace

for owner, name, patch in (
    (RobertaModel, "upgrade_state_dict_named", checkpoint_files.upgrade_with_weight),
    (Dictionary, "add_from_file", data_loading.add_from_file),
    (indexed_dataset, "_warmup_mmap_file", data_loading.announce_file),
    (CheckpointFunction, "forward", mixed_precision.recompute_as_computed),
    (MaskedLMTask, "load_dataset", masked_rows.load_dataset),
    (modules, "gelu", mixed_precision.gelu),
):
    replace(owner, name, patch)
# pickle looks for the function where it was defined. As an attribute of the package, "gelu" is itself.
sys.modules["fairseq.modules.gelu"].gelu = modules.gelu  # type: ignore[attr-defined]
