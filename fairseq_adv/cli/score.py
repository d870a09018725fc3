"""``fairseq-adv score`` and ``submission``: files of predictions, by the rules of their benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from fairseq_adv.data.checked_json import json_line
from fairseq_adv.data.errors import DataError

from .script import VerbParser, shown_number
from .shared_options import add_shared


def squad_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("gold", type=Path, metavar="DATA", help="SQuAD's JSON, with right answers")
    add("predictions", type=Path, metavar="PREDICTIONS", help="JSON: an object from ids to answers")
    add("--null-odds", type=Path, metavar="FILE", help="JSON: an object from ids to odds of having no answer")
    add("--threshold", type=float, metavar="X",
        help="questions whose odds in --null-odds are above X count as answered with no answer (default: "
        "1)")  # fmt: skip
    add_shared(add, "--json")


def squad(args: argparse.Namespace) -> None:
    """Scores answers to SQuAD questions: exact match and F1 by the rules of the official evaluation.

    exact and f1 are means over all questions of the file. For version 2.0, where some questions have no
    answer, HasAns_ and NoAns_ give the scores of the two kinds. With --null-odds, best_ gives the scores at
    the best threshold, which is tuned on this very file. For adversarial SQuAD (AddSent, AddOneSent) papers
    report adversarial_f1: each original question counts with its lowest F1 over all variants. original_ gives
    the scores of the original questions.

    Examples:
      fairseq-adv score squad dev-v1.1.json answers/predictions-valid.json
      fairseq-adv score squad dev-v2.0.json out/predictions-valid.json --null-odds out/null_odds-valid.json
      fairseq-adv score squad sample1k-HCVerifyAll.json answers/predictions-sample1k-HCVerifyAll.json
    """
    from fairseq_adv.evaluation.span_report import score_file

    if args.threshold is not None and args.null_odds is None:
        raise DataError("--threshold needs --null-odds. Pass the file, or leave --threshold out")
    threshold = 1.0 if args.threshold is None else args.threshold
    report, notes = score_file(args.gold, args.predictions, args.null_odds, threshold)
    _show(report, args.json)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def tags_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="one word per line, columns separated by tabs or spaces")
    add("--strict", action="store_true", help="ignore predicted entities that begin with I- or, in BIOES, "
        "are not complete, as seqeval's strict mode does; conlleval counts them")  # fmt: skip
    add_shared(add, "--json")


def tags(args: argparse.Namespace) -> None:
    """Scores predicted tags: precision, recall and F1 of the entities, by conlleval's rules.

    The last two columns of FILE are the gold tag and the predicted tag, as written by fairseq-adv predict
    --task tagging. An entity counts as correct if its words and its type are correct.

    Example:
      fairseq-adv score tags answers/predictions.tsv
    """
    from fairseq_adv.evaluation.entity_report import score_columns

    report = score_columns(args.file, args.strict)
    _show({**report.scores(), **(report.values() if args.json else {})}, args.json)
    if not args.json:
        print("", *report.lines(), sep="\n")


def _show(report: Mapping[str, float], as_json: bool) -> None:
    if as_json:
        print(json_line(report))
        return
    width = max(map(len, report))
    for name, value in report.items():
        print(f"{name:{width}}  {shown_number(value)}")


def submission_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("dir", type=Path, metavar="DIR", help="folder with CoLA.tsv, SST-2.tsv, …, AX.tsv")
    add("out", type=Path, metavar="OUT", help="output zip file")
    add("--allow-missing", action="store_true",
        help="zip the files that exist; GLUE's server requires all eleven")  # fmt: skip


def submission(args: argparse.Namespace) -> None:
    """Checks the GLUE prediction files written by fairseq-adv predict, and zips them for gluebenchmark.com.

    Example:
      fairseq-adv submission answers submission.zip
    """
    from fairseq_adv.evaluation.predict.benchmarks import make_submission

    rows, missing = make_submission(args.dir, args.out, args.allow_missing)
    print(f"wrote {args.out}: {', '.join(f'{name} {count}' for name, count in rows.items())}")
    if missing:
        print(f"  note: missing, so GLUE's server will refuse the zip: {', '.join(missing)}")
