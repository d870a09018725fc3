"""Answers texts, or a data set's questions, with one trained model or several.

Texts: --stdin reads a text a line (a tab between the two of a pair) and prints label and probability a line.
--input reads a file and prints a TSV, or writes it into OUT.

A prepared data folder: --data, whose split is answered into OUT/predictions.tsv, with the probability of each
class. With --task, the benchmark's own file is written instead. Each model's scores are kept in OUT/scores. A
model that has its scores there is not run again, and --scores adds those of other runs to the ensemble.

Several models answer with the mean of their log-probabilities.

Examples:
  echo "a fine film" | fairseq-adv predict checkpoint_best.pt --stdin
  fairseq-adv predict checkpoint_best.pt --input reviews.csv --text review --out answers
  fairseq-adv predict run*/checkpoint_best.pt --data news-bin --split test --out answers
  fairseq-adv predict checkpoint_best.pt --task RTE --data RTE-bin --out answers
  fairseq-adv predict run*/checkpoint_best.pt --task MNLI-mm --data MNLI-bin --out answers
  fairseq-adv predict mnli.pt --task AX --data AX-bin --out answers
  fairseq-adv predict qnli.pt --task QNLI --data QNLI-pairs --out answers
  fairseq-adv predict wsc.pt --task WNLI --data WSC --wnli-test glue_data/WNLI/test.tsv --out answers
  fairseq-adv predict arc.pt --task arc --data arc/ARC-Easy --split valid --out answers
  fairseq-adv predict squad.pt --task squad --data squad --split valid --out answers
  fairseq-adv predict ner.pt --task tagging --data NCBI-disease --out answers
  fairseq-adv predict --scores answers/scores/RTE-*.npz --task RTE --out ensemble
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .names import PREDICTION_TASKS, is_known
from .number_types import count
from .script import RESUMABLE, command_parser, exit_status

if TYPE_CHECKING:
    from fairseq_adv.evaluation.predict.predict import Predicted
    from fairseq_adv.evaluation.predict.running import Running

_TASKS = (
    "a benchmark: CoLA, SST-2, MRPC, STS-B, QQP, MNLI-m, MNLI-mm, RTE, AX (by an MNLI model), QNLI (by a "
    "sentence_prediction or a qnli_ranking model), WNLI (by a sentence_prediction or a wsc model), "
    "commonsense_qa, arc, race, openbookqa, qnli_ranking, wsc, squad, tagging. Left out: data of your own"
)
_INPUT = (
    "answer the texts of a table (csv, tsv, jsonl, parquet) or of a .txt, or the questions of a file that "
    "prepare choices reads"
)
_OF_INPUT = ("text", "text_pair", "no_header", "encoding")
_OF_A_FOLDER = ("task", "split", "vote", "scores", "wnli_test", "gold")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("predict", __doc__)
    add = parser.add_argument
    add("checkpoints", type=Path, nargs="*", metavar="CHECKPOINT", help="what fairseq-train wrote")
    add("--stdin", action="store_true", help="answer the texts of standard input; - among CHECKPOINT, too")
    add("--input", type=Path, metavar="FILE", help=_INPUT)
    add("--text", metavar="COL", help="--input: the column of the text; a .txt has a text a line")
    add("--text-pair", metavar="COL", help="--input: the column of the second text")
    add("--no-header", action="store_true", help="--input: the columns have no names but 1, 2, …")
    add("--encoding", metavar="NAME", help="--input: of csv, tsv and lines, such as latin-1 (default: utf-8)")
    add("--data", type=Path, help="answer a split of this folder; for texts: the training data, if it moved")
    add("--task", help=_TASKS)
    add("--out", type=Path, help="the folder for the file of answers and for scores/")
    add("--split", help="of the data; with its right answers, the score is printed too (default: test)")
    add("--vote", action="store_true", help="answer with the majority, not the mean of log-probabilities")
    add(
        "--scores", type=Path, nargs="+", default=[], metavar="FILE", help="scores of earlier runs to join in"
    )
    add("--batch-size", type=count, metavar="N", help="most examples of a mini-batch")
    add(
        "--max-tokens",
        type=count,
        metavar="N",
        help="most tokens of a mini-batch (default: 16384; 1024 on a CPU)",
    )
    add("--cpu", action="store_true", help="don't use a GPU")
    add("--fp16", action="store_true", help="half precision, on a GPU")
    add("--tokenizer-dir", type=Path, metavar="DIR", help="the encoder's files, if they moved since training")
    add("--wnli-test", type=Path, metavar="FILE", help="WNLI through WSC: GLUE's WNLI/test.tsv (or dev.tsv)")
    add(
        "--gold",
        type=Path,
        metavar="FILE",
        help="QNLI through ranking, split test-dev: GLUE's QNLI/dev.tsv, for the score",
    )
    return parser


def _report(result: Predicted) -> None:
    models = f"{result.members} model{'s' if result.members > 1 else ''}"
    print(f"wrote {result.file} ({result.rows} rows, {models})")
    for name, value in result.measured.items():
        print(f"  {name}: {value:.2f}")
    for note in result.notes:
        print(f"  note: {note}")


def _check(args: argparse.Namespace) -> None:
    """Raises DataError where options don't go together."""
    from fairseq_adv.data.errors import DataError

    def refuse(names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if getattr(args, name):
                raise DataError(f"--{name.replace('_', '-')} {reason}. Leave it out.")

    if args.stdin and args.input:
        raise DataError("--stdin and --input: give one of them")
    if args.stdin or args.input:
        refuse(_OF_A_FOLDER, f"is for --data, not for {'--stdin' if args.stdin else '--input'}")
        if not args.checkpoints:
            raise DataError("no model: give checkpoints")
    if args.stdin:
        refuse(("out",), "is for --data and --input; --stdin prints its answers")
    if not args.input:
        refuse(_OF_INPUT, "is for --input")
    if not (args.stdin or args.input or args.out):
        raise DataError("--out is missing: the folder for the file of answers")


def _predict_folder(args: argparse.Namespace, running: Running) -> int:
    from fairseq_adv.evaluation.predict.predict import Request, predict

    request = Request(
        args.task, args.out, args.checkpoints, args.scores, args.data, args.split or "test", args.vote,
        args.wnli_test, args.gold, running,
    )  # fmt: skip
    _report(predict(request))
    return 0


def _predict_texts(args: argparse.Namespace, running: Running) -> int:
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.io import write_whole
    from fairseq_adv.evaluation.predict.loading import load
    from fairseq_adv.evaluation.predict.text_files import TextFile, answer_file, answer_lines

    if args.input and not args.input.is_file():
        raise DataError(f"{args.input}: no such file")
    model = load(args.checkpoints, data=args.data, how=running)
    if args.stdin:
        answer_lines(model, sys.stdin.buffer, sys.stdout)
        return 0
    header, encoding = not args.no_header, args.encoding or "utf-8"
    answers, rows = answer_file(model, TextFile(args.input, args.text, args.text_pair, header, encoding))
    if args.out is None:
        sys.stdout.write(answers)
        return 0
    file = args.out / f"predictions-{args.input.stem}.tsv"
    write_whole(file, answers)
    print(f"wrote {file} ({rows} rows)")
    return 0


def _predict(args: argparse.Namespace) -> int:
    _check(args)
    from fairseq_adv.evaluation.predict.running import Running

    running = Running(args.batch_size, args.max_tokens, args.cpu, args.fp16, args.tokenizer_dir)
    return (_predict_texts if args.stdin or args.input else _predict_folder)(args, running)


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.task is not None and not is_known(
        args.task, PREDICTION_TASKS, f"--task {args.task}: no such task. Choose one of"
    ):
        return 2
    if Path("-") in args.checkpoints:
        args.stdin = True
        args.checkpoints = [path for path in args.checkpoints if path != Path("-")]
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _predict(args), stopped="stopped" if args.stdin or args.input else RESUMABLE)
