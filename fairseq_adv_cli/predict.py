"""Answers a benchmark's questions with one trained model or several, and writes the leaderboard's file.

Each model's scores are kept in OUT/scores. A model that has its scores there is not run again, and --scores
adds those of other runs to the ensemble.

Examples:
  fairseq-adv predict checkpoint_best.pt --task RTE --data RTE-bin --out answers
  fairseq-adv predict run*/checkpoint_best.pt --task MNLI-mm --data MNLI-bin --out answers
  fairseq-adv predict mnli.pt --task AX --data AX-bin --out answers
  fairseq-adv predict qnli.pt --task QNLI --data QNLI-pairs --out answers
  fairseq-adv predict wsc.pt --task WNLI --data WSC --wnli-test glue_data/WNLI/test.tsv --out answers
  fairseq-adv predict arc.pt --task arc --data arc/ARC-Easy --split valid --out answers
  fairseq-adv predict --scores answers/scores/RTE-*.npz --task RTE --out ensemble
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from .names import PREDICTION_TASKS, is_known
from .script import RESUMABLE, command_parser, exit_status

if TYPE_CHECKING:
    from fairseq_adv.evaluation.predict.predict import Predicted

_TASKS = (
    "CoLA, SST-2, MRPC, STS-B, QQP, MNLI-m, MNLI-mm, RTE, AX (by an MNLI model), QNLI (by a "
    "sentence_prediction or a qnli_ranking model), WNLI (by a sentence_prediction or a wsc model), "
    "commonsense_qa, arc, race, openbookqa, qnli_ranking, wsc"
)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("predict", __doc__)
    add = parser.add_argument
    add("checkpoints", type=Path, nargs="*", metavar="CHECKPOINT", help="what fairseq-train wrote")
    add("--task", required=True, help=_TASKS)
    add("--data", type=Path, help="the folder that the task reads")
    add("--out", type=Path, required=True, help="the folder for the file of answers and for scores/")
    add("--split", default="test", help="of the data; with its right answers, the score is printed too")
    add("--vote", action="store_true", help="answer with the majority, not the mean of log-probabilities")
    add(
        "--scores", type=Path, nargs="+", default=[], metavar="FILE", help="scores of earlier runs to join in"
    )
    add("--batch-size", type=int, metavar="N", help="most examples of a mini-batch")
    add("--max-tokens", type=int, metavar="N", help="most tokens of a mini-batch (default: 16384)")
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


def _predict(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.predict.checkpoint_scores import Running
    from fairseq_adv.evaluation.predict.predict import Request, predict

    running = Running(args.batch_size, args.max_tokens, args.cpu, args.fp16, args.tokenizer_dir)
    request = Request(
        args.task, args.out, args.checkpoints, args.scores, args.data, args.split, args.vote,
        args.wnli_test, args.gold, running,
    )  # fmt: skip
    _report(predict(request))


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if not is_known(args.task, PREDICTION_TASKS, f"--task {args.task}: no such task. Choose one of"):
        return 2
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _predict(args), stopped=RESUMABLE)
