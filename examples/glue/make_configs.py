#!/usr/bin/env python3
"""Makes the hydra yamls and fairseq-train's options from hyperparameters.json, the one place of the numbers.

  make_configs.py                                writes config/*.yaml
  make_configs.py --check                        says which yaml differs, if any; exit status 1 then
  make_configs.py --options rte [--method pgd]   prints fairseq-train's options, one a line; run.sh calls this
  make_configs.py --seeds                        prints seeds of the authors' scripts; slurm.sbatch calls this

It needs nothing but Python: neither fairseq nor torch is imported.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, List

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "config"
NUMBERS: Dict[str, Any] = json.loads((HERE / "hyperparameters.json").read_text(encoding="utf-8"))
TASKS = list(NUMBERS["tasks"])
METHODS = ("freelb", "pgd", "freeat", "yopo", "standard", "plain")
SOURCES = tuple(NUMBERS["adversary"])
# fairseq-train calls the model's name --arch; the other groups are called as they are.
NAME_OPTIONS = {"model": "--arch", "lr_scheduler": "--lr-scheduler"}

Config = Dict[str, Dict[str, Any]]


def adversary(task: str, method: str, source: str) -> Dict[str, Any]:
    """The criterion's keys for ``method``, one of METHODS.

    The authors' scripts count ascent steps: k of them, hence k + 1 full passes of FreeLB and YOPO, where
    ``adv_steps`` counts the passes (K of the paper's Algorithm 1). For PGD both count ascent steps, for
    FreeAT both count replays. Their FreeAT counts one update for the replays of a group of mini-batches, and
    their YOPO takes all of alpha in each shallow step.
    ``plain`` is FreeLB with one pass at the clean embeddings, ``standard`` knows no perturbation. Both are
    fairseq's own update to the bit, with the GLUE scores that its own criterion lacks.

    Raises:
        ValueError: ``source`` has no numbers for ``method``.
    """
    if method == "standard":
        return {"_name": "standard"}
    if method == "plain":
        return {"_name": "freelb", "adv_steps": 1, "adv_lr": 0.0, "adv_max_norm": 0.0, "adv_init_mag": 0.0}
    if method not in NUMBERS["adversary"][source]:
        raise ValueError(f"--numbers {source} has none for --method {method}; use --numbers authors_script")
    row = NUMBERS["adversary"][source][method][task]
    keys = {
        "_name": method,
        "adv_steps": row["steps"] + 1 if method in ("freelb", "yopo") else row["steps"],
        "adv_lr": float(row["alpha"]),
        "adv_max_norm": float(row["epsilon"]),
        "adv_init_mag": float(row["init"]),
    }
    if method == "freeat":
        keys["freeat_schedule"] = "groups"
    if method == "yopo":
        keys.update(yopo_steps=row["inner"], yopo_full_step=True)
    return keys


def config(task: str, method: str = "freelb", source: str = "authors_script", gpus: int = 1) -> Config:
    """fairseq's configuration of one task, as its hydra groups."""
    groups: Config = copy.deepcopy(NUMBERS["every_task"])
    for name, keys in NUMBERS["tasks"][task].items():
        groups[name].update(keys)
    criterion = groups["criterion"]
    criterion.update(adversary(task, method, source))
    if method == "standard":  # it knows no option of the perturbation
        groups["criterion"] = {key: value for key, value in criterion.items() if "adv_" not in key}
    if gpus > 1:
        batch, parts = share(groups["dataset"]["batch_size"], groups["optimization"]["update_freq"][0], gpus)
        groups["dataset"]["batch_size"], groups["optimization"]["update_freq"] = batch, [parts]
        groups["distributed_training"]["distributed_world_size"] = gpus
    return groups


def share(batch: int, parts: int, gpus: int) -> tuple[int, int]:
    """(batch size, update freq) of each GPU, so that an update still sees ``batch`` x ``parts`` sentences.

    Raises:
        ValueError: the sentences cannot be shared out evenly.
    """
    total = batch * parts
    for fewer in range(max(1, math.ceil(total / (batch * gpus))), total + 1):
        if total % (fewer * gpus) == 0:
            return total // (fewer * gpus), fewer
    raise ValueError(
        f"--gpus {gpus}: the {total} sentences of an update cannot be shared out evenly. Take a divisor of "
        f"{total}, or leave --gpus out and set --distributed-world-size, --batch-size, --update-freq yourself"
    )


def options(groups: Config) -> List[str]:
    """The same configuration as options of fairseq-train; what each run must say itself (???) is left out."""
    words: List[str] = []
    for group, keys in groups.items():
        for key, value in keys.items():
            name = NAME_OPTIONS.get(group, "--" + group) if key == "_name" else "--" + key.replace("_", "-")
            if value == "???" or value is False or value == "":
                continue
            words.append(name)
            if value is not True:
                words.append(",".join(map(_text, value)) if isinstance(value, list) else _text(value))
    return words


def yaml(task: str) -> str:
    """The hydra yaml of one task, for FreeLB."""
    lines = [
        "# @package _group_",
        "# Written by make_configs.py from hyperparameters.json: change the numbers there. Every key that",
        "# a run may want to change stands here, because hydra wants a + before any other.",
        "",
        "hydra:",
        "  run:",
        "    dir: ${checkpoint.save_dir}  # hydra works in here: give absolute paths",
    ]
    for group, keys in config(task).items():
        lines += ["", f"{group}:", *(f"  {key}: {_yaml(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and value != "???" and not re.fullmatch(r"[a-z][a-z0-9_]*", value):
        return json.dumps(value)
    return _text(value)


def write_configs() -> None:
    """Writes the yaml of every task; each appears whole or not at all."""
    CONFIG.mkdir(exist_ok=True)
    for task in TASKS:
        scratch = CONFIG / f".{task}.yaml.tmp"
        scratch.write_text(yaml(task), encoding="utf-8")
        os.replace(scratch, CONFIG / f"{task}.yaml")


def differing() -> List[str]:
    """The names in config/ that are not what ``write_configs`` would leave there."""
    expected = {f"{task}.yaml": yaml(task) for task in TASKS}
    found = {path.name: path.read_text(encoding="utf-8") for path in CONFIG.glob("*.yaml")}
    return sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="change nothing; fail if a yaml differs")
    what.add_argument("--options", metavar="TASK", choices=TASKS, help=", ".join(TASKS))
    what.add_argument("--seeds", action="store_true", help="print the seeds")
    parser.add_argument("--method", choices=METHODS, default="freelb")
    parser.add_argument("--numbers", choices=SOURCES, default="authors_script", help="whose: see README.md")
    parser.add_argument("--gpus", type=int, default=1, help="workers that share the sentences of an update")
    args = parser.parse_args()
    if args.seeds:
        print(*NUMBERS["seeds"])
    elif args.options:
        if args.gpus < 1:
            parser.error(f"--gpus {args.gpus}: pass 1 or more")
        try:
            print(*options(config(args.options, args.method, args.numbers, args.gpus)), sep="\n")
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    elif args.check:
        wrong = differing()
        for name in wrong:
            print(f"error: config/{name} is not what make_configs.py would write: run it", file=sys.stderr)
        return 1 if wrong else 0
    else:
        write_configs()
    return 0


if __name__ == "__main__":
    sys.exit(main())
