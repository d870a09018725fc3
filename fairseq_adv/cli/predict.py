"""Predicts with one trained model, or with an ensemble of several.

Texts: --stdin reads one text per line (a tab between the two texts of a pair) and prints a line with the
label and its probability (of several labels a text, those that hold and the probability of each). --input
reads a file and prints a TSV, or writes it to OUT.

Prepared data: --data DIR answers a split and writes OUT/predictions.tsv, with the probability of each class
(for tags, the words with their tags; for spans of contexts, OUT/predictions.json).
Where right answers are known (a split with labels; SQuAD's json with answers; --label COLUMN of a file, for
tags the number of the column), it prints scores; for classes, and types of entities, also precision, recall
and F1 of each; for classes the confusion matrix and the calibration error too. Probabilities are those at the
temperature of validate --calibrate, if it is stored beside the checkpoint; an ensemble has none.
With --task, it writes the benchmark's own file format instead. The scores of each model are kept in
OUT/scores. Models that already have scores there are not run again; --scores adds the scores of other runs to
the ensemble.

With --task HANS, ANLI or AdvGLUE-…, --input is the set as it is distributed. The scores are its authors', and
OUT gets the answer to each row.

An ensemble answers with the mean of its models' log-probabilities.

Examples:
  echo "a fine film" | fairseq-adv predict checkpoint_best.pt --stdin
  fairseq-adv predict checkpoint_best.pt --input reviews.csv --text review --keep id review --out answers
  fairseq-adv predict toxic.pt --input comments.csv --text comment --label toxic insult threat --out answers
  fairseq-adv predict run*/checkpoint_best.pt --data news-bin --split test --out answers
  fairseq-adv predict checkpoint_best.pt --task RTE --data RTE-bin --out answers
  fairseq-adv predict run*/checkpoint_best.pt --task MNLI-mm --data MNLI-bin --out answers
  fairseq-adv predict mnli.pt --task AX --data AX-bin --out answers
  fairseq-adv predict qnli.pt --task QNLI --data QNLI-pairs --out answers
  fairseq-adv predict wsc.pt --task WNLI --data WSC --wnli-test glue_data/WNLI/test.tsv --out answers
  fairseq-adv predict arc.pt --task arc --data arc/ARC-Easy --split valid --out answers
  fairseq-adv predict squad.pt --task squad --data squad --split valid --out answers
  fairseq-adv predict ner.pt --data NCBI-disease --out answers
  fairseq-adv predict ner.pt --input devel.tsv --label 2 --out answers
  fairseq-adv predict mnli.pt --task HANS --input heuristics_evaluation_set.txt
  fairseq-adv predict anli.pt --task ANLI --input anli_v1.0 --split dev --out answers
  fairseq-adv predict rte.pt --task AdvGLUE-RTE --input dev.json --out answers
  fairseq-adv predict --scores answers/scores/RTE-*.npz --task RTE --out ensemble
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fairseq_adv.data.checked_json import json_line
from fairseq_adv.data.classes.evaluation_sets import EVALUATION_SETS, EvaluationSet
from fairseq_adv.data.errors import DataError, no_file
from fairseq_adv.data.printable import plain_name
from fairseq_adv.data.tables.table_files import ENDINGS
from fairseq_adv.evaluation.predict.benchmarks import BENCHMARKS

from .script import RESUMABLE, VerbParser, check_name, data_output, shown_number
from .shared_options import (
    add_columns,
    add_running,
    add_shared,
    inference_config,
    label_map,
    words_after_columns,
)

if TYPE_CHECKING:
    from fairseq_adv.evaluation.class_report import Report

_TASKS = (
    f"a benchmark: {', '.join(BENCHMARKS)} (AX: with an MNLI model); with --input: "
    f"{', '.join(one.name for one in EVALUATION_SETS)}. Leave it out for your own data"
)
_INPUT = (
    "answer the texts of a table (csv, tsv, jsonl, parquet) or of a .txt (one text per line), questions in a "
    "file that prepare choices reads or in SQuAD's json, or words in columns"
)
_OF_INPUT = ("text", "text_pair", "label", "label_separator", "no_header", "encoding", "keep")
_OF_A_FOLDER = ("task", "split", "scores", "wnli_test", "gold")

# The answers to a file are named without its ending.
_ENDINGS = (*ENDINGS, ".gz", ".json", ".bio", ".conll", ".iob", ".iob2")


def predict_options(parser: VerbParser) -> None:
    parser.reads(check=_check)
    add = parser.add_argument
    add("checkpoints", type=Path, nargs="*", metavar="CHECKPOINT", help="written by fairseq-train")
    of_texts = parser.add_mutually_exclusive_group().add_argument
    of_texts("--stdin", action="store_true", help="answer the texts on standard input")
    of_texts("--input", type=Path, metavar="FILE", help=_INPUT)
    add("--data", type=Path, metavar="DIR", help="answer a split of this folder; with --stdin or --input: "
        "the folder the model was trained on, if it moved")  # fmt: skip
    add("--task", help=_TASKS)
    add("--out", type=Path, metavar="OUT", help="folder for the answers and for scores/")
    add("--split", help="split of the data; if it has labels, the score is printed too (default: test)")
    add("--scores", type=Path, nargs="+", default=[], metavar="FILE", help="add the scores of earlier runs")
    add("--wnli-test", type=Path, metavar="FILE", help="WNLI as WSC: GLUE's WNLI/test.tsv (or dev.tsv)")
    add_shared(add, "--json")
    add_shared(add, "--label-map", help="with HANS, ANLI and AdvGLUE: the model's class for each of "
        "theirs, if the names differ, such as entailment=0 neutral=1 contradiction=2")  # fmt: skip
    add("--gold", type=Path, metavar="FILE",
        help="QNLI as ranking, split test-dev: GLUE's QNLI/dev.tsv, to compute the score")  # fmt: skip
    add = parser.add_argument_group("columns of --input").add_argument
    add_columns(add)
    add("--keep", nargs="+", default=[], metavar="COLUMN",
        help="columns to write beside the answers, such as "
        "id, or the text (text, text_pair: those of a .txt with one text per line)")  # fmt: skip
    add = parser.add_argument_group("running the models").add_argument
    add_shared(add, "--batch-size")
    add_running(add)
    add_shared(add, "--max-line-mb")


def predict(args: argparse.Namespace) -> None:
    chosen = _evaluation_set(args.task)
    if chosen is not None:
        _answer_set(args, chosen)
    elif args.stdin or args.input:
        _answer_texts(args)
    else:
        _answer_split(args)


def _answer_texts(args: argparse.Namespace) -> None:
    from fairseq_adv.data.io import atomic_write
    from fairseq_adv.evaluation.predict.loading import load
    from fairseq_adv.evaluation.predict.predictors import InputFile
    from fairseq_adv.evaluation.predict.text_model import answer_lines

    if args.input and not args.input.is_file():
        raise no_file(args.input)
    model = load(args.checkpoints, data=args.data, how=inference_config(args, args.batch_size))
    if args.stdin:
        answer_lines(model, sys.stdin.buffer, data_output())
        return
    header, encoding = not args.no_header, args.encoding or "utf-8"
    label, *more_labels = args.label or [None]
    columns = (args.text, args.text_pair, header, encoding, label, tuple(args.keep), tuple(more_labels))
    answers = model.answer_file(InputFile(args.input, *columns, args.label_separator))
    file = (args.out or Path()) / f"predictions-{name_without_ending(args.input)}.{answers.ending}"
    contents, report = answers.files(file), answers.report()
    measured = answers.measured("")
    if args.out is None:
        data_output().write(contents[file])
        _print_report(measured, [], report, sys.stderr)
        return
    for path, text in contents.items():
        atomic_write(path, text)
    _show(args.json, file, answers.rows, f"wrote {file} ({answers.rows} rows)", measured, [], report)


def name_without_ending(path: Path) -> str:
    """A file's name, by which its answers are named. CoNLL 2003's eng.testa and eng.testb have no ending."""
    return path.stem if path.suffix.lower() in _ENDINGS else path.name


def _answer_set(args: argparse.Namespace, chosen: EvaluationSet) -> None:
    split, names = args.split or "test", label_map(args)
    rows = chosen.read(args.input, split)  # before torch is imported, which takes seconds

    from fairseq_adv.data.io import atomic_write
    from fairseq_adv.evaluation.predict.loading import load
    from fairseq_adv.evaluation.predict.set_scores import answer_set

    model = load(args.checkpoints, data=args.data, how=inference_config(args, args.batch_size))
    answers, scores = answer_set(model, chosen, rows, names)
    ending = f"-{split}" if chosen.has_splits and split != "test" else ""
    if chosen.has_splits and args.input.is_file():  # of one round, perhaps in a folder of its name
        stem, its = name_without_ending(args.input), rows.columns["round"][0]
        ending = f"-{stem}" if stem.startswith(its) else f"-{its}-{stem}"
    file = None if args.out is None else args.out / f"predictions-{chosen.name}{ending}.tsv"
    if file is not None:
        for path, text in answers.files(file).items():
            atomic_write(path, text)
    line = f"{chosen.name}: {answers.rows} rows" if file is None else f"wrote {file} ({answers.rows} rows)"
    _show(args.json, file, answers.rows, line, scores, answers.notes, None)


def _answer_split(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.predict.predict import Request, predict

    result = predict(
        Request(
            args.task, args.out, args.checkpoints, args.scores, args.data, args.split or "test",
            args.wnli_test, args.gold, inference_config(args, args.batch_size),
        )
    )  # fmt: skip
    models = f"{result.members} model{'s' if result.members > 1 else ''}"
    line = f"wrote {result.file} ({result.rows} rows, {models})"
    _show(args.json, result.file, result.rows, line, result.measured, result.notes, result.report)


def _print_report(
    measured: Mapping[str, float], notes: Sequence[str], report: Report | None, to: TextIO | None = None
) -> None:
    """Prints the scores, if right answers are known, to standard output or ``to``."""
    for name, value in measured.items():
        print(f"  {name}: {shown_number(value)}", file=to)
    for note in notes:
        print(f"  note: {note}", file=to)
    if report is not None:
        print("", *report.lines(), sep="\n", file=to)


def _show(
    as_json: bool, file: Path | None, rows: int, line: str, measured: Mapping[str, float],
    notes: Sequence[str], report: Report | None,
) -> None:  # fmt: skip
    if as_json:
        shown = {"file": None if file is None else str(file), "rows": rows, **measured, "notes": list(notes)}
        print(json_line({**shown, **({} if report is None else report.values())}))
        return
    print(line)
    _print_report(measured, notes, report)


def _evaluation_set(task: str | None) -> EvaluationSet | None:
    """The set that --task names, if it is one."""
    wanted = plain_name(task or "")
    return next((one for one in EVALUATION_SETS if plain_name(one.name) == wanted), None)


def _is_model(word: str) -> bool:
    return Path(word).is_file() or Path(word, "config.json").is_file()


def _check(args: argparse.Namespace) -> None:
    """Raises DataError if there is no such task, options don't go together, or OUT can't be written."""
    if args.out is not None:
        from fairseq_adv.data.io import check_output_folder

        check_output_folder(args.out)
    if not (args.checkpoints or args.scores):
        for option in ("label", "keep"):
            behind = [*takewhile(_is_model, reversed(getattr(args, option) or []))]
            args.checkpoints += map(Path, words_after_columns(args, len(behind), option))
    if args.label_separator is not None and len(args.label or []) != 1:
        raise DataError("--label-separator: pass one --label, whose cells it separates")
    if args.task is not None and not args.user_dir:  # whose tasks may have benchmarks of their own
        names = [*BENCHMARKS, *(one.name for one in EVALUATION_SETS)]
        check_name(args.task, names, f"--task {args.task}: no such task. Choose one of")
    chosen = _evaluation_set(args.task)
    if chosen is not None and not args.stdin:
        _check_set(args, chosen)
        return
    _refuse(args, ("label_map",), f"is for --task {', '.join(one.name for one in EVALUATION_SETS)}")
    if args.stdin or args.input:
        _refuse(args, _OF_A_FOLDER, f"is for --data, not for {'--stdin' if args.stdin else '--input'}")
    if args.stdin:
        _refuse(args, ("out",), "is for --data and --input; --stdin prints its answers")
    if not args.input:
        _refuse(args, _OF_INPUT, "needs --input")
    if not args.out and (args.stdin or args.input):
        _refuse(args, ("json",), "needs --out, since without it the answers themselves are printed")
    if not (args.stdin or args.input or args.out):
        raise DataError("--out is missing: pass a folder for the answers")
    if not (args.stdin or args.input):
        args.stopped = RESUMABLE


def _check_set(args: argparse.Namespace, chosen: EvaluationSet) -> None:
    if not args.input:
        raise DataError(f"--input is missing: for --task {chosen.name}, pass {chosen.input}")
    others = {*_OF_INPUT, *_OF_A_FOLDER} - {"task", *(["split"] if chosen.has_splits else [])}
    _refuse(args, sorted(others), f"is not for --task {chosen.name}")


def _refuse(args: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    for name in names:
        if getattr(args, name):
            raise DataError(f"--{name.replace('_', '-')} {reason}. Leave it out.")
