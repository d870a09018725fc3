"""The options that several criterions share, the same on the command line and in yaml, and their checks."""

import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Collection, NoReturn, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II, DictConfig

from fairseq_adv.accordance import DIRECTIONS, GROUPS
from fairseq_adv.data.errors import DataError
from fairseq_adv_compat.option_numbers import Numbers, declared_by, odd_numbers

SCOPE_CHOICES = ChoiceEnum(["update", "micro-batch"])
CROSSING_CHOICES = ChoiceEnum(list(DIRECTIONS))
GROUP_CHOICES = ChoiceEnum(list(GROUPS))
MODE_CHOICES = ChoiceEnum(["default", "max-autotune-no-cudagraphs"])
SHARE_DROPOUT = "let every pass of an update repeat the dropout masks of the first"
OWN_MASKS = "; otherwise each pass draws its own, as published, and most of the divergence comes from dropout"


def option(
    default: Any, text: str, wanted: str = "", least: float = -math.inf, above: float = -math.inf,
    most: float = math.inf, below: float = math.inf,
) -> Any:  # fmt: skip
    """The field of an option.

    Args:
        default: its default value.
        text: its help.
        wanted: what to pass instead of a number that is not finite or out of range; "": it is not checked.
        least: the smallest number in the range.
        above: all numbers in the range are larger.
        most: the largest number in the range.
        below: all numbers in the range are smaller.
    """
    numbers = {"numbers": Numbers(least, most, above, below, wanted=wanted)} if wanted else {}
    return field(default=default, metadata={"help": text, **numbers})


class PlainOptions:
    """Reads options from omegaconf once: each read resolves, checks and converts, and an update makes 40.

    Args:
        options: a node of omegaconf, which must not change afterwards; its own nodes are read alike.
    """

    def __init__(self, options: DictConfig) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:  # called for what has not been read
        if name.startswith("__") or "_options" not in vars(self):
            raise AttributeError(name)
        value = getattr(self._options, name)
        vars(self)[name] = PlainOptions(value) if isinstance(value, DictConfig) else value
        return vars(self)[name]


@dataclass
class ObjectiveConfig(FairseqDataclass):
    """Options of the objectives; tasks read the first two here, as in fairseq's ``sentence_prediction``."""

    classification_head_name: str = option(
        "sentence_classification_head",
        "name of the classification head to use",
    )
    regression_target: bool = option(False, "the labels are numbers (STS-B), not classes")
    positive_label: str = option(
        "1",
        "log the F1 of this label, as written in label/dict.txt, if it is listed there",
    )
    # The criterion needs these for checks and seeds. They are set by fairseq's own options of the same names.
    restore_file: str = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    train_subset: str = II("dataset.train_subset")
    ddp_backend: str = II("distributed_training.ddp_backend")
    seed: int = II("common.seed")


