#!/usr/bin/env python3
"""Prints the options of fairseq-train that say the same as a yaml of an example, one a line.

  yaml_options.py wsc/config/wsc.yaml [--method pgd] [--gpus 4]

What each run must say itself (???) is left out. run_task.sh calls this.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fairseq_adv_cli.script import exit_status

HERE = Path(__file__).resolve().parent
METHODS = ("freelb", "pgd", "standard")


def groups(path: Path) -> dict[str, dict[str, Any]]:
    """fairseq's configuration in a yaml, without hydra's own part; references to other keys are resolved.

    Raises:
        ValueError: the file is not there or is no such yaml.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        loaded = OmegaConf.load(str(path))
        loaded.pop("hydra", None)
        found: dict[str, dict[str, Any]] = OmegaConf.to_container(loaded, resolve=True)
    except (OSError, YAMLError, OmegaConfBaseException, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: cannot be read as a configuration ({error})") from error
    return found


def with_method(config: dict[str, dict[str, Any]], method: str) -> dict[str, dict[str, Any]]:
    """The configuration with another criterion.

    The yamls hold FreeLB, where ``adv_steps`` counts passes; the ascent steps that count are one fewer. PGD
    counts ascent steps, so it takes one fewer.
    """
    keys = dict(config["criterion"], _name=method)
    if method == "standard":
        keys = {key: value for key, value in keys.items() if not key.removeprefix("no_").startswith("adv_")}
    elif method == "pgd":
        keys["adv_steps"] = max(1, keys["adv_steps"] - 1)
    return {**config, "criterion": keys}


def options(config: dict[str, dict[str, Any]], gpus: int = 1) -> list[str]:
    """The words for fairseq-train, for ``gpus`` workers that share the examples of an update.

    Raises:
        ValueError: they cannot be shared out evenly.
    """
    sys.path.insert(0, str(HERE / "glue"))
    import make_configs

    if gpus > 1:
        dataset, optimization = dict(config["dataset"]), dict(config["optimization"])
        batch, parts = make_configs.share(dataset["batch_size"], optimization["update_freq"][0], gpus)
        dataset["batch_size"], optimization["update_freq"] = batch, [parts]
        workers = {**config["distributed_training"], "distributed_world_size": gpus}
        config = {**config, "dataset": dataset, "optimization": optimization, "distributed_training": workers}
    told = {
        group: {key: value for key, value in keys.items() if value is not None}
        for group, keys in config.items()
    }
    words: list[str] = make_configs.options(told)
    return words


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("yaml", type=Path)
    parser.add_argument("--method", choices=METHODS, default="freelb")
    parser.add_argument("--gpus", type=int, default=1, help="workers that share the examples of an update")
    args = parser.parse_args()
    if args.gpus < 1:
        parser.error(f"--gpus {args.gpus}: pass 1 or more")

    def work() -> None:
        print(*options(with_method(groups(args.yaml), args.method), args.gpus), sep="\n")

    return exit_status(work, (ValueError,))


if __name__ == "__main__":
    sys.exit(main())
