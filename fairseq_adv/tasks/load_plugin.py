"""Loads the plug-in for ``--user-dir``; not a task.

fairseq/utils.py, line 464, ``import_user_module``: after the package, fairseq imports every file of its
folder ``tasks``. Nothing else imports this one, so a process that imports :mod:`fairseq_adv` or one of its
tasks to read a checkpoint is not patched for training.
"""

import fairseq_adv.plugin  # noqa: F401
