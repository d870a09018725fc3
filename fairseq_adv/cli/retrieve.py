"""``fairseq-adv retrieve``: builds an index, then retrieves documents from it."""

from __future__ import annotations

from .script import command_parser, run_verb

VERBS = {
    "index": ("retrieve_index", "index text files, one sentence per line"),
    "documents": ("retrieve_documents", "add retrieved documents to each choice of question files"),
}


def main(argv: list[str] | None = None) -> int:
    description = "Finds documents for multiple-choice questions in your own text."
    return run_verb(command_parser("retrieve", description), VERBS, argv)
