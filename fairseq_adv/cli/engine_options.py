"""The options that choose the search engine of ``retrieve``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds --engine, and the options of OpenSearch."""
    parser.add_argument(
        "--engine", choices=["tantivy", "opensearch"], default="tantivy", help="search engine"
    )
    parser.add_argument("--url", help="opensearch: the server, such as https://localhost:9200")
    parser.add_argument("--ca-certs", type=Path, metavar="FILE", help="opensearch: CA certificates to trust")
    parser.add_argument(
        "--login-over-http",
        action="store_true",
        help="opensearch: send user name and password over plain http, where the network can read them",
    )


def server_of(args: argparse.Namespace) -> Any:
    """The client of the OpenSearch server that the options name; ``None`` for tantivy, which has no server.

    Raises:
        DataError: an option belongs to the other engine, or the server can't be reached.
    """
    from fairseq_adv.data.errors import DataError

    if args.engine == "opensearch":
        from fairseq_adv.retrieval.opensearch_index import connect

        return connect(args.url, args.ca_certs, args.login_over_http)
    for option in ("url", "ca_certs", "login_over_http"):
        if getattr(args, option):
            raise DataError(f"--{option.replace('_', '-')} is for --engine opensearch. Leave it out.")
    return None
