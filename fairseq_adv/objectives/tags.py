"""Tags of words (ALUM, Table 5: biomedical named entities): a softmax at the first token of each word.

Each tagged word counts once in the loss and in ``sample_size``; for perturbations a sentence is one example.

Entities are counted by conlleval's rules (CoNLL-2000): both boundaries and type must be correct, and an I-
tag begins an entity if no entity of its type is open. Tags are numbered as in
:class:`fairseq_adv.tasks.tagging.TaggingTask`: 0 is O, 2k + 1 is B- of type k, 2k + 2 is I-.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from torch import Tensor, nn

from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.labelled import UNKNOWN, TokenLevel


def count_entities(
    predicted: Tensor, gold: Tensor, sentence: Tensor, types: int, strict: bool = False
) -> Tensor:
    """Counts over several sentences, on the device of the tensors, which seqeval would wait for: it takes
    0.9 ms for a mini-batch of 640 words, and this 0.2 ms.

    Args:
        predicted: (words,) int64 tags of all sentences, concatenated.
        gold: (words,) int64.
        sentence: (words,) int64, the index of each word's sentence, ascending.
        types: number of types.
        strict: ignore entities that begin with I-, on both sides.

    Returns:
        (3, types) int64: for each type the number of entities that are correct, predicted, and in the data.
    """
    ours, length = _entities(predicted, sentence, strict)
    theirs, its_length = _entities(gold, sentence, strict)
    right = torch.where((ours == theirs) & (length == its_length), ours, torch.zeros_like(ours))
    numbers = torch.arange(1, types + 1, device=gold.device)
    return torch.stack([(side.unsqueeze(1) == numbers).sum(dim=0) for side in (right, ours, theirs)])


def _entities(tags: Tensor, sentence: Tensor, strict: bool) -> tuple[Tensor, Tensor]:
    """Finds the type of the entity that begins at each word, from 1, or 0; and its number of words."""
    types = (tags + 1) // 2
    goes_on = torch.zeros_like(tags, dtype=torch.bool)
    goes_on[1:] = (
        (tags[1:] % 2 == 0) & (tags[1:] > 0) & (types[1:] == types[:-1]) & (sentence[1:] == sentence[:-1])
    )
    piece = (~goes_on).cumsum(0) - 1  # each word outside entities is a piece of its own
    length = torch.zeros_like(tags).index_add(0, piece, torch.ones_like(tags))[piece]
    begins = (~goes_on) & (tags % 2 == 1) if strict else ~goes_on
    return torch.where(begins, types, torch.zeros_like(types)), length


def scores_of(right: float, predicted: float, gold: float) -> tuple[float, float, float]:
    """Precision, recall and F1 x 100 from counts; 0 if there is nothing to count."""

    def share(part: float, whole: float) -> float:
        return 100.0 * part / whole if whole else 0.0

    return share(right, predicted), share(right, gold), share(2 * right, predicted + gold)


_COUNTS = ("right", "predicted", "gold")
_SCORES = ("precision", "recall", "f1")


class Tags(TokenLevel):
    """A tag for each word; batches from :class:`~fairseq_adv.data.tags.tags_dataset.TagsDataset`."""

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(words, tags) logits, the words of all sentences concatenated."""
        return self.at_tokens(model, sample).flatten(0, 1).index_select(0, sample["first"])

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """Summed cross-entropy in nats, weighted and smoothed if asked for, of the words with a known tag."""
        if self.class_loss is not None:
            return self.class_loss(predictions, sample["target"])
        return super().loss(predictions, sample)

    def classes(self) -> int:
        return len(self.task.tags)

    def class_names(self) -> list[str]:
        return list(self.task.tags)

    def class_counts(self) -> list[int]:
        return self.task.count_tags(str(self.cfg.train_subset))  # type: ignore[no-any-return]

    def of_class(self, sample: Sample, index: int) -> Sample | None:
        """The words with one tag, in the sentences that have such words."""
        words = (sample["target"] == index).nonzero().view(-1)
        if not len(words):
            return None
        rows, sentence = sample["sentence"][words].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        inputs = {name: value.index_select(0, rows) for name, value in sample["net_input"].items()}
        longest = inputs["src_tokens"].size(1)
        return {
            **sample,
            "id": sample["id"].index_select(0, rows),
            "nsentences": len(rows),
            "ntokens": int(inputs["src_lengths"].sum()),
            "net_input": inputs,
            "first": sentence * longest + sample["first"][words] % longest,
            "sentence": sentence,
            "target": sample["target"][words],
            "nlabelled": len(words),
        }

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        predictions = predictions.detach()
        best, known = predictions.argmax(dim=-1), sample["target"] != UNKNOWN
        output: dict[str, Any] = {
            "ncorrect": (best == sample["target"]).sum(),
            "ntargets": known.sum(),
            "nnan": (predictions.isnan().any(dim=-1) & known).sum(),
        }
        if self.class_loss is not None:
            output["nll_loss"] = self.class_loss.plain(predictions, sample["target"])
        if not gather:
            output["label_counts"] = scores.count_labels(sample["target"], self.classes())
        else:
            gold = torch.where(known, sample["target"], torch.zeros_like(best))
            best = torch.where(known, best, torch.zeros_like(best))
            counts = count_entities(
                best, gold, sample["sentence"], len(self.task.types), bool(self.task.cfg.strict)
            )
            for name, row in zip(_COUNTS, counts):
                output.update({f"{name} of {one}": row[k] for k, one in enumerate(self.task.types)})
        return output

    def constant_loss(self, meters: MetersDict) -> float | None:
        """The entropy of the tags."""
        return scores.entropy(meters, self.classes(), self.class_loss)

    def entities(self, logging_outputs: list[dict[str, Any]]) -> dict[str, list[int]]:
        """Returns, for each type, the number of entities that are correct, predicted, and in the data."""
        return {
            one: [sum(int(log.get(f"{name} of {one}", 0)) for log in logging_outputs) for name in _COUNTS]
            for one in self.task.types
        }

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``accuracy`` of the words; in validation ``precision``, ``recall`` and ``f1`` of the
        entities, and also of each type, as ``f1_TYPE`` etc., if there are several.
        """
        if not scores.log_accuracy(logging_outputs):
            return  # a split without tags
        logs = [log for log in logging_outputs if "ntargets" in log]
        counted = [key for key in logs[0] if key.startswith(tuple(f"{name} of " for name in _COUNTS))]
        scores.log_sums(logs, ["nnan", *counted])
        scores.log_plain_loss(logs)
        if "label_counts" in logs[0]:
            for k, count in enumerate(sum(log["label_counts"] for log in logs)):
                metrics.log_scalar_sum(f"_label_counts_{k}", count)
        types = [key[len("gold of ") :] for key in counted if key.startswith("gold of ")]
        if not types:
            return  # in training
        each = [(f"_{one}", [one]) for one in types] if len(types) > 1 else []
        for suffix, chosen in [("", types), *each]:
            for number, name in enumerate(_SCORES):
                metrics.log_derived(name + suffix, partial(_score, number, chosen), priority=16)


def _score(number: int, types: list[str], meters: MetersDict) -> float:
    """Precision, recall or F1 over the whole split, from summing meters; NaN if a logit was NaN."""
    if float(meters["_nnan"].sum):
        return math.nan
    counts = [sum(float(meters[f"_{name} of {one}"].sum) for one in types) for name in _COUNTS]
    return round(scores_of(*counts)[number], 2)
