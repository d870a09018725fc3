"""Turns text into fairseq dictionary ids, at the speed of a compiled tokenizer.

fairseq's recipe writes the tokenizer's ids as text and looks each up as a word in a dictionary. Here the
tokenizer's own id indexes a table of dictionary ids, built once; the ids are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt
from fairseq.data import Dictionary

from fairseq_adv.data.checked_json import check_text
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Engine
from fairseq_adv.data.tokenizers.special_tokens import FAIRSEQ_FIRST, FAIRSEQ_MASK
from fairseq_adv.data.tokenizers.spiece import MODEL, load_spiece, spiece_engine, spiece_settings
from fairseq_adv.data.tokenizers.wordpiece import wordpiece_engine, wordpiece_options

Ids = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
_TOGETHER = 1 << 20


class Piece(NamedTuple):
    """A token's text, without the space before a word; empty for tokens without text, such as ``</s>``."""

    text: str
    begins_word: bool


_NO_TEXT = Piece("", False)


class TokenToIds(ABC):
    """Turns rows of text into fairseq dictionary ids.

    Attributes:
        kind: the tokenizer's name, "gpt2", "wordpiece", "albert" or "sentencepiece".
        splits_at_spaces: a word between two spaces, together with the space before it, always has the same
            tokens. Other white space next to a space may change that if ``white_space_counts``.
        white_space_counts: white space produces tokens.
        dictionary: the fairseq dictionary of the ids.
        table: ``table[i]`` is the dictionary id of the tokenizer's own id i; the last entry is ``</s>``.
        files: the files it was made from, by their role.
        options: the settings that also determine its output.
    """

    kind: str
    splits_at_spaces = False
    white_space_counts = True

    def __init__(
        self,
        words: Sequence[str],
        dictionary: Dictionary,
        files: Mapping[str, Path],
        options: Mapping[str, Any],
    ) -> None:
        """``words[i]`` is the dictionary's word for the tokenizer's own id i."""
        self.dictionary = dictionary
        self.files = dict(files)
        self.options = dict(options)
        # The last entry is the end of the sentence, so -1 can stand for it.
        table = [dictionary.index(word) for word in words] + [dictionary.eos()]
        self.table: Ids = np.array(table, dtype=np.int64)
        known = int((self.table[:-1] != dictionary.unk()).sum())
        # The dictionary of another tokenizer shares some words by chance (numerals); a matching one has
        # nearly all of them.
        if 2 * known < len(words):
            raise DataError(
                f"{files['dictionary']}: has only {known} of the tokenizer's {len(words)} tokens, so it "
                "belongs to another tokenizer. Pass the dict.txt that the encoder was trained with."
            )

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return next(iter(self.files.values())).parent

    @abstractmethod
    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        """The tokenizer's own ids of each row."""

    def encode(self, rows: Sequence[str]) -> Tuple[Ids, Ids]:
        """Dictionary ids of all rows, concatenated, each row terminated by ``</s>``, and the length of each.

        Surrounding white space of a row is removed first, as in fairseq's ``multiprocessing_bpe_encoder``.
        A token that is missing from the dictionary becomes ``<unk>``.

        Returns:
            int64 ids (sum of lengths,) and int64 lengths (rows,), which include the ``</s>``.
        """
        lengths: List[int] = []
        parts = [np.empty(0, np.int64)]
        for group in _groups(rows):
            flat: List[int] = []
            for piece_ids in self.pieces([row.strip() for row in group]):
                flat.extend(piece_ids)
                flat.append(-1)
                lengths.append(len(piece_ids) + 1)
            parts.append(self.table[np.array(flat, dtype=np.int64)])
        return np.concatenate(parts), np.array(lengths, dtype=np.int64)

    def encode_spans(self, rows: Sequence[str]) -> Iterator[Tuple[List[int], Offsets, Offsets]]:
        """The tokenizer's own ids of each row, and where the characters that each token covers start and end.

        Raises:
            TypeError: the tokenizer is plain SentencePiece.
        """
        raise TypeError(f"{self.kind}: the characters that its tokens cover are unknown")

    def dictionary_pieces(self) -> List[Piece]:
        """The piece of each id of the dictionary.

        Raises:
            TypeError: the tokenizer is plain SentencePiece.
        """
        raise TypeError(f"{self.kind}: the texts of its tokens are unknown")

    def fingerprint(self) -> Dict[str, Any]:
        """What determines the output, for a manifest: kind, options, and the SHA-256 of each file."""
        hashes = {role: sha256_of(path) for role, path in sorted(self.files.items())}
        return {"kind": self.kind, "options": self.options, "sha256": hashes}


