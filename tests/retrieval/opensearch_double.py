"""An HTTP server on this machine that answers as OpenSearch's documentation says.

Written after the API reference (https://docs.opensearch.org/latest/api-reference), not recorded from a
server. It knows the few requests that the project makes, refuses any other, and ranks by the formula in
``bm25.py``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional
from urllib.parse import parse_qs, urlsplit

from bm25 import scores

from fairseq_adv.retrieval.query import text_analyzer


class Double:
    """The server's state: indices by name (``{"settings", "mappings", "documents"}``), requests it got."""

    def __init__(self) -> None:
        self.indices: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.written = 0  # documents, however often each
        self.fail_after_bulks: Optional[int] = None
        self.lock = threading.Lock()

    def answer(self, method: str, path: str, options: dict[str, str], body: Any) -> tuple[int, Any]:
        """The status and the json of an answer."""
        parts = [part for part in path.split("/") if part]
        self.requests.append((method, path, options if parts[-1:] == ["_search"] else None))
        if not parts:
            version = {"number": "2.19.1", "distribution": "opensearch", "lucene_version": "9.12.1"}
            return 200, {"name": "node", "cluster_name": "test", "version": version}
        if parts[-1] == "_bulk":
            return self._bulk(body)
        name, action = parts[0], "/".join(parts[1:])
        if name not in self.indices and not (method == "PUT" and not action):
            reason = f"no such index [{name}]"
            return 404, {"error": {"type": "index_not_found_exception", "reason": reason}, "status": 404}
        if method == "PUT" and not action:
            if name in self.indices:
                error = {
                    "type": "resource_already_exists_exception",
                    "reason": f"index [{name}] already exists",
                }
                return 400, {"error": error, "status": 400}
            self.indices[name] = {**body, "documents": {}}
            return 200, {"acknowledged": True, "shards_acknowledged": True, "index": name}
        index = self.indices[name]
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        if (method, action) == ("HEAD", ""):
            return 200, None
        if (method, action) == ("DELETE", ""):
            del self.indices[name]
            return 200, {"acknowledged": True}
        if (method, action) == ("GET", "_mapping"):
            return 200, {name: {"mappings": index["mappings"]}}
        if (method, action) == ("PUT", "_mapping"):
            index["mappings"].update(body)
            return 200, {"acknowledged": True}
        if (method, action) == ("PUT", "_settings"):
            index["settings"].update(body["index"])
            return 200, {"acknowledged": True}
        if (method, action) in {("POST", "_refresh"), ("POST", "_forcemerge")}:
            return 200, {"_shards": shards}
        if method in ("GET", "POST") and action == "_count":
            return 200, {"count": len(index["documents"]), "_shards": shards}
        if method == "POST" and action == "_search":
            hits = self._search(name, index["documents"], body)
            found = {"max_score": None, "hits": hits}
            return 200, {"took": 1, "timed_out": False, "_shards": shards, "hits": found}
        return 405, {"error": f"Incorrect HTTP method for uri [{path}] and method [{method}]", "status": 405}

    def _bulk(self, lines: list[Any]) -> tuple[int, Any]:
        with self.lock:
            if self.fail_after_bulks is not None:
                if self.fail_after_bulks == 0:
                    return 500, {"error": {"type": "exception", "reason": "out of space"}, "status": 500}
                self.fail_after_bulks -= 1
            items = []
            for action, source in zip(lines[::2], lines[1::2]):
                target = action["index"]
                documents = self.indices[target["_index"]]["documents"]
                result = "updated" if target["_id"] in documents else "created"
                documents[target["_id"]] = source
                self.written += 1
                items.append(
                    {"index": {**target, "result": result, "status": 201 if result == "created" else 200}}
                )
        return 200, {"took": 1, "errors": False, "items": items}

    def _search(self, name: str, documents: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]]:
        clauses = body["query"]["bool"]
        assert set(clauses) <= {"must", "filter"} and len(clauses["must"]) == 1
        analyze = text_analyzer().analyze
        sources = list(documents.values())
        texts = [_terms(source["text"]) for source in sources]
        # Lucene counts a term of a match query as often as it stands in it, and leaves out the factor k1 + 1.
        wanted = analyze(clauses["must"][0]["match"]["text"]["query"])
        total = [sum(of_term) for of_term in zip(*(scores([term], texts, factor=1.0) for term in wanted))]
        kept = [i for i, score in enumerate(total) if score > 0]
        for one in clauses.get("filter", []):
            match = one["match"]["text"]
            some = {"and": all, "or": any}[match.get("operator", "or")]
            kept = [i for i in kept if some(term in texts[i] for term in analyze(match["query"]))]
        assert body["sort"] == [{"_score": "desc"}, {"number": "asc"}]
        kept.sort(key=lambda i: (-round(total[i], 5), sources[i]["number"]))
        return [
            {
                "_index": name,
                "_id": str(sources[i]["number"]),
                "_score": total[i],
                "_source": {key: sources[i][key] for key in body["_source"]},
                "sort": [total[i], sources[i]["number"]],
            }
            for i in kept[: body["size"]]
        ]


@cache
def _terms(text: str) -> list[str]:
    return list(text_analyzer().analyze(text))


@contextmanager
def serving(double: Double, user: str = "") -> Iterator[str]:
    """Answers on a free port of this machine; its URL. With ``user``, it wants a name and a password."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            parts = urlsplit(self.path)
            options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if parts.path.endswith("_bulk"):
                body: Any = [json.loads(line) for line in raw.splitlines()]
            else:
                body = json.loads(raw) if raw else None
            if user and not self.headers.get("Authorization"):
                status, answer = 401, {"error": "Unauthorized", "status": 401}
            else:
                status, answer = double.answer(self.command, parts.path, options, body)
            content = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _do

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
