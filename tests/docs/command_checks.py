"""Checks a command of the documents by parsing it as its program does, and runs nothing of it."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from documents import ROOT, commands, snippets
from fairseq import options
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from hydra._internal.utils import get_args_parser as hydra_parser
from recipes import launcher
from support import PLUGIN, load_script
from torch.distributed.run import get_args_parser as torchrun_parser

import fairseq_adv.cli
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.tasks.task_record import record_named

# Programs whose words are not ours to check.
ORDINARY = {
    ".", "[", "cat", "cd", "command", "cp", "curl", "echo", "export", "git", "grep", "gunzip", "head", "hf",
    "jupyter", "ls", "mkdir", "mv", "nvidia-smi", "pre-commit", "printf", "rm", "scancel", "scontrol",
    "set", "source", "squeue", "tail", "tar", "tensorboard", "test", "textattack", "true", "unzip", "wget",
    "which", "awk",
}  # fmt: skip
PYTHON_MODULES = {"pytest", "spacy", "venv"}  # likewise, after python -m
# Words that stand for one of several names, and a name that can be parsed in their place.
NAMES = {
    "ARCH": "roberta_base",
    "COMMAND": "train", "CRITERION": "freelb", "METHOD": "freelb", "RECIPE": "examples/wsc/config/wsc.yaml",
    "TASK": "RTE", "VERB": "train",
}  # fmt: skip
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*")
SCRIPTS = ROOT / "examples", ROOT / "benchmarks"
FAIRSEQ_EXAMPLES = "examples/roberta/"  # lies in fairseq's repository
_FOLDERS = re.compile(r"(\./)?(benchmarks|docs|examples|fairseq_adv\w*|scripts|tests)/")
_MISSING = re.compile(
    r"the following arguments are required|expected (one|at least one) argument| is missing"
)


class WrongCommand(Exception):
    """The program would refuse the command; the text is the program's error."""


def faults(text: str, page: str) -> list[str]:
    """What is wrong with the commands and code of a page, a line each: page, line, program and message."""
    found = []
    try:
        for line, language, code in snippets(text):
            if language == "python":
                found += [f"{page}:{line - 1 + at}: python: {told}" for at, told in faults_of_code(code)]
            is_bash = language in ("bash", "inline")
            for command in commands(code, page, line, language == "bash") if is_bash else ():
                words = [word for word in command.words if word not in ("-h", "--help")]
                try:
                    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                        check(words, command.whole and len(words) == len(command.words))
                except WrongCommand as wrong:
                    told = " ".join(str(wrong).replace(f"{ROOT}/", "").split())
                    verb = 1 + (words[0] == "fairseq-adv")
                    found.append(f"{command.where}: {' '.join(command.words[:verb])}: {told}")
    except ValueError as error:
        found.append(f"{page}:{error}")
    return found


def check(words: list[str], whole: bool) -> None:
    """Parses a command; if it isn't ``whole``, the same one with more words may be right.

    Raises:
        WrongCommand: it would be refused, or nothing is known about such a program.
    """
    if words[0].startswith(FAIRSEQ_EXAMPLES):
        return
    for word in words:  # files and folders of the project must exist
        is_ours = _FOLDERS.match(word) and " " not in word and not word.startswith(FAIRSEQ_EXAMPLES)
        stands_for = "$" in word or any(PLACEHOLDER.fullmatch(part) for part in word.split("/"))
        if is_ours and not stands_for and not any(ROOT.glob(os.path.normpath(word))):
            raise WrongCommand(f"{word} is not there")
    program, own = re.sub(r"^(.*/)?(\.venv|VENV|venv)/bin/", "", words[0]), words[1:]
    program = re.sub(r"^python[\d.]+$", "python", program)
    if program == "python" and own[:1] == ["-c"]:
        for _, fault in faults_of_code(own[1]):
            raise WrongCommand(fault)
    elif program == "python" and own[:1] == ["-m"]:
        if own[1] not in PYTHON_MODULES:
            check(["fairseq-adv" if own[1] == "fairseq_adv" else own[1], *own[2:]], whole)
    elif program == "python" and own:
        check_script(ROOT / own[0], own[1:], False)
    elif "/" in program and (ROOT / program).is_file():
        check_script(ROOT / program, own, whole)
    elif program in CHECKS:
        CHECKS[program](own, whole)
    elif program not in ORDINARY:
        raise WrongCommand("an unknown program; tests/docs/command_checks.py lists those that are known")


