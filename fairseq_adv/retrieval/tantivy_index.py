"""The embedded engine: a tantivy index in a folder.

BM25 as in Lucene (k1 1.2, b 0.75; a sentence's length is kept in one byte, exact up to 40 terms).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import json_object_or_none
from fairseq_adv.data.workspace import MANIFEST, finished, workspace
from fairseq_adv.retrieval.query import ANALYSIS, Hit, Query, import_extra, text_analyzer
from fairseq_adv.retrieval.sentences import Corpus

FORMAT_VERSION = 1
_FOLDER = "tantivy"
_ANALYZER = "english_words"
# tantivy's default merge policy makes one segment of 8 of about the same size. So 8 commits of the same
# number of sentences leave one segment, and each commit is a point from which a build resumes.
_SLICES = 8
_ONE_SLICE = 100_000
"""Sentences up to which a single commit is made: seconds of work."""
_LARGEST_SLICE = 9_000_000
"""tantivy merges no segment of more than 10 million."""
# An upper bound: it is filled as far as a slice needs. A slice that outgrows it only costs a segment more.
_HEAP = 3_900_000_000


@dataclass(frozen=True)
class Built:
    """What a build did.

    Attributes:
        sentences: in the index.
        segments: of the index; 1 up to 72 million sentences.
        reused: the index was there already.
        continued_at: the sentence at which an interrupted build resumed; 0: from the beginning.
    """

    sentences: int
    segments: int
    reused: bool
    continued_at: int


def build(corpus: Corpus, out: Path, overwrite: bool = False) -> Built:
    """Indexes a corpus into the folder ``out``, which appears when it is whole; shows a bar.

    What a killed build had committed is kept in ``OUT.partial``: the number of sentences in there says where
    the next one resumes.

    Raises:
        DataError: ``out`` is something else, another process builds it, or tantivy isn't installed or can't
            write.
        FullDisk: there is no room for it.
    """
    tantivy = import_extra("tantivy")
    made_from = {
        "kind": "tantivy index",
        "format": FORMAT_VERSION,
        "tantivy": tantivy.__version__,
        "analysis": ANALYSIS,
        **corpus.made_from(),
    }
    if finished(out, made_from, overwrite):
        return Built(corpus.size, open_index(out).segments, True, 0)
    with workspace(out, made_from) as space:
        index = _opened(tantivy, space.folder / _FOLDER)
        start = index.searcher().num_docs
        try:
            _add(tantivy, index, corpus, start)
        except ValueError as error:
            if "writer was killed" not in str(error):  # else its thread keeps the reason to itself
                raise
            raise DataError(
                f"{out}: tantivy can't write it. If there is no space left on the disk, free some, and run "
                "the same command again."
            ) from error
        index.reload()
        searcher = index.searcher()
        if searcher.num_docs != corpus.size:
            raise DataError(
                f"{space.folder}: holds {searcher.num_docs} sentences, not {corpus.size}. Delete it first."
            )
        segments = searcher.num_segments
    return Built(corpus.size, segments, False, start)


def _opened(tantivy: Any, folder: Path) -> Any:
    schema = (
        tantivy.SchemaBuilder()
        .add_text_field("text", stored=True, tokenizer_name=_ANALYZER, index_option="freq")
        .add_integer_field("number", stored=True)
        .build()
    )
    folder.mkdir(exist_ok=True)
    try:
        index = tantivy.Index(schema, str(folder))
    except (ValueError, OSError):
        shutil.rmtree(folder)  # killed before the first commit, it may be incomplete
        folder.mkdir()
        index = tantivy.Index(schema, str(folder))
    index.register_tokenizer(_ANALYZER, text_analyzer())
    return index


def _add(tantivy: Any, index: Any, corpus: Corpus, start: int) -> None:
    ends = slice_ends(corpus.size)
    writer = index.writer(_HEAP, 1)  # one thread writes segments; reading and merging run beside it
    number = start
    with tqdm(total=corpus.size, initial=start, desc="index", unit="sentence", unit_scale=True) as bar:
        for text in corpus.sentences(start):
            document = tantivy.Document()
            document.add_text("text", text)
            document.add_integer("number", number)
            writer.add_document(document)
            number += 1
            if number % 1000 == 0:
                bar.update(1000)
            if number in ends:
                writer.commit()
        bar.update(number - bar.n)
        writer.commit()  # also where nothing is left to add: it starts a merge that a kill cut off
        writer.wait_merging_threads()


def slice_ends(sentences: int) -> set[int]:
    """After how many sentences a commit is made."""
    slices = 1 if sentences <= _ONE_SLICE else max(_SLICES, -(-sentences // _LARGEST_SLICE))
    return {sentences * k // slices for k in range(1, slices + 1)}


def open_index(folder: Path) -> TantivyIndex:
    """A whole index, ready for searching.

    Raises:
        DataError: not there, half built, damaged, or not readable by this tantivy.
    """
    tantivy = import_extra("tantivy")
    partial = folder.with_name(folder.name + ".partial")
    if not folder.exists() and partial.exists():
        raise DataError(
            f"{folder}: its build has not finished. Run the same fairseq-adv retrieve index command again."
        )
    manifest = json_object_or_none(folder / MANIFEST) or {}
    made_from, files = manifest.get("made_from", {}), manifest.get("files", {})
    if made_from.get("kind") != "tantivy index" or not files:
        raise DataError(f"{folder}: is not an index. Make one with fairseq-adv retrieve index.")
    for name, size in files.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise DataError(
                f"{folder / name}: is missing or has another size than when it was made. Build it again."
            )
    if made_from.get("format") != FORMAT_VERSION or made_from.get("analysis") != ANALYSIS:
        raise DataError(f"{folder}: was made by another version of this program. Build it again.")
    try:
        index = tantivy.Index.open(str(folder / _FOLDER))
    except (ValueError, OSError) as error:
        raise DataError(
            f"{folder}: this tantivy ({tantivy.__version__}) cannot read it ({error}); it was made by "
            f"{made_from.get('tantivy')}. Build it again."
        ) from error
    index.register_tokenizer(_ANALYZER, text_analyzer())
    return TantivyIndex(tantivy, index, made_from)


class TantivyIndex:
    """The engine ``tantivy``; made by :func:`open_index`."""

    def __init__(self, tantivy: Any, index: Any, made_from: dict[str, Any]) -> None:
        self._tantivy = tantivy
        self._schema = index.schema
        self._searcher = index.searcher()
        self._made_from = made_from

    @property
    def segments(self) -> int:
        """Of the index."""
        return int(self._searcher.num_segments)

    def describe(self) -> dict[str, Any]:
        """Engine, version, and what the index was made from."""
        return {"engine": "tantivy", "version": self._tantivy.__version__, "index": self._made_from}

    def search(self, query: Query, limit: int, whole_ties: bool = False) -> _Found:
        """The best ``limit`` sentences; see :class:`fairseq_adv.retrieval.query.Engine`."""
        hits = self._searcher.search(self._boolean(query), limit, count=False).hits
        return _Found(self._searcher, hits, len(hits) == limit, whole_ties)

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


class _Found:
    """Hits whose texts are read on demand."""

    def __init__(self, searcher: Any, hits: list[tuple[float, Any]], more: bool, whole_ties: bool) -> None:
        self._searcher = searcher
        self._hits = hits
        self._whole_ties = whole_ties
        self.more = more

    def __iter__(self) -> Iterator[Hit]:
        # The order of tantivy's documents is not the corpus's, and the last digits of a sum depend on it.
        groups = [list(group) for _, group in groupby(self._hits, key=lambda hit: round(hit[0], 4))]
        if self.more and self._whole_ties and len(groups) > 1:
            groups.pop()
        for group in groups:
            read = [(score, self._searcher.doc(address)) for score, address in group]
            same = [Hit(document["text"][0], score, document["number"][0]) for score, document in read]
            yield from sorted(same, key=lambda hit: hit.number)
