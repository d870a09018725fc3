"""The size of a perturbation next to that of the embeddings, and what to change if it is of no use."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from fairseq_adv.criterions.logs import Log

logger = logging.getLogger(__name__)
USEFUL_RATIOS = (0.001, 0.1)  # ||delta|| / ||X||: less has no effect, more drowns out the text


def is_useful(logs: Sequence[Log], option: str, shares: str, cfg: Any) -> bool:
    """Whether the perturbation of an update is of a useful size, or was not measured; warns if it is not.

    Args:
        logs: of the update's mini-batches, with numbers on the host.
        option: makes the perturbation larger or smaller; "": there is none.
        shares: options that give sizes as shares of the embeddings, "" or the first of which says so.
        cfg: the criterion's options.
    """
    measured = [log for log in logs if "adv_ratio" in log]
    examples = sum(log["nexamples"] for log in measured)
    if not examples or not option:
        return True
    ratio = sum(log["adv_ratio"] for log in measured) / examples
    # 0: no perturbation was asked for, or the pass was a clean one, or a gradient was not finite.
    if not math.isfinite(ratio) or ratio == 0 or USEFUL_RATIOS[0] <= ratio <= USEFUL_RATIOS[1]:
        return True
    logger.warning(advice(ratio, option, shares, cfg))  # fairseq shows it on the first worker only
    return False


def advice(ratio: float, option: str, shares: str, cfg: Any) -> str:
    """Says what to change if ``adv_ratio`` is outside the useful range."""
    least, most = USEFUL_RATIOS
    words = ("larger", "smaller") if ratio > most else ("smaller", "larger")
    text = f"Pass a {words[1]} --{option.replace('_', '-')}"
    if shares and not getattr(cfg, shares.split()[0].lstrip("-").replace("-", "_")):
        text += f", or sizes as shares of the embeddings: {shares}"
    return (
        f"adv_ratio is {ratio:.2g}: the perturbation is {words[0]} than the useful {least:g} to {most:g} of "
        f"the norm of this encoder's embeddings. {text}"
    )
