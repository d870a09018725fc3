"""The cells of the mode matrix: the run of each, and the run that it is compared with.

A cell is a criterion in one of fairseq's precisions and one of its ways to make an update. All of them train
the same encoder on the same 16 sentences from the same weights, so the cells of a criterion should end with
the same weights.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_adv.data.processes import python_module

Config = dict[str, dict[str, Any]]

# Sizes with which δ has an effect, as in tests/integration.
ADVERSARIAL = {"adv_steps": 3, "adv_lr": 0.3, "adv_max_norm": 0.5, "adv_init_mag": 0.4}
VIRTUAL = {"vat_alpha": 2.0, "vat_steps": 2, "vat_step_size": 0.3, "vat_epsilon": 0.2, "vat_init_std": 0.1}
CREAT_ARGS = {"adv_steps": 3, "adv_lr": 0.3, "adv_max_norm": 0.5, "creat_tau": 2.0, "creat_init_std": 0.1}
METHODS: dict[str, dict[str, Any]] = {
    "standard": {},
    "freelb": ADVERSARIAL,
    "pgd": ADVERSARIAL,
    "freeat": ADVERSARIAL,
    "yopo": {**ADVERSARIAL, "yopo_steps": 3},
    "tavat": ADVERSARIAL,
    "infobert": ADVERSARIAL,
    "alum_vat": VIRTUAL,
    "smart": {**VIRTUAL, "smart_mu": 2.0},
    "sift": VIRTUAL,
    "noise": {"noise_size": 0.5},
    "r3f": {"r3f_lambda": 2.0, "r3f_epsilon": 0.2, "r3f_share_dropout": True},
    "rdrop": {"rdrop_alpha": 4.0},
    "creat": CREAT_ARGS,
    "awp": {"awp_gamma": 0.1},
    "sam": {"sam_rho": 0.2},  # 0.5 would magnify rounding tenfold, to more than bf16's tolerance
    "flooding": {"flood_level": 0.8},
}


# The cells have no dropout, whose masks depend on how a batch is cut: only LayerDrop makes it another method.
LIKE_STANDARD = ("rdrop",)
# Methods whose loss compares the sentences of a mini-batch, or whose step is along the gradient of all of
# them, so that two half batches make another update.
OF_A_BATCH = ("infobert", "awp", "sam")


@dataclass(frozen=True)
class Precision:
    """A precision of fairseq.

    Attributes:
        keys: of the configuration's ``common``.
        tolerance: largest relative distance of the change in weights from that in fp32; for the reasons, see
            :data:`PRECISIONS`.
        needs_cuda: whether fairseq 0.12.2 only has it on GPUs.
        needs_cpu: whether it is one of CPUs only.
    """

    keys: dict[str, bool]
    tolerance: float
    needs_cuda: bool
    needs_cpu: bool = False


# fp32: summing in another order gives 1e-7 to 1e-6. Half precision: two to three times the distance that its
# rounding (fp16 2^-11, bf16 2^-8) caused in six updates on a CPU, 0.015 and 0.034 (awp, which steps along a
# rounded gradient, with half batches: 0.074), and below that of LayerDrop (0.18 and more) or of another
# method (the table names the closest two).
PRECISIONS = {
    "fp32": Precision({}, 1e-4, False),
    "fp16": Precision({"fp16": True}, 0.03, True),
    "memory-efficient-fp16": Precision({"fp16": True, "memory_efficient_fp16": True}, 0.03, False),
    "amp": Precision({"amp": True}, 0.03, True),
    "amp-bf16": Precision({"amp": True}, 0.1, False, needs_cpu=True),
    "bf16": Precision({"bf16": True}, 0.1, False),
}
MODES = {
    "single": "1 process",
    "legacy_ddp": "2 processes, `--ddp-backend legacy_ddp`",
    "pytorch_ddp": "2 processes, `--ddp-backend pytorch_ddp`",
    "update-freq": "`--update-freq 2`",
    "checkpoint-activations": "`model.checkpoint_activations`",
    "layerdrop": "`--encoder-layerdrop 0.5`",
}
UPDATES = 6
EMULATED = Path(__file__).resolve().parents[1] / "tests" / "emulated_command.py"
# With this seed, LayerDrop keeps both layers in three of the six updates, only the first in two, only the
# second in one, and never none: yopo always has a first layer, but not always the same one.
SEED = 106


@dataclass(frozen=True)
class Cell:
    """One field of the matrix: a method, a precision and a mode, by their names."""

    method: str
    precision: str
    mode: str

    @property
    def name(self) -> str:
        return f"{self.method}-{self.precision}-{self.mode}"

    @property
    def workers(self) -> int:
        return 2 if self.mode.endswith("_ddp") else 1

    @property
    def reference(self) -> Cell:
        """The cell whose weights it should end with: fp32 in one process. LayerDrop, which drops layers, has
        a reference of its own, and so have half batches for methods :data:`OF_A_BATCH`.
        """
        if self.method in OF_A_BATCH and (self.workers == 2 or self.mode == "update-freq"):
            return Cell(self.method, "fp32", "update-freq")
        return Cell(self.method, "fp32", "layerdrop" if self.mode == "layerdrop" else "single")

    @property
    def needs_cuda(self) -> bool:
        """Whether it needs a GPU. fairseq 0.12.2 passes a GPU to torch's DDP even with ``--cpu``."""
        return PRECISIONS[self.precision].needs_cuda or self.mode == "pytorch_ddp"

    @property
    def needs_cpu(self) -> bool:
        """Whether a machine with a GPU leaves it out."""
        return PRECISIONS[self.precision].needs_cpu


def all_cells() -> list[Cell]:
    """Every cell, in the table's order."""
    return [Cell(method, p, mode) for p in PRECISIONS for mode in modes_of(p) for method in METHODS]