@contextlib.contextmanager
def parsers_that_raise() -> Iterator[None]:
    """argparse raises WrongCommand instead of ending the process, and takes N for a number."""
    get_value, check_value = argparse.ArgumentParser._get_value, argparse.ArgumentParser._check_value

    def error(parser: argparse.ArgumentParser, message: str) -> None:
        wrong = WrongCommand(message)
        wrong.known = parser._option_string_actions  # type: ignore[attr-defined]
        raise wrong

    def of_type(parser: argparse.ArgumentParser, action: argparse.Action, text: str) -> Any:
        is_text = action.type in (None, str, Path)
        return text if PLACEHOLDER.fullmatch(text) and not is_text else get_value(parser, action, text)

    def of_choices(parser: argparse.ArgumentParser, action: argparse.Action, value: Any) -> None:
        names = [name for name in action.choices or () if isinstance(name, str)]
        if not (PLACEHOLDER.fullmatch(str(value)) and all(name == name.lower() for name in names)):
            check_value(parser, action, value)

    with mock.patch.multiple(
        argparse.ArgumentParser, error=error, _get_value=of_type, _check_value=of_choices
    ):
        yield


def parsed(words: Sequence[str], whole: bool, parse: Callable[[], Any]) -> Any:
    """What ``parse`` returns. Where words are missing that needn't be there (``None``), only the options are
    looked at."""
    try:
        with parsers_that_raise():
            return parse()
    except (WrongCommand, DataError) as wrong:
        if whole or not _MISSING.search(str(wrong)):
            raise WrongCommand(str(wrong)) from wrong
        _check_options(words, getattr(wrong, "known", words))
        return None


def _check_options(words: Sequence[str], known: Collection[str]) -> None:
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in known:
            raise WrongCommand(f"unrecognized arguments: {word}")


def check_verb(words: list[str], whole: bool) -> None:
    """``fairseq-adv``: the verb's own parser, and its check of options that don't go together."""
    words, args = [NAMES.get(word, word) for word in words], argparse.Namespace()
    parsed(words, whole, lambda: fairseq_adv.cli.verb_parser(words).read(args))
    if words[:1] == ["train"] and "own" in args:
        _check_training(args, whole)


def _check_training(args: argparse.Namespace, whole: bool) -> None:
    """The options that are passed on: of fairseq-train, and of one of the tasks that the data may be for."""
    words = TrainOptions(args.own)
    if whole and args.encoder is None and not words.has("--arch"):
        raise WrongCommand("--encoder is missing")
    words.fill({"--criterion": "freelb", "--arch": "roberta_base", "--optimizer": "torch_adamw"})
    words.fill({"--user-dir": PLUGIN, "--lr-scheduler": "polynomial_decay"})
    given = [words.value("--task")] if words.has("--task") else []
    tasks = given or [one for one in TASK_REGISTRY if record_named(one)]
    refused = []
    for task in tasks:
        words.fill({"--task": task})
        try:
            _parse_for_fairseq(["DATA", *words.words()], whole)
        except WrongCommand as fault:
            refused.append(fault)
    if len(refused) == len(tasks):
        raise refused[0]


def check_fairseq_train(words: list[str], whole: bool) -> None:
    """Options of the program, of --task, --criterion, --arch and so on."""
    words = [NAMES.get(word, word) for word in words]
    arch = [] if "--arch" in words else ["--arch", "roberta_base"]
    args = _parse_for_fairseq([*words, *arch], whole)
    for name, registry in (("task", TASK_REGISTRY), ("criterion", CRITERION_REGISTRY)):
        kind = registry.get(getattr(args, name, None))
        if whole and kind and kind.__module__.startswith("fairseq_adv") and "--user-dir" not in words:
            raise WrongCommand(f"--{name} {getattr(args, name)} needs --user-dir")
    if whole and arch:
        raise WrongCommand("--arch is missing")


def _parse_for_fairseq(words: Sequence[str], whole: bool) -> Any:
    parser = options.get_training_parser()
    with mock.patch.object(options.utils, "import_user_module"):  # it is imported
        return parsed(words, whole, lambda: options.parse_args_and_arch(parser, list(words)))


def check_hydra_train(words: list[str], whole: bool) -> None:
    """``fairseq-hydra-train`` with a recipe of the project."""
    parser = hydra_parser()
    parser.allow_abbrev = False
    args, run = parsed(words, whole, lambda: parser.parse_args(words)), launcher()
    folder = ROOT / (args.config_dir or "-" if args else "-")
    if not folder.is_dir() or folder == ROOT:
        return  # a yaml of the reader's own
    recipe = folder / f"{args.config_name.removesuffix('.yaml')}.yaml"
    try:
        given, _ = run.first_job(args.overrides)
        chosen, keys = run.split(recipe, given)
        base = run.composed(recipe, chosen)
        for key in keys:
            run.check_key(base, key)
        run.check_complete(run.composed(recipe, given, strict=False), recipe)
    except DataError as error:
        if whole:
            raise WrongCommand(str(error)) from error


