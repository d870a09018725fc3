"""The search engine: a tantivy index in a folder.

BM25 as in Lucene (k1 1.2, b 0.75; a sentence's length is stored in one byte, exact up to 40 terms).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.workspace import check_files, finished, read_manifest, workspace
from fairseq_adv.retrieval.sentences import SentenceFiles

FORMAT_VERSION = 1
ANALYSIS = {
    "tokens": "letters and digits",
    "longest": 255,
    "stop words": "Lucene's 33",
    "stemmer": "porter2",
    "case": "lower",
}
"""How texts become terms."""
_FOLDER = "tantivy"
_ANALYZER = "english_words"
# tantivy's default merge policy merges 8 segments of about the same size into one. So 8 commits with the same
# number of sentences leave one segment, with an eighth of the memory.
_SLICES = 8
_ONE_SLICE = 100_000
"""Number of sentences up to which there is a single commit: seconds of work."""
_LARGEST_SLICE = 9_000_000
"""tantivy merges no segments of more than 10 million."""
# An upper bound: only as much is used as a slice needs. A slice that exceeds it merely costs an additional
# segment.
_HEAP = 3_900_000_000


@dataclass(frozen=True)
class Query:
    """One search."""

    terms: tuple[str, ...]  # sentences are ranked by these
    # terms of which a sentence must contain one, or all. Empty: nothing is required
    required: tuple[str, ...]
    every: bool = False  # whether all required terms must occur


@dataclass(frozen=True)
class Hit:
    """A sentence that was found."""

    text: str
    score: float  # by BM25
    number: int  # its position in the corpus, from 0


@dataclass(frozen=True)
class Built:
    """The result of a build."""

    sentences: int  # their number in the index
    segments: int  # their number in the index; 1 up to 72 million sentences
    reused: bool  # the index existed already


def build(corpus: SentenceFiles, out: Path, overwrite: bool = False) -> Built:
    """Indexes a corpus into the folder ``out``, atomically; shows a progress bar."""
    tantivy = import_tantivy()
    made_from = {
        "kind": "tantivy index",
        "format": FORMAT_VERSION,
        "tantivy": tantivy.__version__,
        "analysis": ANALYSIS,
        **corpus.made_from(),
    }
    if finished(out, made_from, overwrite):
        return Built(corpus.size, open_index(out).segments, True)
    with workspace(out, made_from, digests=True) as folder:
        index = _created(tantivy, folder / _FOLDER)
        try:
            _add(tantivy, index, corpus)
        except ValueError as error:
            if "writer was killed" not in str(error):  # otherwise its thread hides the reason
                raise
            raise DataError(
                f"{out}: tantivy can't write it. If there is no space left on the disk, free some, and run "
                "the same command again."
            ) from error
        index.reload()
        segments = index.searcher().num_segments
    return Built(corpus.size, segments, False)


def _created(tantivy: Any, folder: Path) -> Any:
    schema = (
        tantivy.SchemaBuilder()
        .add_text_field("text", stored=True, tokenizer_name=_ANALYZER, index_option="freq")
        .add_integer_field("number", stored=True)
        .build()
    )
    folder.mkdir()
    index = tantivy.Index(schema, str(folder))
    index.register_tokenizer(_ANALYZER, text_analyzer())
    return index


def _add(tantivy: Any, index: Any, corpus: SentenceFiles) -> None:
    ends = slice_ends(corpus.size)
    writer = index.writer(_HEAP, 1)  # one thread writes segments; reading and merging run concurrently
    progress = tqdm(corpus.sentences(), "index", corpus.size, unit="sentence", unit_scale=True)
    for number, text in enumerate(progress):
        document = tantivy.Document()
        document.add_text("text", text)
        document.add_integer("number", number)
        writer.add_document(document)
        if number + 1 in ends:
            writer.commit()
    writer.wait_merging_threads()


def slice_ends(sentences: int) -> set[int]:
    """The numbers of sentences after which a commit is made."""
    slices = 1 if sentences <= _ONE_SLICE else max(_SLICES, -(-sentences // _LARGEST_SLICE))
    return {sentences * k // slices for k in range(1, slices + 1)}


def open_index(folder: Path) -> TantivyIndex:
    """A complete index, ready for searching.

    Its files are compared with the digests in its manifest: tantivy reads a damaged file without an error,
    and finds other sentences. This reads the index once, at about 1 GB/s.
    """
    tantivy = import_tantivy()
    manifest = read_manifest(folder)
    made_from = manifest.get("made_from", {})
    if made_from.get("kind") != "tantivy index" or not manifest.get("files"):
        raise DataError(f"{folder}: not an index. Make one with fairseq-adv retrieve index.")
    check_files(folder, manifest, "Build it again.")
    if made_from.get("format") != FORMAT_VERSION or made_from.get("analysis") != ANALYSIS:
        raise DataError(f"{folder}: was made by another version of this program. Build it again.")
    try:
        index = tantivy.Index.open(str(folder / _FOLDER))
    except (ValueError, OSError) as error:
        raise DataError(
            f"{folder}: this tantivy ({tantivy.__version__}) can't read it ({error}); it was made by "
            f"{made_from.get('tantivy')}. Build it again."
        ) from error
    index.register_tokenizer(_ANALYZER, text_analyzer())
    return TantivyIndex(tantivy, index, made_from)


class TantivyIndex:
    """Ranks the sentences of a corpus; safe to use from several threads. Made by :func:`open_index`."""

    def __init__(self, tantivy: Any, index: Any, made_from: dict[str, Any]) -> None:
        self._tantivy = tantivy
        self._schema = index.schema
        self._searcher = index.searcher()
        self._made_from = made_from

    @property
    def segments(self) -> int:
        """Number of segments."""
        return int(self._searcher.num_segments)

    def describe(self) -> dict[str, Any]:
        """Engine, version, and what the index was made from."""
        return {"engine": "tantivy", "version": self._tantivy.__version__, "index": self._made_from}

    def search(self, query: Query, limit: int, whole_ties: bool = False) -> Found:
        """The best ``limit`` sentences.

        Args:
            whole_ties: leave out the last hits if the limit may separate them from others with the same
                score, unless all hits have the same score: which of them are returned would be arbitrary.
        """
        hits = self._searcher.search(self._boolean(query), limit, count=False).hits
        # tantivy's order of documents is not the corpus's, and the last digits of a sum depend on it.
        ties = [list(group) for _, group in groupby(hits, key=lambda hit: round(hit[0], 4))]
        more = len(hits) == limit
        return Found(self._searcher, ties[:-1] if more and whole_ties and len(ties) > 1 else ties, more)

    def _boolean(self, query: Query) -> Any:
        make, occur = self._tantivy.Query, self._tantivy.Occur
        one = {term: make.term_query(self._schema, "text", term, index_option="freq") for term in query.terms}
        if query.every:
            must = set(query.required)
            return make.boolean_query(
                [(occur.Must if t in must else occur.Should, q) for t, q in one.items()]
            )
        ranked = make.boolean_query([(occur.Should, q) for q in one.values()])
        if not query.required:
            return ranked
        wanted = make.boolean_query([(occur.Should, one[term]) for term in query.required])
        return make.boolean_query([(occur.Must, ranked), (occur.Must, make.const_score_query(wanted, 0.0))])


class Found:
    """Hits, best first, and in the corpus's order if scores are equal; their texts are read on demand.

    Attributes:
        more: whether there may be more hits than requested.
    """

    def __init__(self, searcher: Any, ties: list[list[tuple[float, Any]]], more: bool) -> None:
        self._searcher, self._ties, self.more = searcher, ties, more

    def __iter__(self) -> Iterator[Hit]:
        for tie in self._ties:
            read = [(score, self._searcher.doc(address)) for score, address in tie]
            same = [Hit(document["text"][0], score, document["number"][0]) for score, document in read]
            yield from sorted(same, key=lambda hit: hit.number)


def terms(text: str) -> tuple[str, ...]:
    """The terms of a text (stemmed, no stop words), each once, in Unicode's form NFC as in the index."""
    # A lone surrogate, which JSON can contain, is not text to tantivy.
    whole = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))
    return tuple(dict.fromkeys(text_analyzer().analyze(whole)))


@lru_cache(maxsize=1)
def text_analyzer() -> Any:
    """tantivy's analyzer for :data:`ANALYSIS`."""
    tantivy = import_tantivy()
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    language = "english"
    for step in (
        tantivy.Filter.remove_long(ANALYSIS["longest"]),
        tantivy.Filter.lowercase(),
        tantivy.Filter.stopword(language),
        tantivy.Filter.stemmer(language),
    ):
        builder = builder.filter(step)
    return builder.build()


def import_tantivy() -> Any:
    """The library tantivy."""
    try:
        import tantivy
    except ImportError as error:
        raise DataError(
            f"tantivy can't be imported ({error}). Install the extra: pip install 'fairseq_adv[retrieval]'."
        ) from error
    return tantivy
