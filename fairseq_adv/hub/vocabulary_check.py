"""Compares a pre-trained checkpoint's vocabulary with the data's before fairseq loads it.

For a checkpoint with another vocabulary, fairseq 0.12.2 prints "please ensure that the architectures match",
and nothing at all if the sizes agree but the words differ. Only the shapes are read here, not the weights,
which takes milliseconds for 1.4 GB.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from fairseq.data import Dictionary

from fairseq_adv.data.errors import DataError

# In current checkpoints, and in those from before RobertaModel.upgrade_state_dict_named renamed the encoder.
EMBEDDINGS = ("encoder.sentence_encoder.embed_tokens.weight", "decoder.sentence_encoder.embed_tokens.weight")
FIX = "Binarise the corpus with the checkpoint's dict.txt: fairseq-adv corpus … --srcdict DICT.TXT"
# Exceptions that may occur when a file is truncated or contains something else.
_BROKEN = (
    pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError, AttributeError,
    IndexError, StopIteration, OSError,
)  # fmt: skip
_KEYS = (type(None), bool, int, float, str, bytes)
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # the first object that torch.save wrote before torch 1.6


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
    ours = Path(data.split(":")[0]) / "dict.txt"
    beside = path.parent / "dict.txt"
    theirs = _symbols(beside, dictionary)
    if rows != len(dictionary):
        raise DataError(
            f"{option} {path}: has embeddings for {rows} words, but {ours} has {len(dictionary)} (with "
            "fairseq's special symbols and <mask>), so it isn't the checkpoint's dictionary. "
            f"{_fix(beside, rows, theirs)}"
        )
    if theirs is None or len(theirs) != rows:
        return  # no dict.txt next to it, or one that belongs to something else
    for index, (there, here) in enumerate(zip(theirs, dictionary.symbols)):
        if there != here:
            line = index - dictionary.nspecial + 1
            raise DataError(
                f"{option} {path}: word {index} is {there!r} in {beside} (line {line}), but {here!r} in "
                f"{ours}. The sizes agree, but the words differ. {_fix(beside, rows, theirs)}"
            )


def _fix(beside: Path, rows: int, theirs: list[str] | None) -> str:
    if theirs is not None and len(theirs) == rows:
        return FIX.replace("DICT.TXT", str(beside))
    return FIX + " (it came with the checkpoint)"


def _symbols(path: Path, like: Dictionary) -> list[str] | None:
    """The words of a dict.txt as in a masked-LM task; ``None`` if there is no such file."""
    if not path.is_file():
        return None
    try:
        found = Dictionary.load(str(path))
    except (ValueError, RuntimeError) as error:
        raise DataError(
            f"{path}: not a fairseq dictionary ({error}). Remove it, or put the right one there."
        ) from error
    if "<mask>" in like:
        found.add_symbol("<mask>")
    return list(found.symbols)


def embedding_rows(path: Path) -> int | None:
    """The number of words that a checkpoint has embeddings for; ``None``: none with RoBERTa's names."""
    try:
        with path.open("rb") as stream:
            state = _read_shapes(stream)
        model = state["model"]
        shapes = [model[name] for name in EMBEDDINGS if name in model]
    except _BROKEN as error:
        raise DataError(
            f"{path}: not a checkpoint written by fairseq-train ({error!r}). Download it again."
        ) from error
    return int(shapes[0].shape[0]) if shapes and isinstance(shapes[0], _Tensor) else None


def _read_shapes(stream: IO[bytes]) -> Any:
    """The object that ``torch.save`` wrote, with shapes in place of tensors and empty shells for everything
    else."""
    if stream.read(4) == b"PK\x03\x04":
        with zipfile.ZipFile(stream) as archive:
            part = next(part for part in archive.infolist() if part.filename.endswith("/data.pkl"))
            if part.compress_type != zipfile.ZIP_STORED:
                raise pickle.UnpicklingError("packed, which torch.save never does")
            with archive.open(part) as pickled:
                return _Shapes(pickled).load()
    stream.seek(0)
    if _Shapes(stream).load() != _MAGIC_NUMBER:
        raise pickle.UnpicklingError("neither of torch's formats")
    for _ in ("protocol version", "about the machine"):
        _Shapes(stream).load()
    return _Shapes(stream).load()


class _Shell(dict):  # type: ignore[type-arg]
    """Stands in for an object of any class: keeps the entries of a dict, and ignores everything else that
    unpickling does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, *args: Any, **kwargs: Any) -> _Shell:
        return _Shell()

    def __setstate__(self, state: Any) -> None:
        return

    def append(self, item: Any) -> None:
        """For subclasses of list."""

    def extend(self, items: Any) -> None:
        """For subclasses of list."""

    def add(self, item: Any) -> None:
        """For subclasses of set."""


class _Tensor(_Shell):
    """A tensor of which only the shape is known."""

    def __init__(self, storage: Any, offset: Any, shape: Any, *rest: Any) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = tuple(shape)


_Base: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _Shapes(_Base):  # type: ignore[misc]
    """Refuses keys whose hash takes longer than reading them, as a tuple's of tuples may."""

    def load_setitem(self) -> None:
        self._check_keys(self.stack[-2:-1])
        _Base.load_setitem(self)

    def load_setitems(self) -> None:
        self._check_keys(self.stack[::2])
        _Base.load_setitems(self)

    def refuse(self) -> None:
        raise pickle.UnpicklingError("an instruction that torch.save does not write")

    def _check_keys(self, keys: Sequence[Any]) -> None:
        if not all(type(key) in _KEYS for key in keys):
            self.refuse()

    dispatch = {
        **_Base.dispatch,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        **dict.fromkeys(pickle.DICT + pickle.ADDITEMS + pickle.FROZENSET + pickle.BYTEARRAY8, refuse),
    }

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda data, *rest: data
        return _Shell

    def persistent_load(self, key: Any) -> Any:
        return None
