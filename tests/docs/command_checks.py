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
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from documents import ROOT, Command, Snippet, commands, fault_of_a_fence, open_fences, snippets
from fairseq import options
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from hydra._internal.utils import get_args_parser as hydra_parser
from recipes import launcher
from shell_words import Unreadable, calls
from support import PLUGIN, load_script
from torch.distributed.run import get_args_parser as torchrun_parser

import fairseq_adv.cli
from fairseq_adv.cli.data_folder import kind_of
from fairseq_adv.cli.train_command import TrainOptions
from fairseq_adv.data.errors import DataError

# Programs whose words are not ours to check.
ORDINARY = {
    ".", "[", "cat", "cd", "command", "cp", "curl", "echo", "export", "git", "grep", "gunzip", "head", "hf",
    "jupyter", "ls", "mkdir", "mv", "nvidia-smi", "pre-commit", "printf", "rm", "scancel", "scontrol",
    "set", "source", "squeue", "tail", "tar", "tensorboard", "test", "textattack", "true", "unzip", "wget",
    "which",
}  # fmt: skip
PYTHON_MODULES = {"pytest", "spacy", "venv"}  # likewise, after python -m
# Words that stand for one of several names, and a name that can be parsed in their place.
NAMES = {
    "COMMAND": "train", "CRITERION": "freelb", "METHOD": "freelb", "RECIPE": "examples/wsc/config/wsc.yaml",
    "TASK": "RTE", "VERB": "train",
}  # fmt: skip
FAIRSEQ_NAMES = {"--arch": "roberta_base", "--criterion": "freelb", "--task": "sentence_prediction"}
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*")
FAIRSEQ_EXAMPLES = "examples/roberta/"  # lies in fairseq's repository
_FOLDERS = re.compile(r"(\./)?(benchmarks|docs|examples|fairseq_adv\w*|scripts|tests)/")
_MISSING = re.compile(r"the following arguments are required|expected (one|at least one) argument")


class WrongCommand(Exception):
    """The program would refuse the command; the text is the program's error."""


class Incomplete(WrongCommand):
    """The command needs more words; those that are given are right.

    Args:
        message: what is missing.
        options: of the parser that has found it.
    """

    def __init__(self, message: str, options: Collection[str] | None = None) -> None:
        super().__init__(message)
        self.options = options


def faults(text: str, page: str) -> list[str]:
    """What is wrong with the commands and code of a page, a line each: page, line, program and message."""
    found = [f"{page}:{line}: this block of code has no end" for line in open_fences(text)]
    return found + [fault for snippet in snippets(text, page) for fault in _faults_of(snippet)]


def _faults_of(snippet: Snippet) -> list[str]:
    found = [fault_of_a_fence(snippet)]
    try:
        if snippet.language in ("bash", "inline"):
            found += [fault_of(command) for command in commands(snippet)]
        elif snippet.language == "python":
            check_code(snippet.text, snippet.where)
    except (Unreadable, WrongCommand) as wrong:
        found.append(str(wrong))
    return [fault for fault in found if fault]


def fault_of(command: Command) -> str:
    """What is wrong with a command, with page and line; "" if nothing is. With --help it may lack words."""
    words, text = [word for word in command.words if word not in ("-h", "--help")], ""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            check(words)
    except Incomplete as missing:
        text = str(missing) if command.whole and len(words) == len(command.words) else ""
    except WrongCommand as wrong:
        text = str(wrong)
    except SystemExit as end:  # --version and the like
        text = f"ends with status {end.code}" if end.code else ""
    count = 2 if command.words[0] == "fairseq-adv" else 1
    text = " ".join(text.replace(f"{ROOT}/", "").split())
    return text and f"{command.where}: {' '.join(command.words[:count])}: {text}"


def check(words: list[str]) -> None:
    """Parses a command.

    Args:
        words: the program and its arguments.

    Raises:
        WrongCommand: it would be refused, or nothing is known about such a program.
        Incomplete: the same command with more words may be right.
    """
    program, own = words[0], words[1:]
    if program.startswith(FAIRSEQ_EXAMPLES):
        return
    _check_paths(words)
    path = ROOT / program
    if "/" in program and path.is_file() and not _in_an_environment(program):
        _check_script(path, own)
        return
    if _in_an_environment(program):
        program = program.rsplit("/", 1)[1]
    program = re.sub(r"^python[\d.]+$", "python", program)
    if program in CHECKS:
        CHECKS[program](own)
    elif program not in ORDINARY:
        raise WrongCommand("an unknown program; tests/docs/command_checks.py lists those that are known")


