"""benchmarks/pretraining_cost.py: its formulas against a model, and the page that it writes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from support import batch, build, train_args, write_corpus
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import pretraining_cost as cost


@pytest.mark.parametrize("method", cost.FORWARDS)
def test_torch_counts_as_many_operations_and_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    """In an update that is not logged, which takes alum_vat one more pass; K is 1."""
    data = write_corpus(tmp_path / "data")
    run = build(train_args(data, None, method, "--log-interval", "2", task="masked_lm"))
    sample = batch(run, [0, 1, 2, 3])
    words = run.model.encoder.lm_head.weight.size(0)
    monkeypatch.setitem(cost.MODELS, "tiny", (2, 16, 32, 2, words))
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        run.task.train_step(sample, run.model, run.criterion, run.trainer.optimizer, 0)
    tokens = sample["net_input"]["src_tokens"]
    masked = sample["target"].ne(run.task.source_dictionary.pad()).float().mean().item()
    expected = tokens.numel() * cost.operations("tiny", method, tokens.size(1), masked)
    assert counted.get_total_flops() == pytest.approx(expected, rel=1e-6)
    trained = sum(weight.numel() for weight in run.model.parameters() if weight.requires_grad)
    assert trained == cost.weights("tiny", 16)


def test_memory_is_what_was_measured() -> None:
    for rows, (_, mib) in cost.MEASURED.items():
        assert cost.memory("base", "standard", rows) * 2**10 == pytest.approx(mib, rel=0.005)


def test_the_page_s_sentences_have_the_numbers_of_its_tables() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-much.md").read_text(encoding="utf-8")
    (few, (_, least)), (many, (_, most)) = sorted(cost.MEASURED.items())
    ratio = cost.operations("base", "alum_vat", cost.TOKENS) / cost.operations(
        "base", "standard", cost.TOKENS
    )
    for told in (
        f"{cost.WEIGHT} bytes a weight, {cost.BUCKET} more with several workers",
        f"{(most - least) / (many - few):.0f} MiB a row",
        f"ratio of `alum_vat` to `standard`, {ratio:.2f}",
        f"A worker loads {cost.ROWS_A_WORKER:,.0f} rows",
    ):
        assert told in text, told


def test_the_page_has_the_tables(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-much.md"
    copy = Path(shutil.copy(page, tmp_path))
    cost.write(copy)
    assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
