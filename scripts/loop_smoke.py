"""A few updates with each method of fairseq_adv.loop, which needs torch and nothing else.

    python scripts/loop_smoke.py

For an environment into which fairseq_adv was installed without its dependencies, as scripts/release_check.sh
makes one. Ends with status 1 if a loss doesn't fall, or if fairseq, hydra, omegaconf or transformers was
imported.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

from fairseq_adv.loop import ALUM, PGD, R3F, SMART, FreeLB, LoopMethod, Noise


class Net(nn.Module):
    """Two classes from the mean of a row's words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(20, 8, padding_idx=1)
        self.out = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.embed_tokens(tokens).tanh().mean(dim=1))
        return logits


def losses(kind: type[LoopMethod]) -> list[float]:
    torch.manual_seed(0)
    tokens, labels = torch.randint(2, 20, (4, 6)), torch.tensor([0, 1, 0, 1])
    net = Net()
    method = kind(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    def closure() -> Tensor | tuple[Tensor, Tensor]:
        logits = net(tokens)
        loss = nn.functional.cross_entropy(logits, labels)
        return (loss, logits) if kind in (ALUM, SMART, R3F) else loss

    found = []
    for _ in range(20):
        found.append(float(method(closure)))
        optimizer.step()
        optimizer.zero_grad()
        if isinstance(method, SMART):
            method.update_average()
    return found


def main() -> int:
    for kind in (FreeLB, PGD, ALUM, SMART, R3F, Noise):
        found = losses(kind)
        print(f"{kind.__name__}: loss {found[0]:.3f} -> {found[-1]:.3f}")
        if not found[-1] < found[0]:
            return 1
    imported = {name.partition(".")[0] for name in sys.modules}
    not_needed = sorted({"fairseq", "hydra", "omegaconf", "transformers"} & imported)
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}; imported for nothing: {not_needed}")
    return 1 if not_needed else 0


if __name__ == "__main__":
    sys.exit(main())
