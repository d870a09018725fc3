"""What ``fairseq-train --user-dir`` sets up: everything is registered with fairseq, and fairseq is patched.

fairseq imports this module through ``tasks/load_plugin.py``. A program that calls fairseq's trainer itself
imports it: fairseq ignores a ``--user-dir`` whose package is already imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fairseq_adv.registration  # noqa: F401
from fairseq_adv.fairseq_patches.checkpoint_files import keep_checkpoints_whole
from fairseq_adv.fairseq_patches.commands import (
    exit_on_full_log_disk,
    log_printable_text,
    read_lists_of_numbers,
    refuse_metric_that_is_not_logged,
    report_mistakes_in_one_line,
    train_in_bf16_without_tpu,
)
from fairseq_adv.fairseq_patches.data_loading import leave_signals_to_the_training
from fairseq_adv.fairseq_patches.mixed_precision import train_in_mixed_precision
from fairseq_adv.fairseq_patches.save_dir_lock import lock_save_dir
from fairseq_adv.fairseq_patches.signals import stop_on_a_signal
from fairseq_adv.fairseq_patches.training_loop import leave_finished_runs_alone, start_runs_afresh
from fairseq_adv.fairseq_patches.workers import end_with_torchrun, set_up_spawned_workers
from fairseq_adv_compat.machine import ask_for_huge_pages


def _run(main: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a worker that fairseq starts is told to call: it imports this module to find it."""
    return main(*args, **options)


ask_for_huge_pages()
end_with_torchrun()
set_up_spawned_workers(_run)
start_runs_afresh()
report_mistakes_in_one_line()
read_lists_of_numbers()
exit_on_full_log_disk()
log_printable_text()
keep_checkpoints_whole()
lock_save_dir()
leave_signals_to_the_training()
stop_on_a_signal()
leave_finished_runs_alone()
refuse_metric_that_is_not_logged()
train_in_bf16_without_tpu()
train_in_mixed_precision()
