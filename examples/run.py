#!/usr/bin/env python3
"""Trains a recipe: checks it and your data, prints one fairseq-hydra-train command and runs it.

  examples/run.py examples/glue/config/glue.yaml RTE-bin roberta.large out/rte glue=rte method=pgd
  examples/run.py examples/wsc/config/wsc.yaml wsc-data roberta.large out/wsc --gpus 4 common.seed=2
  examples/run.py examples/glue/config/glue.yaml RTE-bin roberta.large out/rtes glue=rte common.seed=1,2,3

Resumable: the same command resumes from SAVE_DIR/checkpoint_last.pt; with other options it is refused, unless
you add criterion.allow_changed_options=true. Several values for a key make a sweep: one run after the other,
each in its own folder in SAVE_DIR, named after its values, or numbered if these are paths.
Often changed: common.fp16=false, common.seed=9017, checkpoint.finetune_from_model=CHECKPOINT, method=…
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.cli import find_user_dir
from fairseq_adv.cli.script import count, exit_status
from fairseq_adv.cli.train_command import ON_CPUS, started_workers
from fairseq_adv.cli.train_folders import check_dictionary, hugging_face_args, model_args
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.processes import loaders
from fairseq_adv.data.tokenizers import is_hugging_face
from fairseq_adv.data.train_options import TrainOptions

EXAMPLES = Path(__file__).resolve().parent
ENCODER = "ENCODER_DIR"  # the yamls' placeholder for the encoder's folder
# Relative paths would break: hydra changes to SAVE_DIR, or in a sweep to the job's own folder, which has its
# own log.
PATHS = (("checkpoint", "finetune_from_model"), ("model", "hf_model"), ("common", "log_file"))
OF_PATHS = {f"{group}.{key}" for group, key in PATHS}
# Where a job of a sweep saves; known to hydra only when the job starts.
OWN_FOLDER = "checkpoint.save_dir='${hydra:sweep.dir}/${hydra:sweep.subdir}'"
_GLUE = re.compile(r"^  - glue: (\w+)", re.MULTILINE)  # a recipe's task, if none is chosen
CORPUS_TASKS = ("masked_lm", "scheduled_masked_lm")
WORKERS = "distributed_training.distributed_world_size"


def shipped() -> str:
    """The project's recipes, each with its choices."""
    lines = []
    for path in sorted([*EXAMPLES.glob("*/config/*.yaml"), *EXAMPLES.glob("*/config/*/*.yaml")]):
        if path.read_text(encoding="utf-8").startswith("# @package _group_"):  # others belong to a group
            lines += [f"  {os.path.relpath(path)}", *choices(path)]
    return "\n".join(lines)


def choices(recipe: Path) -> list[str]:
    """One line per group of a recipe, with the names in it; a group without any has none."""
    groups = re.findall(r"^  - (\w+): \w+", recipe.read_text(encoding="utf-8"), re.MULTILINE)
    names = {group: sorted(path.stem for path in (recipe.parent / group).glob("*.yaml")) for group in groups}
    return [f"      {group}={'|'.join(of)}" for group, of in names.items() if of]


def composed(recipe: Path, overrides: Sequence[str], strict: bool = True) -> Any:
    """The configuration that hydra composes from a recipe. Avoids fairseq, whose import takes seconds.

    Raises:
        DataError: a file or a choice doesn't exist or can't be read; if ``strict``, also if a key doesn't
            exist.
    """
    from hydra.errors import HydraException
    from hydra.experimental import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        with initialize_config_dir(config_dir=str(recipe.parent.resolve())):
            config = compose(recipe.stem, list(overrides), strict=strict)
        OmegaConf.to_container(config, resolve=True)  # finds interpolations that lead nowhere
    except (HydraException, OmegaConfBaseException, YAMLError, OSError, ValueError) as error:
        raise DataError(f"{recipe}: {error}") from error
    for group in ("common", "task", "model", "dataset", "optimization", "distributed_training", "checkpoint"):
        if group not in config:
            raise DataError(f"{recipe} is not a recipe: it has no {group}")
    return config


