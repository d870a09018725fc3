"""``fairseq-adv attack``: perturbs a checkpoint's embeddings, or changes the words of its input."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.checked_json import json_line
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import APPENDED, KINDS, MOST_APPENDED
from fairseq_adv.evaluation.attack_settings import (
    AGAINST,
    ATTACKS,
    IMPORTANCE,
    LOSSES,
    METRICS,
    MISSED,
    SIDES,
    Attack,
    Gate,
    Variants,
)

from .script import RESUMABLE, VerbParser, count, fraction, not_negative, positive, share, whole
from .shared_options import (
    add_columns,
    add_running,
    add_shared,
    add_unit,
    check_unit,
    inference_config,
    label_map,
    words_after_columns,
)

if TYPE_CHECKING:
    from fairseq_adv.evaluation.attack_settings import Settings
    from fairseq_adv.evaluation.word_attacks.attack_file import Request
    from fairseq_adv.evaluation.word_attacks.victim import AttackedFile


def attack_options(parser: VerbParser) -> None:
    """Adds the options of one attack or the other: with --attack or --words, the words are attacked."""
    names = {word.partition("=")[0] for word in parser.words}
    for option, work, add_options in (
        ("--attack", _attack_words, _word_options), ("--words", _try_variants, _variant_options),
    ):  # fmt: skip
        if any(len(name) > len("--a") and option.startswith(name) for name in names):  # argparse abbreviates
            parser.description = inspect.cleandoc(str(work.__doc__))
            add_options(parser)
            parser.set_defaults(work=work)
            return
    parser.reads(check=check_unit)
    add = parser.add_argument
    add_shared(add, "checkpoint")
    add("--attack", metavar="NAME", help="attack by changing words; has options of its own")
    add("--words", metavar="KIND", help="attack by spaces, look-alike letters or words at the end; has "
        "options of its own")  # fmt: skip
    add_shared(add, "--data")
    add("--split", default="valid", help="split of the data")
    add("--epsilon", type=positive, required=True, help="radius of the L2 ball around each example; needs "
        "--relative or --absolute")  # fmt: skip
    add_unit(parser)
    add("--step-size", type=positive, help="length of an ascent step (default: epsilon / 4)")
    add("--steps", type=count, default=20, help="number of ascent steps")
    add("--loss", choices=LOSSES, default=LOSSES[0], help="what the steps increase: cross-entropy, the "
        "training loss, or margin, the highest wrong logit minus the right one, whose gradient doesn't "
        "vanish for an over-confident model (for tasks with classes)")  # fmt: skip
    add("--start", type=not_negative, default=0.0, help="m of the random start; 0: start at the clean text")
    add("--seed", type=whole, default=1, help="seed of the random start")
    add_shared(add, "--batch-size", default=32)
    add("--batches", type=count, metavar="N", help="attack only N mini-batches, of short texts and long "
        "(default: all)")  # fmt: skip
    add_shared(add, "--cpu", "--precision", "--json", "--user-dir")


def attack(args: argparse.Namespace) -> None:
    """Measures a checkpoint's loss and accuracy under attack: embeddings are perturbed, or words changed.

    By default the attack perturbs the embeddings. The checkpoint is a fine-tuned model, or a masked LM, whose
    examples are the masked positions.
    Example: fairseq-adv attack run/checkpoint_best.pt --epsilon 0.02 --relative

    With --attack NAME the attack changes words instead: textfooler, textbugger, bert-attack, pwws or
    deepwordbug. fairseq-adv attack --attack textfooler --help lists its options. So does --words spaced,
    homoglyphs or appended, as people do to get past a filter.
    """
    from fairseq_adv.evaluation.attack import attack_checkpoint

    plan = Attack(
        epsilon=args.epsilon,
        step_size=args.step_size or args.epsilon / 4,
        steps=args.steps,
        start=args.start,
        seed=args.seed,
        relative=args.relative,
        loss=args.loss,
    )
    means = attack_checkpoint(
        args.checkpoint, plan, args.data, args.split, args.batch_size, args.cpu, args.batches, args.precision
    )
    if args.json:
        print(json_line(means))
    else:
        print(f"{means['examples']} examples, {plan.steps} ascent steps within {plan.radius}")
        print(f"{'':12}{'loss':>14}{'accuracy':>12}")
        for name, prefix in (("clean", ""), ("perturbed", "perturbed_")):
            accuracy = means.get(f"{prefix}accuracy")
            shown = "–" if accuracy is None else f"{accuracy:.2f}"  # a regression has none
            print(f"{name:12}{means[f'{prefix}loss']:14.4f}{shown:>12}")
        print("losses in nats; a regression's is the squared error")


def _word_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add_shared(add, "checkpoint", type=Path, nargs="?")
    add("--attack", required=True, choices=list(ATTACKS), help="which attack")
    _add_data(parser, SIDES)

    add = parser.add_argument_group("resources of the attack").add_argument
    add("--neighbours", type=Path, metavar="FILE", help='JSON: {"word": ["nearest", "next", …], …}')
    add("--wordnet", type=Path, metavar="DIR", help="WordNet's database files, such as /usr/share/wordnet")
    add("--masked-lm", type=Path, metavar="PATH", help="an encoder's folder, or a pre-training checkpoint")
    add("--similarity-encoder", type=Path, metavar="PATH", help="likewise; without it texts aren't compared")
    add("--tagger", type=Path, metavar="DIR", help="nltk's averaged_perceptron_tagger_eng, for textfooler")
    add("--stop-words", type=Path, metavar="FILE", help="one word per line (default: TextFooler's list)")

    add = parser.add_argument_group("settings of the attack (default: those of its paper)").add_argument
    add("--candidates", type=whole, metavar="K", help="most replacements tried for a word; 0: all")
    add("--importance", choices=IMPORTANCE, help="how words are ranked: see docs/attacks.md")
    add("--unknown-word", metavar="WORD", help="stands in for a word while its importance is measured")
    add("--similarity", type=share, help="least similarity to keep, from 0 to 1")
    add("--similarity-metric", choices=METRICS, help="1 - angle / pi, or the cosine")
    add("--similarity-against", choices=AGAINST, help="text to compare a change with")
    add("--similarity-window", type=whole, metavar="WORDS", help="words to compare; 0: the whole text")
    add("--check-short-texts", action="store_true", default=None,
        help="also compare texts shorter than the window, which TextFooler's recipe skips")  # fmt: skip
    add("--max-changed-share", type=fraction, metavar="S", help="most words changed, as a fraction; 1: all")
    add("--max-edits", type=whole, metavar="N", help="most letters changed per example; 0: no limit")
    add("--query-budget", type=whole, metavar="N", help="most queries per example; 0: no limit")
    add(
        "--queries-per-word",
        type=whole,
        metavar="N",
        help="most queries per word of an example (TextDefender's limit: N candidates); 0: no limit",
    )
    add("--seed", type=whole, help="seed of the misspellings")
    _add_models(parser)


def _variant_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add_shared(add, "checkpoint", type=Path, nargs="?")
    add("--words", required=True, nargs="+", choices=KINDS, metavar="KIND", help="spaced: spaces between the "
        "letters of words; homoglyphs: Cyrillic and Greek letters that look like theirs; appended: harmless "
        "words at the end of the text")  # fmt: skip
    _add_data(parser, SIDES[:3])
    add = parser.add_argument_group("what is tried").add_argument
    add("--variants", type=count, default=10, metavar="N", help="texts tried per row; the k-th has k / N of "
        "the changes")  # fmt: skip
    add("--max-changed-share", type=fraction, metavar="S", help="spaced, homoglyphs: most words "
        "changed, as a fraction (default: 1, all)")  # fmt: skip
    add("--max-appended", type=count, metavar="N", help=f"most words appended (default: {MOST_APPENDED})")
    add_shared(add, "--append-words")
    add("--append-texts", type=Path, metavar="FILE", help="append the beginnings of texts of other classes, "
        "from a file with the columns of --data")  # fmt: skip
    add("--seed", type=whole, default=1, help="seed for choosing words")
    _add_models(parser)


def _add_data(parser: VerbParser, sides: Sequence[str]) -> None:
    """The options of both attacks on words: what is attacked, and what the results are for."""
    parser.reads(stopped=RESUMABLE, check=partial(_check_checkpoint, parser))
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FILE", help="csv, tsv, jsonl, parquet, or text lines")
    add("--out", type=Path, required=True, metavar="OUT", help="folder for the results")
    add_shared(add, "--json")

    add = parser.add_argument_group("data").add_argument
    add_columns(add)
    add_shared(add, "--label-map", help="the model's class for each label in the file, if the names differ, "
        "such as 0=neg 1=pos")  # fmt: skip
    of_questions = "; for questions: the question, the documents or the choices (default: second; question)"
    add("--side", choices=sides, help="which words may change: first text of a pair, second text, or both"
        + (of_questions if "question" in sides else " (default: second)"))  # fmt: skip
    add("--examples", type=count, metavar="N", help="attack only the first N rows")
    add("--only-class", metavar="NAME", help="attack only the rows of this class")

    group = parser.add_argument_group("gate", f"The exit status is {MISSED} if one of these is missed.")
    add = group.add_argument
    add("--min-accuracy", type=fraction, metavar="P", help="least accuracy under each attack, from 0 to 1")
    add("--max-flip-rate", type=share, metavar="P", help="most answers that each attack may change, as a "
        "share of those that were right")  # fmt: skip


def _add_models(parser: VerbParser) -> None:
    add = parser.add_argument_group("running the models").add_argument
    add("--at-once", type=count, default=32, metavar="N", help="examples attacked at the same time")
    add_running(add)
    add("--training-data", type=Path, metavar="DIR", help="the folder the model was trained on, if it moved")


def _check_checkpoint(parser: VerbParser, args: argparse.Namespace) -> None:
    """CHECKPOINT may stand behind the columns of --label."""
    if args.checkpoint is None:
        taken = words_after_columns(args, 1)
        if not taken:
            parser.error("the following arguments are required: CHECKPOINT")
        args.checkpoint = Path(taken[0])


def _attack_words(args: argparse.Namespace) -> int:
    """Attacks a model by changing words, and measures how often its answers change.

    --data is a file of texts with their classes, or of questions with right answers. Each line of a .txt,
    .label or .all file is a class, a space and a text; its columns are called "label" and "text". OUT gets
    examples.jsonl (the result for each example), summary.json and changes.html (the changes, marked).
    Interrupted attacks resume. A text with several labels is right if all of them are.

    textfooler and textbugger need --neighbours, pwws needs --wordnet, bert-attack needs --masked-lm;
    deepwordbug needs nothing. The authors compare sentences with the Universal Sentence Encoder and take
    neighbours from the full counter-fitted vectors. With other resources the numbers are not comparable with
    theirs, so these attacks are called TextFooler-style and so on.

    Examples:
      fairseq-adv attack run/checkpoint_best.pt --attack deepwordbug --data test.tsv --text sentence \\
          --label label --out deepwordbug
      fairseq-adv attack run/checkpoint_best.pt --attack textfooler --data mr.txt --text text --label label \\
          --neighbours neighbours.json --similarity-encoder my_encoder --queries-per-word 50 --out textfooler
    """
    from fairseq_adv.evaluation.word_attacks.attack_file import attack_file
    from fairseq_adv.evaluation.word_attacks.report import lines

    result, gate = attack_file(_request(args)), Gate(args.min_accuracy, args.max_flip_rate)
    if args.json:
        print(json_line({**result, **gate.as_json([result])}))
    else:
        print("\n".join([*lines(result), *gate.lines([result])]))
    return MISSED * bool(gate.misses([result]))


def _try_variants(args: argparse.Namespace) -> int:
    """Attacks a model with texts that people read as before, and measures how often its answers change.

    For each KIND and row, variants of the text are tried, with more and more changes, until one changes the
    answer. --data and the results are as for --attack, with a folder OUT/KIND for each KIND. The exit status
    is 3 if --min-accuracy or --max-flip-rate is missed under one of them.

    Words to append are everyday ones, unless you pass some, or texts. From texts, a row gets the beginnings
    of those of other classes.

    Example:
      fairseq-adv attack out/guard/checkpoint_best.pt --words spaced homoglyphs appended --data test.csv \\
          --text prompt --label kind --only-class injection --max-flip-rate .1 --out attacked
    """
    from fairseq_adv.evaluation.word_attacks.attack_file import attack_file, load_model
    from fairseq_adv.evaluation.word_attacks.report import table

    gate, kinds = Gate(args.min_accuracy, args.max_flip_rate), dict.fromkeys(args.words)
    if APPENDED not in kinds and (args.append_words or args.append_texts or args.max_appended):
        raise DataError(
            "--append-words, --append-texts and --max-appended need --words appended. Leave them out"
        )
    if kinds.keys() == {APPENDED} and args.max_changed_share is not None:
        raise DataError("--max-changed-share needs --words spaced or homoglyphs. Leave it out")
    if args.append_words and args.append_texts:
        raise DataError("--append-words and --append-texts: pass one of them")
    requests = [_variant_request(args, kind) for kind in kinds]
    load = lru_cache(partial(load_model, requests[0]))
    results = [attack_file(request, load) for request in requests]
    if args.json:
        attacks = {one["attack"]: one for one in results}
        print(json_line({"attacks": attacks, **gate.as_json(results)}))
    else:
        print("\n".join([*table(results), *gate.lines(results)]))
        print(f"changed texts: {', '.join(str(one.out / 'changes.html') for one in requests)}")
    return MISSED * bool(gate.misses(results))


def _variant_request(args: argparse.Namespace, kind: str) -> Request:
    from fairseq_adv.evaluation.word_attacks.attack_file import Request
    from fairseq_adv.evaluation.word_attacks.resources import Resources

    most = 1.0 if args.max_changed_share is None else args.max_changed_share
    settings = Variants(kind, args.variants, most, args.max_appended or MOST_APPENDED, args.seed)
    used = kind == APPENDED
    resources = Resources(
        append_words=args.append_words if used else None, append_texts=args.append_texts if used else None
    )
    return Request(
        args.checkpoint, _attacked_file(args), args.out / kind, settings, resources, args.at_once,
        args.training_data, inference_config(args),
    )  # fmt: skip


def _check_effect(args: argparse.Namespace, settings: Settings) -> None:
    """Raises DataError if an option that is given can't change anything."""
    from fairseq_adv.evaluation.word_attacks.resources import LETTERS

    unused = {}
    if args.similarity_encoder is None:
        names = [name for name in vars(args) if name.startswith(("similarity", "check_short"))]
        unused = dict.fromkeys(names, "needs --similarity-encoder. Pass that, too, or leave it out")
    if LETTERS.keys() >= {*settings.sources}:
        unused["candidates"] = f"--attack {args.attack} doesn't use it. Leave it out"
    if settings.importance == "delete":
        unused["unknown_word"] = "--importance delete doesn't use it. Leave it out"
    for name, why in unused.items():
        if getattr(args, name) is not None:
            raise DataError(f"--{name.replace('_', '-')}: {why}.")


