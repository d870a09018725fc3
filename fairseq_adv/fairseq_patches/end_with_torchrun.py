"""A worker ends with the torchrun that started it.

torchrun ends its workers when one of them fails, and when it is asked to stop. If it is itself killed with
SIGKILL (by the kernel for memory, or by a scheduler), they go on: over their own connections they train and
write checkpoints, beside the run that was restarted in the same folder. On Linux the kernel can end them.
It is so for every criterion, and only under torchrun.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_torchrun() -> None:
    """Asks for SIGKILL when the parent dies: a worker that waits for another one heeds no other signal."""
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
