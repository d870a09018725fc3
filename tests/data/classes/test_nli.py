"""Natural language inference in the layouts of its data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary, data_utils
from glue_samples import small_wordpiece

from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_nli
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import Prepared

pytestmark = pytest.mark.fast

THREE = ("entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TokenToIds:
    return tokenizer_for_encoder(small_wordpiece(tmp_path_factory.mktemp("encoder")))


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def snli(*labels: str) -> str:
    return lines(
        *({"gold_label": label, "sentence1": f"the {label}", "sentence2": "a b"} for label in labels)
    )


def anli(*labels: str) -> str:
    return lines(*({"uid": "u", "context": "the", "hypothesis": "a b", "label": label} for label in labels))


def folder_with(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_jsonl", ".jsonl").replace("_txt", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


def made(folder: Path, out: Path, tokenizer: TokenToIds, *rounds: str) -> Prepared:
    return prepare_nli(folder, out, PrepareConfig(tokenizer, progress=False), rounds)


def targets(out: Path, split: str) -> list[str]:
    classes = Dictionary.load(str(out / "label" / "dict.txt"))
    rows = data_utils.load_indexed_dataset(str(out / "label" / split), classes)
    return [classes[int(rows[k][0])] for k in range(len(rows))]


def ids(out: Path, part: str, split: str) -> list[int]:
    rows = data_utils.load_indexed_dataset(str(out / part / split), None)
    found: list[int] = rows[0].tolist()
    return found


def test_snli_without_the_rows_that_have_no_gold_label(tokenizer: TokenToIds, tmp_path: Path) -> None:
    files = {
        "snli_1.0_train_jsonl": snli(*THREE, "-", "neutral"),
        "a_train_txt": "the second layout of the same rows is left alone",
        "snli_1.0_dev_jsonl": snli("neutral"),
        "snli_1.0_test_jsonl": snli("-", "entailment", "-"),
        "README_txt": "train",
        "._snli_1.0_train_jsonl": "a Mac's",
    }
    folder = folder_with(tmp_path / "snli_1.0", **files)
    result = made(folder, tmp_path / "out", tokenizer)
    assert result.rows == {"train": 4, "valid": 1, "test": 1}
    assert targets(tmp_path / "out", "train") == [*THREE, "neutral"]
    assert result.notes == [
        "layout: SNLI's (sentence1, sentence2, gold_label)",
        f"{folder}/snli_1.0_test.jsonl: left out 2 rows without a gold label",
        f"{folder}/snli_1.0_train.jsonl: left out 1 rows without a gold label",
        *(note for note in result.notes if "<unk>" in note or "also in train" in note),
        "3 classes: contradiction, entailment, neutral",
    ]
    premise = tokenizer.encode(["the entailment", "a b"])
    assert ids(tmp_path / "out", "input0", "train") == premise[0][: premise[1][0]].tolist()
    assert ids(tmp_path / "out", "input1", "train") == premise[0][premise[1][0] :].tolist()


def test_multinli_has_two_dev_files_and_a_test_file_without_labels(
    tokenizer: TokenToIds, tmp_path: Path
) -> None:
    folder = folder_with(
        tmp_path / "multinli",
        **{"multinli_1.0_train_jsonl": snli(*THREE), "multinli_1.0_dev_matched_jsonl": snli("neutral"),
           "multinli_1.0_dev_mismatched_jsonl": snli("entailment"),
           "multinli_0.9_test_matched_unlabeled_jsonl": snli("hidden", "hidden")},
    )  # fmt: skip
    result = made(folder, tmp_path / "out", tokenizer)
    assert result.rows == {"train": 3, "valid": 1, "valid1": 1, "test": 2}
    assert targets(tmp_path / "out", "valid1") == ["entailment"] and "without labels: test" in result.notes


def test_scitail_in_both_of_its_layouts(tokenizer: TokenToIds, tmp_path: Path) -> None:
    columns = 'the "quoted\ta b\tentails\nthe\ta b\tneutral\n'
    folder = folder_with(
        tmp_path / "tsv_format", **{f"scitail_1.0_{s}.tsv": columns for s in ("train", "dev")}
    )
    result = made(folder, tmp_path / "out", tokenizer)
    assert result.notes[0] == "layout: SciTail's three columns without a header (premise, hypothesis, label)"
    assert targets(tmp_path / "out", "train") == ["entails", "neutral"]
    named = snli("entails", "neutral")
    folder = folder_with(
        tmp_path / "snli_format", **{f"scitail_1.0_{s}_txt": named for s in ("train", "dev")}
    )
    made(folder, tmp_path / "other", tokenizer)
    assert targets(tmp_path / "other", "valid") == ["entails", "neutral"]


ANLI = {
    f"{turn}__{split}_jsonl": anli(*labels)
    for turn, labels in {"R1": "en", "R2": "c", "R3": "nn"}.items()
    for split in ("train", "dev", "test")
}


def test_anli_has_all_rounds_together_and_each_alone(tokenizer: TokenToIds, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "anli_v1.0", **ANLI)
    result = made(folder, tmp_path / "out", tokenizer)
    rounds = {"R1": 2, "R2": 1, "R3": 2}
    alone = {f"{split}-{turn}": rows for split in ("valid", "test") for turn, rows in rounds.items()}
    assert result.rows == {"train": 5, "valid": 5, "test": 5, **alone}
    together = ["entailment", "neutral", "contradiction", "neutral", "neutral"]
    assert targets(tmp_path / "out", "train") == targets(tmp_path / "out", "test") == together
    assert targets(tmp_path / "out", "valid-R2") == ["contradiction"]
    some = made(folder, tmp_path / "some", tokenizer, "R1", "R3")
    assert some.rows["train"] == 4 and "test-R2" not in some.rows
    assert targets(tmp_path / "some", "train") == ["entailment", "neutral", "neutral", "neutral"]
    assert "valid-R1" not in made(folder, tmp_path / "one", tokenizer, "R1").rows
