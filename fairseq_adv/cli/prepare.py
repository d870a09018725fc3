"""``fairseq-adv prepare``: a subcommand for each kind of data set."""

from __future__ import annotations

from .script import command_parser, run_verb

VERBS = {
    "classification": (
        "prepare_classification",
        "texts with classes or numbers: csv, tsv, jsonl, parquet, …",
    ),
    "nli": ("prepare_nli", "premises and hypotheses: SNLI, MultiNLI, SciTail, ANLI"),
    "choices": ("prepare_choices", "multiple choice: your own jsonl, SWAG, HellaSWAG, for arc_retrieval"),
    "glue": ("prepare_glue", "GLUE tasks, for sentence_prediction and text_classification"),
    "qnli-ranking": ("prepare_qnli_ranking", "GLUE's QNLI, as questions with two sentences each"),
    "wsc": ("prepare_wsc", "SuperGLUE's WSC or GLUE's WNLI, with candidates"),
}


def main(argv: list[str] | None = None) -> int:
    return run_verb(command_parser("prepare", "Prepares a data folder for a task."), VERBS, argv)
