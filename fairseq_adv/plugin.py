"""What ``fairseq-train --user-dir`` sets up: everything is registered with fairseq, and fairseq is patched.

fairseq imports this module through ``tasks/load_plugin.py``. A program that calls fairseq's trainer itself
imports it: fairseq ignores a ``--user-dir`` whose package is already imported.
"""

import fairseq_adv.registration  # noqa: F401
from fairseq_adv.fairseq_patches.bf16_without_tpu import train_in_bf16_without_tpu
from fairseq_adv.fairseq_patches.end_with_torchrun import end_with_torchrun
from fairseq_adv.fairseq_patches.errors_in_one_line import report_mistakes_in_one_line
from fairseq_adv.fairseq_patches.finished_runs import leave_finished_runs_alone
from fairseq_adv.fairseq_patches.huge_pages import ask_for_huge_pages
from fairseq_adv.fairseq_patches.loader_processes import leave_signals_to_the_training
from fairseq_adv.fairseq_patches.log_on_a_full_disk import end_where_the_log_has_no_room
from fairseq_adv.fairseq_patches.mixed_precision import train_in_mixed_precision
from fairseq_adv.fairseq_patches.one_run_a_folder import keep_one_run_a_folder
from fairseq_adv.fairseq_patches.printable_log import log_printable_text
from fairseq_adv.fairseq_patches.run_after_run import start_runs_afresh
from fairseq_adv.fairseq_patches.spawned_workers import set_up_spawned_workers
from fairseq_adv.fairseq_patches.stop_on_a_signal import stop_on_a_signal
from fairseq_adv.fairseq_patches.whole_checkpoints import keep_checkpoints_whole

ask_for_huge_pages()
end_with_torchrun()
set_up_spawned_workers()
start_runs_afresh()
report_mistakes_in_one_line()
end_where_the_log_has_no_room()
log_printable_text()
keep_checkpoints_whole()
keep_one_run_a_folder()
leave_signals_to_the_training()
stop_on_a_signal()
leave_finished_runs_alone()
train_in_bf16_without_tpu()
train_in_mixed_precision()
