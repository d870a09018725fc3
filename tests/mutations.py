"""Mistakes that the tests have to notice; ``mutate.py`` makes each of them in a copy of the checkout.

Do not choose a test that starts a command (``support.run_command``), since the command may import the
installed package instead of the copy, nor one that needs ``shared/data``, which the copy lacks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Attributes:
        file: where it is made, from the checkout's top folder.
        old: text that occurs exactly once in the file.
        new: what takes its place.
        test: pytest's id of the test that has to fail.
        breaks: what the mistake breaks.
    """

    file: str
    old: str
    new: str
    test: str
    breaks: str


MUTATIONS = [
    # --- precision ----------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/training/precision_option.py",
        "self._decided or _by_the_processor(trainer))[0]",
        "self._decided or _by_the_processor(trainer))[-1]",
        "tests/integration/test_precision.py::test_rank_0_decides_for_all_workers",
        "the last worker's processor decides, which has not seen the checkpoint",
    ),
    Mutation(
        "fairseq_adv/training/restart.py",
        "option.follow(amp, checkpoint_path(trainer), trainer.cfg.common)",
        "pass",
        "tests/integration/test_precision.py::test_a_checkpoint_without_the_option_is_followed_too",
        "a restart on another processor does not keep the precision",
    ),
    Mutation(
        "fairseq_adv/evaluation/trained.py",
        "        use_differentiable_layers(model)\n",
        "        pass\n",
        "tests/evaluation/test_autocast.py::test_every_product_is_in_bf16_and_the_weights_are_not",
        "fairseq's fused layers compute in fp32 under --precision bf16",
    ),
    # --- perturbation -------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/perturbation/geometry.py",
        "groups.index, rows.square()).sqrt()",
        "groups.index, rows.square())",
        "tests/perturbation/test_geometry.py::test_norms_by_hand",
        "the norm of an example of several rows stays squared",
    ),
    Mutation(
        "fairseq_adv/perturbation/geometry.py",
        "(lengths * dim).clamp(min=1)",
        "lengths.clamp(min=1)",
        "tests/perturbation/test_geometry.py::test_start_is_uniform_with_the_paper_s_scale",
        "the random start is not divided by the root of the dimension",
    ),
    Mutation(
        "fairseq_adv/perturbation/geometry.py",
        "radius / norm.clamp(min=radius)",
        "radius / norm",
        "tests/perturbation/test_geometry.py::test_projection_by_hand",
        "the projection pushes a perturbation inside the ball out to its surface",
    ),
    Mutation(
        "fairseq_adv/perturbation/steps.py",
        "moved = delta + step_size * geometry",
        "moved = delta - step_size * geometry",
        "tests/perturbation/test_embeddings.py::test_a_step_by_hand",
        "the perturbation descends",
    ),
    Mutation(
        "fairseq_adv/perturbation/embeddings.py",
        'embedded * mask.unsqueeze(-1), "l2"',
        'embedded, "l2"',
        "tests/criterions/test_relative_sizes.py::test_each_example_has_the_sizes_that_its_embeddings_give",
        "padding counts in the size of an example",
    ),
    Mutation(
        "fairseq_adv/perturbation/dropout.py",
        "torch.set_rng_state(states[0])",
        "pass",
        "tests/perturbation/test_dropout.py::test_every_pass_repeats_the_first",
        "each pass of an update draws its own dropout masks",
    ),
    Mutation(
        "fairseq_adv/perturbation/dropout.py",
        "torch.cuda.set_rng_state(states[1], self.device)",
        "pass",
        "tests/gpu/test_cuda.py::test_dropout_masks_are_repeated",
        "on a GPU, each pass of an update draws its own dropout masks",
    ),
    Mutation(
        "fairseq_adv/perturbation/host_copies.py",
        "getattr(tensor, _ORIGINAL, tensor)",
        "tensor",
        "tests/gpu/test_updates.py::test_methods[freelb]",
        "what the host knows of a mini-batch is read back from the GPU",
    ),
    Mutation(
        "fairseq_adv/criterions/noise.py",
        'by_length = relative or kind == "uniform"',
        "by_length = relative",
        "tests/criterions/test_restated.py::test_the_gradient_is_that_of_the_restated_algorithm"
        "[noise---classes]",
        "the noise of NEFTune is not divided by the root of an example's length",
    ),
    Mutation(
        "fairseq_adv/criterions/r3f.py",
        '"symmetric-kl", detach_targets=False',
        '"symmetric-kl", detach_targets=True',
        "tests/criterions/test_restated.py::test_the_gradient_is_that_of_the_restated_algorithm"
        "[r3f---classes]",
        "R3F holds one side of each divergence constant",
    ),
    Mutation(
        "fairseq_adv/criterions/rdrop.py",
        "self.cfg.rdrop_alpha / 4",
        "self.cfg.rdrop_alpha / 2",
        "tests/criterions/test_rdrop.py::test_the_gradient_is_that_of_the_restated_loss[classes]",
        "R-Drop counts the divergence twice as much as the paper does",
    ),
    Mutation(
        "fairseq_adv/criterions/creat.py",
        "loss - tau * _similarity",
        "loss + tau * _similarity",
        "tests/criterions/test_restated.py::test_the_gradient_is_that_of_the_restated_algorithm"
        "[creat---classes]",
        "CreAT's perturbation climbs towards the clean state",
    ),
    # --- objectives ---------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/objectives/divergence.py",
        "return (-moved if",
        "return (moved if",
        "tests/objectives/test_divergence.py::test_targets_are_constant",
        "the symmetric divergence pushes the clean predictions away from the perturbed ones",
    ),
    Mutation(
        "fairseq_adv/objectives/divergence.py",
        "return _kl(clean.detach() if detach_targets else clean, perturbed)",
        "return _kl(clean, perturbed)",
        "tests/objectives/test_divergence.py::test_targets_are_constant",
        "the target of a KL divergence gets a gradient",
    ),
    Mutation(
        "fairseq_adv/objectives/masked_lm.py",
        "rows.masked_fill(self.batch_cache(sample).targets == self.padding_idx, 0.0).sum()",
        "rows.sum()",
        "tests/criterions/test_vat.py::test_a_batch_without_a_masked_token_has_no_loss_and_keeps_the_path",
        "a position without a target counts in the divergence",
    ),
    Mutation(
        "fairseq_adv/objectives/sentence_ranking.py",
        "(of_target > others)",
        "(of_target >= others)",
        "tests/objectives/test_sentence_ranking.py::test_a_tie_is_not_right",
        "a question whose candidates all score the same is answered right",
    ),
    Mutation(
        "fairseq_adv/objectives/sentence_prediction.py",
        "return labels.index(self.cfg.positive_label) if",
        "return int(self.cfg.positive_label) if",
        "tests/objectives/test_sentence_prediction.py"
        "::test_scores_are_of_the_whole_split_and_of_the_right_class[23]",
        "F1 is that of another class: classes are numbered by their frequency, not by their names",
    ),
    # --- criterions ---------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/training/trainer.py",
        "        allow_tf32(self)\n",
        "",
        "tests/criterions/test_gpu_precision.py::"
        "test_fp32_on_a_gpu_multiplies_in_tf32_and_says_how_to_turn_it_off",
        "a run in fp32 takes several times as long on a GPU",
    ),
    Mutation(
        "fairseq_adv/perturbation/dropout.py",
        '        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):\n',
        "        if self._states:\n",
        "tests/criterions/test_yopo.py::test_shallow_passes_draw_none_of_the_full_passes_numbers",
        "the shallow passes change the dropout masks of the next full pass",
    ),
    Mutation(
        "fairseq_adv/criterions/tavat.py",
        "self.table.discard()  # an",
        "pass  # an",
        "tests/criterions/test_tavat.py::test_an_update_that_overflows_leaves_the_table_and_it_stays_in_fp32",
        "an update that was dropped moves tavat's table",
    ),
    Mutation(
        "fairseq_adv/criterions/information.py",
        ".masked_fill(~real.unsqueeze(1), _LOWEST)",
        "",
        "tests/criterions/test_infobert.py::test_the_lower_bound_of_chunks_that_are_not_full_and_of_none",
        "pairs that are not there are negatives of infobert's bound",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/mixed_precision.py",
        "and loss_scale(optimizer) < scale)",
        "and loss_scale(optimizer) < 0)",
        "tests/criterions/test_flooding.py"
        "::test_an_update_that_overflows_under_amp_counts_when_it_is_made_again",
        "an update that overflows under AMP counts twice",
    ),
    Mutation(
        "fairseq_adv/criterions/alum_vat.py",
        "divergence = torch.where(usable, divergence, torch.zeros_like(divergence))",
        "pass",
        "tests/criterions/test_vat.py"
        "::test_a_non_finite_ascent_leaves_the_plain_step_and_is_counted[redrawn-masks]",
        "the divergence is learned although the ascent was not finite",
    ),
    Mutation(
        "fairseq_adv/criterions/alum_vat.py",
        "gradient = delta.gradient() / scale",
        "gradient = delta.gradient()",
        "tests/criterions/test_restated.py::test_the_gradient_is_that_of_the_restated_algorithm"
        "[alum_vat-clamp_symmetric-kl-classes]",
        "the factor that keeps delta's gradient from underflowing stays in the step",
    ),
    Mutation(
        "fairseq_adv/criterions/freelb.py",
        "share = loss / steps",
        "share = loss",
        "tests/criterions/test_freelb_and_pgd.py"
        "::test_freelb_equals_a_larger_batch_of_constant_perturbations[fp32]",
        "FreeLB's gradient is a sum over the passes instead of a mean",
    ),
    Mutation(
        "fairseq_adv/perturbation/passes.py",
        "nullcontext() if self.trains else frozen_parameters(passes.weights)",
        "nullcontext()",
        "tests/criterions/test_contract.py::test_passes_and_gradients_of_the_weights_are_counted[pgd]",
        "PGD's ascent steps leave their gradients in the weights",
    ),
    Mutation(
        "fairseq_adv/criterions/method.py",
        "if update_num < self.start_update else",
        "if update_num <= self.start_update else",
        "tests/criterions/test_contract.py::test_before_its_first_update_it_logs_the_same_names"
        "[freelb---adv-start-update]",
        "adversarial training starts an update too late",
    ),
    # --- accordance ---------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/accordance/flood_level.py",
        "before < 0 <= after",
        "before < 0 < after",
        "tests/criterions/test_flood_level.py::test_the_direction_of_the_crossing",
        "a curve that rises to exactly zero does not cross it",
    ),
    Mutation(
        "fairseq_adv/accordance/sums.py",
        "dot(self._batch, gradients) * weight * self._batch_weight",
        "dot(self._batch, gradients) * self._batch_weight",
        "tests/accordance/test_accordance_sums.py::test_by_hand",
        "pairs within a batch are subtracted without normalising the gradient",
    ),
    Mutation(
        "fairseq_adv/accordance/sums.py",
        "norm = math.sqrt(sum(squared[i] for i in members))",
        "norm = math.sqrt(sum(squared))",
        "tests/accordance/test_accordance_sums.py::test_a_group_s_direction_has_length_1_in_the_group",
        "the directions of encoder and head are divided by the norm of the whole model",
    ),
    Mutation(
        "fairseq_adv/accordance/probe.py",
        "[*gradients, words, table.index_fill_(0, self._words, 0)]",
        "[*gradients, words, table]",
        "tests/accordance/test_pass_gradients.py::test_the_words_of_the_probe_are_apart[options0-words0-False]",
        "the words of the probe count twice",
    ),
    Mutation(
        "fairseq_adv/accordance/preserve_state.py",
        "np.random.set_state(states[1])",
        "pass",
        "tests/accordance/test_accordance_probe.py::test_all_else_is_as_it_was[False-False]",
        "a measurement does not restore numpy's generator",
    ),
    # --- training -----------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/training/restart.py",
        "group.update({**trainer.optimizer.optimizer_config, **(overrides or {})})",
        "pass",
        "tests/criterions/test_restart.py::test_agreed_changes_take_effect_and_are_recorded",
        "a restart keeps the learning rate and betas that the user has changed",
    ),
    Mutation(
        "fairseq_adv/training/precision_option.py",
        "torch.cuda.get_device_capability()[0] < AMPERE or",
        "",
        "tests/criterions/test_gpu_precision.py::test_products_stay_as_torch_has_them",
        "a GPU without TF32 is told to use it",
    ),
    # --- tasks --------------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/tasks/wsc.py",
        "span[1 + start : 1 + end] = True",
        "span[start:end] = True",
        "tests/tasks/test_wsc_task.py::test_the_phrase_takes_the_pronouns_place_and_is_masked",
        "the mask is one token too far left: <s> is not counted",
    ),
    Mutation(
        "fairseq_adv/tasks/arc_retrieval.py",
        "|_{2,}|",
        "|",
        "tests/tasks/test_multiple_choice_tasks.py::test_an_answer_fills_the_blanks",
        "an answer is repeated for each character of a blank",
    ),
    Mutation(
        "fairseq_adv/tasks/multiple_choice.py",
        "weights = self._training_weights() if training else None",
        "weights = self._training_weights()",
        "tests/tasks/test_multiple_choice_tasks.py"
        "::test_a_checkpoint_of_several_data_sets_is_evaluated_on_one",
        "validation samples its questions as training does",
    ),
    Mutation(
        "fairseq_adv/tasks/scheduled_masked_lm.py",
        "self.schedule is not None and split == self.cfg.train_subset:",
        "self.schedule is not None:",
        "tests/tasks/test_scheduled_masked_lm.py::test_validation_keeps_its_rate",
        "the masking rate of the validation changes from epoch to epoch",
    ),
    # --- data ---------------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/data/corpus/mask_schedule.py",
        "-(-step * max_epoch // len(rates)) + 1",
        "step * max_epoch // len(rates) + 1",
        "tests/data/corpus/test_mask_schedule.py::test_the_rate_of_every_epoch",
        "the steps of the masking rate begin an epoch too early",
    ),
    Mutation(
        "fairseq_adv/data/text/segments.py",
        "np.append(ids[: room - 1], eos)",
        "ids[:room]",
        "tests/data/choices/test_ranking_dataset.py::test_the_documents_alone_are_cut",
        "a document that is cut loses its </s>",
    ),
    Mutation(
        "fairseq_adv/data/choices/ranking_dataset.py",
        "rng = np.random.default_rng([seed, epoch])",
        "rng = np.random.default_rng(seed)",
        "tests/data/choices/test_ranking_dataset.py::test_an_epoch_holds_each_data_set_by_its_weight",
        "every epoch has the same sample in the same order",
    ),
    Mutation(
        "fairseq_adv/data/text/rows_dataset.py",
        "= sizes, sizes * counts",
        "= sizes, sizes",
        "tests/data/choices/test_ranking_dataset.py::test_max_tokens_counts_all_rows_at_the_longest",
        "--max-tokens counts one row of each example",
    ),
    Mutation(
        "fairseq_adv/data/tags/tags_dataset.py",
        'row * longest + sample["first"]',
        'row + sample["first"]',
        "tests/objectives/test_tags_objective.py::test_the_loss_is_summed_over_the_words",
        "tags are read at the tokens of another sentence",
    ),
    Mutation(
        "fairseq_adv/objectives/gathered.py",
        "class GatheredMeter(MetersDict._DerivedMeter):",
        "class GatheredMeter(__import__('fairseq').logging.meters.Meter):",
        "tests/objectives/test_spans_objective.py::test_what_a_validation_gathers_is_in_no_checkpoint",
        "a run that was stopped in mid-epoch after a validation does not start again",
    ),
    Mutation(
        "fairseq_adv/objectives/span_metrics.py",
        "np.lexsort((-score, question))",
        "np.lexsort((score, question))",
        "tests/objectives/test_spans_objective.py::test_em_and_f1_are_of_whole_questions",
        "the worst window of a question answers it",
    ),
    Mutation(
        "fairseq_adv/data/tables/table_files.py",
        'row.strip(" \\r")',
        "row.strip()",
        "tests/hostile/test_fuzz_round_trips.py::test_tables[.tsv]",
        "a row of empty cells is left out of a tsv",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/training_loop.py",
        "updates >= (limits.max_update or math.inf)",
        "updates > (limits.max_update or math.inf)",
        "tests/integration/test_finished_runs.py::test_it_makes_no_further_update",
        "a finished run that is started again makes one more update",
    ),
    Mutation(
        "fairseq_adv/training/trainer.py",
        "*stats, Stop.sent, ignore",
        "*stats, 0, ignore",
        "tests/integration/test_stop_on_a_signal.py"
        "::test_it_is_saved_after_that_update_and_goes_on_to_the_same_end[alum_vat-2-USR1-2-extra1]",
        "a signal to one worker is not told to the others",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/data_loading.py",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})",
        "pass",
        "tests/integration/test_stop_on_a_signal.py"
        "::test_it_is_saved_after_that_update_and_goes_on_to_the_same_end[freelb-1-TERM-3-extra0]",
        "the processes that load data die of a scheduler's SIGTERM",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/data_loading.py",
        '["persistent_workers"] = False',
        '["persistent_workers"] = self is not None',
        "tests/test_fairseq_patches.py::test_processes_that_load_data_end_with_their_epoch",
        "each validation ends with a wait of 5 seconds",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/save_dir_lock.py",
        "time.monotonic(), trainer.data_parallel_rank == 0",
        "time.monotonic(), False",
        "tests/integration/test_one_run_a_folder.py::test_the_second_of_two_runs_refuses",
        "rank 0 gives back its lock by reading the file",
    ),
    # --- models -------------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/models/transformers_models.py",
        'getattr(config, "summary_type", "first") != "first"',
        "False",
        "tests/objectives/test_first_token.py::test_a_head_that_reads_all_tokens_keeps_the_whole_layer",
        "a head that reads the mean of the tokens sees the first one alone",
    ),
    # --- attacks on words ---------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/evaluation/word_attacks/search.py",
        "found[0].score <= now.score",
        "found[0].score < now.score",
        "tests/evaluation/word_attacks/test_references.py::test_deepwordbug_changes_the_words_that_textattack_does",
        "a word is changed although that changes nothing",
    ),
    Mutation(
        "fairseq_adv/evaluation/word_attacks/search.py",
        "known.queries += len(rows)",
        "known.queries += len(set(rows) - set(known.answers))",
        "tests/evaluation/word_attacks/test_search.py::test_a_text_is_computed_once_and_counts_each_time",
        "a text that was asked about before costs nothing of the budget",
    ),
    Mutation(
        "fairseq_adv/evaluation/word_attacks/encoders.py",
        "best = heapq.nlargest(most, longer)",
        "best = longer[:most]",
        "tests/evaluation/word_attacks/test_encoders.py::test_the_most_probable_words_are_found_without_trying_all",
        "a word of several tokens gets the first sequences instead of the most probable",
    ),
    Mutation(
        "fairseq_adv/evaluation/word_attacks/word_text.py",
        'before.removesuffix(" ") + after',
        "before + after",
        "tests/evaluation/word_attacks/test_word_texts.py::test_a_removed_word_takes_one_blank_along",
        "a deleted word leaves two blanks",
    ),
    Mutation(
        "fairseq_adv/evaluation/word_attacks/candidates.py",
        "    if odd is not None:",
        "    if False:",
        "tests/hostile/test_fuzz_readers.py::test_values_of_other_kinds[neighbours-50]",
        "a table of neighbours that holds something else ends in a traceback",
    ),
    # --- divergence -----------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/training/trainer.py",
        "self.method.update_logs = outputs",
        "pass",
        "tests/integration/test_faults.py::test_a_nan_on_one_worker_stops_both_before_the_update[freelb]",
        "rank 0 does not know what was not finite on another worker",
    ),
    Mutation(
        "fairseq_adv/objectives/scores.py",
        "-sum(n / total * math.log(n / total)",
        "-sum(n / total * math.log2(n / total)",
        "tests/integration/test_divergence.py::test_the_best_constant[tags]",
        "the loss of the best constant prediction is in bits, and compared as nats",
    ),
    # --- averages and checkpoints ---------------------------------------------------------------------
    Mutation(
        "fairseq_adv/training/average.py",
        "found.setdefault(average[name].data_ptr(), (average[name], weight))",
        "found.setdefault(name, (average[name], weight))",
        "tests/criterions/test_smart.py::test_three_updates_equal_the_restated_algorithm[masked_lm]",
        "the average of tied weights decays twice per update",
    ),
    # --- mixed precision ------------------------------------------------------------------------------
    Mutation(
        "fairseq_adv/fairseq_patches/mixed_precision.py",
        "self.scaler.unscale_(self.fp32_optimizer)",
        "self.scaler.unscale_(self.optimizer)",
        "tests/test_mixed_precision.py::test_the_first_step_of_adam_under_amp_is_the_closed_form[adam-128]",
        "gradients under --amp are divided by the loss scale twice",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/mixed_precision.py",
        "original(ctx, run, *rest)",
        "original(ctx, run_function, *rest)",
        "tests/criterions/test_amp_on_cpus.py::test_recomputed_activations_give_the_same_update[freelb]",
        "activations are computed again in another precision",
    ),
    Mutation(
        "fairseq_adv/fairseq_patches/mixed_precision.py",
        "torch.autocast(device.type, ",
        'torch.autocast("cuda", ',
        "tests/criterions/test_restated.py::"
        "test_the_gradient_is_that_of_the_restated_algorithm_in_bf16[freelb-classes]",
        "--amp trains in fp32 on CPUs",
    ),
    # --- noticed by no test once, or by one of another part only -----------------------------------------
    Mutation(
        "fairseq_adv/objectives/span_metrics.py",
        "np.minimum.at(least_null, question.astype(np.int64), null)",
        "least_null[question.astype(np.int64)] = null",
        "tests/objectives/test_spans_objective.py"
        "::test_the_score_of_no_answer_is_the_least_of_a_questions_windows",
        "the score of no answer is that of a question's last window",
    ),
    Mutation(
        "fairseq_adv/data/io.py",
        "                file.flush()\n                os.fsync(file.fileno())\n",
        "                file.flush()\n",
        "tests/data/test_io.py::test_a_file_is_on_the_disk_before_it_has_its_name",
        "after a power cut a file is there and empty",
    ),
    Mutation(
        "fairseq_adv/data/io.py",
        "        Path(lock.lock_file).unlink(missing_ok=True)\n        lock.release()\n",
        "        lock.release()\n        Path(lock.lock_file).unlink(missing_ok=True)\n",
        "tests/data/test_io.py::test_a_lock_is_held_until_its_file_is_gone",
        "the lock file of another process is removed",
    ),
    Mutation(
        "fairseq_adv/cli/train_command.py",
        "least=1) * 6 // 100)",
        "least=1) * 10 // 100)",
        "tests/cli/test_train.py::test_what_is_filled_in_beside_the_users_options",
        "the learning rate warms up over another share of the updates than is documented",
    ),
    Mutation(
        "fairseq_adv/retrieval/tantivy_index.py",
        "if more and whole_ties and",
        "if whole_ties and",
        "tests/retrieval/test_tantivy_index.py::test_ties_come_in_the_corpus_order",
        "the last hits are lost where there are fewer than the limit",
    ),
    Mutation(
        "fairseq_adv/models/hf_encoder.py",
        " or len(dictionary) != len(rows)",
        "",
        "tests/models/test_hf_encoder.py::test_data_of_another_encoder_is_refused",
        "data with more words than the encoder are trained on",
    ),
    Mutation(
        "fairseq_adv/evaluation/predict/ensemble.py",
        "1.0 if len(members) > 1 else first.temperature",
        "first.temperature",
        "tests/evaluation/predict/test_ensemble.py::test_a_temperature_is_that_of_a_single_model",
        "an ensemble has the temperature of its first model",
    ),
    Mutation(
        "fairseq_adv/hub/tensors.py",
        "names if sizes.tied else reversed(names)",
        "names",
        "tests/hub/test_agreement.py::test_roberta_from_text_to_logits[False]",
        "an untied masked-LM head gets the bias of the tied one",
    ),
    Mutation(
        "fairseq_adv/criterions/awp.py",
        "gradients_aside(batch.parts.weights, zeros=self.cfg.no_adv_share_dropout)",
        "gradients_aside(batch.parts.weights)",
        "tests/criterions/test_awp.py::test_what_the_second_pass_leaves_out_has_a_gradient_of_zeros[False]",
        "torch's DDP fails where the second pass drops a layer that the first has used",
    ),
    Mutation(
        "fairseq_adv/training/trainer.py",
        "isinstance(error, FloatingPointError) and not self._differs_between_workers()",
        "isinstance(error, FloatingPointError)",
        "tests/training/test_trainer.py::test_finite_gradients_that_differ_between_workers_are_another_error",
        "workers whose gradients differ are told as a loss that is not finite",
    ),
]
