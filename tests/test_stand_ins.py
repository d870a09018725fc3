"""Where fairseq's compiled modules aren't built, ours give the same batches and blocks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import numpy as np
import pytest
from support import fairseq_train, slow, tensors, train_args, write_corpus

import fairseq_adv_compat

HIDDEN = f"""
import importlib.machinery as machinery, sys
find = machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    if name in {fairseq_adv_compat.STAND_INS}:
        print("not built:", name, file=sys.stderr)
        return None
    return find(name, path, target)
machinery.PathFinder.find_spec = find_spec
"""


def both(name: str) -> tuple[ModuleType, ModuleType]:
    """fairseq's module, and ours."""
    compiled = pytest.importorskip(f"fairseq.data.{name}")
    if Path(compiled.__file__).suffix == ".py":
        pytest.skip("fairseq was installed without a compiler")
    path = Path(fairseq_adv_compat.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"stand_in_{name}", path)
    assert spec is not None and spec.loader is not None
    ours = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ours)
    return compiled, ours


def outcome(call: Callable[..., Any], *given: Any) -> Any:
    """Values, types and shapes, so that two results compare with ``==``; or the error's type."""
    try:
        result = call(*given)
    except (AssertionError, ValueError, ZeroDivisionError) as error:
        return type(error)
    parts = result if isinstance(result, list) else [result]
    return [(type(one), getattr(one, "dtype", ""), np.shape(one), np.asarray(one).tolist()) for one in parts]


def draw_sizes(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Lengths of up to 60 rows; with empty rows, rows of one length, and none at all."""
    longest = int(rng.choice([2, 3, 5, 20, 200]))
    sizes = rng.integers(rng.integers(2), longest, rng.integers(60))
    return np.sort(sizes) if rng.random() < 0.3 else sizes


@pytest.mark.parametrize("cases", [500, slow(20_000)])
def test_mini_batches_are_those_of_the_compiled_module(cases: int) -> None:
    compiled, ours = both("data_utils_fast")
    rng = np.random.default_rng(0)
    for _ in range(cases):
        sizes = draw_sizes(rng)
        indices = rng.permutation(len(sizes))
        tokens = int(
            rng.choice([-1, 0, max(sizes, default=1), rng.integers(1, 100), rng.integers(100, 2000)])
        )
        limits = (
            tokens,
            int(rng.choice([-1, 0, 1, 2, rng.integers(1, 40)])),
            int(rng.choice([1, 2, 3, 8, 16])),
        )
        shapes = rng.integers(1, 60, (rng.integers(1, 5), 2))
        for name, given in (
            ("batch_by_size_vec", (indices, sizes[indices], *limits)),
            ("batch_by_size_fn", (indices, sizes.__getitem__, *limits)),
            ("batch_fixed_shapes_fast", (indices, sizes.__getitem__, shapes)),
        ):
            expected = outcome(getattr(compiled, name), *given)
            assert outcome(getattr(ours, name), *given) == expected, (name, sizes, limits, shapes)


@pytest.mark.parametrize("cases", [500, slow(20_000)])
def test_blocks_are_those_of_the_compiled_module(cases: int) -> None:
    compiled, ours = both("token_block_utils_fast")
    rng = np.random.default_rng(0)
    for case in range(cases):
        sizes = draw_sizes(rng)
        mode = ("none", "complete", "complete_doc", "eos")[case % 4]
        given = sizes, mode, int(rng.choice([0, 1, 2, rng.integers(1, 64), 512])), int(rng.integers(3))
        expected = outcome(compiled._get_slice_indices_fast, *given)
        assert outcome(ours._get_slice_indices_fast, *given) == expected, given
        blocks = rng.integers(0, sizes.sum() + 1, (5 * bool(len(sizes)), 2))  # in no order, some empty
        if isinstance(expected, list) and case % 8 < 4:
            blocks = compiled._get_slice_indices_fast(*given)
        expected = outcome(compiled._get_block_to_dataset_index_fast, sizes, blocks)
        assert outcome(ours._get_block_to_dataset_index_fast, sizes, blocks) == expected, (sizes, blocks)


def test_a_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    extra = [
        "--sample-break-mode", "complete", "--tokens-per-sample", "30", "--max-positions", "32",
        "--max-tokens", "60", "--required-batch-size-multiple", "2",
    ]  # fmt: skip
    data = write_corpus(tmp_path / "data")
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDDEN)
    found = []
    for name, path in (("built", {}), ("hidden", {"PYTHONPATH": str(tmp_path / "hide")})):
        done = fairseq_train(*train_args(data, tmp_path / name, "freelb", *extra, task="masked_lm"), **path)
        asked = {line.partition(": ")[2] for line in done.stderr.splitlines() if line.startswith("not built")}
        assert asked == (set(fairseq_adv_compat.STAND_INS[:2]) if path else set())
        found.append(tensors(tmp_path / name / "checkpoint_last.pt"))
    assert found[0] == found[1]