def _in_an_environment(program: str) -> bool:
    return re.fullmatch(r"(.*/)?(\.venv|VENV|venv)/bin/[\w.-]+", program) is not None


def _check_paths(words: Sequence[str]) -> None:
    """Files and folders of the project must exist."""
    for word in words:
        if not _FOLDERS.match(word) or " " in word or word.startswith(FAIRSEQ_EXAMPLES):
            continue
        parts = word.split("/")
        if "$" in word or any(PLACEHOLDER.fullmatch(part) for part in parts):
            continue
        if not any(ROOT.glob(os.path.normpath(word))):
            raise WrongCommand(f"{word} is not there")


# argparse


@contextlib.contextmanager
def parsers_that_raise() -> Iterator[None]:
    """argparse raises WrongCommand instead of ending the process, and takes N for a number."""
    get_value, check_value = argparse.ArgumentParser._get_value, argparse.ArgumentParser._check_value

    def error(parser: argparse.ArgumentParser, message: str) -> None:
        if _MISSING.search(message):
            raise Incomplete(message, parser._option_string_actions)
        raise WrongCommand(message)

    def of_type(parser: argparse.ArgumentParser, action: argparse.Action, text: str) -> Any:
        is_text = action.type in (None, str, Path)
        return text if PLACEHOLDER.fullmatch(text) and not is_text else get_value(parser, action, text)

    def of_choices(parser: argparse.ArgumentParser, action: argparse.Action, value: Any) -> None:
        names = [name for name in action.choices or () if isinstance(name, str)]
        if not (PLACEHOLDER.fullmatch(str(value)) and all(name == name.lower() for name in names)):
            check_value(parser, action, value)

    parser = argparse.ArgumentParser
    with mock.patch.multiple(parser, error=error, _get_value=of_type, _check_value=of_choices):
        yield


def parsed(
    parser: argparse.ArgumentParser, words: Sequence[str], parse: Callable[[], Any] | None = None
) -> argparse.Namespace:
    """Parses words. Unknown options are found even where a required word is missing.

    Args:
        parser: whose options count.
        words: the arguments.
        parse: reads them (default: the parser's ``parse_args``).

    Raises:
        WrongCommand, Incomplete: as :func:`check`.
    """
    with parsers_that_raise(), unknown_options_first(words):
        found: argparse.Namespace = parse() if parse else parser.parse_args(list(words))
    return found


@contextlib.contextmanager
def unknown_options_first(words: Sequence[str]) -> Iterator[None]:
    """argparse reports missing words before unknown options. Here an unknown option comes first."""
    try:
        yield
    except Incomplete as missing:
        if missing.options is not None:
            _check_options(words, missing.options)
        raise


def _check_options(words: Sequence[str], known: Collection[str]) -> None:
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in known:
            raise WrongCommand(f"unrecognized arguments: {word}")


# fairseq-adv


def check_verb(words: list[str]) -> None:
    """``fairseq-adv``: the verb's own parser, and its check of options that don't go together."""
    words, args = [NAMES.get(word, word) for word in words], argparse.Namespace()
    try:
        with parsers_that_raise(), unknown_options_first(words):
            fairseq_adv.cli.verb_parser(words).read(args)
    except DataError as error:
        raise (Incomplete if " is missing" in str(error) else WrongCommand)(str(error)) from error
    if words[0] == "train":
        _check_training(args)


def _does_nothing(*_: object, **__: object) -> int:
    return 0


def _check_training(args: argparse.Namespace) -> None:
    """The options that are passed on: of fairseq-train, and of one of the tasks that the data may be for."""
    own = args.own
    words = TrainOptions(own)
    tasks = (
        [words.value("--task")] if words.has("--task") else [task for task in TASK_REGISTRY if kind_of(task)]
    )
    has_encoder = args.encoder is not None or words.has("--arch")
    # What fairseq-adv train fills in and has options of its own.
    words.fill({"--criterion": "freelb", "--arch": "roberta_base", "--optimizer": "torch_adamw"})
    words.fill({"--lr-scheduler": "polynomial_decay"})
    refused: list[WrongCommand] = []
    for task in tasks:
        named = ["--user-dir", PLUGIN, *([] if words.has("--task") else ["--task", task])]
        try:
            _parse_for_fairseq(["DATA", *named, *words.filled_in(), *own])
        except WrongCommand as fault:
            refused.append(fault)
    if len(refused) == len(tasks):
        raise refused[0]
    if not has_encoder:
        raise Incomplete("--encoder is missing")


