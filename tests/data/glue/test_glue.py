"""GLUE preparation: equal to fairseq's own recipe byte for byte; bad files are refused by name and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from glue_recipe import run_recipe, written
from glue_samples import AWKWARD, WRITERS, ax, mnli, rte, small_bpe, sst2
from support import slow

from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds


@pytest.fixture(scope="module")
def bpe_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def tokenizer(bpe_files: Path) -> TokenToIds:
    return gpt2(bpe_files)


def gpt2(folder: Path) -> TokenToIds:
    return Gpt2Tokenizer(folder / "encoder.json", folder / "vocab.bpe", folder / "dict.txt")


def assert_equal_to_recipe(glue: Path, task: str, files: Path, work: Path) -> None:
    expected = written(run_recipe(glue, task, files, work / "recipe"))
    result = prepare(glue, task, work / "out", gpt2(files), progress=False)
    found = written(work / "out")
    kept = {
        f"tokenizer/{name}" for name in ("dict.txt", "encoder.json", "vocab.bpe")
    }  # the recipe keeps none
    assert sorted(found.keys() - kept) == sorted(expected) and kept < found.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert sum(result.rows.values()) > 0 and not result.reused


@pytest.mark.parametrize("task", WRITERS)
def test_equal_to_the_recipe_on_awkward_rows(task: str, bpe_files: Path, tmp_path: Path) -> None:
    WRITERS[task](tmp_path / "glue" / task)
    assert_equal_to_recipe(tmp_path / "glue", task, bpe_files, tmp_path)


def test_equal_to_the_recipe_with_windows_line_ends(bpe_files: Path, tmp_path: Path) -> None:
    rte(tmp_path / "glue" / "RTE", end="\r\n")
    assert_equal_to_recipe(tmp_path / "glue", "RTE", bpe_files, tmp_path)


@pytest.mark.parametrize("task", ["MRPC", *map(slow, ("CoLA", "QNLI", "RTE", "WNLI"))])
def test_equal_to_the_recipe_on_real_files(task: str, shared_data: Path, tmp_path: Path) -> None:
    # Whole rows, spread over the file; the shortest file whole.
    for source in (shared_data / "glue" / task).glob("*.tsv"):
        lines = source.read_bytes().split(b"\n")
        step = max(1, len(lines) // 200)
        kept = lines[:1] + lines[1:-1:step] + lines[-1:]
        target = tmp_path / "glue" / task / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"\n".join(kept))
    assert_equal_to_recipe(tmp_path / "glue", task, shared_data / "gpt2_bpe", tmp_path)


def test_rows_that_the_recipe_drops_are_reported(tokenizer: TokenToIds, tmp_path: Path) -> None:
    WRITERS["QQP"](tmp_path / "QQP")
    result = prepare(tmp_path, "QQP", tmp_path / "out", tokenizer, progress=False)
    assert result.rows == {"train": 60, "valid": 30, "test": len(AWKWARD)}
    assert "train.tsv: left out 12 row(s) without 6 columns, as in the recipe" in result.notes


def test_a_task_folder_may_be_given_itself_and_the_test_file_may_be_absent(
    tokenizer: TokenToIds, tmp_path: Path
) -> None:
    sst2(tmp_path / "download")
    (tmp_path / "download" / "test.tsv").unlink()
    result = prepare(tmp_path / "download", "sst_2", tmp_path / "out", tokenizer, progress=False)
    assert result.task == "SST-2" and "test" not in result.rows
    assert result.notes[0] == "no test.tsv, so that split is missing"
    assert not (tmp_path / "out/input0/test.bin").exists()


def labels_in(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "label" / "dict.txt").read_text().splitlines()][:3]


@pytest.mark.parametrize("file", ["diagnostic/diagnostic.tsv", "AX/diagnostic.tsv", "AX/AX.tsv", "AX.tsv"])
def test_ax_has_a_test_split_alone_and_the_labels_of_mnli(
    file: str, tokenizer: TokenToIds, tmp_path: Path
) -> None:
    ax(tmp_path / "glue" / file)
    alone = prepare(tmp_path / "glue", "AX", tmp_path / "alone", tokenizer, progress=False)
    assert alone.rows == {"test": len(AWKWARD)} and "no MNLI/train.tsv next to it" in alone.notes[0]
    assert labels_in(tmp_path / "alone") == ["contradiction", "neutral", "entailment"]
    assert not list((tmp_path / "alone" / "label").glob("test*"))
    # Beside a copy of MNLI in which the labels are not as frequent as in GLUE's own, the order is that one's.
    mnli(tmp_path / "glue" / "MNLI")
    beside = prepare(tmp_path / "glue", "AX", tmp_path / "beside", tokenizer, progress=False)
    prepare(tmp_path / "glue", "MNLI", tmp_path / "mnli", tokenizer, progress=False)
    assert not any("MNLI" in note for note in beside.notes)
    order = ["entailment", "neutral", "contradiction"]
    assert labels_in(tmp_path / "beside") == labels_in(tmp_path / "mnli") == order