def _attacked_file(args: argparse.Namespace) -> AttackedFile:
    from fairseq_adv.evaluation.word_attacks.victim import AttackedFile

    label, *more_labels = args.label or [None]
    return AttackedFile(
        args.data, args.text, args.text_pair, label, not args.no_header,
        args.encoding or "utf-8", args.side, args.examples, label_map(args), tuple(more_labels),
        args.label_separator, args.only_class,
    )  # fmt: skip


def _request(args: argparse.Namespace) -> Request:
    """Raises DataError if a number is out of range."""
    from fairseq_adv.evaluation.word_attacks.attack_file import Request
    from fairseq_adv.evaluation.word_attacks.resources import Resources

    settings = ATTACKS[args.attack].with_options({**vars(args), "attack": None})
    if settings.attack == "bert-attack" and settings.candidates < 1:
        raise DataError("--candidates 0: a masked LM can propose any word. Pass a number, such as 48.")
    _check_effect(args, settings)
    resources = Resources(
        args.neighbours, args.wordnet, args.masked_lm, args.similarity_encoder, args.tagger,
        args.stop_words,
    )  # fmt: skip
    return Request(
        args.checkpoint, _attacked_file(args), args.out, settings, resources, args.at_once,
        args.training_data, inference_config(args),
    )  # fmt: skip
