"""The emulated GPU: it refuses and counts what a GPU would, computes as the CPU does, leaves no trace."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest
import torch
from emulated_gpu import POSSIBLE, Emulation, OtherDevice, emulated
from support import ADVERSARIAL, batch, build, train_args, write_task
from torch import Tensor

from fairseq_adv.objectives.sentence_prediction import SentencePrediction
from fairseq_adv.perturbation import DropoutReplay

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
HERE = "tests/gpu/test_emulation.py:"


@pytest.fixture
def gpu() -> Iterator[Emulation]:
    with emulated() as gpu:
        yield gpu


def trained(folder: Path, *words: str) -> SimpleNamespace:
    """A run of freelb after an update; on the CPU, if ``--cpu`` is among the words."""
    args = train_args(write_task(folder / "data"), None, "freelb", *ADVERSARIAL, *words)
    cpu = "--cpu" in words
    run = build([word for word in args if word != "--cpu"] + ["--cpu"] * cpu)
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    return run


def weights(run: SimpleNamespace) -> Tensor:
    return torch.cat([p.detach().flatten().cpu() for p in run.model.parameters()])


# --- a mistake of each kind, in fairseq's own trainer -----------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Tensor], Tensor]) -> None:
    """Every loss of the objective makes this mistake."""
    plain = SentencePrediction.loss
    monkeypatch.setattr(SentencePrediction, "loss", lambda *args: mistake(plain(*args)))


def weighed_on_the_cpu(loss: Tensor) -> Tensor:
    return (loss * torch.ones(3)).mean()


def weighed_by_a_draw_of_the_cpu(loss: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return loss * torch.empty_like(loss).uniform_(0.9, 1.1, generator=generator)


def weighed_by_its_value(loss: Tensor) -> Tensor:
    return loss * min(loss.item(), 2.0)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (weighed_on_the_cpu, "mul on tensors of both"),
        (weighed_by_a_draw_of_the_cpu, "uniform_ with a generator"),
    ],
)
def test_a_step_that_mixes_the_devices_fails(
    tmp_path: Path, gpu: Emulation, monkeypatch: pytest.MonkeyPatch, mistake: Any, told: str
) -> None:
    broken(monkeypatch, mistake)
    with pytest.raises(OtherDevice, match=f"^{HERE}[0-9]+: {told}"):
        trained(tmp_path)


def test_a_step_that_reads_a_number_waits_in_every_pass(
    tmp_path: Path, gpu: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path)
    found = []
    for mistake in (lambda loss: loss, weighed_by_its_value):
        with monkeypatch.context() as patch, gpu.watched() as seen:
            broken(patch, mistake)
            run.trainer.train_step([batch(run, [0, 1, 2])])
        found.append(seen.waits)
    assert len(found[1]) == len(found[0]) + 3  # freelb's passes
    line = weighed_by_its_value.__code__.co_firstlineno + 1
    assert [w.where for w in found[1] if w not in found[0]] == [f"{HERE}{line}"] * 3


# --- as a GPU ---------------------------------------------------------------------------------------

BOTH = {
    "sum": lambda a, b: a + b,
    "into the CPU's": lambda a, b: b.add_(a),
    "into the CPU's number": lambda a, b: torch.zeros(()).add_(a.sum()),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack with a number": lambda a, b: torch.stack([a.sum(), torch.zeros(())]),
    "embedding": lambda a, b: torch.nn.functional.embedding(b.long(), torch.ones(9, 2, device="cuda")),
    "an index of the GPU": lambda a, b: b[a.long()],
    "a row of the GPU": lambda a, b: b.index_select(0, a.long()),
    "matrices": lambda a, b: a.view(1, -1) @ b.view(-1, 1),
    "a list": lambda a, b: torch._foreach_add([a, b], [b, a]),
    "a generator of the GPU": lambda a, b: b.normal_(generator=torch.Generator("cuda")),
    "a generator of the CPU": lambda a, b: torch.rand(2, device="cuda", generator=torch.Generator()),
    "draws for the CPU": lambda a, b: torch.rand(2, generator=torch.Generator("cuda")),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_both_devices_in_one_operation_are_refused(gpu: Emulation, name: str) -> None:
    with pytest.raises(OtherDevice, match=f"^{HERE}"):
        BOTH[name](torch.ones(3, device="cuda"), torch.ones(3))


def test_numpy_can_not_read_the_gpu(gpu: Emulation) -> None:
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        torch.ones(3, device="cuda").numpy()


WAITS = {
    "item": lambda a, b: a.sum().item(),
    "a condition": lambda a, b: bool((a > 0).all()),
    "a list": lambda a, b: a.tolist(),
    "to the host": lambda a, b: a.cpu(),
    "into the host": lambda a, b: b.copy_(a),
    "from the host": lambda a, b: b.to("cuda"),
    "as another": lambda a, b: b.type_as(a),
    "into the GPU": lambda a, b: a.copy_(b),
    "made of numbers": lambda a, b: torch.tensor([1, 2], device="cuda"),
    "new, of numbers": lambda a, b: a.new_tensor([1, 2]),
    "a mask": lambda a, b: a[a > 0],
    "written by a mask": lambda a, b: a.index_put_((a > 0,), a.sum()),
    "an index of the CPU": lambda a, b: a[b.long()],
    "places": lambda a, b: a.nonzero(),
    "kinds": lambda a, b: a.unique(),
    "repeated": lambda a, b: a.repeat_interleave(a.long()),
    "asked for": lambda a, b: torch.cuda.synchronize(),
}  # fmt: skip
NO_WAITS = {
    "lazily": lambda a, b: b.to("cuda", non_blocking=True),
    "a number of the CPU": lambda a, b: a * torch.tensor(2.0),
    "an index of the GPU": lambda a, b: a[a.long()],
    "repeated, of a known size": lambda a, b: a.repeat_interleave(a.long(), output_size=3),
    "another dtype": lambda a, b: a.to(torch.float16),
    "where it is": lambda a, b: a.to("cuda"),
    "the CPU alone": lambda a, b: b.sum().item(),
    "made there": lambda a, b: a.new_zeros(2) + a.new(2) + torch.full((2,), 3.0, device="cuda"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*WAITS, *NO_WAITS])
def test_what_makes_the_host_wait(gpu: Emulation, name: str) -> None:
    a, b = torch.ones(3, device="cuda"), torch.ones(3)
    with gpu.watched() as seen:
        {**WAITS, **NO_WAITS}[name](a, b)
    assert len(seen.waits) == (name in WAITS), seen.waits
    assert all(wait.where.startswith(HERE) for wait in seen.waits)


def test_a_lazy_copy_is_there_after_a_wait(gpu: Emulation) -> None:
    a = torch.ones(3, device="cuda")
    copy = a.to("cpu", non_blocking=True)
    a.zero_()
    assert copy.isnan().all()
    torch.cuda.synchronize()
    assert copy.eq(1).all()


def test_copies_lie_where_they_were_made(gpu: Emulation) -> None:
    a = torch.ones(3, 2, device="cuda", requires_grad=True)
    there = [
        a.detach(),
        a[0],
        a.t() * 2,
        a.half(),
        a.cuda(),
        copy.deepcopy(a),
        torch.rand_like(a),
        a.new(2),
        a.data,
    ]
    here = [a.cpu(), a.to("cpu").half(), torch.zeros_like(a, device="cpu")]
    assert [t.device.type for t in there] == ["cuda"] * 9 and all(t.is_cuda for t in there)
    assert [t.device.type for t in here] == ["cpu"] * 3
    (a.cpu() * 3).sum().backward()
    assert a.grad is not None and a.grad.device == torch.device("cuda", 0) and a.grad.eq(3).all()


def test_operations_are_counted_and_views_are_not(gpu: Emulation) -> None:
    a = torch.ones(3, 2, device="cuda", requires_grad=True)
    with gpu.watched() as seen:
        (a.t()[0].view(3, 1) * 2).sum().backward()
    assert (
        seen.operations["mul"] == 2 and seen.operations["sum"] == 1 and not {"t", "view"} & {*seen.operations}
    )


# --- random numbers ---------------------------------------------------------------------------------


def test_the_gpu_draws_with_its_own_generator(gpu: Emulation) -> None:
    x, generator = torch.ones(64, 64, device="cuda"), torch.Generator("cuda")
    draws: list[Callable[[], Tensor]] = [
        lambda: torch.nn.functional.dropout(x, 0.5), lambda: torch.rand(9, device="cuda"),
        lambda: torch.rand_like(x), lambda: torch.bernoulli(x / 2), lambda: x.clone().normal_(),
        lambda: x.clone().normal_(generator=generator),
    ]  # fmt: skip
    before = torch.get_rng_state()
    for draw in draws:
        torch.cuda.manual_seed(3)
        start = torch.cuda.get_rng_state()
        generator.set_state(start)
        first, second = draw(), draw()
        torch.cuda.set_rng_state(start)
        generator.set_state(start)
        assert torch.equal(first, draw()) and not torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_a_replay_that_leaves_the_gpu_out_is_seen(gpu: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def masks() -> tuple[Tensor, Tensor]:
        x = torch.ones(64, 64, device="cuda")
        replay, found = DropoutReplay([x.device], enabled=True), []
        for _ in range(2):
            with replay:
                found.append(torch.nn.functional.dropout(x, 0.5))
        return found[0], found[1]

    assert torch.equal(*masks())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device=None: None)
    assert not torch.equal(*masks())


# --- fairseq's trainer ------------------------------------------------------------------------------


def test_an_update_is_the_cpus(tmp_path: Path) -> None:
    """The same kernels add the same numbers in the same order."""
    found = []
    for name, words, context in (("cpu", ["--cpu"], nullcontext()), ("gpu", [], emulated())):
        with context:
            run = trained(tmp_path / name, *words)
            assert next(run.model.parameters()).is_cuda is (name == "gpu")
            found.append(weights(run))
    assert torch.equal(*found)


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    owners = (torch, torch.Tensor, torch.cuda, torch.cuda.amp, torch.autograd)
    owners = (*owners, torch.nn.parallel.DistributedDataParallel)
    before, state = [dict(vars(owner)) for owner in owners], torch.get_rng_state()
    with emulated():
        kept = torch.ones(2, device="cuda")
        assert kept.is_cuda and torch.cuda.is_available() and [dict(vars(o)) for o in owners] != before
    with pytest.raises(ZeroDivisionError), emulated():
        raise ZeroDivisionError
    assert [dict(vars(owner)) for owner in owners] == before
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.cuda.is_available() and not torch.overrides._get_current_function_mode_stack()
    assert kept.device.type == "cpu" and not kept.is_cuda and (kept + torch.ones(2)).tolist() == [2.0, 2.0]
    assert type(torch.Generator()) is type(torch.default_generator)