# fairseq's own commands


def check_fairseq_train(words: list[str]) -> None:
    """Options of the program, of --task, --criterion, --arch and so on."""
    words = [
        FAIRSEQ_NAMES[before] if before in FAIRSEQ_NAMES and PLACEHOLDER.fullmatch(word) else word
        for before, word in zip(["", *words], words)
    ]
    given = {word.partition("=")[0] for word in words}
    arch = [] if "--arch" in given else ["--arch", FAIRSEQ_NAMES["--arch"]]
    args = _parse_for_fairseq([*words, *arch])
    registries = {
        "task": TASK_REGISTRY, "criterion": CRITERION_REGISTRY, "optimizer": OPTIMIZER_REGISTRY,
        "arch": ARCH_MODEL_REGISTRY,
    }  # fmt: skip
    for name, registry in registries.items():
        kind = registry.get(getattr(args, name, None))
        if kind and kind.__module__.startswith("fairseq_adv") and "--user-dir" not in given:
            raise Incomplete(f"--{name} {getattr(args, name)} needs --user-dir")
    if arch:
        raise Incomplete("--arch is missing")


def _parse_for_fairseq(words: Sequence[str]) -> argparse.Namespace:
    parser = options.get_training_parser()

    def parse() -> Any:
        with mock.patch.object(options.utils, "import_user_module"):  # it is imported
            return options.parse_args_and_arch(parser, list(words))

    return parsed(parser, words, parse)


def check_hydra_train(words: list[str]) -> None:
    """``fairseq-hydra-train`` with a recipe of the project."""
    parser = hydra_parser()
    parser.allow_abbrev = False
    args, run = parsed(parser, words), launcher()
    if not args.config_name or PLACEHOLDER.fullmatch(args.config_dir or "DIR") or args.config_dir == ".":
        return  # a yaml of the reader's own
    recipe = ROOT / args.config_dir / f"{args.config_name.removesuffix('.yaml')}.yaml"
    try:
        given, _ = run.first_job(args.overrides)
        chosen, keys = run.split(recipe, given)
        base = run.composed(recipe, chosen)
        for key in keys:
            run.check_key(base, key)
        run.check_complete(run.composed(recipe, given, strict=False), recipe)
    except DataError as error:
        raise WrongCommand(str(error)) from error


def check_torchrun(words: list[str]) -> None:
    """torchrun's own options, then the program that it starts."""
    args = parsed(torchrun_parser(), words)
    program = args.training_script
    check([*(["python"] if program.endswith(".py") else []), program, *args.training_script_args])


# The project's files


def check_recipe(words: list[str]) -> None:
    """``examples/run.py``: what it checks itself, without the data and the encoder."""
    words = [re.sub(r"(^|=)[A-Z]$", r"\g<1>1", NAMES.get(word, word)) for word in words]
    parser = launcher().parser()
    args = parsed(parser, words, lambda: parser.parse_intermixed_args(words))
    fault = _fault_of_a_recipe(ROOT / args.recipe, args.encoder == "-", args.gpus, tuple(args.overrides))
    if fault:
        raise WrongCommand(fault)


@cache
def _fault_of_a_recipe(recipe: Path, at_random: bool, gpus: int | None, overrides: tuple[str, ...]) -> str:
    run = launcher()
    args = argparse.Namespace(
        recipe=recipe, data="DATA", encoder="-" if at_random else "ENCODER", save="SAVE", gpus=gpus,
        overrides=list(overrides),
    )  # fmt: skip
    with mock.patch.multiple(run, check_encoder=_does_nothing, check_data=_does_nothing):
        try:
            run.command(args)
        except ValueError as error:
            return str(error)
    return ""