@dataclass
class MethodConfig(ObjectiveConfig):
    """Options of every method: the loss of classes, which weights learn how fast, flooding (Ishida et al.,
    ICML 2020; Flooding-X, Liu et al., ACL 2022), and how the run computes.
    """

    class_weights: Optional[str] = option(
        None,
        "weights of the classes in the loss: NAME=W,… with names as in label/dict.txt, 1 for those left out; "
        "or balanced: n / (k n_c) for a class with n_c of the n training labels, k classes",
    )
    label_smoothing: float = option(
        0.0,
        "E: the loss is (1 - E) times that of the label plus E times the mean over all classes, as in "
        "torch's cross_entropy",
        wanted="pass a share from 0 to less than 1, such as 0.1",
        least=0,
        below=1,
    )
    layer_lr_decay: float = option(
        1.0,
        "D: the head learns at --lr, layer l of L (counted from 0) at --lr D^(L - l), the embeddings at --lr "
        "D^(L + 1); 1: all at --lr",
        wanted="pass a factor above 0, up to 1, such as 0.9",
        above=0,
        most=1,
    )
    freeze: Optional[str] = option(
        None,
        "parts of the encoder that are not trained, separated by commas: embeddings, and layers from 0, such "
        "as embeddings,0-3",
    )
    flood_level: Optional[str] = option(
        None,
        "flood level b, in nats (fairseq logs bits: a logged loss of 0.1 is 0.069 nats): where the mean loss "
        "is below b, training increases it. 0 or left out: no flooding; auto: b is found during training, "
        "see --flood-crossing",
    )
    flood_scope: SCOPE_CHOICES = option(  # type: ignore[valid-type]
        "update",
        "which mean loss is compared with b. update: over all workers and micro-batches of the update; "
        "micro-batch: of each micro-batch on each worker, as in the authors' code",
    )
    accordance_interval: int = option(
        0,
        "measure and log the gradient accordance every N updates (a sub-epoch); 0: never",
        wanted="pass a number of updates, or 0 for never",
        least=0,
    )
    accordance_batches: int = option(
        10,
        "mini-batches per measurement, over all workers; each costs a training pass",
        wanted="pass 2 or more: accordance compares batches",
        least=2,
    )
    accordance_batch_size: int = option(
        32,
        "examples per mini-batch of a measurement; reduce it if memory runs out",
        wanted="pass 1 or more",
        least=1,
    )
    accordance_groups: str = option(
        ",".join(GROUPS),
        "parameter groups to measure, separated by commas: all, encoder, head. With k classes and P "
        "parameters, all or encoder takes (k + 1) P floats of memory, both together nearly twice that",
    )
    accordance_dropout: bool = option(False, "measure with dropout, as in training; its masks add noise")
    flood_crossing: CROSSING_CHOICES = option(  # type: ignore[valid-type]
        "up",
        "--flood-level auto starts flooding when the accordance crosses zero in this direction: up (from "
        "negative to positive), down or any. b is the mean training loss since the previous measurement. "
        "The paper contradicts itself; docs/methods.md explains the default",
    )
    flood_crossing_group: GROUP_CHOICES = option(  # type: ignore[valid-type]
        "all",
        "parameters whose accordance must cross zero: all (the paper), encoder or head",
    )
    precision: Optional[str] = option(
        None,
        "fp32; bf16: on a CPU --amp (autocast; weights in fp32), on a GPU --bf16; auto: as in the "
        "checkpoint that the run resumes from, else bf16 if the GPU, or the processor of a run on a CPU, "
        "has it, else fp32 (default: fairseq's options decide; fairseq-adv train passes auto)",
    )
    compile: bool = option(
        False,
        "train with the encoder's layers compiled by torch.compile (torch 2.7 or newer); see "
        "docs/gpu-speed.md",
    )
    compile_mode: MODE_CHOICES = option(  # type: ignore[valid-type]
        "default",
        "the mode of torch.compile: default, or max-autotune-no-cudagraphs, which tries kernels on a GPU and "
        "takes the fastest; for graphs see --cuda-graphs",
    )
    cuda_graphs: bool = option(
        False,
        "experimental: launch the kernels of a mini-batch as CUDA graphs, from the second mini-batch of a "
        "shape on; see docs/gpu-speed.md",
    )
    allow_changed_options: bool = option(
        False,
        "resume from a checkpoint that was made with other options or data (see docs/cluster.md); later "
        "checkpoints record the changes",
    )
    # The criterion needs these to skip the rows that training skips, and to warn about what the log or a
    # restarted run will lack. They are set by fairseq's own options of the same names.
    max_tokens: Optional[int] = II("dataset.max_tokens")
    log_interval: int = II("common.log_interval")
    no_save: bool = II("checkpoint.no_save")
    no_save_optimizer_state: bool = II("checkpoint.no_save_optimizer_state")


def refuse(option: str, value: object, wanted: str) -> NoReturn:
    """Raises DataError with the option (given without dashes), its value, and what to pass instead."""
    raise DataError(f"--{option} {value}: {wanted}")


def check_options(cfg: MethodConfig, config_class: type, names: Collection[str]) -> None:
    """Raises DataError, naming the option and the fix, if an option's own value is out of range.

    Args:
        cfg: the options.
        config_class: the dataclass that declares them with :func:`option`.
        names: of the options to check.
    """
    for declared in fields(config_class):
        if declared.name in names and isinstance(declared.type, type) and issubclass(declared.type, Enum):
            value, known = getattr(cfg, declared.name), [choice.value for choice in declared.type]
            if str(value) not in known:
                refuse(declared.name.replace("_", "-"), value, f"pass one of {', '.join(known)}")
    numbers = declared_by("criterion", config_class=config_class)
    given = {name: getattr(cfg, name) for name in numbers if name in names}
    for name, value, fix in odd_numbers(given, numbers):
        refuse(name.replace("_", "-"), value, fix)