def _groups(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    """The rows in groups of about a million characters: tokenizing takes up to 450 bytes for each."""
    start = held = 0
    for end, row in enumerate(rows):
        if held and held + len(row) > _TOGETHER:
            yield rows[start:end]
            start, held = end, 0
        held += len(row)
    yield rows[start:]


def load_dictionary(path: Path) -> Dictionary:
    """Reads a fairseq dict.txt."""
    if not path.is_file():
        raise DataError(
            f"{path}: no such file. It must be the encoder's fairseq dictionary (dict.txt); pass it as "
            "--srcdict, or the encoder's folder as --encoder."
        )
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # fairseq raises a bare Exception for a wrong encoding
        raise DataError(f"{path}: not a fairseq dictionary (a line is '<token> <count>'): {error}") from error


class CompiledTokenizer(TokenToIds):
    """A tokenizer of the library ``tokenizers``, which splits at white space and drops it.

    Attributes:
        engine: the ``tokenizers.Tokenizer``, without special tokens.
    """

    splits_at_spaces = True
    white_space_counts = False
    mark = "##"
    mark_begins_word = False

    def __init__(
        self, engine: Any, dictionary: Path, files: Mapping[str, Path], options: Mapping[str, Any]
    ) -> None:
        self.engine = engine
        words = [engine.id_to_token(number) for number in range(engine.get_vocab_size())]
        # A text can't write fairseq's control symbols, whatever splits it into words.
        words = ["<unk>" if word in (*FAIRSEQ_FIRST, FAIRSEQ_MASK) else word for word in words]
        super().__init__(words, load_dictionary(dictionary), {**files, "dictionary": dictionary}, options)

    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        fast = getattr(self.engine, "encode_batch_fast", self.engine.encode_batch)  # without offsets
        return [encoding.ids for encoding in self._encodings(fast, rows)]

    def encode_spans(self, rows: Sequence[str]) -> Iterator[Tuple[List[int], Offsets, Offsets]]:
        for encoding in self._encodings(self.engine.encode_batch, rows):
            offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            yield encoding.ids, offsets[:, 0], offsets[:, 1]

    def _encodings(self, encode_batch: Any, rows: Sequence[str]) -> Any:
        try:
            return encode_batch(list(rows), add_special_tokens=False)
        except TypeError:  # it takes no text that UTF-8 can't hold
            for row in rows:
                check_text(row, f"the text {row!r:.60}")
            raise

    def dictionary_pieces(self) -> List[Piece]:
        found = [_NO_TEXT] * len(self.dictionary.symbols)
        for number in set(self.table.tolist()) - {self.dictionary.eos(), self.dictionary.unk()}:
            symbol = self.dictionary.symbols[number]
            is_marked = symbol.startswith(self.mark)
            found[number] = Piece(symbol[len(self.mark) * is_marked :], is_marked == self.mark_begins_word)
        return found


class WordPieceTokenizer(CompiledTokenizer):
    """BERT's WordPiece, from the encoder's own vocab.txt and the dict.txt of its fairseq checkpoint."""

    kind = "wordpiece"

    def __init__(self, vocab: Path, dictionary: Path, cased: Optional[bool] = None) -> None:
        engine = wordpiece_engine(vocab, cased)
        super().__init__(engine, dictionary, {"vocab": vocab}, wordpiece_options(engine))


class AlbertTokenizer(CompiledTokenizer):
    """ALBERT's tokenizer, from the encoder's spiece.model, tokenizer_config.json next to it, and dict.txt."""

    kind = "albert"
    mark = "▁"
    mark_begins_word = True

    def __init__(self, model: Path, dictionary: Path) -> None:
        settings = spiece_settings(model.parent)
        super().__init__(spiece_engine(model, settings), dictionary, {"spiece": model}, settings)


class Gpt2Tokenizer(TokenToIds):
    """GPT-2's byte-level BPE, as RoBERTa uses it, from encoder.json, vocab.bpe and RoBERTa's dict.txt."""

    kind = "gpt2"
    splits_at_spaces = True

    def __init__(self, encoder_json: Path, vocab_bpe: Path, dictionary: Path) -> None:
        self._engine = Gpt2Engine(encoder_json, vocab_bpe)
        self._byte_lengths: Offsets = np.array([*map(len, self._engine.bytes)], dtype=np.int32)
        files = {"encoder_json": encoder_json, "vocab_bpe": vocab_bpe, "dictionary": dictionary}
        # fairseq writes a token's number as text and looks this word up.
        words = [str(number) for number in self._engine.numbers]
        super().__init__(words, load_dictionary(dictionary), files, {})

    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        return self._engine.encode_batch(rows)

    def encode_spans(self, rows: Sequence[str]) -> Iterator[Tuple[List[int], Offsets, Offsets]]:
        nothing = np.zeros(0, np.int32)
        for text, ids in zip(rows, self.pieces(rows)):
            if not ids:
                yield ids, nothing, nothing
                continue
            ends = np.cumsum(self._byte_lengths[ids], dtype=np.int32)
            starts = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
            check_text(text, f"the text {text!r:.60}")
            raw = np.frombuffer(text.encode("utf-8"), np.uint8)
            starts = starts + (raw[starts] == 32)  # skips the space at the start of a token
            if len(raw) != len(text):
                character = np.cumsum((raw & 0xC0) != 0x80, dtype=np.int32)  # characters begun at each byte
                of_start = np.append(character - 1, len(text)).astype(np.int32)
                starts, ends = of_start[starts], character[ends - 1]
            yield ids, starts, ends

    def dictionary_pieces(self) -> List[Piece]:
        found = [_NO_TEXT] * len(self.dictionary.symbols)
        for number, raw in zip(self.table.tolist(), self._engine.bytes):
            text = raw.decode("utf-8", "replace")
            found[number] = Piece(text[text.startswith(" ") :], text.startswith(" "))
        found[self.dictionary.unk()] = _NO_TEXT
        return found


class SentencePieceTokenizer(TokenToIds):
    """A SentencePiece model and the dict.txt with its pieces.

    Gives the same ids as writing the pieces as text (``spm_encode``) and looking them up
    (``fairseq-preprocess``): characters that the model lacks are looked up too, and become ``<unk>`` unless
    the dictionary has them.
    """

    kind = "sentencepiece"

    def __init__(self, model: Path, dictionary: Path) -> None:
        self._engine = load_spiece(model)
        words = [self._engine.id_to_piece(number) for number in range(self._engine.get_piece_size())]
        files = {"model": model, "dictionary": dictionary}
        super().__init__(words, load_dictionary(dictionary), files, {})
        # After the model's own ids come the dictionary's, for pieces that must be looked up as text.
        entries = np.arange(len(self.dictionary), dtype=np.int64)
        self._first_entry = len(words)
        self.table = np.concatenate([self.table[:-1], entries, self.table[-1:]])
        # <unk> stands for any text, and fairseq splits a piece that contains white space.
        odd = {number for number, word in enumerate(words) if word.split() != [word]}
        self._odd = odd | {self._engine.unk_id()}

    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        found: List[List[int]] = self._engine.encode(list(rows), out_type=int, num_threads=1)
        for number, ids in enumerate(found):
            if not self._odd.isdisjoint(ids):
                words = " ".join(self._engine.encode(rows[number], out_type=str)).split()
                found[number] = [self._first_entry + self.dictionary.index(word) for word in words]
        return found


def tokenizer_for_encoder(folder: Path, cased: Optional[bool] = None) -> TokenToIds:
    """The tokenizer of an encoder made by ``fairseq-adv convert``, from its folder."""
    if (folder / "vocab.txt").is_file():
        return WordPieceTokenizer(folder / "vocab.txt", folder / "dict.txt", cased)
    if cased:
        raise DataError(
            "--cased is for WordPiece; GPT-2 BPE always keeps case, and ALBERT's tokenizer_config.json "
            "determines whether it does. Leave --cased out."
        )
    if (folder / MODEL).is_file():
        return AlbertTokenizer(folder / MODEL, folder / "dict.txt")
    if (folder / "encoder.json").is_file() and (folder / "vocab.bpe").is_file():
        return Gpt2Tokenizer(folder / "encoder.json", folder / "vocab.bpe", folder / "dict.txt")
    raise DataError(
        f"{folder}: neither vocab.txt (WordPiece), nor encoder.json and vocab.bpe (GPT-2 BPE), nor {MODEL} "
        "(ALBERT) found. Pass a folder written by fairseq-adv convert."
    )


def load_tokenizer(tokenizer_dir: Optional[str], data: str) -> TokenToIds:
    """The tokenizer in ``--tokenizer-dir``, or in the first data folder.

    Raises:
        DataError: there is no tokenizer.
    """
    if tokenizer_dir:
        return tokenizer_for_encoder(Path(tokenizer_dir))
    folder = Path(data.split(":")[0])
    if not (folder / "dict.txt").is_file():
        raise DataError(
            f"{folder}: no dict.txt found. Pass the encoder's folder, with dict.txt and its vocab.txt, "
            "encoder.json and vocab.bpe, or spiece.model, as --tokenizer-dir."
        )
    return tokenizer_for_encoder(folder)
