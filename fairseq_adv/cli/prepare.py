"""``fairseq-adv prepare``: your own data, and data sets as they are distributed, become data folders."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.text.word_text import APPENDED, KINDS

from .script import RESUMABLE, VerbParser, check_name, fraction, positive, whole
from .shared_options import (
    add_columns,
    add_shared,
    add_tokenizer,
    tokenizer_of,
    words_after_columns,
)

if TYPE_CHECKING:
    from fairseq_adv.data.classes.prepare_classification import Augment, PrepareConfig
    from fairseq_adv.data.tables.labelled_rows import LabelledRows
    from fairseq_adv.data.tables.several_labels import LabelColumns
    from fairseq_adv.data.tables.table_files import PlacedRow
from fairseq_adv.data.workspace import Prepared


def classification_options(parser: VerbParser) -> None:
    parser.reads(any_order=True, check=partial(_check_words, parser))
    add = parser.add_argument
    add("train", type=Path, nargs="?", metavar="TRAIN", help="training file")
    add("out", type=Path, nargs="?", metavar="OUT", help="output folder")
    add("--valid", type=Path, metavar="FILE", help="validation file")
    add("--test", type=Path, metavar="FILE", help="test file")
    add("--dataset", metavar="NAME", help="instead of files: a data set of Hugging Face's hub, or a folder")
    add("--config", metavar="NAME", help="configuration of --dataset")
    add_columns(add, required=True)
    add("--regression", action="store_true", help="the labels are numbers to predict; they are not rescaled")
    add("--allow-odd-labels", action="store_true", help="accept labels that look as if --label named a wrong "
        "column: more than 100 classes, a class with one row, or more classes than rows / 2")  # fmt: skip
    _add_checks(parser, more="; and for --augment")
    _add_augment(parser)
    add_tokenizer(parser)
    add_shared(add, "--max-line-mb", "--overwrite")


def _add_augment(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("copies of training texts, changed as by fairseq-adv attack --words")
    add = group.add_argument
    add("--augment", nargs="+", choices=KINDS, default=[], metavar="KIND", help="add a copy of each training "
        "row for each KIND: spaced, homoglyphs, appended")  # fmt: skip
    add("--augment-share", type=fraction, default=1.0, metavar="S", help="only of this fraction of the "
        "rows, chosen at random")  # fmt: skip
    add("--augment-class", metavar="NAME", help="only of rows of this class")
    add_shared(add, "--append-words")
    add("--append-other-classes", action="store_true",
        help="append the beginnings of training texts of other classes")  # fmt: skip


def classification(args: argparse.Namespace) -> None:
    """Tokenises and binarises texts, or pairs of texts, with classes or numbers.

    TRAIN, --valid and --test are csv, tsv, txt, jsonl or parquet files, recognised by their names; all but
    the last may be compressed (.csv.gz). Cells are separated by commas, semicolons or tabs, whichever fits.
    In a .txt without such cells, and in a .label or .all, each line is a class, a space and a text; its
    columns are called "label" and "text". A test file may lack labels. With several --label, or
    --label-separator, a text may have several of the labels, or none.

    Examples:
      fairseq-adv prepare classification train.csv --test test.csv --text review --label stars \\
          --encoder my_encoder reviews
      fairseq-adv prepare classification pairs.tsv --no-header --text 1 --text-pair 2 --label 3 \\
          --regression --encoder my_encoder similarity
      fairseq-adv prepare classification comments.csv --text comment --label toxic insult threat \\
          --encoder my_encoder toxicity
      fairseq-adv prepare classification --dataset ag_news --text text --label label --encoder my_encoder news
      fairseq-adv prepare classification prompts.csv --text prompt --label kind --encoder my_encoder guard \\
          --augment spaced homoglyphs appended --augment-share 0.2
    """
    from fairseq_adv.data.classes.prepare_classification import prepare_classification

    several = len(args.label) > 1 or args.label_separator is not None
    config = replace(
        _config(args), regression=args.regression, allow_odd_labels=args.allow_odd_labels, several=several,
        label_names=[] if args.label_separator else args.label if several else [],
        augment=_augment(args, several or args.regression),
    )  # fmt: skip
    _report(prepare_classification(_splits(args), args.out, config))


def _augment(args: argparse.Namespace, without_classes: bool) -> Augment | None:
    from fairseq_adv.data.classes.prepare_classification import Augment
    from fairseq_adv.data.errors import DataError

    appended = {"--append-words": args.append_words, "--append-other-classes": args.append_other_classes}
    of_classes = {"--augment-class": args.augment_class, "--append-other-classes": args.append_other_classes}
    given = [name for name, value in appended.items() if value]
    if given and APPENDED not in args.augment:
        raise DataError(f"{given[0]}: needs --augment appended. Leave it out")
    if len(given) > 1:
        raise DataError(f"{' and '.join(given)}: pass one of them")
    if not args.augment and (args.augment_class or args.augment_share < 1):
        raise DataError("--augment-share and --augment-class need --augment. Leave them out")
    if without_classes and any(of_classes.values()):
        name = next(name for name, value in of_classes.items() if value)
        raise DataError(f"{name}: the texts have no single class. Leave it out")
    if not args.augment:
        return None
    return Augment(
        args.augment, args.augment_share, args.augment_class, args.append_words, args.append_other_classes
    )


def _splits(args: argparse.Namespace) -> list[LabelledRows]:
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.tables.hf_datasets import load_splits
    from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
    from fairseq_adv.data.tables.table_files import read_table

    texts = (args.text, args.text_pair) if args.text_pair else (args.text,)
    named = (*texts, *args.label)
    if len({*named}) < len(named):
        raise DataError("--text, --text-pair and --label: two of them name the same column")
    columns = Columns(texts, args.label[0], args.regression, _label_columns(args))
    files = {"train": args.train, "valid": args.valid, "test": args.test}
    given = {split: path for split, path in files.items() if path is not None}
    if args.dataset:
        if given or args.no_header or args.encoding:
            raise DataError("--dataset excludes files, --no-header and --encoding. Leave them out.")
        splits = load_splits(args.dataset, named, args.config)
    else:
        if args.train is None:
            raise DataError("TRAIN is missing: pass the training file and OUT, or --dataset NAME and OUT")
        if args.config:
            raise DataError("--config needs --dataset. Leave it out.")
        splits = {
            split: read_table(path, not args.no_header, args.encoding or "utf-8", named)
            for split, path in given.items()
        }
    if args.out_is_of_label:
        splits = {split: _without_column(str(args.out), rows) for split, rows in splits.items()}
    return [read_texts(split, rows, columns) for split, rows in splits.items()]


def _without_column(out: str, rows: Iterable[PlacedRow]) -> Iterator[PlacedRow]:
    """The rows. Raises DataError if OUT, the last word after --label, is a column of theirs."""
    from fairseq_adv.data.errors import DataError

    for where, row in rows:
        if out in row:
            raise DataError(f"OUT is missing: {out}, the last word after --label, is a column. Pass a folder")
        yield where, row


def _label_columns(args: argparse.Namespace) -> LabelColumns | None:
    """Where several labels a text are; ``None``: a text has one. Raises DataError if options contradict."""
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.tables.several_labels import LabelColumns, check_label_name

    if len(args.label) == 1 and args.label_separator is None:
        return None
    if args.regression:
        raise DataError(
            "--regression: pass one --label, the column of the numbers, without --label-separator"
        )
    if args.label_separator is None:
        for name in args.label:
            check_label_name(name, "--label")
    elif len(args.label) > 1 or not args.label_separator:
        raise DataError("--label-separator: pass one --label, whose cells it separates, and what it is")
    return LabelColumns(tuple(args.label), args.label_separator or "")


def _check_words(parser: VerbParser, args: argparse.Namespace) -> None:
    """Completes TRAIN and OUT, which may stand behind the columns of --label."""
    given = [word for word in (args.train, args.out) if word is not None]
    missing = (1 if args.dataset else 2) - len(given)
    taken = words_after_columns(args, missing)
    places = {Path(word): place for place, word in enumerate(parser.words)}
    words = sorted([*given, *map(Path, taken)], key=lambda word: places.get(word, -1)) if taken else given
    if not words or not places.keys() >= {*words}:  # a word of --label=LABEL is no folder
        parser.error("the following arguments are required: OUT")
    args.train, args.out = (None if len(words) < 2 else words[0]), words[-1]
    args.out_is_of_label = str(args.out) in taken


def nli_options(parser: VerbParser) -> None:
    parser.reads(any_order=True)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder with the data set's files")
    add("out", type=Path, metavar="OUT", help="output folder")
    add("--round", action="append", default=[], choices=["R1", "R2", "R3"],
        help="use only this round of ANLI; can be repeated (default: all)")  # fmt: skip
    _add_checks(parser)
    add_tokenizer(parser)
    add_shared(add, "--max-line-mb", "--overwrite")


def nli(args: argparse.Namespace) -> None:
    """Tokenises and binarises natural language inference data.

    FOLDER has files with train, dev and test in their names, as the data sets are distributed: SNLI, MultiNLI
    (multinli_1.0_dev_matched.jsonl, …), SciTail (tsv_format or snli_format), or ANLI's folders R1, R2 and R3.
    Rows without a gold label ("-") are left out. For ANLI, "valid" and "test" have all rounds, and
    "valid-R1", "test-R1" and so on one round each.

    Examples:
      fairseq-adv prepare nli snli_1.0 snli --encoder my_encoder
      fairseq-adv prepare nli anli_v1.0 anli-2 --round R1 --round R2 --encoder my_encoder
    """
    from fairseq_adv.data.classes.prepare_classification import prepare_nli

    _report(prepare_nli(args.folder, args.out, _config(args), args.round))


def choices_options(parser: VerbParser) -> None:
    parser.reads(any_order=True)
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="jsonl or csv, or SPLIT=FILE")
    add("out", type=Path, metavar="OUT", help="output folder")
    _add_checks(parser)
    add_shared(add, "--max-line-mb", "--overwrite")


def choices(args: argparse.Namespace) -> None:
    """Converts multiple-choice data to the layout of ARC.

    Name each FILE after its split (hellaswag_train.jsonl, val.csv), or pass SPLIT=FILE, such as
    train=questions.jsonl. Supported are SWAG's csv, HellaSWAG's jsonl, ARC's jsonl, and your own:
      {"context": "…", "question": "…", "choices": ["…", "…", "…"], "answer": 2, "id": "…"}
    with a context, a question or both. answer counts from 0, and test files may omit it. The model reads each
    choice as context </s> question choice </s>, so a choice can also be the ending of its context.

    Examples:
      fairseq-adv prepare choices hellaswag_train.jsonl hellaswag_val.jsonl hellaswag_test.jsonl hellaswag
      fairseq-adv prepare choices train=questions.jsonl my_questions
    """
    from fairseq_adv.data.choices.prepare_choices import prepare_choices
    from fairseq_adv.data.tables.split_files import files_of_splits

    files = files_of_splits(args.files, (".jsonl", ".csv"))
    _report(
        prepare_choices(files, args.out, args.valid_share, args.seed, args.overwrite, args.refuse_suspicious),
        ", for --task arc_retrieval",
    )


def glue_options(parser: VerbParser) -> None:
    parser.reads(check=_check_glue_task)
    add = parser.add_argument
    add("glue_dir", type=Path, metavar="GLUE_DIR", help="folder with CoLA, SST-2, …, or one of these folders")
    add(
        "task",
        metavar="TASK",
        help="CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, or ALL for every task in GLUE_DIR",
    )
    add("out", type=Path, metavar="OUT", help="output folder; with ALL it gets a folder <TASK>-bin per task")
    add_tokenizer(parser)
    add_shared(add, "--max-line-mb", "--overwrite")


def _check_glue_task(args: argparse.Namespace) -> None:
    from fairseq_adv.data.glue.glue_files import TASKS

    problem = (
        f"{args.task}: no such GLUE task (for your own data use fairseq-adv prepare classification). "
        "Choose one of"
    )
    check_name(args.task, (*(task.name for task in TASKS), "ALL"), problem)
    if args.task.upper() == "ALL":
        args.stopped = RESUMABLE  # finished tasks are kept


def glue(args: argparse.Namespace) -> None:
    """Tokenises and binarises a GLUE task.

    Examples:
      fairseq-adv prepare glue glue_data RTE RTE-bin --encoder my_encoder
      fairseq-adv prepare glue glue_data ALL bins --encoder-json encoder.json --vocab-bpe vocab.bpe \\
          --srcdict dict.txt
    """
    from fairseq_adv.data.glue.prepare_glue import prepare, tasks_in

    tokenizer = tokenizer_of(args)
    if args.task.upper() != "ALL":
        _report(prepare(args.glue_dir, args.task, args.out, tokenizer, overwrite=args.overwrite))
        return
    names, absent = tasks_in(args.glue_dir)
    for name in names:
        out = args.out / f"{name}-bin"
        _report(prepare(args.glue_dir, name, out, tokenizer, overwrite=args.overwrite))
    if absent:
        print(f"not in {args.glue_dir}, so not prepared: {', '.join(absent)}")


def qnli_ranking_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add(
        "qnli_dir", type=Path, metavar="QNLI_DIR", help="GLUE's QNLI: train.tsv, dev.tsv, optionally test.tsv"
    )
    add("out", type=Path, metavar="OUT", help="output folder")
    add("--seed", type=whole, default=1, help="seed for ordering a question's choices")
    add_shared(add, "--max-line-mb", "--overwrite")


def qnli_ranking(args: argparse.Namespace) -> None:
    """Turns GLUE's QNLI into questions with two sentences each.

    The right choice is the sentence that entails the answer. For most questions QNLI has one such sentence
    and one other. OUT gets:
      train.jsonl, valid.jsonl   pairs with their answers
      test.jsonl                 every row of test.tsv, for prediction
      test-dev.jsonl             every row of dev.tsv, for prediction: gives the score on all of dev
      report.json                counts, and the rows without a partner

    Example:
      fairseq-adv prepare qnli-ranking glue_data/QNLI QNLI-pairs
    """
    from fairseq_adv.data.choices.prepare_qnli_ranking import prepare_pairs

    _report(prepare_pairs(args.qnli_dir, args.out, args.seed, args.overwrite))


def wsc_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("input", type=Path, nargs="+", metavar="INPUT",
        help="train.jsonl, val.jsonl, test.jsonl (or WNLI's .tsv), SPLIT=FILE, or their folder")  # fmt: skip
    add("out", type=Path, metavar="OUT", help="output folder: train.jsonl, valid.jsonl, test.jsonl")
    add("--candidates", choices=["noun-phrases", "spans", "both"], default="noun-phrases",
        help="where the candidates come from")  # fmt: skip
    add("--spacy-model", default="en_core_web_lg", metavar="NAME", help="spaCy model: a package or a folder")
    add_shared(add, "--max-line-mb", "--overwrite")


def wsc(args: argparse.Namespace) -> None:
    """Adds candidates to each line of SuperGLUE's WSC files, for the task wsc.

    The output has the same lines with a key "candidates", so training and prediction need no spaCy.
    Candidates are the noun phrases of the text, as in fairseq. Finding them needs pip install
    'fairseq_adv[wsc]' and a spaCy model. Without a model, use --candidates spans: the phrases that other
    lines of the same file ask about for the same text. They are fewer, were chosen by the data set's authors,
    and a text that occurs on only one line has none.

    Examples:
      fairseq-adv prepare wsc WSC/train.jsonl WSC/val.jsonl WSC/test.jsonl wsc-data
      fairseq-adv prepare wsc WSC wsc-data --candidates spans
      fairseq-adv prepare wsc glue_data/WNLI/test.tsv wnli-data    # built from WNLI's rows, in their order
    """
    from fairseq_adv.data.wsc.noun_phrases import prepare_wsc

    _report(prepare_wsc(args.input, args.out, args.candidates, args.spacy_model, args.overwrite))


def _add_checks(parser: argparse.ArgumentParser, more: str = "") -> None:
    """The options of your own data: a validation split, and rows that look like mistakes."""
    add = parser.add_argument_group("if the data has no validation split").add_argument
    add("--valid-share", type=positive, metavar="S",
        help="hold out this fraction of the training rows (default: 0.1)")  # fmt: skip
    add("--seed", type=whole, default=1, help=f"seed for choosing those rows{more}")
    parser.add_argument("--refuse-suspicious", action="store_true",
        help="write nothing if texts are empty, only white space or have NUL characters, classes look alike, "
        "the same text has different labels, or rows of train are also in valid or test (default: only count "
        "them)")  # fmt: skip


def _config(args: argparse.Namespace) -> PrepareConfig:
    from fairseq_adv.data.classes.prepare_classification import PrepareConfig

    return PrepareConfig(
        tokenizer_of(args), False, args.valid_share, args.seed, args.overwrite, args.refuse_suspicious
    )


def _report(result: Prepared, purpose: str = "") -> None:
    rows = ", ".join(f"{split} {count}" for split, count in result.rows.items())
    counts = f" ({rows})" if rows and not result.details else ""
    if result.reused:
        print(f"{result.task}: {result.out} is already there and made from these files; nothing to do")
    else:
        print(f"{result.task}: wrote {result.out}{counts}{purpose}")
    for line in (*result.details, *(f"  note: {note}" for note in result.notes)):
        print(line)
