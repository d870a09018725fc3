"""A checkpoint whose vocabulary isn't the data's is named before fairseq loads it; its weights aren't
read.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from fairseq.data import Dictionary
from support import VOCABULARY, build

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.vocabulary_check import check_vocabulary, embedding_rows
from fairseq_adv_compat import checkpoints

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a pre-trained encoder comes: model.pt with its optimizer's state, dict.txt."""
    folder = tmp_path_factory.mktemp("pretrained")
    data = write_shards(folder / "data", 1)
    run = build(pretraining_args(data, folder / "save", "masked_lm"))
    run.trainer.train_step([next(iter(run.trainer.get_train_iterator(1).next_epoch_itr()))])
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(folder / "model.pt"), {"train_iterator": {"epoch": 1}})
    shutil.copy(data / "dict.txt", folder)
    return folder


def dictionary(folder: Path, words: list[str]) -> tuple[Dictionary, str]:
    """The dictionary that a masked-LM task makes of a corpus with these words, and its data argument."""
    folder.mkdir()
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    made = Dictionary.load(str(folder / "dict.txt"))
    made.add_symbol("<mask>")
    return made, f"{folder}:{folder}2"


def test_the_checkpoints_own_dictionary_passes(tmp_path: Path, pretrained: Path) -> None:
    own, data = dictionary(tmp_path / "corpus", VOCABULARY)
    check_vocabulary(str(pretrained / "model.pt"), own, data)
    alone = shutil.copy(pretrained / "model.pt", tmp_path / "alone.pt")
    check_vocabulary(str(alone), own, data)
    check_vocabulary(str(tmp_path / "none.pt"), own, data)  # fairseq says that it is missing


@pytest.mark.parametrize("words", [VOCABULARY[:-1], [*VOCABULARY, "more", "words"]], ids=["fewer", "more"])
def test_another_number_of_words_is_refused(tmp_path: Path, pretrained: Path, words: list[str]) -> None:
    """With and without the dict.txt beside the checkpoint, whose path the fix then names."""
    other, data = dictionary(tmp_path / "corpus", words)
    checkpoint = pretrained / "model.pt"
    with pytest.raises(DataError) as error:
        check_vocabulary(str(checkpoint), other, data)
    assert str(error.value).startswith(
        f"--finetune-from-model {checkpoint}: has embeddings for 45 words, but {tmp_path}/corpus/dict.txt "
        f"has {len(words) + 5} "
    )
    assert f"--srcdict {pretrained}/dict.txt" in str(error.value)
    alone = shutil.copy(checkpoint, tmp_path / "alone.pt")
    with pytest.raises(
        DataError, match=r"--restore-file .*alone\.pt: has .* \(it came with the checkpoint\)"
    ):
        check_vocabulary(str(alone), other, data, "--restore-file")


def test_as_many_but_other_words_are_refused(tmp_path: Path, pretrained: Path) -> None:
    """Nothing else would tell: fairseq trains with wrong ids."""
    words = [*VOCABULARY[:6], VOCABULARY[7], VOCABULARY[6], *VOCABULARY[8:]]
    other, data = dictionary(tmp_path / "corpus", words)
    with pytest.raises(DataError) as error:
        check_vocabulary(str(pretrained / "model.pt"), other, data)
    assert (
        f"word 10 is 'w6' in {pretrained}/dict.txt (line 7), but 'w7' in {tmp_path}/corpus/dict.txt"
        in str(error.value)
    )


def test_a_dict_txt_of_something_else_beside_the_checkpoint_is_left_alone(
    tmp_path: Path, pretrained: Path
) -> None:
    shutil.copy(pretrained / "model.pt", tmp_path)
    (tmp_path / "dict.txt").write_text("hello 1\n")
    own, data = dictionary(tmp_path / "corpus", VOCABULARY)
    check_vocabulary(str(tmp_path / "model.pt"), own, data)
    (tmp_path / "dict.txt").write_text("no dictionary\nat all\n")
    with pytest.raises(DataError, match=r"dict\.txt: not a fairseq dictionary"):
        check_vocabulary(str(tmp_path / "model.pt"), own, data)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before-torch-1.6"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_both_formats_and_the_old_names(tmp_path: Path, pretrained: Path, zipped: bool, side: str) -> None:
    """roberta.base as published has the old format and the old names."""
    state: dict[str, Any] = torch.load(pretrained / "model.pt")
    state["model"] = {f"{side}{name[len('encoder') :]}": value for name, value in state["model"].items()}
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    assert embedding_rows(tmp_path / "model.pt") == 45


def test_parameters_and_half_precision_are_read_too(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.zeros(7, 3, dtype=torch.float16))
    torch.save({"model": {"encoder.sentence_encoder.embed_tokens.weight": weight}}, tmp_path / "model.pt")
    assert embedding_rows(tmp_path / "model.pt") == 7
    torch.save({"model": {"encoder.layers.0.weight": weight}}, tmp_path / "other.pt")
    assert embedding_rows(tmp_path / "other.pt") is None


def test_what_is_no_checkpoint_is_named(tmp_path: Path, pretrained: Path) -> None:
    whole = (pretrained / "model.pt").read_bytes()
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"weights": 1}, tmp_path / "keys.pt")
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.pt").write_text("hello world, this is text\n")
    for path in sorted(tmp_path.glob("*.pt")):
        with pytest.raises(DataError, match=rf"{path.name}.*not (a checkpoint|loaded)"):
            embedding_rows(path)


def test_nothing_of_the_file_is_run(tmp_path: Path) -> None:
    state = {"args": Runs(tmp_path / "made"), "model": {"encoder.sentence_encoder.embed_tokens.weight": 1}}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(DataError, match=r"model\.pt was not loaded"):
        embedding_rows(tmp_path / "model.pt")
    assert not (tmp_path / "made").exists()


class Runs:
    """Unpickled by the usual ways, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_the_weights_are_not_read(tmp_path: Path) -> None:
    """A changed bit of them would stop the reading of an open file, which compares checksums."""
    weight = torch.full((1000, 300), 7.0)
    torch.save({"model": {"encoder.sentence_encoder.embed_tokens.weight": weight}}, tmp_path / "model.pt")
    content = bytearray((tmp_path / "model.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "model.pt").write_bytes(content)
    assert embedding_rows(tmp_path / "model.pt") == 1000
    with pytest.raises(checkpoints.Refused), (tmp_path / "model.pt").open("rb") as file:
        checkpoints.load(file)