def check_torchrun(words: list[str], whole: bool) -> None:
    """torchrun's own options, then the program that it starts."""
    args = parsed(words, whole, lambda: torchrun_parser().parse_args(words))
    if args is not None:
        program = args.training_script
        check([*(["python"] if program.endswith(".py") else []), program, *args.training_script_args], whole)


def check_recipe(words: list[str], whole: bool) -> None:
    """``examples/run.py``: what it checks itself, without the data and the encoder."""
    words = [re.sub(r"(^|=)[A-Z]$", r"\g<1>1", NAMES.get(word, word)) for word in words]
    args = parsed(words, whole, lambda: launcher().parser().parse_intermixed_args(words))
    if args is not None:
        given = ROOT / args.recipe, args.encoder == "-", args.gpus, tuple(args.overrides)
        if fault := _fault_of_a_recipe(*given):
            raise WrongCommand(fault)


def check_sbatch(words: list[str], whole: bool) -> None:
    """The options of sbatch, then the words of the script; --wrap has a command."""
    while words and words[0].startswith("-"):
        if words[0] == "--wrap":
            check(words[1].split(), whole)
            return
        words = words[1:]
    script = words[0].rpartition("/")[2] if words else ""
    if script == "slurm.sbatch":
        check_recipe(words[1:], whole)
    elif script == "prepare_corpus.sbatch":
        check_verb(["corpus", *words[1:]], whole)
    elif whole and (script != "retrieve.sbatch" or len(words) < 4):
        raise WrongCommand(f"{' '.join(words)}: no such script, or too few words")


@cache
def _fault_of_a_recipe(recipe: Path, at_random: bool, gpus: int | None, overrides: tuple[str, ...]) -> str:
    args = argparse.Namespace(
        recipe=recipe, data="DATA", encoder="-" if at_random else "ENCODER", save="SAVE", gpus=gpus,
        overrides=list(overrides),
    )  # fmt: skip
    with mock.patch.multiple(launcher(), check_encoder=mock.DEFAULT, check_data=mock.DEFAULT):
        try:
            launcher().command(args)
        except ValueError as error:
            return str(error)
    return ""


def check_script(path: Path, words: list[str], whole: bool) -> None:
    """A file of the project: by its parser, or by the options that its text names."""
    source = path.read_text(encoding="utf-8")
    if path == ROOT / "examples/run.py":
        check_recipe(words, whole)
    elif whole and (path.suffix == ".sbatch" or not os.access(path, os.X_OK)):
        raise WrongCommand(f"{path.relative_to(ROOT)} is not executable, or is for sbatch")
    elif re.search(r"^def parser\(\)", source, re.MULTILINE):
        with mock.patch("sys.path", [str(path.parent), *map(str, SCRIPTS), *sys.path]):
            parsed(words, whole, lambda: load_script(path).parser().parse_args(words))
    else:
        _check_options(words, ["--help", *re.findall(r"--[a-z][a-z0-9-]*", source)])


def check_pip(words: list[str], whole: bool) -> None:
    """The extras of this project are those that setup.py has."""
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    extras = re.findall(r'"(\w+)":', setup[setup.index("extras_require") :])
    for asked in re.findall(r"(?:\.|fairseq_adv)\[([\w,]*)\]", " ".join(words)):
        if unknown := set(asked.split(",")) - set(extras):
            raise WrongCommand(f"setup.py has no extra {', '.join(sorted(unknown))}")


def faults_of_code(source: str) -> Iterator[tuple[int, str]]:
    """Python must compile, and what it imports from this project and from fairseq must exist."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError as error:
        yield error.lineno or 1, error.msg
        return
    for node in nodes:
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
            try:
                if re.match(r"fairseq(_adv\w*)?(\.|$)", module):
                    found = importlib.import_module(module)
                    if isinstance(node, ast.ImportFrom) and not hasattr(found, alias.name):
                        importlib.import_module(f"{module}.{alias.name}")
            except ModuleNotFoundError as error:
                if str(error.name).startswith("fairseq"):  # else it wants another package
                    yield node.lineno, f"cannot import {alias.name} from {module}"


CHECKS: dict[str, Callable[[list[str], bool], None]] = {
    "fairseq-adv": check_verb,
    "fairseq-train": check_fairseq_train,
    "fairseq-hydra-train": check_hydra_train,
    "torchrun": check_torchrun,
    "sbatch": check_sbatch,
    "pip": check_pip,
    "uv": lambda words, whole: check_pip(words[1:], whole),
}
