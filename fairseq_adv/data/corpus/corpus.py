"""Turns raw text into the shards that fairseq's ``masked_lm`` reads: plans them, finds out which exist.

The output is byte-identical to that of fairseq's two steps, ``examples/roberta/multiprocessing_bpe_encoder.py
--keep-empty`` and ``fairseq-preprocess --only-source``, on the concatenated files. Each shard is a separate
folder, made by one process from its own range of bytes; see :mod:`fairseq_adv.data.corpus.make_shards`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_adv.data.corpus.cuts import BLANK_LINE, fingerprint, inputs, plan
from fairseq_adv.data.corpus.reader import Piece, Reading, rows_of
from fairseq_adv.data.corpus.shard import Counts, counts_of, faults, shaped, write_split
from fairseq_adv.data.corpus.word_cache import WordCache
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import MAX_LINE_MB
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import finished, workspace

FORMAT_VERSION = 1


@dataclass
class Corpus:
    """The requested shards. Construction reads a little of each file, to find where to cut."""

    tokenizer: TokenToIds
    texts: Sequence[Path]  # the files, in order; ``.gz`` and ``.zst`` are decompressed while reading
    out: Path  # the folder to create, for ``shard0`` and so on
    shards: int
    documents: str = BLANK_LINE  # "blank-line": a document ends at a blank line; "line": every line is one
    drop_empty: bool = False  # leave out empty rows; see :func:`fairseq_adv.data.corpus.shard.shaped`
    valid: Sequence[Path] = ()  # files that become the first shard's valid split
    test: Sequence[Path] = ()  # files that become its test split
    replace_invalid: bool = False  # replace text that is not UTF-8 with U+FFFD; otherwise stop there
    max_line: int = MAX_LINE_MB << 20  # the largest number of bytes in a line
    ranges: List[List[Piece]] = field(init=False)  # the bytes of each shard's train split

    def __post_init__(self) -> None:
        if ":" in str(self.out):
            raise DataError(
                f"{self.out}: contains a colon, which separates shards in fairseq's data argument. Pass "
                "another output folder."
            )
        texts = inputs(self.texts)
        self._others = {
            split: inputs(paths) for split, paths in (("valid", self.valid), ("test", self.test)) if paths
        }
        self.ranges = plan(texts, self.shards, self.documents)
        self._made_from = {
            "format": FORMAT_VERSION,
            "tokenizer": self.tokenizer.fingerprint(),
            "input files": fingerprint(texts),
            "documents": self.documents,
            "drop-empty": self.drop_empty,
            "shards": self.shards,
        }
        self._others_made_from = {
            split: fingerprint(self._others.get(split, [])) for split in ("valid", "test")
        }

    def folder(self, shard: int) -> Path:
        """The folder of a shard."""
        return self.out / f"shard{shard}"

    def splits(self, shard: int) -> Dict[str, List[Piece]]:
        """The input of each split of a shard; fairseq reads valid and test from the first one."""
        return {"train": self.ranges[shard], **(self._others if shard == 0 else {})}

    def made_from(self, shard: int) -> Dict[str, Any]:
        """What determines a shard's contents. Excludes the treatment of invalid bytes: see :meth:`done`."""
        return {**self._made_from, "shard": shard, **(self._others_made_from if shard == 0 else {})}

    def size(self, shard: int) -> int:
        """Bytes on disk to read for a shard."""
        return sum(piece.end - piece.start for pieces in self.splits(shard).values() for piece in pieces)

    def done(self, shard: int, overwrite: bool = False) -> bool:
        """Whether a shard is complete and made from the same input; ``overwrite``: any other is remade."""
        folder = self.folder(shard)
        try:
            is_done = finished(folder, self.made_from(shard), overwrite=False)
            replaced = (counts_of(folder, split).replaced for split in self.splits(shard))
            if is_done and not self.replace_invalid and any(replaced):
                raise DataError(
                    f"{folder}: was made with --encoding-errors replace, and bytes were replaced. Pass "
                    "--encoding-errors replace again, or --overwrite."
                )
        except DataError:
            if not overwrite:
                raise
            return finished(folder, self.made_from(shard), overwrite=True)
        return is_done

    def check_out(self) -> None:
        """Refuses an output folder with more shards than requested."""
        for path in self.out.glob("shard*"):
            number = path.name[len("shard") :].split(".")[0]
            if number.isdecimal() and int(number) >= self.shards:
                raise DataError(
                    f"{path}: is not one of the {self.shards} requested shards. Remove it, or pass "
                    "another output folder."
                )

    def write(self, shard: int, reading: Reading, overwrite: bool = False) -> None:
        """Makes a shard, atomically: the files of every split, and dict.txt."""
        if self.done(shard, overwrite):  # another run may have made it since this one was planned
            reading.progress(self.size(shard))
            return
        folder, cache = self.folder(shard), WordCache(self.tokenizer)
        with workspace(folder, self.made_from(shard)) as space:
            self.tokenizer.dictionary.save(str(space / "dict.txt"))
            for split, pieces in self.splits(shard).items():
                blocks = (block for piece in pieces for block in rows_of(piece, reading))
                rows = shaped(blocks, self.documents, self.drop_empty)
                if not write_split(space / split, rows, cache, reading).rows:
                    names = ", ".join(str(piece.path) for piece in pieces)
                    raise DataError(f"{folder}: {split} has no rows: {names} has only blank lines. Add text.")

    def faults(self) -> List[str]:
        """What is wrong with the shards, one message each; empty if fairseq can train on them."""
        messages: List[str] = []
        for shard in range(self.shards):
            try:
                if not self.done(shard):
                    messages.append(f"{self.folder(shard)}: missing")
                    continue
            except DataError as error:
                messages.append(str(error))
                continue
            for split in self.splits(shard):
                messages += faults(self.folder(shard), split)
        return messages

    def counts(self, shards: Sequence[int]) -> Dict[str, Counts]:
        """The total counts of these finished shards, by split."""
        totals: Dict[str, Counts] = {}
        for shard in shards:
            for split in self.splits(shard):
                one, total = counts_of(self.folder(shard), split), totals.setdefault(split, Counts())
                for name, value in vars(one).items():
                    setattr(total, name, getattr(total, name) + value)
        return totals

    def data_argument(self) -> str:
        """The data argument of ``fairseq-train``: the folders, joined by colons."""
        return ":".join(str(self.folder(shard)) for shard in range(self.shards))
