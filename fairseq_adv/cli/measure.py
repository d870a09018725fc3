"""``fairseq-adv validate`` and ``compare``: what a checkpoint scores, and runs side by side; ``score`` and
``submission``: files of predictions, by the rules of their benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.checked_json import json_line
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.run_metrics import IN_BITS, NoMetrics
from fairseq_adv.data.temperature import temperature_file, thresholds_file

from .script import VerbParser, count, positive, shown_number
from .shared_options import add_shared, add_unit, check_unit

if TYPE_CHECKING:
    from fairseq_adv.evaluation.class_report import Report


def validate_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add_shared(add, "checkpoint", "--data")
    add("--split", default="valid", help="split of the data; needs labels")
    add("--calibrate", action="store_true", help="fit a temperature, or the thresholds of several labels, on "
        "this split, which must not be a test split, and store them beside the checkpoint")  # fmt: skip
    add_shared(add, "--batch-size", default=32)
    add_shared(add, "--cpu", "--precision", "--json", "--user-dir")


def validate(args: argparse.Namespace) -> None:
    """Prints a checkpoint's scores on a split, as fairseq-validate measures them, with losses in nats.

    Task, criterion, sizes and data are taken from the checkpoint. For a classifier of texts also precision,
    recall and F1 of each class, the confusion matrix, and the expected calibration error (ECE); for several
    labels a text, and for a tagger, precision, recall and F1 of each label or type of entities.

    --calibrate fits a temperature, by which logits are divided, and stores it beside the checkpoint, as
    CHECKPOINT.temperature.json. predict and load then give calibrated probabilities, export writes it into
    config.json; no answer changes. For several labels a text it fits a threshold for each label, the one with
    the best F1, and stores CHECKPOINT.thresholds.json: predict, load and attack then answer by these, no
    longer by .5.

    Examples:
      fairseq-adv validate out/rte/checkpoint_best.pt
      fairseq-adv validate out/rte/checkpoint_best.pt --calibrate
    """
    from fairseq_adv.evaluation import validate as validation

    if args.calibrate and args.split.startswith("test"):
        raise DataError(
            f"--calibrate --split {args.split}: a temperature must not be fitted on a test split. Pass "
            "another --split, such as valid"
        )
    result = validation.evaluate(
        args.checkpoint, args.data, args.split, args.batch_size, args.cpu, args.precision, args.calibrate
    )
    scores, temperature = result.scores, result.temperature
    if args.calibrate and result.several:
        thresholds = validation.calibrate_thresholds(Path(args.checkpoint), result, args.split)
        result = replace(result, thresholds=thresholds)
    elif args.calibrate:
        temperature = validation.calibrate(Path(args.checkpoint), result, args.split)
    report: Report | None = result.report() or result.label_report() or result.entities
    more = {} if report is None else report.values()
    scaled = result.report(temperature)
    if args.json:
        if scaled is not None and temperature != 1:
            more |= {"temperature": temperature, "calibrated_ece": scaled.ece}
        if result.thresholds:
            more |= {"thresholds": dict(result.thresholds)}
        print(json_line({**scores, **more}))
        return
    unit = "the loss is the squared error" if "pearson" in scores else "losses in nats"
    print(f"{args.split}: {scores.pop('examples')} examples, {unit}")
    scores = {name: value for name, value in scores.items() if name not in more}  # those of the report
    width = max(map(len, scores))
    for name, value in scores.items():
        print(f"  {name:{width}}  {value:.4f}" if name in IN_BITS else f"  {name:{width}}  {value:.2f}")
    if report is not None:
        print("", *report.lines(), sep="\n")
    if result.thresholds:
        print("the scores above this table are at 0.5, as in training")
    if args.calibrate:
        file = thresholds_file if result.several else temperature_file
        print(f"wrote {file(Path(args.checkpoint))}, which predict, load and export use")
    if scaled is not None and temperature != 1:
        print(f"ECE at the temperature {temperature:.3f}: {scaled.ece:.4f}")


def compare_options(parser: VerbParser) -> None:
    parser.reads(check=check_unit)
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="the --save-dir of a training run, or a folder of them",
    )
    add("--each", action="store_true", help="a row for each run, also if only the seed differs")
    add("--metric", help="validation metric to show (default: each run's own)")
    add("--epsilon", type=positive, nargs="+", default=[], metavar="E",
        help="attack with these radii of the L2 ball around each example; needs --relative or "
        "--absolute")  # fmt: skip
    add_unit(parser)
    add(
        "--batches", type=count, metavar="N", help="attack only N mini-batches of 32, of short texts and long"
    )
    add("--steps", type=count, help="number of ascent steps of the attack (default: 5)")
    add("--step-size", type=positive, help="length of an ascent step (default: epsilon / 2)")
    add_shared(add, "--precision", "--user-dir")


def compare(args: argparse.Namespace) -> None:
    """Compares training runs side by side: best dev score, losses in nats, seconds per update.

    RUN is the --save-dir of a training run, or a folder of such folders. Runs that differ only in the seed
    are one row, with means and their 95 % intervals.

    Scores and losses are those of checkpoint_best.pt, from metrics.jsonl, which training writes into the
    --save-dir. With --epsilon the best checkpoints are also attacked. s/update is the time of an epoch by its
    updates, with validations and checkpoints. Missing values are shown as –.

    Examples:
      fairseq-adv compare out/standard out/freelb
      fairseq-adv compare out/sizes --metric mcc
      fairseq-adv compare out/standard out/freelb --epsilon 0.01 0.02 --relative
    """
    from fairseq_adv.data.run_metrics import METRICS
    from fairseq_adv.evaluation.attack_settings import Attack
    from fairseq_adv.evaluation.comparison import join_seeds, table
    from fairseq_adv.evaluation.summaries import BEST, Summary, find_runs, summarise

    steps = 5 if args.steps is None else args.steps
    attacks = [
        Attack(
            epsilon, epsilon / 2 if args.step_size is None else args.step_size, steps, relative=args.relative
        )
        for epsilon in args.epsilon
    ]
    is_other = args.relative or args.absolute or args.precision != "fp32"
    of_an_attack = (args.steps, args.step_size, args.batches, is_other or None)
    if not attacks and any(value is not None for value in of_an_attack):
        raise DataError(
            "--steps, --step-size, --relative, --absolute, --batches and --precision need an attack: pass "
            "its radius with --epsilon"
        )
    runs = find_runs(args.runs)
    lacking = [run for run in runs if attacks and (run / METRICS).is_file() and not (run / BEST).is_file()]
    if lacking:  # before hours of attacks on the others
        raise DataError(f"{lacking[0] / BEST}: no such file. Leave the run out, or --epsilon")
    summaries: dict[Path, Summary] = {}
    for run in runs:
        try:
            summaries[run] = summarise(run, args.metric, attacks, args.batches, args.precision)
        except NoMetrics as error:
            if len(runs) == 1:
                raise
            print(f"note: skipped {error}", file=sys.stderr)
    if not summaries:
        raise DataError("none of these runs can be compared")
    rows = list(summaries.values())
    if len({row.name for row in rows}) < len(rows):
        for run, row in summaries.items():
            row.name = str(run)
    print(table(rows if args.each else join_seeds(rows), attacks))


# ---- score, submission


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
    the best threshold, which is tuned on this very file; of answers that are already empty above a threshold,
    as predict's are, none above it can gain. For adversarial SQuAD (AddSent, AddOneSent) papers
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
