"""``fairseq-adv retrieve``: indexes your own text, and adds documents from it to questions with choices."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.processes import own_cores

from .script import VerbParser, count
from .shared_options import add_shared


def index_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("corpus", nargs="+", metavar="CORPUS", help="text files, or quoted glob patterns")
    add("out", type=Path, metavar="OUT", help="output folder")
    add_shared(add, "--encoding-errors", "--overwrite")


def index(args: argparse.Namespace) -> None:
    """Indexes text files, one sentence per line, for fairseq-adv retrieve documents.

    CORPUS files may be compressed (.gz, .zst). OUT is a folder.

    Examples:
      fairseq-adv retrieve index ARC_Corpus.txt arc-index
      fairseq-adv retrieve index 'wikipedia/*.gz' science.txt index --encoding-errors replace
    """
    from fairseq_adv.retrieval import tantivy_index
    from fairseq_adv.retrieval.sentences import survey

    corpus = survey(args.corpus, args.encoding_errors)
    built = tantivy_index.build(corpus, args.out, args.overwrite)
    if built.reused:
        print(f"{args.out} is already there and made from these files; nothing to do")
        return
    print(f"wrote {args.out} ({built.sentences} sentences, segments: {built.segments})")


def documents_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("index", type=Path, metavar="INDEX", help="folder written by fairseq-adv retrieve index")
    add("questions", nargs="+", type=Path, metavar="QUESTIONS", help="jsonl or CSV files")
    add("out", type=Path, metavar="OUT", help="output folder; or a file, if the name ends in .jsonl")
    add("--top", type=count, default=10, metavar="N", help="documents per choice")
    add(
        "--choice-terms",
        choices=["any", "all"],
        default="any",
        help="any: retrieve sentences with at least one of the choice's words; all: with all of them, or, if "
        "there are none, with at least one",
    )
    add("--longest", type=count, default=300, metavar="N",
        help="longest sentence to retrieve, in characters; longer ones are left out")  # fmt: skip
    add("--workers", type=count, default=own_cores(), metavar="N",
        help="number of threads (default: one per core)")  # fmt: skip
    add_shared(add, "--overwrite")


def documents(args: argparse.Namespace) -> None:
    """Retrieves documents for each choice of multiple-choice questions and writes them to its key "para".

    QUESTIONS are jsonl files of ARC, OpenBookQA or CommonsenseQA, or AI2's CSV (Regents), which is converted
    to jsonl; both may be gzipped. All other keys are kept; an existing "para" is replaced. OUT is the output
    folder, and the files keep their names, without .gz; with a single file of QUESTIONS, OUT can also be a
    file name that ends in .jsonl. A manifest next to each file records the index, the version of tantivy and
    the options.

    Examples:
      fairseq-adv retrieve documents arc-index raw/ARC-Easy-Dev.jsonl with-para/dev.jsonl
      fairseq-adv retrieve documents arc-index arc/*.jsonl with-para --workers 8
    """
    from fairseq_adv.retrieval.documents import Options
    from fairseq_adv.retrieval.fill import fill
    from fairseq_adv.retrieval.tantivy_index import open_index

    options = Options(args.top, args.choice_terms, args.longest)
    targets = _targets(args.questions, args.out)
    engine = open_index(args.index)
    for source, target in zip(args.questions, targets):
        filled = fill(engine, source, target, options, args.workers, args.overwrite)
        if filled.reused:
            print(f"{target} is already there and made from these files; nothing to do")
            continue
        print(f"wrote {target} ({filled.questions} questions, {filled.choices} choices)")
        if filled.fallbacks:
            print(f"  note: {filled.fallbacks} choices: no sentence has the required words, if any")
        if filled.without:
            print(f"  note: {filled.without} choices: nothing found, their para is empty")


def _targets(questions: list[Path], out: Path) -> list[Path]:
    if out.suffix.lower() == ".jsonl" and not out.is_dir():
        if len(questions) > 1:
            raise DataError(f"{out}: one file can't hold {len(questions)} files of QUESTIONS. Pass a folder.")
        return [out]
    unpacked = [path.with_suffix("") if path.suffix.lower() == ".gz" else path for path in questions]
    names = [path.stem + ".jsonl" if path.suffix.lower() == ".csv" else path.name for path in unpacked]
    if repeated := [name for name in names if names.count(name) > 1]:
        message = "two input files have this name. Retrieve for them into separate folders."
        raise DataError(f"{repeated[0]}: {message}")
    return [out / name for name in names]
