"""The tokenizer of prepared data or a trained model: how it is stored with them, and found again.

A data folder prepared by this project has a folder ``tokenizer``, and ``fairseq-adv train`` copies it into
the run's folder, so that text can be tokenised for a checkpoint without naming its encoder.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Optional

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import check_own, whole
from fairseq_adv.data.tokenizers import FOLDER, HF_VOCABULARY, is_hugging_face, unusual_names
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer, load_engine
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, load_dictionary

_NAMES = {
    "encoder_json": "encoder.json", "vocab_bpe": "vocab.bpe", "dictionary": "dict.txt",
    "tokenizer_json": "tokenizer.json",
}  # fmt: skip


# What :func:`save_tokenizer` writes, and what else is read where a tokenizer is.
_FILES = (*_NAMES.values(), "tokenizer_config.json", HF_VOCABULARY, "special_tokens_map.json")


def save_tokenizer(folder: Path, tokenizer: TokenToIds) -> None:
    """Writes a tokenizer into ``folder``, for :func:`tokenizer_for_encoder` to read; not for plain
    SentencePiece.
    """
    for role, path in tokenizer.files.items():
        shutil.copyfile(path, folder / _NAMES[role])
    if isinstance(tokenizer, HFTokenizer):
        name, content = HF_VOCABULARY, tokenizer.options
    else:
        name, content = "tokenizer_config.json", unusual_names(tokenizer.folder)
    if content:
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def files_of_saved_tokenizer(folder: Path) -> list[Path]:
    """The files of a tokenizer that was saved with somebody's data, by their known names, to be copied by
    :func:`fairseq_adv.data.io.copy_own`.

    Raises:
        DataError: the folder or one of them is a link, or one is too large.
    """
    if not folder.is_dir():
        return []
    files = [path for path in (folder / name for name in _FILES) if os.path.lexists(path)]
    for path in (folder, *files):
        check_own(path)
    return files


def remove_saved_tokenizer(folder: Path) -> None:
    """Deletes the copy of a tokenizer that an earlier run made, if there is one.

    Raises:
        DataError: it may be the user's own: it has other files, or not those that mark a copy.
    """
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    is_copy = HF_VOCABULARY in names or {"encoder.json", "vocab.bpe", "dict.txt"} <= names
    if names - {*_FILES} or (names and not is_copy):
        raise DataError(
            f"{folder}: a training keeps its tokenizer in this folder, and would delete what is there. Move "
            "it, or pass another --save-dir."
        )
    shutil.rmtree(folder, ignore_errors=True)


def saved_tokenizer_folder(
    checkpoint: Path, data: Optional[str], tokenizer_dir: Optional[Path] = None, named: Optional[str] = None
) -> Path:
    """The folder of a trained model's tokenizer.

    The first of these that has one: ``tokenizer`` next to the checkpoint, the folder that the task was told,
    ``tokenizer`` in its data, the checkpoint's own folder (of a converted encoder), the data folder.

    Args:
        data: the data folder named in the checkpoint, ``cfg.task.data``; the first of several is used.
        tokenizer_dir: a folder that the user names; if given, no other is searched.
        named: the checkpoint's ``cfg.task.tokenizer_dir``.
    """
    if tokenizer_dir is not None or checkpoint.is_dir():  # a model's folder
        return tokenizer_dir or checkpoint
    folders = [Path(data.split(":")[0])] if data else []
    saved = [checkpoint.parent / FOLDER, *(folder / FOLDER for folder in folders)]
    named_folders = [Path(named)] if named else []
    for place in (saved[0], *named_folders, *saved[1:], checkpoint.parent, *folders):
        if place.is_dir() and (place in saved or _has_tokenizer(place)):
            return place
    raise DataError(
        f"{checkpoint}: no tokenizer next to it or its data (looked for {' and '.join(map(str, saved))}). "
        "Pass the encoder's folder, or its tokenizer's, as --tokenizer-dir."
    )


def _has_tokenizer(folder: Path) -> bool:
    if is_hugging_face(folder) and (folder / "tokenizer.json").is_file():
        return True
    return (folder / "encoder.json").is_file() and (folder / "dict.txt").is_file()


def saved_tokenizer(
    checkpoint: Path, data: Optional[str], tokenizer_dir: Optional[Path] = None, named: Optional[str] = None
) -> TokenToIds:
    """The tokenizer in :func:`saved_tokenizer_folder`."""
    return tokenizer_for_encoder(saved_tokenizer_folder(checkpoint, data, tokenizer_dir, named))


def check_same_words(checkpoint: Path, trained_on: str, data: Path, part: str = "input0") -> None:
    """Raises DataError if a binarised folder has other words than a model: its word ids would be wrong.

    The model's are those of the tokenizer next to the checkpoint, or else of the folder that it was trained
    on. Nothing is compared if neither exists.

    Args:
        trained_on: the data folder named in the checkpoint, ``cfg.task.data``.
        data: has ``PART/dict.txt``.
        part: empty for a corpus.
    """
    places = [checkpoint if checkpoint.is_dir() else checkpoint.parent / FOLDER]
    if trained_on:
        places += [Path(trained_on, FOLDER), Path(trained_on, part)]
    known = next((place for place in places if place.is_dir()), None)
    if known is None:
        return
    is_hf = is_hugging_face(known)  # then the dictionary has numbers instead of words
    model_file, data_file = known / "dict.txt", data / part / "dict.txt"
    if is_hf:
        model_file, data_file = known / "tokenizer.json", data / FOLDER / "tokenizer.json"
    if not model_file.is_file() or not data_file.is_file() or whole(model_file) == whole(data_file):
        return
    if is_hf:
        is_same = load_engine(data_file.parent).get_vocab() == load_engine(known).get_vocab()
    else:
        is_same = load_dictionary(data_file).symbols == load_dictionary(model_file).symbols
    if not is_same:
        raise DataError(
            f"{data_file}: has other words than {model_file}, which {checkpoint} was trained with: the "
            "word ids would be wrong. Prepare the data again with the model's encoder."
        )


def tokenizer_for_encoder(folder: Path) -> TokenToIds:
    """The tokenizer of an encoder's folder: Hugging Face's, or one made by ``fairseq-adv convert``."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass an encoder's; names on a hub are not downloaded.")
    if is_hugging_face(folder):
        return HFTokenizer(folder)
    if (folder / "encoder.json").is_file() and (folder / "vocab.bpe").is_file():
        return Gpt2Tokenizer(folder / "encoder.json", folder / "vocab.bpe", folder / "dict.txt")
    raise DataError(
        f"{folder}: neither a Hugging Face folder nor one with encoder.json and vocab.bpe (GPT-2 BPE). Pass "
        "an encoder's folder."
    )


def load_tokenizer(tokenizer_dir: Optional[str], data: str) -> TokenToIds:
    """The tokenizer in ``--tokenizer-dir``, or in the first data folder.

    Raises:
        DataError: there is no tokenizer.
    """
    folder = Path(tokenizer_dir or data.split(":")[0])
    if not (tokenizer_dir or is_hugging_face(folder) or (folder / "dict.txt").is_file()):
        raise DataError(f"{folder}: no tokenizer found. Pass the encoder's folder as --tokenizer-dir.")
    return tokenizer_for_encoder(folder)
