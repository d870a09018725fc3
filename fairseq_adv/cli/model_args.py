"""Reads the sizes of an encoder from the model_args.txt that ``fairseq-adv convert`` wrote.

The encoder may come from anyone. What the file contains ends up on a training command line, where other
fairseq options, such as ``--user-dir``, could run code.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fairseq_adv.data.errors import DataError

_SIZES = (
    "--arch", "--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim",
    "--encoder-attention-heads", "--max-positions", "--activation-fn", "--encoder-input-dim",
)  # fmt: skip
_FLAGS = ("--untie-weights-roberta",)
_VALUE = re.compile(r"\w[\w-]*", re.ASCII)


def model_args(encoder: Path) -> list[str]:
    """The arguments for ``fairseq-train``, each option before its value.

    Raises:
        DataError: the file is missing, or contains anything but sizes.
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
