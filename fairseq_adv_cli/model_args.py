"""The sizes of an encoder that ``fairseq-adv convert`` made, from its folder's model_args.txt.

An encoder may be anybody's. Its words go into a training's command line, where another option of fairseq,
such as ``--user-dir``, could run code.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_SIZES = (
    "--arch", "--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim",
    "--encoder-attention-heads", "--max-positions", "--activation-fn", "--encoder-input-dim",
)  # fmt: skip
_FLAGS = ("--untie-weights-roberta",)
_VALUE = re.compile(r"\w[\w-]*", re.ASCII)


def model_args(encoder: Path) -> list[str]:
    """The words for ``fairseq-train``, each option before its value.

    Raises:
        ValueError: there is no such file, or it holds anything but sizes; names the file and what is wrong.
    """
    path = encoder / "model_args.txt"
    if not path.is_file():
        raise ValueError(f"{path}: no such file. Pass a folder that fairseq-adv convert wrote")
    try:
        words = shlex.split(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is not a line of options ({error}). Convert the encoder again") from error
    rest = iter(words)
    for word in rest:
        if word not in (*_SIZES, *_FLAGS):
            raise ValueError(f"{path}: {word!r:.60} is no size of an encoder. Leave it out")
        if word in _SIZES and not _VALUE.fullmatch(value := next(rest, "")):
            raise ValueError(f"{path}: {word} {value!r:.60} is no size. Convert the encoder again")
    return words
