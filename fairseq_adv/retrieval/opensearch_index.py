"""The engine for an index that is too large for one machine: an OpenSearch server or cluster, with its own
client.

The query is the same as the embedded engine's: the same words, ranked by the server's BM25 (k1 1.2, b 0.75)
with an analyzer that produces the same terms; statistics are over all shards. The scores differ by the
constant k1 + 1, which Lucene omits. The ``_meta`` of the index's mapping records what the index is made from,
and how far a build got.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit

from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.retrieval.query import ANALYSIS, Found, Hit, Query, import_extra
from fairseq_adv.retrieval.sentences import Corpus
from fairseq_adv.retrieval.tantivy_index import Built

FORMAT_VERSION = 1
_META = "fairseq_adv"
_SLICE = 50_000
"""Sentences between two records of a build's progress."""
_THREADS = 4
_POOL = 32
"""Number of open connections: searches come from several threads."""
_SETTINGS = {
    "refresh_interval": "-1",  # nothing searches the index while it is being built
    "analysis": {
        "tokenizer": {"words": {"type": "pattern", "pattern": r"[^\p{IsAlphabetic}\p{N}]+"}},
        "filter": {
            "short": {"type": "length", "max": ANALYSIS["longest"]},
            "common": {"type": "stop", "stopwords": "_english_"},
            "stem": {"type": "stemmer", "language": ANALYSIS["stemmer"]},
        },
        "analyzer": {
            "english_words": {
                "type": "custom",
                "tokenizer": "words",
                "filter": ["short", "lowercase", "common", "stem"],
            }
        },
    },
}
_FIELDS = {
    "text": {"type": "text", "analyzer": "english_words", "index_options": "freqs"},
    "number": {"type": "long"},
}


def connect(url: Optional[str], ca_certs: Optional[Path] = None, login_over_http: bool = False) -> Any:
    """A client for the server; user name and password come from the environment.

    Args:
        url: such as https://localhost:9200.
        ca_certs: certificates to trust instead of the system's.
        login_over_http: allow sending name and password over plain http, where the network can read them.

    Raises:
        DataError: the URL is missing, invalid or contains a name or password; there is a login for plain
            http; or opensearch-py isn't installed.
    """
    if not url:
        raise DataError(
            "--url is missing: --engine opensearch needs it. Pass one such as https://localhost:9200."
        )
    _check_url(url)
    if "OPENSEARCH_USER" in os.environ and url.startswith("http://") and not login_over_http:
        raise DataError(
            f"--url {url}: plain http exposes OPENSEARCH_USER and OPENSEARCH_PASSWORD on the network. Pass "
            "https://, unset both, or pass --login-over-http if nobody else can read that network."
        )
    opensearch = import_extra("opensearchpy")
    options: dict[str, Any] = {
        "timeout": 120,
        "max_retries": 3,
        "retry_on_timeout": True,
        "pool_maxsize": _POOL,
    }
    if "OPENSEARCH_USER" in os.environ:
        options["http_auth"] = (os.environ["OPENSEARCH_USER"], os.environ.get("OPENSEARCH_PASSWORD", ""))
    if ca_certs:
        if not ca_certs.is_file():
            raise DataError(f"--ca-certs {ca_certs}: no such file")
        options["ca_certs"] = str(ca_certs)
    # The client logs each failed request with a traceback; _told reports what the user needs to know.
    logging.getLogger("opensearch").setLevel(logging.CRITICAL)
    return opensearch.OpenSearch(hosts=[url], **options)


