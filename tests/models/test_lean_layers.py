"""The encoder's layers with fewer operations compute what fairseq's do, with the same weights and draws."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from support import ADVERSARIAL, batch, build, train_args
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_adv.models.lean_layers import use_lean_layers

DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]
DEEP = ["--encoder-layers", "12", "--optimizer", "torch_adamw"]


def layers_of(run: SimpleNamespace) -> Any:
    return run.model.encoder.sentence_encoder.layers


def make_plain(run: SimpleNamespace) -> SimpleNamespace:
    for layer in layers_of(run):
        del layer.forward
    return run


def one_pass(run: SimpleNamespace) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
    """The loss of rows with padding, the gradients, and the generator's state afterwards."""
    run.model.train()
    torch.manual_seed(1)
    loss = run.criterion(run.model, batch(run, [0, 1, 2, 3]))[0]
    state = torch.get_rng_state()
    loss.backward()
    found = {name: weight.grad for name, weight in run.model.named_parameters() if weight.grad is not None}
    return loss.detach(), found, state


@pytest.mark.parametrize("task", ["sentence_prediction", "text_classification"])
@pytest.mark.parametrize(
    "words",
    [[], DROPOUT, [*DROPOUT, "--activation-dropout", "0.1"], ["--encoder-normalize-before"], ["--bf16"]],
    ids=" ".join,
)
def test_a_pass_is_that_of_fairseqs_layers(data: Path, task: str, words: list[str]) -> None:
    is_half = words == ["--bf16"]
    args = train_args(data, None, "standard", *([] if is_half else words), task=task)
    runs = [build(args), make_plain(build(args))]
    if is_half:
        for run in runs:
            run.model.bfloat16()
    (loss, ours, state), (plain_loss, plain, plain_state) = map(one_pass, runs)
    near, total = (0.03 if is_half else 1e-5), torch.cat([one.flatten() for one in plain.values()]).norm()
    assert torch.equal(state, plain_state)
    assert loss.item() == pytest.approx(plain_loss.item(), rel=near)
    assert ours.keys() == plain.keys()
    assert any(not torch.equal(ours[name], plain[name]) for name in plain), "these are fairseq's layers"
    for name, gradient in plain.items():
        assert (ours[name] - gradient).norm() <= near * gradient.norm() + near * total / 100, name


def test_checkpoints_are_equal_and_unusual_layers_are_left_alone(data: Path) -> None:
    run = build(train_args(data, None, "standard"))
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    first, second = layers_of(make_plain(run))[:2]
    checkpoint_wrapper(first)
    wrapped = first.forward
    use_lean_layers(run.model)
    assert first.forward is wrapped and "forward" in vars(second)
    for module in (second.fc1, second.self_attn, second.dropout_module):
        called: list[str] = []
        hooks = [
            module.register_forward_pre_hook(lambda *_, to=called: to.append("forward")),
            module.register_full_backward_hook(lambda *_, to=called: to.append("backward")),
        ]
        one_pass(run)
        assert {*called} == {"forward", "backward"}, type(module)
        for hook in hooks:
            hook.remove()
    assert before.keys() == run.model.state_dict().keys()


class Halved(TransformerEncoderLayerBase):
    def residual_connection(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return residual + x / 2


def test_another_residual_connection_is_left_alone(data: Path) -> None:
    run = build(train_args(data, None, "standard"))
    first, second = layers_of(make_plain(run))[:2]
    first.__class__ = Halved
    use_lean_layers(run.model)
    assert "forward" not in vars(first) and "forward" in vars(second)


def test_layers_whose_weights_are_moved_are_left_alone(data: Path) -> None:
    """As fairscale's FSDP does, which leaves views of one flat parameter as plain attributes."""
    run = build(train_args(data, None, "standard"))
    layers = layers_of(make_plain(run))
    for module, name in ((layers[0].fc1, "weight"), (layers[1].final_layer_norm, "weight")):
        moved = module._parameters.pop(name)
        setattr(module, name, moved.detach().clone())
    use_lean_layers(run.model)
    assert not any("forward" in vars(layer) for layer in layers[:2])
    one_pass(run)


@pytest.mark.parametrize(("dropout", "most"), [(DROPOUT, 2300), (DROPOUT[:2], 1850)])
def test_an_update_of_freelb_starts_fewer_operations(data: Path, dropout: list[str], most: int) -> None:
    """Of twelve layers; without its own dropout, attention is one operation, as always on a GPU. A mask of
    the padding is made once in each of three passes.
    """
    run = build(train_args(data, None, "freelb", *ADVERSARIAL, *dropout, *DEEP))
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    seen: Counter[str] = Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            is_view = any(
                r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
            )
            seen["view" if is_view else func.__name__.split(".")[0]] += 1
            return func(*args, **(kwargs or {}))

    with Count():
        run.trainer.train_step([batch(run, [0, 1, 2])])
    seen.pop("view"), seen.pop("_unsafe_view")
    assert seen["masked_fill_"] <= 3 + 2
    assert sum(seen.values()) <= most
