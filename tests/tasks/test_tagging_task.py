"""Tagging: tags of the training data, rows, order, what is refused; real files through tokens and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq import checkpoint_utils
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from support import batch, build, train_args, word_of, write_encoder
from token_data import write_tags

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import read_columns
from fairseq_adv.data.tags.tags_dataset import TagsDataset, tokenised
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
from fairseq_adv.evaluation.trained import load


def folder_with(folder: Path, train: str, valid: str | None = None) -> Path:
    write_encoder(folder)
    for split, text in (("train", train), ("valid", train if valid is None else valid)):
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.fast
def test_a_row_and_the_places_of_its_words(tmp_path: Path) -> None:
    """w1_w2 is three tokens, and the tokenizer makes nothing of U+200B, which becomes <unk>."""
    text = "w1_w2\tB-X\n\u200b\tI-X\nw3\tO\n\nw4\tO\n"
    run = build(train_args(folder_with(tmp_path, text), None, "standard", "--no-shuffle", task="tagging"))
    sample = batch(run, [0, 1])
    dictionary = run.task.dictionary
    rows = [[word_of(dictionary, int(t)) for t in row] for row in sample["net_input"]["src_tokens"]]
    assert rows == [
        ["<s>", "w1", "_", "w2", "<unk>", "w3", "</s>"], ["<s>", "w4", "</s>", *["<pad>"] * 4],
    ]  # fmt: skip
    assert sample["first"].tolist() == [1, 4, 5, 7 + 1]
    assert sample["sentence"].tolist() == [0, 0, 0, 1]
    assert [run.task.tags[int(k)] for k in sample["target"]] == ["B-X", "I-X", "O", "O"]
    assert run.task.tags == ["O", "B-X", "I-X"] and run.task.types == ["X"]
    assert sample["nlabelled"] == 4 and sample["ntokens"] == 10


@pytest.mark.fast
@pytest.mark.parametrize(
    ("train", "valid", "message"),
    [
        ("w1\tO\n", None, r"train\.tsv: every tag is O, so there is nothing to learn"),
        ("w1\tB-X\n", "w1\tO\nw2\tB-Z\n", r"valid\.tsv:2: entities of the type Z do not occur in the"),
        ("w1\tB-X\n\n" + "w2\tO\n" * 23, None, r"train\.tsv:3: the sentence has 25 tokens, more than --max-"),
        ("w1\tB-${env:HOME}\n", None, r"can't store the class name 'B-\$\{env:HOME\}' in a check"),
        ("w1\tB-X\n", "w1\n", r"valid\.tsv:1: only one column"),
        ("w1\tB-X\n", "w1\tI-X\nw2\tO\nw3\tB-X\n", r"valid\.tsv:3: an entity begins with B-X, but on line 1"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, train: str, valid: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        build(train_args(folder_with(tmp_path, train, valid), None, "standard", task="tagging"))


def test_a_split_without_tags_is_no_validation(tmp_path: Path) -> None:
    run = build(train_args(write_tags(tmp_path), None, "standard", task="tagging"))
    run.task.load_dataset("test")
    with pytest.raises(DataError, match=r"test\.tsv:1: no label, and none of"):
        run.criterion.check_before_training(run.model)


def test_a_checkpoint_has_its_tags_and_needs_no_training_data(tmp_path: Path) -> None:
    data = write_tags(tmp_path / "data")
    run = build(train_args(data, None, "standard", task="tagging"))
    run.trainer.consolidate_optimizer()
    path = tmp_path / "checkpoint.pt"
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    tags = ["O", "B-Cell", "I-Cell", "B-Gene", "I-Gene"]
    assert list(checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"].task.class_names) == tags
    (data / "train.tsv").unlink()
    trained = load(str(path), str(data), ["valid"], cpu=True)
    assert trained.task.tags == tags and len(trained.task.dataset("valid")) == 8


def test_every_tag_of_a_real_file_survives_the_tokens(shared_data: Path) -> None:
    """Words are cut out of the rows at the first tokens' places and decoded: all of them, with their tags."""
    path = shared_data / "ner" / "NCBI-disease-IOB" / "devel.tsv"
    sentences = read_columns(path)
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    lines = [line for line in lines if line[0] != "-DOCSTART-"]
    bpe = shared_data / "gpt2_bpe"
    tokenizer = Gpt2Tokenizer(bpe / "encoder.json", bpe / "vocab.bpe", bpe / "dict.txt")
    tags = sorted({tag for sentence in sentences for tag in sentence.tags or ()})
    dataset = TagsDataset(
        sentences, tokenised(sentences, tokenizer, 2048), {tag: k for k, tag in enumerate(tags)}, 1, None
    )
    engine = get_encoder(str(bpe / "encoder.json"), str(bpe / "vocab.bpe"))
    found = []
    for number in range(len(dataset)):
        item = dataset[number]
        places = [*item["first"].tolist(), len(item["tokens"]) - 1]
        for begin, end, tag in zip(places, places[1:], item["target"].tolist()):
            ids = item["tokens"][begin:end].tolist()
            text = engine.decode([int(tokenizer.dictionary[i]) for i in ids]).strip(" ")
            found.append([text, tags[tag]])
    assert found == lines and len(found) > 20000
