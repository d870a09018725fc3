"""What an encoder's folder says of a training that starts from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of, whole
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.workspace import read_manifest

from .data_folder import read_symbols

_SIZES = (
    "--arch", "--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim",
    "--encoder-attention-heads", "--max-positions", "--activation-fn",
)  # fmt: skip
_FLAGS = ("--untie-weights-roberta",)
# Kinds that count positions from their padding token's row, which is 1: they never use the first two rows.
_FROM_PADDING = re.compile(r".*roberta.*|camembert|data2vec-text|ibert|longformer|luke|mpnet|xmod")
_VALUE = re.compile(r"\w[\w-]*", re.ASCII)


def model_args(encoder: Path) -> list[str]:
    """The sizes of the encoder, as arguments for ``fairseq-train``, from its model_args.txt.

    The encoder may come from anyone, and other options of fairseq, such as ``--user-dir``, could run code.
    """
    path = encoder / "model_args.txt"
    if not path.is_file():
        raise DataError(f"{path}: no such file. Pass a folder written by fairseq-adv convert")
    content = whole(path)
    try:
        words = shlex.split(content.decode("utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not a line of options ({error}). Convert the encoder again") from error
    rest = iter(words)
    for word in rest:
        if word not in (*_SIZES, *_FLAGS):
            raise DataError(f"{path}: {word!r:.60} is not an encoder size. Remove it")
        if word in _SIZES and not _VALUE.fullmatch(value := next(rest, "")):
            raise DataError(f"{path}: {word} {value!r:.60} is not a size. Convert the encoder again")
    return words


def check_dictionary(data: Path, encoder: Path) -> None:
    """Raises DataError if a binarised folder has other word ids than the encoder."""
    mine, theirs = data / "input0" / "dict.txt", encoder / "dict.txt"
    if mine.is_file() and theirs.is_file() and read_symbols(mine) != read_symbols(theirs):
        raise DataError(
            f"{data} was prepared with a different dictionary than {theirs}: the word ids would be wrong. "
            f"Prepare it again with --encoder {encoder}"
        )


def hugging_face_args(folders: Sequence[Path], encoder: Path) -> dict[str, str]:
    """The arguments for ``fairseq-train`` that name a Hugging Face folder.

    Raises:
        DataError: the data was prepared with another tokenizer.
    """
    theirs = encoder / "tokenizer.json"
    # That of a model that export wrote is the one it was trained with, in other bytes.
    same = [_tokenizer_of(encoder), *([sha256_of(theirs)] if theirs.is_file() else [])]
    for data in folders:
        ours = data / FOLDER / "tokenizer.json"
        # A corpus has no copy. Its dictionary is rows' numbers, the same for all encoders of a size.
        made_with = sha256_of(ours) if ours.is_file() else _tokenizer_of(data)
        if made_with and made_with not in same:
            raise DataError(
                f"{data} was prepared with a different tokenizer than {theirs}: the word ids would be wrong. "
                f"Prepare it again with --encoder {encoder}"
            )
    longest = [512]
    for name, key in (
        ("config.json", "max_position_embeddings"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        about = json_object(encoder / name) if (encoder / name).is_file() else {}
        limit, unused = about.get(key), 2 * bool(_FROM_PADDING.fullmatch(str(about.get("model_type"))))
        longest += [limit - unused] if type(limit) is int and limit > unused else []
    return {"--arch": "hf_encoder", "--hf-model": str(encoder), "--max-positions": str(min(longest))}


def _tokenizer_of(folder: Path) -> Any:
    """The SHA-256 of the tokenizer.json that a folder was made with; ``None`` if its manifest has none."""
    made = read_manifest(folder).get("made_from", {}).get("tokenizer")
    hashes = made.get("sha256") if isinstance(made, dict) else None
    return hashes.get("tokenizer_json") if isinstance(hashes, dict) else None
