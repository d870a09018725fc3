"""What ``fairseq-train --user-dir`` sets up: everything is registered with fairseq, and fairseq is patched.

fairseq imports this module through ``tasks/load_plugin.py``. A program that calls fairseq's trainer itself
imports it: fairseq ignores a ``--user-dir`` whose package is already imported.
"""

import fairseq_adv.registration  # noqa: F401
from fairseq_adv.fairseq_patches.checkpoints import keep_checkpoints_whole
from fairseq_adv.fairseq_patches.commands import (
    exit_on_full_log_disk,
    log_printable_text,
    report_mistakes_in_one_line,
    train_in_bf16_without_tpu,
)
from fairseq_adv.fairseq_patches.huge_pages import ask_for_huge_pages
from fairseq_adv.fairseq_patches.precision import train_in_mixed_precision
from fairseq_adv.fairseq_patches.save_dir_lock import lock_save_dir
from fairseq_adv.fairseq_patches.signals import (
    end_with_torchrun,
    leave_signals_to_the_training,
    stop_on_a_signal,
)
from fairseq_adv.fairseq_patches.spawned_workers import set_up_spawned_workers
from fairseq_adv.fairseq_patches.training_loop import leave_finished_runs_alone, start_runs_afresh

ask_for_huge_pages()
end_with_torchrun()
set_up_spawned_workers()
start_runs_afresh()
report_mistakes_in_one_line()
exit_on_full_log_disk()
log_printable_text()
keep_checkpoints_whole()
lock_save_dir()
leave_signals_to_the_training()
stop_on_a_signal()
leave_finished_runs_alone()
train_in_bf16_without_tpu()
train_in_mixed_precision()
