"""The console command ``fairseq-adv``: a table of verbs.

``score tags`` is two functions of ``measure.py``: ``tags_options`` declares its options, ``tags`` works. The
docstring of ``tags``, or else that of its module, is the verb's help. The command is used inside other
command lines, ``--user-dir "$(fairseq-adv user-dir)"``, and must start fast: a verb imports torch and fairseq
only when its work begins.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from fairseq_adv import __version__
from fairseq_adv.data.errors import DataError
from fairseq_adv_compat import install
from fairseq_adv_compat.machine import ask_for_huge_pages

from .script import VerbParser, exit_status
from .user_dir import find_user_dir

__all__ = ["find_user_dir", "main"]

# So that the command needs no .pth; not in main(), because spawned workers only import this.
install()  # type: ignore[no-untyped-call]


# The first word of several verbs -> its help.
GROUPS = {
    "prepare": "Prepares a data set; words with tags, and SQuAD's json, can be trained on as they are.",
    "retrieve": "Finds documents for multiple-choice questions in your own text.",
    "score": "Scores a file of predictions: SQuAD answers, entity tags.",
}
# Verb -> the module with its two functions.
VERBS = {
    "prepare classification": "prepare",
    "prepare nli": "prepare",
    "prepare choices": "prepare",
    "prepare glue": "prepare",
    "prepare qnli-ranking": "prepare",
    "prepare wsc": "prepare",
    "corpus": "corpus",
    "retrieve index": "retrieve",
    "retrieve documents": "retrieve",
    "fetch": "hub",
    "convert": "hub",
    "train": "train",
    "validate": "measure",
    "export": "hub",
    "predict": "predict",
    "score squad": "measure",
    "score tags": "measure",
    "submission": "measure",
    "attack": "attack",
    "compare": "measure",
    "options": "user_dir",
    "doctor": "doctor",
    "user-dir": "user_dir",
}
# Verbs, and options of verbs, that are no more -> what to use instead.
_WITH_WORDPIECE = ("corpus", "prepare classification", "prepare glue", "prepare nli")
REMOVED = {
    "compare --curves": "plot metrics.jsonl of the run's folder, as docs/watching.md shows",
    **{f"{verb} --wordpiece-vocab": "pass --encoder FOLDER, Hugging Face's" for verb in _WITH_WORDPIECE},
    "doctor --disable-pth": "delete fairseq_adv_compat.pth from site-packages",
    "predict --vote": "leave it out: several models answer by the mean of their log-probabilities",
    "retrieve index --engine": "leave it out",
    "retrieve documents --engine": "leave it out",
    "sweep": "use fairseq-hydra-train --multirun, as docs/choosing.md shows",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Returns:
        the exit status: 0 success, 1 something is broken or missing, 2 a user error, 3 a limit of attack is
        missed.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    args = argparse.Namespace()
    ask_for_huge_pages()
    return exit_status(lambda: verb_parser(words).read(args)) or exit_status(
        lambda: _work(args), args.stopped
    )


def verb_parser(words: Sequence[str]) -> VerbParser:
    """The parser of the verb that a command line begins with. Its default of ``work`` does the verb's work.

    Raises:
        DataError: it has a verb or an option of 0.3 that was removed.
        SystemExit: after ``--help``, ``--version``, and the name of no verb, which is an error.
    """
    _refuse_removed(words)
    count = 2 if words and words[0] in GROUPS else 1
    verb = " ".join(words[:count])
    if verb not in VERBS or len(verb.split()) != count:  # one word may be quoted
        _name_verbs(words)
    parser, (module, name) = VerbParser(verb, words[count:]), _functions(verb)
    work = getattr(module, name)
    parser.description = inspect.cleandoc(work.__doc__ or module.__doc__)
    parser.set_defaults(work=work)
    getattr(module, f"{name}_options", lambda _: None)(parser)
    return parser


def _functions(verb: str) -> tuple[Any, str]:
    """The module of a verb, and the name of its function."""
    try:
        module = importlib.import_module(f".{VERBS[verb]}", __package__)
    except ModuleNotFoundError as error:  # installed with --no-deps, for fairseq_adv.loop
        raise DataError(
            f"{error.name}, which fairseq-adv needs, is not installed. docs/start.md (Install) has the steps"
        ) from error
    return module, verb.split()[-1].replace("-", "_")


def _refuse_removed(words: Sequence[str]) -> None:
    for old, instead in REMOVED.items():
        verb, _, option = old.partition(" --")
        count = len(verb.split())
        given = {word.partition("=")[0] for word in words[count:]}
        if words[:count] == verb.split() and (not option or f"--{option}" in given):
            raise DataError(f"fairseq-adv {old}: removed; {instead}")


def _name_verbs(words: Sequence[str]) -> NoReturn:
    """Prints the verbs, after --help, or what is wrong with the first word, or the second of a group."""
    group = words[0] if words and words[0] in GROUPS else ""
    parser = VerbParser(group, words)
    parser.description = GROUPS[group] if group else "Adversarial training of language models."
    parser.epilog = "Run fairseq-adv COMMAND --help for the options of a command."
    if not group:
        version = f"fairseq_adv {__version__}"
        parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    commands = parser.add_subparsers(
        dest="verb", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
    )
    of_group = [verb for verb in VERBS if verb.startswith(group)]
    for name in dict.fromkeys(verb.removeprefix(f"{group} ").split()[0] for verb in of_group):
        if name in GROUPS:
            help_ = GROUPS[name]
        else:
            module, work = _functions(f"{group} {name}".strip())
            help_ = (getattr(module, work).__doc__ or module.__doc__).partition("\n")[0]
        commands.add_parser(name, help=help_, add_help=False)
    parser.parse_args(words[bool(group) :][:1])
    raise SystemExit(2)  # parse_args has ended


def _work(args: argparse.Namespace) -> int | None:
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    work: Callable[[argparse.Namespace], int | None] = args.work
    with ExitStack() as around:
        if "own" not in args:  # train has a log and a screen of its own
            around.enter_context(log_as_notes())
        if "max_line_mb" in args:
            from fairseq_adv.data.lines import lines_up_to

            around.enter_context(lines_up_to(args.max_line_mb))
        if "user_dir" in args and args.user_dir:
            from .user_dir import load_user_dir

            load_user_dir(args.user_dir)
        return work(args)


@contextmanager
def log_as_notes() -> Iterator[None]:
    """Shows what is logged in the block as lines such as ``note: …`` on standard error, each of them once:
    our own log, and the warnings of others.

    Without a handler, importing fairseq adds one, whose lines begin with a time and a module's name
    (fairseq/tasks/text_to_speech.py, line 23).
    """
    package_logger, handler = logging.getLogger("fairseq_adv"), _Notes()
    level = package_logger.level
    package_logger.setLevel(logging.INFO)
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        package_logger.setLevel(level)


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        is_note = record.levelno < logging.WARNING
        if is_note and not record.name.startswith("fairseq_adv"):
            return
        prefix = "note" if is_note else record.levelname.lower()
        line = f"{prefix}: {self.format(record)}"
        if line not in self._seen:  # predict reads a file twice
            self._seen.add(line)
            print(line, file=sys.stderr)
