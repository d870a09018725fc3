"""Compares a pre-trained checkpoint's vocabulary with the data's before fairseq loads it.

For a checkpoint with another vocabulary, fairseq 0.12.2 prints "please ensure that the architectures match",
and nothing at all if the sizes agree but the words differ. The weights are not read.
"""

from __future__ import annotations

from pathlib import Path

from fairseq.data import Dictionary

from fairseq_adv.data.errors import DataError
from fairseq_adv_compat import checkpoints

# In current checkpoints, and in those from before RobertaModel.upgrade_state_dict_named renamed the encoder.
EMBEDDINGS = ("encoder.sentence_encoder.embed_tokens.weight", "decoder.sentence_encoder.embed_tokens.weight")
FIX = "Binarise the corpus with the checkpoint's dict.txt: fairseq-adv corpus … --srcdict DICT.TXT"


def check_vocabulary(
    checkpoint: str, dictionary: Dictionary, data: str, option: str = "--finetune-from-model"
) -> None:
    """Compares the checkpoint's word embeddings, and the dict.txt next to it, with the task's dictionary.

    A checkpoint without RoBERTa's word embeddings, or one that is not on a local disk, is not checked.

    Args:
        dictionary: the task's, with ``<mask>``.
        data: the task's data argument; the dictionary belongs to its first folder.
    """
    path = Path(checkpoint)
    if "://" in checkpoint or not path.is_file():
        return
    rows = embedding_rows(path)
    if rows is None:
        return
    dict_file = Path(data.split(":")[0]) / "dict.txt"
    beside = path.parent / "dict.txt"
    checkpoint_words = _symbols(beside, dictionary)
    if rows != len(dictionary):
        raise DataError(
            f"{option} {path}: has embeddings for {rows} words, but {dict_file} has {len(dictionary)} (with "
            "fairseq's special symbols and <mask>), so it isn't the checkpoint's dictionary. "
            f"{_fix(beside, rows, checkpoint_words)}"
        )
    if checkpoint_words is None or len(checkpoint_words) != rows:
        return  # no dict.txt next to it, or one that belongs to something else
    for index, (other, word) in enumerate(zip(checkpoint_words, dictionary.symbols)):
        if other != word:
            line = index - dictionary.nspecial + 1
            raise DataError(
                f"{option} {path}: word {index} is {other!r} in {beside} (line {line}), but {word!r} in "
                f"{dict_file}. The sizes agree, but the words differ. {_fix(beside, rows, checkpoint_words)}"
            )


def _fix(beside: Path, rows: int, checkpoint_words: list[str] | None) -> str:
    if checkpoint_words is not None and len(checkpoint_words) == rows:
        return FIX.replace("DICT.TXT", str(beside))
    return FIX + " (it came with the checkpoint)"


def _symbols(path: Path, like: Dictionary) -> list[str] | None:
    """The words of a dict.txt as in a masked-LM task; ``None`` if there is no such file."""
    if not path.is_file():
        return None
    try:
        dictionary = Dictionary.load(str(path))
    except (ValueError, RuntimeError) as error:
        raise DataError(
            f"{path}: not a fairseq dictionary ({error}). Remove it, or put the right one there."
        ) from error
    if "<mask>" in like:
        dictionary.add_symbol("<mask>")
    return list(dictionary.symbols)


def embedding_rows(path: Path) -> int | None:
    """The number of words that a checkpoint has embeddings for; ``None``: none with RoBERTa's names."""
    try:
        state = checkpoints.load(path)
    except checkpoints.Refused as error:
        raise DataError(str(error)) from error
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(model, dict):
        raise DataError(f"{path}: not a checkpoint written by fairseq-train. Download it again.")
    tables = [model[name] for name in EMBEDDINGS if name in model]
    return int(tables[0].shape[0]) if tables else None
