#!/usr/bin/env python3
"""Prints the options of fairseq-train that say the same as a yaml with a defaults list, one a line.

  composed_options.py alum/config/pretrain/roberta_base.yaml --method alum_paper --gpus 16
  composed_options.py alum/config/finetune/glue.yaml --glue mrpc --method smart --encoder roberta_large

What each run must say itself (???) is left out. launch.sh calls this.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml_options

from fairseq_adv_cli.script import exit_status

Config = dict[str, dict[str, Any]]
GROUPS = ("method", "encoder", "glue")


def composed(path: Path, chosen: dict[str, str]) -> Config:
    """fairseq's configuration that hydra would compose; a later entry of the yaml's defaults list wins.

    Args:
        path: a yaml with a defaults list.
        chosen: group -> the file's name without .yaml, where it isn't the default.

    Raises:
        ValueError: a file is not there or can't be read, or the yaml has no such group.
    """
    from omegaconf import OmegaConf

    defaults = yaml_options.groups(path).get("defaults", [])
    known = [next(iter(entry)) for entry in defaults if entry != "_self_"]
    for group in chosen:
        if group not in known:
            raise ValueError(f"--{group}: {path.name} has no such choice; it has {', '.join(known)}")
    merged = OmegaConf.create({})
    for entry in defaults:
        if entry == "_self_":
            part = yaml_options.groups(path)
            part.pop("defaults")
        else:
            ((group, name),) = entry.items()
            part = yaml_options.groups(_file(path.parent / group, chosen.get(group, name)))
        merged = OmegaConf.merge(merged, part)
    found: Config = OmegaConf.to_container(merged)
    return found


def _file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(other.stem for other in folder.glob("*.yaml")))
        raise ValueError(f"--{folder.name} {name}: no such choice; there are {names}")
    return path


def on_gpus(config: Config, gpus: int) -> list[str]:
    """The options for ``gpus`` workers that share the rows of an update, however many the yaml is for.

    Raises:
        ValueError: they cannot be shared out evenly.
    """
    workers = config["distributed_training"]["distributed_world_size"]
    parts = config["optimization"]["update_freq"][0] * workers
    alone = {
        **config,
        "optimization": {**config["optimization"], "update_freq": [parts]},
        "distributed_training": {**config["distributed_training"], "distributed_world_size": 1},
    }
    words: list[str] = yaml_options.options(alone, gpus)
    return words


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("yaml", type=Path)
    for group in GROUPS:
        parser.add_argument(f"--{group}", help=f"instead of the yaml's own choice in {group}/")
    parser.add_argument("--gpus", type=int, default=1, help="workers that share the rows of an update; 1")
    args = parser.parse_args()
    if args.gpus < 1:
        parser.error(f"--gpus {args.gpus}: pass 1 or more")
    chosen = {group: getattr(args, group) for group in GROUPS if getattr(args, group) is not None}

    def work() -> None:
        print(*on_gpus(composed(args.yaml, chosen), args.gpus), sep="\n")

    return exit_status(work, (ValueError,))


if __name__ == "__main__":
    sys.exit(main())
