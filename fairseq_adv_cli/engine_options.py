"""The options that say which engine ``retrieve`` searches with, and where it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds --engine, and what only OpenSearch needs."""
    parser.add_argument("--engine", choices=["tantivy", "opensearch"], default="tantivy")
    parser.add_argument("--url", help="opensearch: the server, such as https://localhost:9200")
    parser.add_argument("--ca-certs", type=Path, metavar="FILE", help="opensearch: the certificates to trust")
    parser.add_argument(
        "--login-over-http",
        action="store_true",
        help="opensearch: send name and password over plain http too, where the network can read them",
    )


def server_of(args: argparse.Namespace) -> Any:
    """The client of the OpenSearch server that the options name; ``None`` for tantivy, which has none.

    Raises:
        DataError: an option of the other engine, or there is no such server.
    """
    from fairseq_adv.data.errors import DataError

    if args.engine == "opensearch":
        from fairseq_adv.retrieval.opensearch_index import connect

        return connect(args.url, args.ca_certs, args.login_over_http)
    for option in ("url", "ca_certs", "login_over_http"):
        if getattr(args, option):
            raise DataError(f"--{option.replace('_', '-')} is for --engine opensearch. Leave it out.")
    return None