def modes_of(precision: str) -> list[str]:
    """The modes that a precision has: torch's DDP needs a GPU."""
    return [mode for mode in MODES if not (PRECISIONS[precision].needs_cpu and mode == "pytorch_ddp")]


def configuration(cell: Cell, plugin: Path, save: Path, start: Path | None, cpu: bool) -> Config:
    """fairseq's configuration of a run, without its data.

    Args:
        plugin: fairseq's user directory.
        save: where the checkpoint goes.
        start: the checkpoint to start from; None: random weights.
        cpu: do not use a GPU.
    """
    halves = cell.workers == 2 or cell.mode == "update-freq"
    common = {"user_dir": str(plugin), "seed": SEED, "cpu": cpu, "log_format": "json", "log_interval": 1}
    model = {
        "_name": "roberta_base", "encoder_layers": 2, "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64,
        "encoder_attention_heads": 2, "max_positions": 16, "dropout": 0.0, "attention_dropout": 0.0,
        "encoder_layerdrop": 0.5 if cell.mode == "layerdrop" else 0.0,
    }  # fmt: skip
    # The task reads these, so a yaml must set them.
    head = {"classification_head_name": "sentence_classification_head", "regression_target": False}
    if cell.mode == "checkpoint-activations":
        model["checkpoint_activations"] = True
    config: Config = {
        "common": {**common, **PRECISIONS[cell.precision].keys},
        "task": {"_name": "sentence_prediction", "num_classes": 2, "init_token": 0, "separator_token": 2,
                 "max_positions": 16},
        "model": model,
        "criterion": {"_name": cell.method, **head, **METHODS[cell.method]},
        "dataset": {"batch_size": 8 if halves else 16, "required_batch_size_multiple": 1, "num_workers": 0,
                    "disable_validation": True},
        # In effect gradient descent with a step of lr / eps = 0.2. Ordinary Adam divides by the gradient's
        # size and would magnify rounding errors; fairseq's memory-efficient fp16 does not support SGD.
        "optimizer": {"_name": "adam", "adam_betas": "(0.0, 0.0)", "adam_eps": 1000.0},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"lr": [200.0], "max_update": UPDATES,
                         "update_freq": [2 if cell.mode == "update-freq" else 1]},
        "checkpoint": {"save_dir": str(save), "no_epoch_checkpoints": True, "save_interval": 1000},
    }  # fmt: skip
    if start is not None:
        config["checkpoint"]["finetune_from_model"] = str(start)
    if cell.method == "smart":
        half = any(key != "amp" for key in PRECISIONS[cell.precision].keys)  # the weights are
        config["ema"] = {"store_ema": True, "ema_decay": 0.5, "ema_fp32": half}
    return config


def program(name: str, emulated: bool = False) -> list[str]:
    """A console script of fairseq from the running Python's environment; ``emulated``: on an emulated GPU."""
    if emulated:
        return [sys.executable, str(EMULATED), name]
    script = Path(sys.executable).with_name(name)
    module = name.replace("fairseq-", "fairseq_cli.").replace("-", "_")
    return [str(script)] if script.is_file() else python_module(module)


def commands(
    cell: Cell, config: Config, data: Path, folder: Path, port: int, gpus: int, emulated: bool = False
) -> list[list[str]]:
    """The command line of each process: ``fairseq-train`` or, where it lacks an option,
    ``fairseq-hydra-train`` with a yaml that is written into ``folder``.

    Args:
        cell: what to run.
        config: from :func:`configuration`.
        data: the task's folder.
        folder: an existing folder.
        port: a free port, through which two processes connect.
        gpus: how many there are; two processes share a single one.
        emulated: it is an emulated one.
    """
    if cell.workers == 1:
        return [_command(cell, config, data, folder, emulated)]
    several = gpus >= cell.workers
    lines = []
    for rank in range(cell.workers):
        config["distributed_training"] = {
            "distributed_world_size": cell.workers, "distributed_rank": rank, "distributed_no_spawn": True,
            "distributed_init_method": f"tcp://127.0.0.1:{port}", "device_id": rank if several else 0,
            # NCCL refuses two processes on one GPU.
            "distributed_backend": "nccl" if several else "gloo", "ddp_backend": cell.mode,
            # torch's DDP expects a gradient for every weight, but the encoder has some that no pass uses.
            "find_unused_parameters": cell.mode == "pytorch_ddp",
        }  # fmt: skip
        (folder / str(rank)).mkdir()
        lines.append(_command(cell, config, data, folder / str(rank), emulated))
    return lines


def option_words(config: Config) -> list[str]:
    """The configuration as options of ``fairseq-train``, where the model's name is ``--arch``."""
    names = {"model": "--arch", "lr_scheduler": "--lr-scheduler"}
    words: list[str] = []
    for group, keys in config.items():
        for key, value in keys.items():
            if value is False:
                continue
            words.append(names.get(group, "--" + group) if key == "_name" else "--" + key.replace("_", "-"))
            if value is not True:
                words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return words


def _command(cell: Cell, config: Config, data: Path, folder: Path, emulated: bool) -> list[str]:
    """``fairseq-train`` has no option for a RoBERTa's ``checkpoint_activations``."""
    if cell.mode == "checkpoint-activations":
        whole = {**config, "task": {**config["task"], "data": str(data)}}
        (folder / "run.yaml").write_text(f"# @package _group_\n{json.dumps(whole, indent=1)}\n")
        hydra = ["--config-dir", str(folder), "--config-name", "run", f"hydra.run.dir={folder / 'hydra'}"]
        return [*program("fairseq-hydra-train", emulated), *hydra]
    return [*program("fairseq-train", emulated), str(data), *option_words(config)]
