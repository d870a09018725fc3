"""DeepSpeed's engine, of which only what we ask it is here: what it can't do is refused with what to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_adv.loop import ALUM, R3F, SMART, FreeLB, LoopMethod


class Engine(nn.Module):
    def __init__(self, stage: int = 0, accumulated: int = 1, inside: bool = False) -> None:
        super().__init__()
        self.module = nn.ModuleDict(
            {"embed_tokens": nn.Embedding(9, 4, padding_idx=1), "out": nn.Linear(4, 2)}
        )
        self.stage, self.accumulated, self.inside_no_sync_ctxt = stage, accumulated, inside

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.module["out"](self.module["embed_tokens"](tokens).mean(dim=1))
        return logits

    def zero_optimization_stage(self) -> int:
        return self.stage

    def gradient_accumulation_steps(self) -> int:
        return self.accumulated


def train(engine: Engine, kind: type[LoopMethod], **options: Any) -> None:
    method = kind(engine, **options)

    def closure() -> Any:
        logits = engine(torch.tensor([[3, 4, 5], [6, 7, 1]]))
        loss = logits.logsumexp(dim=1).mean()
        return (loss, logits) if kind in (R3F, ALUM) else loss

    method(closure)


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ({}, FreeLB),
        ({"stage": 1, "inside": True}, FreeLB),
        ({"stage": 2, "inside": True}, R3F),
        ({"stage": 1, "inside": True}, ALUM),
    ],
)
def test_what_works(engine: dict[str, Any], kind: type[LoopMethod]) -> None:
    trained = Engine(**engine)
    train(trained, kind)
    assert all(weight.grad is not None for weight in trained.parameters())


@pytest.mark.parametrize(
    ("engine", "kind", "message"),
    [
        ({"stage": 1}, FreeLB, r"with engine.coalesce_grad_reduction\(\)"),
        ({"stage": 2}, R3F, r"with engine.coalesce_grad_reduction\(\)"),
        ({"accumulated": 2}, FreeLB, "set gradient_accumulation_steps to 1"),
        ({}, ALUM, "use ZeRO's stage 1"),
        ({"stage": 1}, SMART, r"with engine.coalesce_grad_reduction\(\)"),
    ],
)
def test_what_is_refused(engine: dict[str, Any], kind: type[LoopMethod], message: str) -> None:
    with pytest.raises(ValueError, match=f"^DeepSpeed: .*{message}"):
        train(Engine(**engine), kind)


def test_accelerates_backward_would_make_an_update_in_each_pass() -> None:
    class Accelerator:
        deepspeed_engine_wrapped = SimpleNamespace()

        def backward(self, loss: Tensor) -> None:
            raise AssertionError("no pass is made")

    with pytest.raises(ValueError, match=r"^DeepSpeed: .*pass backward=engine.backward"):
        train(Engine(), FreeLB, backward=Accelerator().backward)
