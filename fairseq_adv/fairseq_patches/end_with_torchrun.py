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
import socket
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_torchrun() -> None:
    """Asks the kernel for SIGKILL when torchrun dies; it acts in torchrun's workers alone.

    Raises:
        SystemExit: torchrun has died already. The worker would look for it for half an hour or longer, and
            might find another run's at the same port.
    """
    if sys.platform != "linux" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not _is_listening():
        raise SystemExit("error: torchrun, which started this worker, has ended")


def _is_listening() -> bool:
    """Whether the store is there in which workers find each other; torchrun opens it before they start."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    except OSError:  # a slow network: torch finds out
        pass
    return True
