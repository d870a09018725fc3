"""delta at the sizes of the papers arrives in the first layer in half precision, with each method."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support import batch, build, slow, train_args, write_wsc

from criterions.restated import one_step, recorded

# FreeLB's for WSC, examples/wsc: alpha .005, epsilon .01, m .01 on embeddings of RoBERTa's scale.
WSC = ["--adv-steps", "3", "--adv-lr", "0.005", "--adv-max-norm", "0.01", "--adv-init-mag", "0.01"]
SCALE = 0.15  # standard deviation of an entry of RoBERTa's word embeddings
ROWS = list(range(16))
# Most entries are less than half of bf16's step at SCALE.
SIZES = {
    "creat": ["--adv-steps", "3", "--adv-lr", "0.02", "--creat-init-std", "3e-4", "--creat-tau", "2"],
    "noise": ["--noise-size", "0.05"],
    "r3f": ["--r3f-epsilon", "5e-4"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wsc(tmp_path_factory.mktemp("wsc"))


def run_at(data: Path, method: str) -> SimpleNamespace:
    sizes = ["--encoder-embed-dim", "384", "--encoder-layers", "1", "--encoder-attention-heads", "6"]
    words = [*SIZES.get(method, WSC), *sizes]
    run = build(train_args(data, None, method, *words, task="wsc"))
    generator = torch.Generator().manual_seed(1)
    encoder = run.model.encoder.sentence_encoder
    with torch.no_grad():
        for table in (encoder.embed_tokens, encoder.embed_positions):
            table.weight.copy_(torch.randn(table.weight.shape, generator=generator) * SCALE)
            table.weight[table.padding_idx] = 0
    return run


@pytest.mark.parametrize(
    ("method", "kind"),
    [("freelb", torch.bfloat16), ("freelb", torch.float16), ("noise", torch.bfloat16),
     ("r3f", torch.bfloat16), slow("tavat", torch.float16), slow("creat", torch.bfloat16)],
)  # fmt: skip
def test_delta_arrives_in_the_first_layer(data: Path, method: str, kind: torch.dtype) -> None:
    """Its share along the direction that it has in fp32, behind the layer norm: .14 to .64 where it was
    rounded into bf16's grid of embeddings. What the layer norm's own output is rounded by averages out.
    """
    run = run_at(data, method)
    run.model.to(kind)
    sample = batch(run, ROWS)
    encoder = run.model.encoder.sentence_encoder
    passes: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []
    encoder.layers[0].register_forward_pre_hook(lambda m, i: passes.append(i[0].detach().float()))
    encoder.embed_tokens.register_forward_pre_hook(lambda m, i: inputs.append(i[0]))
    with recorded() as deltas:
        one_step(run, sample)
    tokens = inputs[0]
    with torch.no_grad():
        clean = encoder.embed_tokens(tokens).float() + encoder.embed_positions(tokens).float()
        norm = encoder.layernorm_embedding.float()
        plain = norm(clean)
        shares = []
        for delta, found in zip(deltas, passes[-len(deltas) :]):  # a first one may be clean
            moved = norm(clean + delta) - plain
            mask = tokens.ne(run.task.source_dictionary.pad()).unsqueeze(-1)
            arrived = (found.transpose(0, 1) if found.shape != moved.shape else found) - plain
            shares.append(float((arrived * moved * mask).sum() / (moved * mask).square().sum()))
    assert shares and all(0.97 <= share <= 1.03 for share in shares), shares
