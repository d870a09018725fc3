"""The engine for clusters, against a server that answers as OpenSearch's documentation says.

No real server is asked here; ``opensearch_double.py`` says what answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
from retrieval_samples import many_sentences, question, write_questions

pytest.importorskip("opensearchpy", reason="needs opensearch-py: pip install 'fairseq_adv[retrieval]'")

from opensearch_double import Double, serving

from fairseq_adv.data.errors import DataError
from fairseq_adv.retrieval import opensearch_index, tantivy_index
from fairseq_adv.retrieval.documents import Options
from fairseq_adv.retrieval.fill import fill
from fairseq_adv.retrieval.opensearch_index import build, connect, open_index, search_body
from fairseq_adv.retrieval.query import Query
from fairseq_adv.retrieval.sentences import survey


@pytest.fixture
def double() -> Double:
    return Double()


@pytest.fixture
def client(double: Double) -> Iterator[Any]:
    with serving(double) as url:
        yield connect(url)


def test_same_documents_as_tantivy(client: Any, double: Double, tmp_path: Path) -> None:
    lines = many_sentences(300)
    (tmp_path / "corpus.txt").write_text("\n".join(lines) + "\n")
    corpus = survey([str(tmp_path / "corpus.txt")])
    assert build(client, corpus, "science").sentences == 300
    tantivy_index.build(corpus, tmp_path / "index")
    rows = [
        question(lines[i], *[line[:18] for line in lines[i + 1 : i + 5]], name=f"q{i}")
        for i in range(0, 200, 20)
    ]
    rows.append(question("of the", "and", "zzz", name="empty"))
    source = write_questions(tmp_path / "in.jsonl", rows)
    engines = {
        "opensearch": open_index(client, "science"),
        "tantivy": tantivy_index.open_index(tmp_path / "index"),
    }
    for terms in ("any", "all"):
        for name, engine in engines.items():
            fill(engine, source, tmp_path / f"{name}-{terms}.jsonl", Options(choice_terms=terms), workers=3)
        written = (tmp_path / f"opensearch-{terms}.jsonl").read_bytes()
        assert written == (tmp_path / f"tantivy-{terms}.jsonl").read_bytes()
    searches = [options for _, path, options in double.requests if path == "/science/_search"]
    expected = {"search_type": "dfs_query_then_fetch", "allow_partial_search_results": "false"}
    assert searches and all(options == expected for options in searches)
    assert engines["opensearch"].describe()["version"] == "2.19.1"


def test_the_query() -> None:
    body = search_body(Query({"plant": "plants", "ice": "Ice"}, ("ice",), every=True), 50)
    assert body["query"]["bool"] == {
        "must": [{"match": {"text": {"query": "plants Ice"}}}],
        "filter": [{"match": {"text": {"query": "Ice", "operator": "and"}}}],
    }
    assert body["size"] == 50
    assert "filter" not in search_body(Query({"ice": "Ice"}, ()), 5)["query"]["bool"]


def test_what_is_on_the_server(client: Any, double: Double, corpus_file: Path) -> None:
    build(client, survey([str(corpus_file)]), "science")
    index = double.indices["science"]
    assert index["settings"]["refresh_interval"] is None  # the server's own again
    analyzer = index["settings"]["analysis"]["analyzer"]["english_words"]
    assert analyzer["filter"] == ["short", "lowercase", "common", "stem"]
    assert index["mappings"]["properties"]["text"]["analyzer"] == "english_words"
    assert index["mappings"]["_meta"]["fairseq_adv"]["complete"] is True
    assert index["documents"]["3"] == {"number": 3, "text": "The Moon orbits the Earth in about a month."}


def test_interrupted_and_continued(
    client: Any, double: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opensearch_index, "_SLICE", 2000)
    lines = [f"Sentence number {i} of many." for i in range(9000)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    corpus = survey([str(tmp_path / "corpus.txt")])
    double.fail_after_bulks = 5
    with pytest.raises(DataError, match="the OpenSearch server reports: exception: out of space"):
        build(client, corpus, "many")
    with pytest.raises(DataError, match="its build has not finished"):
        open_index(client, "many")
    double.fail_after_bulks, double.written = None, 0
    done = build(client, corpus, "many")
    assert done.continued_at == 4000 and not done.reused
    assert double.written == 5000
    documents = double.indices["many"]["documents"]
    assert [documents[str(i)]["text"] for i in range(9000)] == lines
    assert build(client, corpus, "many").reused


def test_names_that_are_taken(client: Any, double: Double, corpus_file: Path) -> None:
    client.indices.create(index="logs", body={"mappings": {"properties": {}}})
    with pytest.raises(DataError, match="logs: exists and was not made by this program"):
        build(client, survey([str(corpus_file)]), "logs", overwrite=True)
    build(client, survey([str(corpus_file)]), "science")
    corpus_file.write_text("Only this one sentence.\n")
    with pytest.raises(DataError, match=r"was made from other files or options\. Pass --overwrite"):
        build(client, survey([str(corpus_file)]), "science")
    assert build(client, survey([str(corpus_file)]), "science", overwrite=True).sentences == 1
    assert list(double.indices["science"]["documents"].values()) == [
        {"number": 0, "text": "Only this one sentence."}
    ]
    with pytest.raises(DataError, match="none: no such index"):
        open_index(client, "none")


def test_no_server_and_no_password(
    corpus_file: Path, double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="--url is missing"):
        connect(None)
    with pytest.raises(DataError, match="must begin with https"):
        connect("localhost:9200")
    with pytest.raises(DataError, match=r"--ca-certs .* no such file"):
        connect("https://localhost:9200", corpus_file / "none")
    with serving(double) as url:
        pass
    with pytest.raises(DataError, match="the server does not answer"):
        open_index(connect(url), "science")
    monkeypatch.delenv("OPENSEARCH_USER", raising=False)
    with serving(double, user="someone") as url:
        with pytest.raises(DataError, match=r"refuses access \(401\). Set OPENSEARCH_USER"):
            open_index(connect(url), "science")
        monkeypatch.setenv("OPENSEARCH_USER", "someone")
        monkeypatch.setenv("OPENSEARCH_PASSWORD", "secret")
        with pytest.raises(DataError, match="no such index"):
            open_index(connect(url, login_over_http=True), "science")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://localhost:9200", r"plain http exposes .* or pass --login-over-http"),
        ("http://search.example.org", r"plain http exposes .* or pass --login-over-http"),
        ("http://me:secret@localhost", "^--url: contains a name or a password"),
        ("me:secret@localhost", "^--url: contains a name or a password"),
        ("https://me:secret@localhost", "^--url: contains a name or a password"),
        ("https://", "names no server"),
        ("https://localhost:x", "not a URL"),
    ],
)
def test_a_login_goes_over_https_alone(monkeypatch: pytest.MonkeyPatch, url: str, message: str) -> None:
    monkeypatch.setenv("OPENSEARCH_USER", "me")
    monkeypatch.setenv("OPENSEARCH_PASSWORD", "secret")
    with pytest.raises(DataError, match=message) as refused:
        connect(url)
    assert "secret" not in str(refused.value)
    assert connect("https://localhost:9200") is not None
    monkeypatch.delenv("OPENSEARCH_USER")
    assert connect("http://localhost:9200") is not None
