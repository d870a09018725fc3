"""``fairseq-adv retrieve``: first an index, then documents from it."""

from __future__ import annotations

from .script import command_parser, run_verb

VERBS = {
    "index": ("retrieve_index", "index text files, one sentence a line"),
    "documents": ("retrieve_documents", "write the documents of each choice into files of questions"),
}


def main(argv: list[str] | None = None) -> int:
    description = "Finds documents for multiple-choice questions in text of your own."
    return run_verb(command_parser("retrieve", description), VERBS, argv)
