"""Ends a worker together with the torchrun that started it.

torchrun ends its workers when one of them fails, and when it is asked to stop. But if it is killed with
SIGKILL (by the kernel when memory runs out, or by a scheduler), its workers continue: they have their own
connections, and train and write checkpoints alongside a restarted run in the same folder. On Linux the kernel
can end them. This applies to every criterion, but only under torchrun.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_torchrun() -> None:
    """Asks the kernel to send SIGKILL when torchrun dies. Has an effect only in torchrun's workers.

    Raises:
        SystemExit: torchrun has already died. The worker would otherwise wait for it for half an hour or
            longer, or find another run's torchrun at the same port.
    """
    if sys.platform != "linux" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not _is_listening():
        raise SystemExit("error: torchrun, which started this worker, has ended")


def _is_listening() -> bool:
    """Whether the store through which workers find each other exists; torchrun opens it before they start."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    except OSError:  # a slow network: torch will notice
        pass
    return True
