"""How often an update would wait for a GPU: no more than fairseq's own criterion, and once.

Counted on a CPU: the operations that need a number on the host, and the transfers to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from support import (
    ADVERSARIAL,
    CREATIVE,
    NOISED,
    NOISY,
    VIRTUAL,
    batch,
    build,
    train_args,
    write_corpus,
    write_questions,
    write_task,
    write_wsc,
)  # fmt: skip
from token_data import write_spans, write_tags
from torch.utils._python_dispatch import TorchDispatchMode

WRITE = {
    "sentence_prediction": write_task, "masked_lm": write_corpus, "commonsense_qa": write_questions,
    "wsc": write_wsc, "tagging": write_tags, "span_qa": write_spans,
}  # fmt: skip
# Options, and forward passes an update.
METHODS = {
    "standard": ([], 1),
    "flooding": (["--flood-level", "0.5"], 1),
    "freelb": (ADVERSARIAL, 3),
    "pgd": (ADVERSARIAL, 4),
    "yopo": ([*ADVERSARIAL, "--yopo-steps", "2"], 5),
    "tavat": (ADVERSARIAL, 3),
    "infobert": (ADVERSARIAL, 3),
    "alum_vat": (VIRTUAL, 4),
    "noise": (NOISY, 1),
    "r3f": (NOISED, 2),
    "creat": (CREATIVE, 4),
}
OWN = {"tavat": 1, "infobert": 1}  # which words the update had; the seed of its draws
ALWAYS = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2",
    "aten::unique_consecutive", "aten::equal", "aten::is_nonzero",
}  # fmt: skip
INDEXED = {"aten::index.Tensor", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


class Waits(TorchDispatchMode):
    """Counts them while it is entered.

    Attributes:
        found: the operations, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.name(), kwargs or {}
        waits = name in ALWAYS
        if name in INDEXED:
            waits = any(isinstance(i, torch.Tensor) and i.dtype == torch.bool for i in args[1])
        if name == "aten::repeat_interleave.Tensor":
            waits = kwargs.get("output_size") is None
        if waits:
            self.found.append(name)
        return func(*args, **kwargs)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Operations that wait, ``tolist`` and ``cpu``."""
    waits = Waits()
    with monkeypatch.context() as patch:
        for name in ("tolist", "cpu"):
            plain = getattr(torch.Tensor, name)

            def transfer(self: torch.Tensor, *args: Any, _plain: Any = plain, _name: str = name) -> Any:
                waits.found.append(_name)
                return _plain(self, *args)

            patch.setattr(torch.Tensor, name, transfer)
        with waits:
            yield waits


def trained(tmp_path: Path, task: str, criterion: str, words: list[str]) -> tuple[SimpleNamespace, Any]:
    """A run after its first update, and a mini-batch."""
    data = WRITE[task](tmp_path / "data")
    run = build(train_args(data, None, criterion, *words, "--log-interval", "1000", task=task))
    run.trainer.begin_epoch(1)
    sample = batch(run, [0, 1, 2])
    metrics.reset()
    run.trainer.train_step([sample])
    return run, sample


def waits_of_an_update(run: SimpleNamespace, sample: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with counted(monkeypatch) as waits:
        run.trainer.train_step([{**sample, "target": sample["target"].clone()}])  # another mini-batch
    return waits.found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", ["sentence_prediction", "masked_lm"])
def test_an_update_waits_once_more_than_fairseqs_own_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, method: str
) -> None:
    plain, sample = trained(tmp_path / "plain", task, task, [])
    one = waits_of_an_update(plain, sample, monkeypatch)
    with counted(monkeypatch) as of_a_pass:
        loss, _, _ = plain.criterion(plain.model, sample)
        loss.backward()
    words, passes = METHODS[method]
    own = len(one) + (passes - 1) * len(of_a_pass.found) + OWN.get(method, 0)
    assert len(of_a_pass.found) >= 2
    ours = waits_of_an_update(*trained(tmp_path / "ours", task, method, words), monkeypatch)
    assert len(ours) <= own + 1, (own, ours)


@pytest.mark.parametrize("method", ["standard", "freelb", "alum_vat"])
@pytest.mark.parametrize("task", ["commonsense_qa", "wsc", "tagging", "span_qa"])
def test_of_tasks_that_fairseq_has_no_criterion_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, method: str
) -> None:
    """Held against its criterion for classes."""
    plain, sample = trained(tmp_path / "plain", "sentence_prediction", "sentence_prediction", [])
    one = waits_of_an_update(plain, sample, monkeypatch)
    words, passes = METHODS[method]
    # The encoder's two a pass; and of WSC's masked positions the model's own index and its gradient.
    own = len(one) + (passes - 1) * 2 + (2 * passes if task == "wsc" else 0)
    ours = waits_of_an_update(*trained(tmp_path / "ours", task, method, words), monkeypatch)
    assert len(ours) <= own + 1, (own, ours)