def parsed(line: str) -> Any:
    """An override, parsed by hydra.

    Raises:
        DataError: it is not an override.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        (override,) = OverridesParser.create().parse_overrides([line])
    except HydraException as error:
        raise DataError(f"{line}: pass key=value ({error})") from error
    return override


def first_job(overrides: Sequence[str]) -> tuple[list[str], set[str]]:
    """The overrides of a sweep's first job, and the keys in which its jobs differ.

    Raises:
        DataError: one is not an override, or sweeps over something other than a list of values.
    """
    from hydra.core.override_parser.types import ValueType

    first, swept = [], set()
    for line in overrides:
        override = parsed(line)
        if override.is_sweep_override():
            if not override.is_discrete_sweep() or override.value_type is ValueType.GLOB_CHOICE_SWEEP:
                raise DataError(f"{line}: pass the values of a sweep as key=1,2,3")
            swept.add(override.key_or_group)
            line = f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"
        first.append(line)
    return first, swept


def absolute(line: str) -> str:
    """An override that sweeps over paths, with absolute ones: each job works in a folder of its own."""
    override = parsed(line)
    if not override.is_sweep_override() or override.key_or_group not in OF_PATHS:
        return line
    values = [str(parsed(f"x={one}").value()) for one in override.sweep_string_iterator()]
    paths = [said("", os.path.abspath(value))[1:] for value in values]
    return f"{override.get_key_element()}={','.join(paths)}"


def sweep(save: str, words: Sequence[str], swept: set[str]) -> list[str]:
    """The overrides that give each job of a sweep its own folder: named after its values, numbered if they
    are paths."""
    same = {parsed(line).key_or_group for line in words} - swept
    names = ",".join(sorted(name for name in same if not name.startswith("hydra")))
    exclude = f"hydra.job.config.override_dirname.exclude_keys=[{names}]"
    has_name = swept.isdisjoint(OF_PATHS) or "hydra.sweep.subdir" in same  # a path would be several folders
    numbered = [] if has_name else [said("hydra.sweep.subdir", "${hydra.job.num}")]
    return [said("hydra.sweep.dir", save), exclude, OWN_FOLDER, *numbered]


def split(recipe: Path, overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits overrides into those that choose files and the keys that the others change.

    Raises:
        DataError: one is not an override, or the recipe has no such choice.
    """
    chosen, keys = [], []
    for line in overrides:
        override = parsed(line)
        name = override.key_or_group
        if "." not in name:
            if not name.startswith("hydra/") and not (recipe.parent / name).is_dir():
                raise DataError("\n".join([f"{name}: no such choice. {recipe} has", *choices(recipe)]))
            chosen.append(line)
        elif not (override.is_add() or override.is_delete() or name.startswith("hydra.")):
            keys.append(name)
    return chosen, keys


def check_key(config: Any, key: str) -> None:
    """Raises DataError if neither the recipe nor fairseq has the key."""
    from omegaconf import OmegaConf

    parent, _, name = key.rpartition(".")
    group = OmegaConf.select(config, parent)
    known = set(group) if OmegaConf.is_dict(group) else set()
    if name not in known and name not in known.union(fairseq_keys().get(parent, ())):
        raise DataError(f"{key}: no such key. {parent} has {', '.join(sorted(known)) or 'none'}")


def fairseq_keys() -> dict[str, list[str]]:
    """The keys of the groups that fairseq fills in itself, read from its source."""
    found = importlib.util.find_spec("fairseq")
    if found is None or found.origin is None:
        raise DataError("fairseq is not installed: activate the project's environment")
    source = (Path(found.origin).parent / "dataclass" / "configs.py").read_text(encoding="utf-8")
    fields: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            lines = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            fields[node.name] = {ast.unparse(line.target): ast.unparse(line.annotation) for line in lines}
    return {group: list(fields.get(kind, ())) for group, kind in fields["FairseqConfig"].items()}


def said(key: str, value: object) -> str:
    """An override, its value quoted if hydra's grammar requires it."""
    text = str(value)
    plain = re.fullmatch(r"[\w/.:+@%*-]+", text, re.ASCII)
    return f"{key}={text}" if plain else f"{key}='" + text.replace("'", r"\'") + "'"


def hydra_key(option: str) -> str:
    """fairseq's key, without its group, for an option of its command line."""
    return option.removeprefix("--").replace("-", "_")


def sizes(config: Any, encoder: Path) -> list[str]:
    """The sizes of a converted encoder, from its model_args.txt, as overrides."""
    words = model_args(encoder) if (encoder / "model_args.txt").is_file() else []
    found = []
    for option, value in TrainOptions(words).given.items():
        key = "_name" if option == "--arch" else hydra_key(option)
        group = "task" if key not in config.model and key in config.task else "model"
        found.append(("" if key in config[group] else "+") + said(f"{group}.{key}", value or "true"))
    return found


