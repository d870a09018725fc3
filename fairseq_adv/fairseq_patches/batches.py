"""What is known of a mini-batch without waiting for the GPU, and how rows are drawn."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv.perturbation.host_copies import host_copy, known_places, with_host_copy

Moved = tuple[Any, bool]  # the mini-batch, and whether it is a dummy


def keep_batches_on_the_host() -> None:
    """Lets the tensors of a mini-batch on the GPU keep their originals on the host.

    fairseq/trainer.py, line 1298, ``_prepare_sample``: a mini-batch is moved to the GPU as a whole, and what
    the host needs to know of it (lengths, ids, masked positions) is then read back, which waits until the GPU
    has done everything before. See :mod:`fairseq_adv.perturbation.host_copies`. A criterion asks for this
    with ``keeps_host_copies = True``; for all others nothing changes.
    """
    replace(Trainer, "_prepare_sample", _keeping_originals)


def _keeping_originals(plain: Callable[..., Moved]) -> Callable[..., Moved]:
    def prepare(self: Trainer, sample: Any, *rest: Any, **more: Any) -> Moved:
        moved, is_dummy = plain(self, sample, *rest, **more)
        if getattr(self.get_criterion(), "keeps_host_copies", False) and isinstance(sample, dict):
            _keep(sample, moved)
        return moved, is_dummy

    return prepare


def _keep(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in after.items():
        original = before.get(name)
        if isinstance(value, dict) and isinstance(original, dict):
            _keep(original, value)
        elif isinstance(value, Tensor) and isinstance(original, Tensor) and value.dtype == original.dtype:
            with_host_copy(value, original)


Encoded = dict[str, list[Tensor]]


def find_padding_on_the_host() -> None:
    """Finds out on the host whether a mini-batch has padding.

    fairseq/models/transformer/transformer_encoder.py, line 207, ``forward_scriptable``: an encoder asks the
    GPU whether a row has padding, and waits for the answer twice in each pass, until all passes before are
    done. This gives the answer from the tokens' copy on the host
    (:mod:`fairseq_adv.perturbation.host_copies`). The result is the same, bit by bit. Tokens without a copy,
    as those of other criterions, take fairseq's own way, as do passes that may use torch's fused inference.
    """
    replace(TransformerEncoderBase, "forward_scriptable", _without_waiting)


def _without_waiting(plain: Callable[..., Encoded]) -> Callable[..., Encoded]:
    def forward_scriptable(
        self: Any, src_tokens: Tensor, src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False, token_embeddings: Tensor | None = None,
    ) -> Encoded:  # fmt: skip
        original, layer = host_copy(src_tokens), self.layers[0]
        may_be_fused = not (layer.training or getattr(layer, "ever_training", False))
        if original is src_tokens or may_be_fused or return_all_hiddens:
            return plain(self, src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        padding = src_tokens.eq(self.padding_idx) if original.eq(self.padding_idx).any() else None
        return _encoded(self, src_tokens, padding, token_embeddings)

    return forward_scriptable


def _encoded(
    encoder: Any, tokens: Tensor, padding: Tensor | None, token_embeddings: Tensor | None
) -> Encoded:
    """The rest of ``forward_scriptable``.

    Args:
        encoder: the model's.
        tokens: (rows, tokens) int64.
        padding: (rows, tokens) bool, true on padding; ``None``: there is none.
        token_embeddings: (rows, tokens, dim) or ``None``, as in ``forward_scriptable``.
    """
    x, embedded = encoder.forward_embedding(tokens, token_embeddings)
    if padding is not None:
        x = x * (1 - padding.unsqueeze(-1).type_as(x))
    x = x.transpose(0, 1)
    for layer in encoder.layers:
        x = layer(x, encoder_padding_mask=padding)
        x = x[0] if isinstance(x, tuple) and len(x) == 2 else x
    if encoder.layer_norm is not None:
        x = encoder.layer_norm(x)
    return {
        "encoder_out": [x],
        "encoder_padding_mask": [tokens.eq(encoder.padding_idx) if padding is None else padding],
        "encoder_embedding": [embedded],
        "encoder_states": [],
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [tokens.ne(encoder.padding_idx).sum(dim=1, dtype=torch.int32).reshape(-1, 1)],
    }


def find_masked_positions_once() -> None:
    """Looks for the masked positions of a mini-batch once, not in each pass.

    fairseq/models/roberta/model.py, line 488: the head of a masked LM indexes with a mask, so that each
    forward and each backward pass waits for the GPU to count the masked positions. If they are known from
    :func:`fairseq_adv.perturbation.host_copies.places`, the head uses them instead. The result is the same,
    bit by bit. Masks of other criterions are not known.
    """
    replace(RobertaLMHead, "forward", _with_known_places)


def _with_known_places(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(
        self: RobertaLMHead, features: Tensor, masked_tokens: Tensor | None = None, **more: Any
    ) -> Tensor:
        known = None if masked_tokens is None else known_places(masked_tokens)
        if known is not None:
            features, masked_tokens = features[known], None
        return plain(self, features, masked_tokens, **more)

    return forward


_lock = threading.RLock()


def seed_one_thread_at_a_time() -> None:
    """Keeps two data-loading threads from drawing each other's random numbers.

    fairseq/data/data_utils.py, line 127: ``numpy_seed`` seeds numpy's one global generator while a data set
    draws. With ``--num-workers 0``, batches are loaded ahead of training in a thread
    (fairseq/data/iterators.py, ``BufferedIterator``). A validation within an epoch starts a second such
    thread, and each changes the masks that the other draws. Masked-LM runs then differ from each other, and a
    resumed run from an uninterrupted one. A lock around the block changes nothing if there is only one
    thread.
    """
    replace(data_utils, "numpy_seed", _locked)


def _locked(plain: Callable[..., AbstractContextManager[None]]) -> Callable[..., Any]:
    @contextmanager
    def numpy_seed(*seeds: Any) -> Iterator[None]:
        with _lock, plain(*seeds):
            yield

    return numpy_seed


def _forget_other_threads() -> None:
    """In a forked loader: the thread that held the lock does not exist there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_other_threads)
