"""Attacks a model by changing words, and measures how often its answers change.

--data is a file of texts with their classes, or of questions with right answers. Each line of a .txt, .label
or .all file is a class, a space and a text; its columns are called "label" and "text". OUT gets
examples.jsonl (the result for each example), summary.json and changes.html (the changes, marked). Interrupted
attacks resume.

textfooler and textbugger need --neighbours, pwws needs --wordnet, bert-attack needs --masked-lm; deepwordbug
needs nothing. The authors compare sentences with the Universal Sentence Encoder and take neighbours from the
full counter-fitted vectors. With other resources the numbers are not comparable with theirs, so these attacks
are called TextFooler-style and so on.

Examples:
  fairseq-adv attack run/checkpoint_best.pt --attack deepwordbug --data test.tsv --text sentence \\
      --label label --out deepwordbug
  fairseq-adv attack run/checkpoint_best.pt --attack textfooler --data mr.txt --text text --label label \\
      --neighbours neighbours.json --similarity-encoder my_encoder --queries-per-word 50 --out textfooler
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.evaluation.word_attacks.settings import AGAINST, ATTACKS, IMPORTANCE, METRICS, SIDES

from .number_types import count, not_negative, positive, whole
from .script import RESUMABLE, command_parser, exit_status
from .shared_options import add_columns, add_json, add_running

if TYPE_CHECKING:
    from fairseq_adv.evaluation.word_attacks.attack_file import Request


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("attack", __doc__)
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint written by fairseq-train")
    add("--attack", required=True, choices=list(ATTACKS), help="which attack")
    add("--data", type=Path, required=True, metavar="FILE", help="csv, tsv, jsonl, parquet, or text lines")
    add("--out", type=Path, required=True, metavar="OUT", help="folder for the results")
    add_json(add)
    _add_data(parser)
    _add_resources(parser)
    _add_settings(parser)
    _add_running(parser)
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("data").add_argument
    add_columns(add, label=True)
    add("--label-map", nargs="+", default=[], metavar="FILE=MODEL", help="such as 0=neg 1=pos")
    add(
        "--side",
        choices=SIDES,
        help="which words may change: first text of a pair, second text, or both; for questions: the "
        "question, the documents or the choices (default: second; question)",
    )
    add("--examples", type=count, metavar="N", help="attack only the first N rows")


def _add_resources(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("resources of the attack").add_argument
    add("--neighbours", type=Path, metavar="FILE", help='JSON: {"word": ["nearest", "next", …], …}')
    add("--wordnet", type=Path, metavar="DIR", help="WordNet's database files, such as /usr/share/wordnet")
    add("--masked-lm", type=Path, metavar="PATH", help="an encoder's folder, or a pre-training checkpoint")
    add("--similarity-encoder", type=Path, metavar="PATH", help="likewise; without it texts aren't compared")
    add("--tagger", type=Path, metavar="DIR", help="nltk's averaged_perceptron_tagger_eng, for textfooler")
    add("--stop-words", type=Path, metavar="FILE", help="one word per line (default: TextFooler's list)")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("settings of the attack (default: those of its paper)").add_argument
    add("--candidates", type=whole, metavar="K", help="most replacements tried for a word; 0: all")
    add("--importance", choices=IMPORTANCE, help="how words are ranked: see docs/attacks.md")
    add("--unknown-word", metavar="WORD", help="stands in for a word while its importance is measured")
    add("--similarity", type=not_negative, help="least similarity to keep, from 0 to 1")
    add("--similarity-metric", choices=METRICS, help="1 - angle / pi, or the cosine")
    add("--similarity-against", choices=AGAINST, help="text to compare a change with")
    add("--similarity-window", type=whole, metavar="WORDS", help="words to compare; 0: the whole text")
    add(
        "--check-short-texts",
        action="store_true",
        default=None,
        help="also compare texts shorter than the window, which TextFooler's recipe skips",
    )
    add("--max-changed-share", type=positive, metavar="S", help="most words changed, as a fraction; 1: all")
    add("--max-edits", type=whole, metavar="N", help="most letters changed per example; 0: no limit")
    add("--query-budget", type=whole, metavar="N", help="most queries per example; 0: no limit")
    add(
        "--queries-per-word",
        type=whole,
        metavar="N",
        help="most queries per word of an example (TextDefender's limit: N candidates); 0: no limit",
    )
    add("--seed", type=whole, help="seed of the misspellings")


def _add_running(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("running the models").add_argument
    add("--at-once", type=count, default=32, metavar="N", help="examples attacked at the same time")
    add_running(add)
    add("--training-data", type=Path, metavar="DIR", help="the folder the model was trained on, if it moved")


def _request(options: argparse.Namespace) -> Request:
    """Raises DataError if a number is out of range."""
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.evaluation.inference import InferenceConfig
    from fairseq_adv.evaluation.word_attacks.attack_file import Request
    from fairseq_adv.evaluation.word_attacks.resources import Resources
    from fairseq_adv.evaluation.word_attacks.victim import AttackedFile

    settings = ATTACKS[options.attack].with_options({**vars(options), "attack": None})
    if settings.similarity > 1:
        raise DataError(f"--similarity {settings.similarity:g}: pass a number from 0 to 1")
    if settings.max_changed_share > 1:
        raise DataError(f"--max-changed-share {settings.max_changed_share:g}: pass a share above 0, up to 1")
    if settings.attack == "bert-attack" and settings.candidates < 1:
        raise DataError("--candidates 0: a masked LM can propose any word. Pass a number, such as 48.")
    odd = next((pair for pair in options.label_map if not all(pair.partition("=")[::2])), None)
    if odd is not None:
        raise DataError(f"--label-map {odd}: pass FILE=MODEL, such as 0=negative")
    file = AttackedFile(
        options.data, options.text, options.text_pair, options.label, not options.no_header,
        options.encoding or "utf-8", options.side, options.examples,
        {pair.partition("=")[0]: pair.partition("=")[2] for pair in options.label_map},
    )  # fmt: skip
    resources = Resources(
        options.neighbours, options.wordnet, options.masked_lm, options.similarity_encoder, options.tagger,
        options.stop_words,
    )  # fmt: skip
    how = InferenceConfig(
        None, options.max_tokens, options.cpu, options.fp16, options.tokenizer_dir,
        precision=options.precision,
    )  # fmt: skip
    return Request(
        options.checkpoint,
        file,
        options.out,
        settings,
        resources,
        options.at_once,
        options.training_data,
        how,
    )


def _attack(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.word_attacks.attack_file import attack_file
    from fairseq_adv.evaluation.word_attacks.summary import lines

    found = attack_file(_request(options))
    print(json.dumps(found) if options.json else "\n".join(lines(found)))


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _attack(options), stopped=RESUMABLE)
