"""A command of fairseq on the emulated GPU: ``python emulated_command.py fairseq-train WORD...``.

``benchmarks/gpu_matrix.py --emulate`` starts it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fairseq.trainer  # noqa: F401  before there is a GPU: an import could keep parts of it
from emulated_gpu import emulated

MODULES = {"fairseq-train": "fairseq_cli.train", "fairseq-hydra-train": "fairseq_cli.hydra_train"}


def main(name: str, words: list[str]) -> None:
    """Runs it to its end, in this process."""
    module = importlib.import_module(MODULES[name])
    sys.argv = [name, *words]
    with emulated():
        module.cli_main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
