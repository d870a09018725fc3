"""Encoders for attacks: sentence vectors, and a masked LM's candidates for a word."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from fairseq.data import data_utils
from fairseq.tasks.masked_lm import MaskedLMTask
from torch import Tensor

from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import WordText, is_alphabetic, is_one_word
from fairseq_adv.data.tokenizers import is_hugging_face
from fairseq_adv.data.tokenizers.saved_tokenizer import saved_tokenizer, tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, covering, encode_aligned
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.text_predictor import encoded
from fairseq_adv.evaluation.trained import load_model, read_checkpoint, reported_as_data_error
from fairseq_adv.evaluation.word_attacks.candidates import cased_like
from fairseq_adv.models.hf_encoder import HFEncoderModel

_TOKENS = 4096  # per mini-batch


class TextEncoder:
    """An encoder and its tokenizer.

    Args:
        path: a Hugging Face folder, one that ``fairseq-adv convert`` wrote, or a pre-training checkpoint.
        masked_lm: whether it must predict words.

    Raises:
        DataError: the encoder can't be used, or its masked-LM head was never trained.
    """

    def __init__(self, path: Path, device: torch.device, masked_lm: bool = False) -> None:
        self._device = device
        if path.is_dir() and is_hugging_face(path):
            self.tokenizer: TokenToIds = tokenizer_for_encoder(path)
            self.tokenizer.dictionary.add_symbol("<mask>")
            self.model: Any = HFEncoderModel.from_folder(path, self.tokenizer.dictionary, masked_lm).to(
                device
            )
            has_head = not masked_lm or self.model.has_trained_masked_lm_head
        else:
            self.tokenizer, self.model = self._of_fairseq(path)
            about = json_object_or_none(path / "conversion.json") or {}
            has_head = "encoder.lm_head" not in str(about.get("newly_initialised"))
        if masked_lm and not has_head:
            raise DataError(
                f"{path}: its masked-LM head was not trained (its source had none), so it can't propose "
                "words. Pass a masked LM."
            )
        self.dictionary = self.tokenizer.dictionary
        self.most = int(self.model.max_positions())

    def _of_fairseq(self, path: Path) -> tuple[TokenToIds, Any]:
        checkpoint = path / "model.pt" if path.is_dir() else path
        state = read_checkpoint(checkpoint)
        if path.is_dir():
            tokenizer = tokenizer_for_encoder(path)
        else:
            model = state["cfg"].model  # of transformers, pre-trained here: its folder has the tokenizer
            named = None if isinstance(model, str) else getattr(model, "hf_model", None)
            tokenizer = saved_tokenizer(checkpoint, str(state["cfg"].task.data or ""), named=named)
        tokenizer.dictionary.add_symbol("<mask>")
        with reported_as_data_error(checkpoint):
            task = MaskedLMTask(state["cfg"].task, tokenizer.dictionary)
        inference = InferenceConfig(device_name=str(self._device))
        return tokenizer, load_model(checkpoint, state, task, inference).model

    def batches(self, rows: Sequence[npt.NDArray[np.int64]]) -> Iterator[tuple[list[int], Tensor]]:
        """(indices of the rows, (rows, tokens) int64) mini-batches of rows of similar length."""
        sizes = np.array([len(row) for row in rows])
        order = np.argsort(sizes, kind="stable")
        most = max(_TOKENS, int(sizes.max(initial=0)))
        for part in data_utils.batch_by_size(order, sizes.__getitem__, sizes, max_tokens=most):
            tensors = [torch.from_numpy(rows[i]) for i in part]
            yield list(part), data_utils.collate_tokens(tensors, self.dictionary.pad()).to(self._device)


class SentenceVectors:
    """Texts -> vectors: the mean of the last layer's features over a text's tokens, as in MiniLM.

    Args:
        encoder: any encoder; one that was trained for sentence similarity judges better.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def __call__(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """(dim,) fp32 of each text."""
        unique = list(dict.fromkeys(texts))
        dictionary, most = self._encoder.dictionary, self._encoder.most
        rows = [row[:most] for row in encoded(self._encoder.tokenizer, unique, dictionary.bos())]
        vectors: dict[str, npt.NDArray[np.float32]] = {}
        for part, tokens in self._encoder.batches(rows):
            with torch.no_grad():
                features = self._encoder.model(tokens, features_only=True)[0].float()
            real = (tokens != dictionary.pad()).unsqueeze(-1)
            means = (features * real).sum(1) / real.sum(1)
            vectors.update(zip([unique[i] for i in part], means.cpu().numpy()))
        return [vectors[text] for text in texts]


class MaskedLMCandidates:
    """(text, most) -> a masked LM's candidates for each word, the most probable first.

    BERT-Attack (Li et al., EMNLP 2020, Algorithm 1): the model reads the unmodified text once. A word of one
    token gets the most probable tokens at its position; a word of several tokens gets the most probable
    sequences, by the product of their tokens' probabilities, found without trying all of them.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._encoder = encoder = TextEncoder(path, device, masked_lm=True)
        pieces = encoder.tokenizer.dictionary_pieces()
        self._texts = [piece.text for piece in pieces]
        self._begins = torch.tensor([piece.begins_word and is_alphabetic(piece.text) for piece in pieces])
        if not self._begins.any():
            raise DataError(f"{path}: its tokens don't tell which ones begin a word. Pass another masked LM")
        self._continues = torch.tensor(
            [not piece.begins_word and is_alphabetic(piece.text) for piece in pieces]
        )

    def __call__(self, questions: Sequence[tuple[WordText, int]]) -> list[list[list[str]]]:
        """A list of candidates for each word of each text."""
        return [self._of(text, most) for text, most in questions]

    def _of(self, text: WordText, most: int) -> list[list[str]]:
        dictionary = self._encoder.dictionary
        aligned = encode_aligned(self._encoder.tokenizer, text.texts())
        candidates: list[list[str]] = [[] for _ in text.words]
        for number in {place.text for place in text.places}:
            ids, starts, ends = aligned.of(number)
            row = np.concatenate([[dictionary.bos()], ids, [dictionary.eos()]])[: self._encoder.most]
            for _, tokens in self._encoder.batches([row]):
                with torch.no_grad():
                    log_probs = self._encoder.model(tokens)[0][0].float().log_softmax(-1).cpu()
            for index, place in enumerate(text.places):
                first, last = covering(starts, ends, place.start, place.end)
                if place.text == number and first <= last < len(row) - 1:
                    word = text.words[index]
                    proposed = self._proposed(log_probs[int(first) + 1 : int(last) + 2], most)
                    candidates[index] = [cased_like(other, word) for other in proposed if is_one_word(other)]
        return candidates

    def _proposed(self, log_probs: Tensor, most: int) -> list[str]:
        """The ``most`` most probable words with as many tokens as there are (tokens, V) log-probabilities."""
        best: list[tuple[float, str]] = [(0.0, "")]
        for position, row in enumerate(log_probs):
            allowed = self._begins if position == 0 else self._continues
            values, ids = row[: len(allowed)].masked_fill(~allowed, -torch.inf).topk(min(most, len(allowed)))
            options: list[Any] = list(zip(values.tolist(), ids.tolist()))
            longer = [
                (score + value, word + self._texts[token])
                for score, word in best
                for value, token in options
                if value > -torch.inf
            ]
            best = heapq.nlargest(most, longer)
        return [word for _, word in best]
