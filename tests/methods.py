"""What the tests know of each method. A new method is a line here: the contract's tests then run with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from support import ADVERSARIAL, CREAT_ARGS, NOISED, NOISY, VIRTUAL


@dataclass(frozen=True)
class Method:
    """A method with options that a tiny encoder feels.

    Attributes:
        words: the options.
        forwards: passes through the whole encoder in an update that is logged, also by
            the average of the weights.
        backwards: how often the weights get a gradient in an update.
        graphs: how many graphs of earlier passes may be alive where a pass begins.
        waits: how often the host waits for a GPU in an update in fp16, its log included: for the norm of the
            gradient.
        fault: a pass in the middle of the second update, if possible one that moves delta.
    """

    words: Sequence[str]
    forwards: int
    backwards: int
    graphs: int = 0
    waits: int = 1
    fault: int = 0


METHODS = {
    "standard": Method([], 1, 1, fault=2),
    "freelb": Method(ADVERSARIAL, 3, 3, fault=5),
    "pgd": Method(ADVERSARIAL, 4, 1, fault=6),
    "freeat": Method(ADVERSARIAL, 3, 3, waits=3, fault=5),  # three updates of the weights
    "yopo": Method([*ADVERSARIAL, "--yopo-steps", "2"], 3, 3, fault=7),
    "tavat": Method(ADVERSARIAL, 3, 3, fault=5),
    "infobert": Method([*ADVERSARIAL, "--infobert-alpha", "0.1", "--infobert-beta", "0.1"], 3, 3, fault=5),
    "alum_vat": Method(VIRTUAL, 5, 1, graphs=1, fault=7),
    "smart": Method(
        [*VIRTUAL, "--store-ema", "--ema-decay", "0.5", "--ema-fp32", "--smart-mu", "2"],
        6,
        1,
        graphs=1,
        fault=9,
    ),
    "sift": Method(VIRTUAL, 5, 1, graphs=1, fault=7),
    "noise": Method(NOISY, 1, 1, fault=2),
    "r3f": Method(NOISED, 2, 1, graphs=1, fault=4),
    "rdrop": Method(["--rdrop-alpha", "4"], 2, 1, graphs=1, fault=4),
    "creat": Method(CREAT_ARGS, 4, 1, graphs=1, fault=6),
    "awp": Method(["--awp-gamma", "0.1"], 2, 2, fault=4),
    "sam": Method(["--sam-rho", "0.5"], 2, 2, fault=4),
    "flooding": Method(["--flood-level", "5"], 1, 1, waits=2, fault=2),  # it climbs
}
OPTIONS = {name: list(method.words) for name, method in METHODS.items()}
# infobert compares the sentences of a mini-batch with one another, awp and sam step along the gradient of all
# of them: parts give another update.
OF_A_BATCH = ("infobert", "awp", "sam")
DIVISIBLE = [name for name in METHODS if name not in OF_A_BATCH]
