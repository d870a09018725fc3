"""The rows of a sentence with a pronoun: what is masked, in each kind of tokens; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hf_encoders import save_tokenizer
from support import batch, build, train_args, word_of, write_encoder, write_json_lines

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer
from fairseq_adv.data.wsc.superglue import PronounExample
from fairseq_adv.tasks.wsc import WSCTask

pytestmark = pytest.mark.fast

LINE: dict[str, Any] = {
    "text": "w1 saw w2, he ran.",
    "target": {"span1_text": "w1", "span1_index": 0, "span2_text": "he", "span2_index": 3},
    "idx": 4,
    "label": True,
    "candidates": ["w2 w3", "w5"],
}


def rows_of(run: SimpleNamespace, items: list[int]) -> list[tuple[str, int, int]]:
    """Each row as text with its masked span in brackets, its sentence and its column."""
    sample = batch(run, items)
    rows = []
    for tokens, span, sentence, column in zip(
        sample["net_input"]["src_tokens"], sample["span"], sample["sentence"], sample["column"]
    ):
        words = [
            f"[{word_of(run.task.dictionary, int(t))}]" if masked else word_of(run.task.dictionary, int(t))
            for t, masked in zip(tokens, span)
            if t != 1
        ]
        rows.append((" ".join(words), int(sentence), int(column)))
    return rows


def folder_with(folder: Path, *lines: dict[str, Any]) -> Path:
    write_encoder(folder)
    for split in ("train", "val"):
        write_json_lines(folder / f"{split}.jsonl", list(lines))
    return folder


def test_the_phrase_takes_the_pronouns_place_and_is_masked(tmp_path: Path) -> None:
    first = {**LINE, "text": "he ran", "target": {**LINE["target"], "span2_index": 0}, "candidates": []}
    run = build(train_args(folder_with(tmp_path, LINE, first), None, "standard", "--no-shuffle", task="wsc"))
    assert rows_of(run, [0, 1]) == [
        ("<s> w1 <unk> w2 <unk> [w1] <unk> . </s>", 0, 0),
        ("<s> w1 <unk> w2 <unk> [w2] [w3] <unk> . </s>", 0, 1),
        ("<s> w1 <unk> w2 <unk> [w5] <unk> . </s>", 0, 2),
        ("<s> [w1] <unk> </s>", 1, 0),
    ]
    sample = batch(run, [0, 1])
    assert sample["target"].tolist() == [1, 1] and sample["nlabelled"] == 2 and sample["max_columns"] == 3


def test_spaces_of_a_tokeniser_go_before_the_model_sees_the_text(tmp_path: Path) -> None:
    spaced = {**LINE, "text": "w1 's w2 , he 's w3 .", "target": {**LINE["target"], "span2_index": 4}}
    run = build(train_args(folder_with(tmp_path, spaced), None, "standard", task="wsc"))
    assert run.task.dataset("train").examples[0].prefix == "w1 's w2 , "  # as it is written, for matching
    asked: list[str] = []
    encode = run.task.tokenizer.encode
    run.task.tokenizer.encode = lambda rows: asked.extend(rows) or encode(rows)
    run.task.load_dataset("train")
    assert asked[:3] == ["w1's w2, w1's w3.", "w1's w2,", "w1's w2, w1"]


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> WSCTask:
    folder = shared_data / "gpt2_bpe"
    tokenizer = Gpt2Tokenizer(folder / "encoder.json", folder / "vocab.bpe", folder / "dict.txt")
    cfg = SimpleNamespace(data=".", max_positions=64, wsc_margin_alpha=1.0, wsc_margin_beta=0.0)
    return WSCTask(cfg, tokenizer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefix", "suffix", "phrase", "masked"),
    [("The trophy is big because ", " is big.", "the suitcase", " the suitcase"),
     ("", " is big.", "The trophy", "The trophy"),
     ("Then (", ") was big.", "trophies", "trophies"),
     ("Sam pulled up a chair to the piano, but ", " was broken", "the piano", " the piano"),
     ("I saw ", "'s hat", "Madonna", " Madonna"), ("I saw ", "s run", "the cat", " the cats"),
     ("Look at ", "", "the long table", " the long table")],
)  # fmt: skip
def test_the_span_in_gpt2_bpe_is_the_phrase_with_its_space(
    gpt2: WSCTask, prefix: str, suffix: str, phrase: str, masked: str
) -> None:
    example = PronounExample("0", prefix, "it", suffix, phrase, (), True, "x:1")
    (row,) = gpt2._rows(example)
    numbers = {
        v: k for k, v in json.loads(Path(gpt2.tokenizer.files["encoder_json"]).read_text("utf-8")).items()
    }
    pieces = [numbers[int(gpt2.dictionary[int(t)])] for t in row.tokens[row.span]]
    assert "".join(pieces).replace("Ġ", " ") == masked
    everything = [numbers[int(gpt2.dictionary[int(t)])] for t in row.tokens[1:-1]]
    assert "".join(everything).replace("Ġ", " ") == prefix + phrase + suffix


def test_what_an_unknown_token_shares_with_the_text_before_it_is_masked(tmp_path: Path) -> None:
    """The row is "▁" and one <unk> of the quote, the phrase and the stop."""
    save_tokenizer(tmp_path, "xlm-roberta")
    (tmp_path / "config.json").write_text('{"vocab_size": 2000, "model_type": "xlm-roberta"}')
    cfg = SimpleNamespace(data=".", max_positions=64, wsc_margin_alpha=1.0, wsc_margin_beta=0.0)
    task = WSCTask(cfg, HFTokenizer(tmp_path))  # type: ignore[arg-type]
    (row,) = task._rows(PronounExample("0", "'", "it", ".", "xq", (), True, "x:1"))
    assert row.span.tolist() == [False, False, True, False] and row.tokens[2] == task.dictionary.unk()


@pytest.mark.parametrize(
    ("line", "extra", "message"),
    [({**LINE, "label": False}, [], "no sentence of the training split has the label true"),
     (LINE, ["--wsc-margin-alpha", "-1"], "--wsc-margin-alpha -1.0: pass a finite number"),
     ({**LINE, "candidates": [" ".join(["w1"] * 30)]}, [], "train.jsonl:1: 38 tokens, more than --max-"),
     ({**LINE, "target": {**LINE["target"], "span2_index": 1}}, [], "train.jsonl:1: ")],
    ids=["nothing-to-learn", "alpha", "too-long", "pronoun-elsewhere"],
)  # fmt: skip
def test_what_is_refused_before_training(
    tmp_path: Path, line: dict[str, Any], extra: list[str], message: str
) -> None:
    with pytest.raises(DataError) as error:
        build(train_args(folder_with(tmp_path, line), None, "standard", *extra, task="wsc"))
    assert message in str(error.value)


def test_a_long_text_is_told_at_its_first_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, calls = WSCTask._row, []
    monkeypatch.setattr(WSCTask, "_row", lambda *args: calls.append(args) or row(*args))
    long = {**LINE, "text": LINE["text"] + " w1" * 30, "candidates": ["w1"] * 9}
    with pytest.raises(DataError, match=r"train.jsonl:1: \d+ tokens, more than --max-positions"):
        build(train_args(folder_with(tmp_path, long), None, "standard", task="wsc"))
    assert len(calls) == 1


def test_the_real_files(shared_data: Path, tmp_path: Path) -> None:
    """Every phrase of the real sentences is found again in its row (WordPiece of a vocabulary without the
    words).
    """
    write_encoder(tmp_path)
    for split in ("train", "val"):
        lines = (shared_data / "wsc" / f"{split}.jsonl").read_text("utf-8").splitlines()
        rows = [{**json.loads(line), "candidates": []} for line in lines]
        write_json_lines(tmp_path / f"{split}.jsonl", rows)
    args = train_args(tmp_path, None, "standard", "--max-positions", "256", task="wsc")
    run = build(args)
    for split, count in (("train", 554), ("valid", 104)):
        data = run.task.dataset(split)
        assert len(data) == count
        assert all(
            row.span.any() and not row.span[0] and not row.span[-1] for rows in data.rows for row in rows
        )
