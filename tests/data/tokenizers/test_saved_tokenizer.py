"""A tokenizer kept beside data and checkpoints gives the ids of the one that was kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import hf_encoders
import pytest
from glue_samples import AWKWARD, small_bpe, small_unigram, small_wordpiece, sst2
from hf_encoders import WORDS

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer
from fairseq_adv.data.tokenizers.saved_tokenizer import (
    check_same_words,
    save_tokenizer,
    saved_tokenizer,
    tokenizer_for_encoder,
)
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

pytestmark = pytest.mark.fast

KINDS = {"gpt2": small_bpe, "wordpiece": small_wordpiece, "unigram": small_unigram}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> TokenToIds:
    return tokenizer_for_encoder(KINDS[request.param](tmp_path / "encoder"))


def ids(tokenizer: TokenToIds) -> list[int]:
    found: list[int] = tokenizer.encode([*AWKWARD, "Naïve CAFÉ in ÉCOLE 你好"])[0].tolist()
    return found


def test_the_same_ids_and_options(tokenizer: TokenToIds, tmp_path: Path) -> None:
    out = tmp_path / FOLDER
    out.mkdir()
    save_tokenizer(out, tokenizer)
    kept = tokenizer_for_encoder(out)
    assert ids(kept) == ids(tokenizer) and len(set(ids(kept))) > 20
    assert (kept.kind, kept.options) == (tokenizer.kind, tokenizer.options)


def with_words(data: Path, words: Sequence[str]) -> Path:
    """A binarised folder, as far as its dictionary, with that of another count; no tokenizer."""
    (data / "input0").mkdir(parents=True)
    (data / "input0" / "dict.txt").write_text("".join(f"{word} 7\n" for word in words), encoding="utf-8")
    return data


def test_data_of_other_words_than_the_models_are_refused(tmp_path: Path) -> None:
    """By the tokenizer beside the checkpoint; else by what it was trained on, if that still exists."""
    tokenizer = tokenizer_for_encoder(small_bpe(tmp_path / "encoder"))
    sst2(tmp_path / "SST-2")
    data = tmp_path / "data"
    prepare(tmp_path, "SST-2", data, tokenizer, progress=False)
    words = tokenizer.dictionary.symbols[tokenizer.dictionary.nspecial :]
    same = with_words(tmp_path / "same", words)
    other = with_words(tmp_path / "other", [words[1], words[0], *words[2:]])
    checkpoint = tmp_path / "run" / "checkpoint_best.pt"
    for trained_on in (data, same):
        check_same_words(checkpoint, str(trained_on), data)
        check_same_words(checkpoint, str(trained_on), same)
        with pytest.raises(DataError, match=r"other/input0/dict.txt: has other words than .*dict.txt, which"):
            check_same_words(checkpoint, str(trained_on), other)
    for nowhere in ("", str(tmp_path / "moved")):
        check_same_words(checkpoint, nowhere, other)
    shutil.copytree(data / FOLDER, checkpoint.parent / FOLDER)
    check_same_words(checkpoint, str(other), data)
    with pytest.raises(DataError, match=rf"other words than {checkpoint.parent}/tokenizer/dict.txt"):
        check_same_words(checkpoint, str(other), other)


def test_data_of_another_hugging_face_folder_are_refused(tmp_path: Path) -> None:
    """Its dictionary has numbers instead of words: what is compared is tokenizer.json, not its layout."""
    sst2(tmp_path / "SST-2")
    for name, words in (("data", WORDS), ("other", [WORDS[1], WORDS[0], *WORDS[2:]])):
        (tmp_path / f"of-{name}").mkdir()
        (tmp_path / f"of-{name}" / "config.json").write_text('{"vocab_size": 70}')
        hf_encoders.save_tokenizer(tmp_path / f"of-{name}", "bert", words)
        prepare(tmp_path, "SST-2", tmp_path / name, HFTokenizer(tmp_path / f"of-{name}"), progress=False)
    data, other, checkpoint = tmp_path / "data", tmp_path / "other", tmp_path / "run" / "checkpoint_best.pt"
    assert (data / "input0" / "dict.txt").read_bytes() == (other / "input0" / "dict.txt").read_bytes()
    shutil.copytree(data / FOLDER, checkpoint.parent / FOLDER)
    again = data / FOLDER / "tokenizer.json"
    again.write_text(json.dumps(json.loads(again.read_text())))
    check_same_words(checkpoint, str(other), data)
    with pytest.raises(DataError, match=r"other/tokenizer/tokenizer.json: has other words than .*run/tok"):
        check_same_words(checkpoint, str(other), other)


def test_ids_of_a_hugging_face_folder_may_have_gaps(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 100}')
    hf_encoders.save_tokenizer(tmp_path, "bert", WORDS)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["vocab"]["it"] = 99
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = HFTokenizer(tmp_path)
    symbols = tokenizer.dictionary.symbols
    assert [symbols[number] for number in tokenizer.encode(["it"])[0]] == ["99", "</s>"]


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("named", "told")}
    places.update({name: tmp_path / name / FOLDER for name in ("run", "data")})
    for name, place in places.items():
        (small_wordpiece if name in ("run", "data") else small_bpe)(place)
    checkpoint, data = tmp_path / "run" / "checkpoint_best.pt", f"{tmp_path}/data:{tmp_path}/other"
    moved, told = tmp_path / "moved" / "checkpoint_best.pt", str(places["told"])  # by the task
    for name, words in {
        "named": (checkpoint, data, tmp_path / "named"), "run": (checkpoint, data), "data": (moved, data),
    }.items():  # fmt: skip
        assert saved_tokenizer(*words).folder == places[name]
    for known in (None, data):  # rather than one of data that were prepared for another encoder
        assert saved_tokenizer(moved, known, None, told).folder == places["told"]
    assert saved_tokenizer(moved, told).folder == places["told"]
    assert saved_tokenizer(places["told"] / "model.pt", str(tmp_path)).folder == places["told"]
    for lost in (str(tmp_path / "other"), None):
        with pytest.raises(DataError, match=r"no tokenizer next to it or its data .*--tokenizer-dir"):
            saved_tokenizer(moved, lost)


def test_a_hugging_face_folder_may_have_a_dict_txt(tmp_path: Path) -> None:
    """As roberta-base's on the hub."""
    hf_encoders.save_encoder(tmp_path / "hf", "roberta")
    (tmp_path / "hf" / "dict.txt").write_text("13 850314647\n")
    assert tokenizer_for_encoder(tmp_path / "hf").kind == "hf"