def _check_url(url: str) -> None:
    if "@" in url:  # the message must not repeat it
        raise DataError(
            "--url: contains a name or a password. Put them in OPENSEARCH_USER and OPENSEARCH_PASSWORD."
        )
    if not url.startswith(("http://", "https://")):
        raise DataError(f"--url {url}: must begin with https:// or http://.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise DataError(f"--url {url}: not a URL ({error}).") from error
    if not host:
        raise DataError(f"--url {url}: names no server. Pass one such as https://localhost:9200.")


def build(client: Any, corpus: Corpus, name: str, overwrite: bool = False) -> Built:
    """Indexes a corpus as ``name`` on the server; shows a progress bar.

    A sentence's number is its id, so a resumed build, or two at the same time, never write one twice.

    Raises:
        DataError: the server can't be reached or refuses, or ``name`` was made from something else.
    """
    made_from = {
        "kind": "opensearch index",
        "format": FORMAT_VERSION,
        "analysis": ANALYSIS,
        **corpus.made_from(),
    }
    with _told(client):
        state = _state(client, name)
        if state and state["made_from"] != made_from and not overwrite:
            raise DataError(
                f"{name}: was made from other files or options. Pass --overwrite, or another name."
            )
        if state and state["complete"] and state["made_from"] == made_from and not overwrite:
            return Built(corpus.size, 1, True, 0)
        if state and (state["complete"] or state["made_from"] != made_from):
            client.indices.delete(index=name)
            state = None
        if not state:
            state = {"made_from": made_from, "done": 0, "complete": False}
            mappings = {"_meta": {_META: state}, "properties": _FIELDS}
            client.indices.create(index=name, body={"settings": _SETTINGS, "mappings": mappings})
        start = state["done"]
        _add(client, corpus, name, state)
        client.indices.refresh(index=name)
        found = client.count(index=name)["count"]
        if found != corpus.size:
            raise DataError(f"{name}: has {found} sentences, not {corpus.size}. Delete it and start again.")
        client.indices.forcemerge(index=name, params={"max_num_segments": 1, "request_timeout": 7200})
        client.indices.put_settings(index=name, body={"index": {"refresh_interval": None}})
        _note(client, name, {**state, "done": corpus.size, "complete": True})
    return Built(corpus.size, 1, False, start)


def _add(client: Any, corpus: Corpus, name: str, state: dict[str, Any]) -> None:
    helpers = import_extra("opensearchpy.helpers")
    number = state["done"]
    sentences = enumerate(corpus.sentences(number), start=number)
    with tqdm(total=corpus.size, initial=number, desc="index", unit="sentence", unit_scale=True) as bar:
        while number < corpus.size:
            actions = (
                {"_index": name, "_id": str(i), "_source": {"number": i, "text": text}}
                for i, text in itertools.islice(sentences, _SLICE)
            )
            for _ in helpers.parallel_bulk(client, actions, thread_count=_THREADS, chunk_size=1000):
                number += 1
                bar.update()
            _note(client, name, {**state, "done": number})


def open_index(client: Any, name: str) -> OpenSearchIndex:
    """A complete index on the server, ready for searching.

    Raises:
        DataError: the server can't be reached, or the index doesn't exist, isn't ours or isn't complete.
    """
    with _told(client):
        state = _state(client, name)
        if state is None:
            raise DataError(
                f"{name}: no such index. Make it with fairseq-adv retrieve index --engine opensearch."
            )
        if not state["complete"]:
            raise DataError(
                f"{name}: its build has not finished. Run the same fairseq-adv retrieve index command again."
            )
        if state["made_from"].get("format") != FORMAT_VERSION or state["made_from"]["analysis"] != ANALYSIS:
            raise DataError(f"{name}: was made by another version of this program. Build it again.")
        version = client.info()["version"]["number"]
    return OpenSearchIndex(
        client, name, {"engine": "opensearch", "version": version, "index": state["made_from"]}
    )


@dataclass(frozen=True)
class _Found:
    hits: tuple[Hit, ...]
    more: bool

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


class OpenSearchIndex:
    """The engine ``opensearch``; made by :func:`open_index`."""

    def __init__(self, client: Any, name: str, description: dict[str, Any]) -> None:
        self._client = client
        self._name = name
        self._description = description

    def describe(self) -> dict[str, Any]:
        """Engine, the server's version, and what the index was made from."""
        return self._description

    def search(self, query: Query, limit: int, whole_ties: bool = False) -> Found:
        """The best ``limit`` sentences; see :class:`fairseq_adv.retrieval.query.Engine`.

        The server itself orders sentences with the same score, so none have to be left out.
        """
        # Use the statistics of all shards, and fail rather than search only some of them.
        params = {"search_type": "dfs_query_then_fetch", "allow_partial_search_results": "false"}
        with _told(self._client):
            answer = self._client.search(index=self._name, body=search_body(query, limit), params=params)
        hits = [
            Hit(hit["_source"]["text"], hit["_score"], hit["_source"]["number"])
            for hit in answer["hits"]["hits"]
        ]
        return _Found(tuple(hits), len(hits) == limit)


def search_body(query: Query, limit: int) -> dict[str, Any]:
    """The body of OpenSearch's ``_search`` for a query."""
    words = " ".join(query.terms.values())
    clauses: dict[str, Any] = {"must": [{"match": {"text": {"query": words}}}]}
    if query.required:
        wanted = " ".join(query.terms[term] for term in query.required)
        operator = "and" if query.every else "or"
        clauses["filter"] = [{"match": {"text": {"query": wanted, "operator": operator}}}]
    return {
        "size": limit,
        "query": {"bool": clauses},
        "sort": [{"_score": "desc"}, {"number": "asc"}],
        "_source": ["text", "number"],
        "track_total_hits": False,
    }


def _state(client: Any, name: str) -> Optional[dict[str, Any]]:
    if not client.indices.exists(index=name):
        return None
    mapping = next(iter(client.indices.get_mapping(index=name).values()))["mappings"]
    state = mapping.get("_meta", {}).get(_META)
    if state is None:
        raise DataError(f"{name}: exists and was not made by this program. Pass another name.")
    return dict(state)


def _note(client: Any, name: str, state: dict[str, Any]) -> None:
    client.indices.put_mapping(index=name, body={"_meta": {_META: state}})


@contextmanager
def _told(client: Any) -> Iterator[None]:
    """Turns the client's errors into messages for users."""
    exceptions = import_extra("opensearchpy.exceptions")
    try:
        yield
    except exceptions.SSLError as error:
        raise DataError(
            f"--url: the server's certificate isn't trusted ({error.error}). Pass --ca-certs."
        ) from error
    except exceptions.ConnectionError as error:
        raise DataError(f"--url: the server does not answer ({error.error}). Is it running there?") from error
    except (exceptions.AuthenticationException, exceptions.AuthorizationException) as error:
        raise DataError(
            f"--url: the server refuses access ({error.status_code}). Set OPENSEARCH_USER and "
            "OPENSEARCH_PASSWORD."
        ) from error
    except exceptions.OpenSearchException as error:
        raise DataError(f"the OpenSearch server reports: {_reason(error)}") from error


def _reason(error: Any) -> str:
    try:
        return f"{error.error}: {error.info['error']['reason']} (status {error.status_code})"
    except (AttributeError, KeyError, TypeError, IndexError):
        return str(error)
