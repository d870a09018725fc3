"""An emulated CUDA GPU on a CPU build of torch, in which fairseq's own trainer runs with real numbers.

``with emulated() as gpu:`` around building and training makes ``torch.cuda`` report one GPU. Its tensors lie
in the CPU's memory, but their storages are marked, and ``Tensor.device`` says ``cuda:0``. It has a random
number generator of its own. What a GPU refuses fails here, too: :class:`OtherDevice` where an operation meets
tensors, or a generator, of both sides, and TypeError where numpy reads the GPU's memory.
``with gpu.watched() as seen:`` records what makes the host wait for the GPU, with file and line, and counts
the operations on its tensors. After the context, everything in torch is as it was before.

Not seen: the GPU's own kernels, their rounding and dtypes, its backends of attention, NCCL, errors that come
later than their cause, a copy that is read before it has arrived, memory, and on which side a tensor without
elements is. Random numbers are those of a CPU generator. Autocast is the CPU's in fp16, which keeps other
operations in fp32 than CUDA's. Dropout, one kernel on a GPU, counts as the CPU's four operations. A number
that is written into an element (``x[i] = 1.0``) counts as a wait, which it isn't on a GPU. Several processes
share the GPU.
"""

from __future__ import annotations

import torch

from emulated_gpu.emulation import Emulation, emulated
from emulated_gpu.record import OtherDevice, Seen, Wait

__all__ = ["POSSIBLE", "Emulation", "OtherDevice", "Seen", "Wait", "emulated"]

POSSIBLE = not torch.cuda.is_available()  # where there is a GPU, none has to be emulated
