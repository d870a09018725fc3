"""docs/loop.md: each block of Python trains by its method; the table has the sizes of train, too."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from documents import ROOT, snippets
from hf_models import save_bert
from support import one_worker

from fairseq_adv import loop
from fairseq_adv.criterions import methods

transformers = pytest.importorskip("transformers", reason="the page's models")
pytest.importorskip("accelerate", reason="Trainer needs it")
PAGE = (ROOT / "docs/loop.md").read_text(encoding="utf-8")
BLOCKS = [text for _, language, text in snippets(PAGE) if language == "python"]
CRITERIONS = {
    "FreeLB": "freelb", "PGD": "pgd", "Noise": "noise", "R3F": "r3f", "ALUM": "alum_vat", "SMART": "smart",
}  # fmt: skip


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "minilm"
    save_bert(folder)
    return folder


@pytest.fixture
def group() -> Iterator[None]:
    """torch.distributed with one worker, and accelerate's state as a new process has it."""
    from accelerate.state import AcceleratorState

    with one_worker():
        yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block(
    group: None, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It moves the embeddings by what the sizes say, and the weights."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(encoder, "out/minilm")
    begun: list[loop.LoopMethod] = []
    before: list[list[torch.Tensor]] = []
    set_up = loop.LoopMethod.__post_init__

    def watched(method: loop.LoopMethod) -> None:
        set_up(method)
        begun.append(method)
        before.append([weight.detach().clone() for weight in method.model.parameters()])

    monkeypatch.setattr(loop.LoopMethod, "__post_init__", watched)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2).train()
    rows = [{"input_ids": [2, n, n + 1, 3], "labels": n % 2} for n in range(6, 22)]
    args = transformers.TrainingArguments(
        "trained", max_steps=2, per_device_train_batch_size=4, logging_steps=1, report_to=[], use_cpu=True
    )
    parts = [
        {name: torch.tensor([row[name] for row in rows[i : i + 4]]) for name in rows[0]}
        for i in range(0, 16, 4)
    ]
    names: dict[str, Any] = {
        "torch": torch, "model": model, "rows": rows, "args": args,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "batches": [{**part, "attention_mask": torch.ones_like(part["input_ids"])} for part in parts],
    }  # fmt: skip
    exec(BLOCKS[number].replace('"cuda"', '"cpu"'), names)
    method = begun[-1]
    assert 0.005 < method.log["adv_ratio"] < 0.08
    moved = [not torch.equal(a, b) for a, b in zip(before[-1], method.model.parameters())]
    assert sum(moved) > len(moved) / 2
    if "trainer" in names:
        assert method.max_norm == 0.02 and "adv_loss_last" in names["trainer"].state.log_history[0]


def test_the_table_of_sizes() -> None:
    """All sizes of all methods, with the defaults of the class and of ``fairseq-adv train``."""
    listed = set()
    for line in re.findall(r"^\| `[A-Z].*\|$", PAGE, re.M):
        classes, parameter, option, default = (cell.strip() for cell in line.strip("|").split(" | "))
        name = parameter.split("`")[1]
        for kind in re.findall(r"`(\w+)`", classes):
            listed.add((kind, name))
            assert str(getattr(loop, kind).__dataclass_fields__[name].default) == default, line
            criterion = methods()[CRITERIONS[kind]]
            config = getattr(criterion, "__dataclass").__dataclass_fields__
            filled = f"{criterion.suggested_options} {criterion.further_options} ".partition(
                f"{option.strip('`')} "
            )
            theirs = (
                filled[2].split(" ")[0]
                if filled[1]
                else config[option.strip("`- ").replace("-", "_")].default
            )
            if name != "relative":
                assert str(theirs) == default, line
            else:
                assert filled[1], line
    shared = {"model", "backward", "padding_idx", "share_dropout", "log", "multi_label"}
    wanted = {(kind, one.name) for kind in CRITERIONS for one in fields(getattr(loop, kind))}
    assert listed == {(kind, name) for kind, name in wanted if name not in shared}