def shared(config: Any, gpus: int) -> list[str]:
    """The overrides that make ``gpus`` workers share each update's examples.

    Raises:
        DataError: the examples can't be divided evenly.
    """
    workers, batch = config.distributed_training.distributed_world_size, config.dataset.batch_size
    if gpus == workers:
        return []
    if batch is None or len(config.optimization.update_freq) > 1:
        raise DataError(f"--gpus {gpus}: set one dataset.batch_size and one optimization.update_freq")
    total = batch * config.optimization.update_freq[0] * workers
    for parts in range(max(1, -(-total // (batch * gpus))), total + 1):  # never increases the batch size
        if total % (parts * gpus) == 0:
            batch = total // (parts * gpus)
            return [f"{WORKERS}={gpus}", f"dataset.batch_size={batch}", f"optimization.update_freq=[{parts}]"]
    raise DataError(
        f"--gpus {gpus}: the {total} examples of an update can't be divided evenly. Pass a divisor of "
        f"{total}, or set dataset.batch_size and optimization.update_freq, which are then used unchanged"
    )


def on_cpus(config: Any, keys: Sequence[str]) -> list[str]:
    """The overrides that make several workers train without GPUs, if ``common.cpu`` is true.

    Raises:
        DataError: the recipe sets a precision that fairseq only supports on GPUs.
    """
    if not config.common.get("cpu"):
        return []
    if config.common.get("fp16") and not config.common.get("memory_efficient_fp16"):
        raise DataError("common.cpu=true: fp16 needs a GPU. Add common.fp16=false")
    if config.distributed_training.distributed_world_size == 1:
        return []
    words = {f"distributed_training.{hydra_key(option)}": value for option, value in ON_CPUS.items()}
    return [said(key, value) for key, value in words.items() if key not in keys]


def check_complete(config: Any, recipe: Path, parent: str = "") -> None:
    """Raises DataError, with the yaml's comment, if the recipe leaves a value to the user."""
    from omegaconf import OmegaConf

    for key in config:
        if OmegaConf.is_missing(config, key):
            files = [recipe, *sorted(recipe.parent.rglob("*.yaml"))]
            text = "\n".join(path.read_text(encoding="utf-8") for path in files)
            comment = re.search(rf"^ *{key}: \?\?\? +# (.*)", text, re.MULTILINE)
            hint = f" ({comment[1]})" if comment else ""
            raise DataError(f"{recipe}: {parent}{key} has no default: add {parent}{key}=…{hint}")
        if OmegaConf.is_dict(config[key]):
            check_complete(config[key], recipe, f"{parent}{key}.")


def check_encoder(config: Any, encoder: Path) -> None:
    """Raises DataError if a file that the run starts from is missing."""
    start = config.checkpoint.get("finetune_from_model")
    if start is not None and not Path(start).is_file():
        raise DataError(
            f"{start}: no such file. See examples/glue/README.md for where to get the pre-trained RoBERTa"
        )
    if "hf_model" in config.model and not (encoder / "config.json").is_file():
        raise DataError(f"{encoder}/config.json: no such file. Pass the encoder's Hugging Face folder")
    if "tokenizer_dir" not in config.task or is_hugging_face(encoder):
        return
    if not (encoder / "dict.txt").is_file():
        raise DataError(f"{encoder}/dict.txt: no such file. It comes with the encoder's model.pt")
    if not {"encoder.json", "vocab.bpe"} <= set(os.listdir(encoder)):
        raise DataError(
            f"{encoder}: no tokenizer found. Put GPT-2's encoder.json and vocab.bpe there "
            "(see examples/glue/README.md for where to get them)"
        )


def check_data(task: str, folder: Path, encoder: Path) -> None:
    """Raises DataError if the task can't read the folder, or can't use it with this encoder."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. See the recipe's README for its data")
    if task in CORPUS_TASKS and not (folder / "train.idx").is_file():
        raise DataError(f"{folder}/train.idx: no such file. DATA is what fairseq-adv corpus --check prints")
    if task == "sentence_prediction":
        if not (folder / "input0" / "dict.txt").is_file():
            raise DataError(
                f"{folder}/input0/dict.txt: no such file. Prepare the data with fairseq-adv prepare glue"
            )
        if is_hugging_face(encoder):
            hugging_face_args([folder], encoder)  # refuses data that were prepared with another tokenizer
        else:
            check_dictionary(folder, encoder)


def command(args: argparse.Namespace) -> list[str]:
    """The fairseq-hydra-train command of a run. If a key has two overrides, the later one, the user's, wins.

    Raises:
        DataError: something is missing or wrong.
    """
    from omegaconf import OmegaConf

    recipe, gpus, plugin, started = args.recipe, args.gpus, find_user_dir(), started_workers(os.environ)
    if not recipe.is_file():
        raise DataError(f"{recipe}: no such recipe. Choose one of\n{shipped()}")
    first, swept = first_job(args.overrides)
    chosen, keys = split(recipe, first)
    base = composed(recipe, chosen)
    for key in keys:
        check_key(base, key)
    has_no_start = OmegaConf.is_none(base.checkpoint, "finetune_from_model")
    starts_at_random = has_no_start and "hf_model" not in base.model
    if starts_at_random != (args.encoder == "-"):
        what = f"starts from random weights: pass - instead of {args.encoder}"
        what = what if starts_at_random else "starts from a pre-trained encoder: pass its folder instead of -"
        raise DataError(f"{recipe.stem} {what}")
    encoder, folders = Path(os.path.abspath(args.encoder)), [os.path.abspath(p) for p in args.data.split(":")]
    save = os.path.abspath(args.save)
    words = [said("common.user_dir", plugin), said("task.data", ":".join(folders)),
             said("checkpoint.save_dir", save)]  # fmt: skip
    words += [said("task.tokenizer_dir", encoder)] if "tokenizer_dir" in set(base.task) else []
    if gpus is None and WORKERS not in keys:
        gpus = started or 1
    if gpus is not None:  # a batch size set by the user is kept, on each GPU
        own = {"dataset.batch_size", "optimization.update_freq"}.intersection(keys)
        words += [f"{WORKERS}={gpus}"] if own else shared(base, gpus)
    words += sizes(base, encoder)
    # Not strict, since some of fairseq's keys are in no yaml; check_key has checked them.
    config = composed(recipe, [*words, *first], strict=False)
    workers = config.distributed_training.distributed_world_size
    if started and workers != started:
        raise DataError(f"{workers} workers, but {started} were started. Leave --gpus and {WORKERS} out")
    for key in keys:
        given = OmegaConf.select(config, key)
        if OmegaConf.is_list(OmegaConf.select(base, key)) and not OmegaConf.is_list(given):
            raise DataError(f"{key}={given}: not a list. Pass {key}=[{given}]")
    if config.task._name in CORPUS_TASKS:
        words.append(f"dataset.num_workers={loaders(workers)}")
    words += [*on_cpus(config, keys), *map(absolute, args.overrides)]
    check_complete(config, recipe)
    for group, key in PATHS:
        path = OmegaConf.select(config, f"{group}.{key}")
        if path is not None and f"{group}.{key}" not in swept and not (swept and key == "log_file"):
            config[group][key] = os.path.abspath(path.replace(ENCODER, str(encoder)))
            words.append(said(f"{group}.{key}", config[group][key]))
    check_encoder(config, encoder)
    for folder in folders:
        check_data(config.task._name, Path(folder), encoder)
    left_out = _GLUE.search(recipe.read_text(encoding="utf-8"))
    if left_out and not any(line.startswith("glue=") for line in first):
        print(f"note: without glue=… the schedule is that of glue={left_out[1]}", file=sys.stderr)
    folder = str(recipe.parent.resolve())
    if swept:
        words = ["--multirun", *words, *sweep(save, words, swept)]  # of two save_dirs, the later wins
    elif any(line.startswith("hydra/launcher=") for line in first):  # hydra only uses it with --multirun
        words = ["--multirun", *words, said("hydra.sweep.dir", save), "hydra.sweep.subdir=."]
    return ["fairseq-hydra-train", "--config-dir", folder, "--config-name", recipe.stem, *words]


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, epilog=f"recipes and their choices:\n{shipped()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s RECIPE DATA ENCODER_DIR SAVE_DIR [--gpus N] [--dry-run] [key=value ...]",
    )  # fmt: skip
    add = options.add_argument
    add("recipe", metavar="RECIPE", type=Path, help="a yaml: one of those below, or your own")
    add("data", metavar="DATA", help="data folder, see the recipe's README; several are joined by colons")
    add(
        "encoder",
        metavar="ENCODER_DIR",
        help="folder with model.pt and dict.txt, or the Hugging Face folder of a recipe "
        "that trains it as it is; - for random weights",
    )
    add("save", metavar="SAVE_DIR", help="output folder for checkpoints and logs")
    add("--gpus", type=count, metavar="N", help="divide each update among N GPUs (default: 1, or torchrun's)")
    add("--dry-run", action="store_true", help="print the command without running it")
    add("overrides", nargs="*", metavar="key=value", help="overrides for hydra; they win over the recipe")
    return options


def main() -> int:
    args = parser().parse_intermixed_args()

    def work() -> None:
        words = command(args)
        if os.environ.get("RANK", "0") == "0":
            print(shlex.join(words), flush=True)
        if args.dry_run:
            return
        program = shutil.which(words[0])
        if program is None:
            raise DataError(f"{words[0]} is not on PATH: activate the project's environment")
        os.execv(program, words)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
