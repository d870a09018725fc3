"""The numbers that an option may have: one kind of declaration, and a table of fairseq 0.12.2's options.

fairseq takes any number, so that ``--log-interval 0`` and ``--dropout inf`` end in a traceback of its own,
and ``--clip-norm -1`` and ``--dropout nan`` train without a word. fairseq_adv declares the numbers of its own
options in their fields, under the key ``"numbers"`` of the metadata. One check serves the command line, yaml
and the configuration in a checkpoint. All defaults of fairseq pass it, and so do its values for "never" and
"no limit": 0 or -1.
"""

from __future__ import annotations

import ast
import math
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

__all__ = ["OF_FAIRSEQ", "Numbers", "declared_by", "odd_numbers"]

_LISTS_OF_LAYERS = "fairseq.models.fconv"  # where encoder_layers is one
_TOO_LARGE = 1 << 63  # fairseq hands whole numbers to C and to torch


@dataclass(frozen=True)
class Numbers:
    """Finite numbers in a range.

    Attributes:
        least: the smallest.
        most: the largest.
        above: all are larger.
        below: all are smaller.
        whole: they are whole numbers.
        items: the option is a list of so many numbers; -1: of one or more; 0: it is a number.
        wanted: what to pass instead of another number; "": :meth:`fix` says it.
    """

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    whole: bool = False
    items: int = 0
    wanted: str = ""

    def __str__(self) -> str:
        """Such as ``a whole number of 1 or more``."""
        text = "a whole number" if self.whole else "a number"
        if self.items:
            text = f"{text[2:]}s" if self.items < 0 else f"{self.items} {text[2:]}s"
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"{text} from {self.least:.0f} to {self.most:.0f}"
        if math.isfinite(self.least) and math.isfinite(self.below):
            return f"{text} from {self.least:.0f} to less than {self.below:.0f}"
        text = text if self.whole else text.replace("number", "finite number")
        if math.isfinite(self.above):
            return f"{text} above {self.above:.0f}"
        return f"{text} of {self.least:.0f} or more" if math.isfinite(self.least) else text

    @property
    def fix(self) -> str:
        """What to do about another number."""
        return self.wanted or f"pass {self}"

    def has(self, value: Any) -> bool:
        """Whether an option's value is in the range; ``None`` is, as an option that was left out."""
        if value is None:
            return True
        if not self.items:
            return self._has_one(value)
        if isinstance(value, str):  # as fairseq reads --lr and --adam-betas
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                return False
        values = [value] if isinstance(value, (int, float)) else value
        if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
            return False
        values = list(values)
        is_long_enough = len(values) == self.items if self.items > 0 else bool(values)
        return is_long_enough and all(map(self._has_one, values))

    def read(self, text: str) -> Any:
        """The number in a text; a list remains a text.

        Raises:
            ValueError: it is no number.
        """
        return text if self.items else int(text) if self.whole else float(text)

    def _has_one(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if self.whole and not (isinstance(value, int) or value.is_integer()):
            return False  # 800.0 is what ${lr_scheduler.total_num_update} gives in a yaml
        if isinstance(value, int) and abs(value) >= _TOO_LARGE:
            return False
        is_in = self.least <= value <= self.most and self.above < value < self.below
        return is_in and math.isfinite(value)


_COUNT, _FROM_ZERO, _OR_NONE = Numbers(1, whole=True), Numbers(0, whole=True), Numbers(-1, whole=True)
_SIZE, _ABOVE_ZERO, _SHARE = Numbers(0), Numbers(above=0), Numbers(0, 1)
_SEED = Numbers(0, (1 << 32) - 1, whole=True)  # what numpy takes
_OF_RUNS = {
    _COUNT: "all_gather_list_size amp_scale_window batch_size batch_size_valid bucket_cap_mb "
    "checkpoint_shard_count distributed_world_size ema_update_freq fp16_scale_window localsgd_frequency "
    "log_interval lr_deacy_period max_tokens max_tokens_valid model_parallel_size nprocs_per_node num_shards "
    "required_batch_size_multiple required_seq_len_multiple save_interval validate_interval",
    _FROM_ZERO: "amp_batch_retries curriculum data_buffer_size decay_steps device_id ema_start_update "
    "empty_cache_freq hold_steps lr_patience max_epoch max_update max_valid_steps num_workers "
    "save_interval_updates shard_id validate_after_updates validate_interval_updates warmup_steps "
    "warmup_updates",
    _OR_NONE: "heartbeat_timeout keep_best_checkpoints keep_interval_updates keep_interval_updates_pattern "
    "keep_last_epochs patience",
    Numbers(-1, 65535, whole=True): "distributed_port",
    _SEED: "fixed_validation_seed seed",
    _SIZE: "adam_eps clip_norm end_learning_rate final_lr_scale init_lr_scale lr_decay lr_shrink max_lr "
    "min_loss_scale power stop_time_hours threshold_loss_scale weight_decay",
    _ABOVE_ZERO: "amp_init_scale fp16_init_scale t_mult total_num_update",
    _SHARE: "ema_decay fp16_scale_tolerance momentum slowmo_momentum",
    Numbers(-1): "lr_period_updates stop_min_lr warmup_init_lr",
    Numbers(0, items=-1): "lr",
    Numbers(1, whole=True, items=-1): "update_freq",
    Numbers(0, below=1, items=2): "adam_betas",
}
_OF_TASKS = {
    _COUNT: "mask_multiple_length max_positions tokens_per_sample",
    _OR_NONE: "num_classes",
    _FROM_ZERO: "init_token separator_token",
    _SHARE: "leave_unmasked_prob mask_prob random_token_prob",
    _SIZE: "mask_stdev",
    _SEED: "seed",
}
_OF_MODELS = {
    _COUNT: "encoder_attention_heads encoder_embed_dim encoder_ffn_embed_dim "
    "encoder_layers max_positions quant_noise_pq_block_size",
    _FROM_ZERO: "min_params_to_wrap",
    _OR_NONE: "ffn_blocks_to_remove mha_heads_to_keep",
    _SIZE: "ffn_reg_scale_factor mha_reg_scale_factor",
    _SHARE: "activation_dropout attention_dropout dropout encoder_layerdrop pooler_dropout quant_noise_pq "
    "quant_noise_scalar",
}


def _by_name(grouped: Mapping[Numbers, str]) -> dict[str, Numbers]:
    return {name: numbers for numbers, names in grouped.items() for name in names.split()}


_RUNS = _by_name(_OF_RUNS)
OF_FAIRSEQ: dict[str, dict[str, Numbers]] = {
    **dict.fromkeys(
        ("common", "distributed_training", "dataset", "optimization", "checkpoint", "bmuf", "optimizer",
         "lr_scheduler", "ema"), _RUNS,
    ),
    "task": _by_name(_OF_TASKS),
    "model": _by_name(_OF_MODELS),  # fairseq's RoBERTa, which its copies are made from
    "criterion": {},
}  # fmt: skip
"""Part of a configuration -> name of an option of fairseq -> the numbers that it may have."""


def declared_by(part: str, part_class: Any = None, config_class: Any = None) -> dict[str, Numbers]:
    """The numbers of the options in a part of a configuration, by name.

    Args:
        part: its name.
        part_class: the class that is built from it; options of others than fairseq and fairseq_adv may have
            the same names and mean something else.
        config_class: the dataclass of its options, if it has one.
    """
    module = getattr(part_class, "__module__", "fairseq")
    is_known = module.split(".")[0] in ("fairseq", "fairseq_adv") and not module.startswith(_LISTS_OF_LAYERS)
    declared = fields(config_class) if is_dataclass(config_class) else ()
    return {
        **(OF_FAIRSEQ[part] if is_known else {}),
        **{field.name: field.metadata["numbers"] for field in declared if "numbers" in field.metadata},
    }


def odd_numbers(options: Any, declared: Mapping[str, Numbers]) -> Iterator[tuple[str, Any, str]]:
    """Name, value and fix of each option in a part that is not one of its numbers.

    Options that are not declared must be finite.
    """
    named = vars(options) if isinstance(options, Namespace) else options
    for name, value in named.items():
        numbers = declared.get(name)
        is_odd = isinstance(value, float) and not math.isfinite(value)
        if is_odd if numbers is None else not numbers.has(value):
            yield name, value, (numbers or Numbers()).fix
