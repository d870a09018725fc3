"""``--bf16`` trains on CPUs and GPUs, as ``common.bf16`` does in a yaml.

fairseq/options.py, line 200, ``parse_args_and_arch``: on the command line ``--bf16`` and
``--memory-efficient-bf16`` turn on ``--tpu``, and the trainer then asks for torch_xla. In a yaml they don't.
For a TPU, pass ``--bf16 --tpu``. Other command lines are read as before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import options

from fairseq_adv.fairseq_patches.replace import replace


def train_in_bf16_without_tpu() -> None:
    """Applies the patch, which is in time: fairseq imports ``--user-dir`` before it reads the options."""
    replace(options, "parse_args_and_arch", _asking_for_tpu)


def _asking_for_tpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    def parse_args_and_arch(
        parser: argparse.ArgumentParser, input_args: Sequence[str] | None = None, *rest: Any, **more: Any
    ) -> Any:
        found = plain(parser, input_args, *rest, **more)
        args = found[0] if isinstance(found, tuple) else found  # with parse_known: and what was left over
        if getattr(args, "bf16", False) and getattr(args, "tpu", False):
            args.tpu = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        return found

    return parse_args_and_arch