def check_sbatch(words: list[str]) -> None:
    """The options of sbatch, then the words of the script."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, given, _ = words[at].partition("=")
        if name == "--wrap":
            check_all(words[at + 1 : at + 2] if not given else [words[at].partition("=")[2]])
            return
        at += 1
    if at == len(words):
        raise Incomplete("no script")
    script, own = ROOT / words[at], words[at + 1 :]
    if script.name == "slurm.sbatch":
        check_recipe(own)
    elif script.name == "prepare_corpus.sbatch":
        check_verb(["corpus", *own])
    elif script.name == "retrieve.sbatch":
        if len(own) < 3:
            raise Incomplete("INDEX, OUT and QUESTIONS are wanted")
    else:
        raise WrongCommand(f"{words[at]}: an unknown script; tests/docs/command_checks.py lists those")


def check_all(texts: Sequence[str]) -> None:
    """The commands of a text that is bash itself."""
    for text in texts:
        for call in calls(text):
            check(list(call.words))


def _check_script(path: Path, words: list[str]) -> None:
    """A file of the project: by its parser, or by the options that its text names."""
    if path == ROOT / "examples/run.py":
        check_recipe(words)
        return
    if path.suffix == ".sbatch":
        raise Incomplete("submit it with sbatch")
    source = path.read_text(encoding="utf-8")
    if not os.access(path, os.X_OK):
        raise (WrongCommand if words else Incomplete)(f"{path.relative_to(ROOT)} is not executable")
    _check_words_of_a_script(path, source, words)


def _check_words_of_a_script(path: Path, source: str, words: list[str]) -> None:
    if re.search(r"^def parser\(\)", source, re.MULTILINE):
        parsed(_module(path).parser(), words)
    else:
        _check_options(words, ["--help", *re.findall(r"--[a-z][a-z0-9-]*", source)])


@cache
def _module(path: Path) -> ModuleType:
    folders = [str(path.parent), str(ROOT / "examples"), str(ROOT / "benchmarks")]
    with mock.patch("sys.path", [*folders, *importlib.import_module("sys").path]):
        return load_script(path)


# Python and its packages


def check_python(words: list[str]) -> None:
    """A file of the project, or a module."""
    if words[:1] == ["-m"] and len(words) > 1:
        module, own = words[1], words[2:]
        if module == "fairseq_adv":
            check_verb(own)
        elif module == "pip":
            check_pip(own)
        elif module not in PYTHON_MODULES:
            raise WrongCommand(f"-m {module}: an unknown module; tests/docs/command_checks.py lists those")
    elif words[:1] == ["-c"]:
        check_code(words[1] if len(words) > 1 else "")
    elif words:
        path = ROOT / words[0]
        if not path.is_file():
            raise WrongCommand(f"{words[0]} is not there")
        _check_words_of_a_script(path, path.read_text(encoding="utf-8"), words[1:])


def check_pip(words: list[str]) -> None:
    """Files that are there, and extras that setup.py has."""
    if words[:1] not in (["install"], ["uninstall"]):
        raise WrongCommand(f"{' '.join(words[:1])}: an unknown command of pip")
    for before, word in zip(words, words[1:]):
        if before in ("-c", "-r") and not (ROOT / word).is_file():
            raise WrongCommand(f"{before} {word}: no such file")
        if own := re.fullmatch(r"(?:\.|fairseq_adv)\[([\w,]*)\]", word):
            unknown = set(own[1].split(",")) - extras()
            if unknown:
                raise WrongCommand(f"setup.py has no extra {', '.join(sorted(unknown))}")


@cache
def extras() -> frozenset[str]:
    """Those of setup.py."""
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    return frozenset(re.findall(r'"(\w+)":', text[text.index("extras_require") :]))


def check_code(source: str, where: str = "") -> None:
    """Python must compile, and what it imports from this project and from fairseq must exist.

    Raises:
        WrongCommand: names the line of ``where``, a page and the line of the first line of the source.
    """
    page, _, first = where.rpartition(":")

    def wrong(line: int, message: str) -> WrongCommand:
        return WrongCommand(f"{page}:{int(first) + line - 1}: {message}" if where else message)

    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise wrong(error.lineno or 1, f"python: {error.msg}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            if re.match(r"fairseq(_adv\w*)?(\.|$)", module) and not _is_there(module, name):
                raise wrong(node.lineno, f"python: cannot import {name or module} from {module}")


def _is_there(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
        return not name or hasattr(found, name) or _is_there(f"{module}.{name}", "")
    except ModuleNotFoundError as error:
        return not str(error.name).startswith("fairseq")  # it wants another package


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "fairseq-adv": check_verb,
    "fairseq-train": check_fairseq_train,
    "fairseq-hydra-train": check_hydra_train,
    "torchrun": check_torchrun,
    "sbatch": check_sbatch,
    "python": check_python,
    "pip": check_pip,
    "uv": lambda words: check_pip(words[1:]),
}
