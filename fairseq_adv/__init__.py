"""Adversarial training of language models as a fairseq plug-in.

This is what ``fairseq-train --user-dir`` imports. Importing it registers the criterions, the tasks,
the optimizer and the WordPiece tokeniser with fairseq, and puts the one patch in place that a training
needs before a criterion is built.
"""

from fairseq_adv import criterions, optim, tasks
from fairseq_adv.data.tokenizers import wordpiece_bpe
from fairseq_adv.fairseq_patches.run_after_run import start_runs_afresh

__all__ = ["criterions", "optim", "tasks", "wordpiece_bpe"]
__version__ = "0.1.0"

start_runs_afresh()
