"""What an encoder's folder, as ``fairseq-adv convert`` writes it, says of a training that starts from it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fairseq_adv.data.errors import DataError

from .data_folder import read_symbols

_SIZES = (
    "--arch", "--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim",
    "--encoder-attention-heads", "--max-positions", "--activation-fn", "--encoder-input-dim",
)  # fmt: skip
_FLAGS = ("--untie-weights-roberta",)
_VALUE = re.compile(r"\w[\w-]*", re.ASCII)


def model_args(encoder: Path) -> list[str]:
    """The sizes of the encoder, as arguments for ``fairseq-train``, from its model_args.txt.

    The encoder may come from anyone, and other options of fairseq, such as ``--user-dir``, could run code.
    """
    path = encoder / "model_args.txt"
    if not path.is_file():
        raise DataError(f"{path}: no such file. Pass a folder written by fairseq-adv convert")
    try:
        words = shlex.split(path.read_text(encoding="utf-8"))
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
