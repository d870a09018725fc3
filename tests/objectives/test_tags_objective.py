"""Tags: logits at first tokens, the loss, scores over a whole split, one tag's words as a mini-batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import batch, build, train_args, validate
from token_data import write_tags

from fairseq_adv.objectives.tags import count_entities, scores_of

TAGS = ["O", "B-Cell", "I-Cell", "B-Gene", "I-Gene"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    built = build(
        train_args(write_tags(tmp_path_factory.mktemp("tags"), valid=11), None, "standard", task="tagging")
    )
    head = built.model.classification_heads["token_head"].out_proj
    torch.nn.init.normal_(head.weight, std=2.0)  # so that the answers differ
    built.task.load_dataset("test")
    return built


def words_apart(run: SimpleNamespace, sample: dict[str, Any]) -> tuple[torch.Tensor, list[int]]:
    """Logits of each word, one call of the model for each sentence, and how many words each has."""
    logits, words = [], []
    for index in sample["id"].tolist():
        sentence = run.task.dataset("valid").examples[index]
        tokens, places = [0], []
        for word in sentence.words:
            places.append(len(tokens))
            ids, _ = run.task.tokenizer.encode([word])
            tokens += ids.tolist()[:-1]
        features, _ = run.model(torch.tensor([[*tokens, 2]]), features_only=True)
        head = run.model.classification_heads["token_head"].out_proj
        logits.append(F.linear(features[0, places], head.weight, head.bias))
        words.append(len(places))
    return torch.cat(logits), words


def test_the_logits_are_those_at_the_first_token_of_each_word(run: SimpleNamespace) -> None:
    run.model.eval()
    sample = batch(run, list(range(8)), "valid")
    expected, words = words_apart(run, sample)
    found = run.criterion.objective.predict(run.model, sample)
    assert run.task.tags == TAGS and found.shape == (sum(words), 5)
    assert sample["ntokens"] > sum(words) + 2 * 8  # some words are several tokens
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)
    assert sample["sentence"].tolist() == [row for row, n in enumerate(words) for _ in range(n)]


def test_the_loss_is_summed_over_the_words(run: SimpleNamespace) -> None:
    run.model.eval()
    sample = batch(run, [0, 1, 2], "valid")
    loss, size, log = run.criterion(run.model, sample)
    logits, _ = words_apart(run, sample)
    tags = [tag for k in range(3) for tag in run.task.dataset("valid").examples[int(sample["id"][k])].tags]
    target = torch.tensor([TAGS.index(tag) for tag in tags])
    assert size == len(tags) == log["ntargets"]
    assert loss.item() == pytest.approx(F.cross_entropy(logits, target, reduction="sum").item(), rel=1e-5)
    assert int(log["ncorrect"]) == int((logits.argmax(1) == target).sum())


@pytest.mark.parametrize("size", [1, 4, 11])
def test_scores_are_of_the_whole_split(run: SimpleNamespace, size: int) -> None:
    run.model.eval()
    sample = batch(run, list(range(11)), "valid")
    with torch.no_grad():
        best = words_apart(run, sample)[0].argmax(1)
    counts = count_entities(best, sample["target"], sample["sentence"], 2)
    found = validate(run, "valid", size)
    for name, expected in [("", counts.sum(1)), ("_Cell", counts[:, 0]), ("_Gene", counts[:, 1])]:
        scores = [found[key + name] for key in ("precision", "recall", "f1")]
        assert scores == [round(one, 2) for one in scores_of(*expected.tolist())]
    assert 0 < counts[0].sum() < counts[1].sum()
    assert found["accuracy"] == round(100 * float((best == sample["target"]).float().mean()), 2)


def test_strict_counts_no_entity_that_begins_with_i(run: SimpleNamespace) -> None:
    lenient = validate(run, "valid", 11)
    run.task.cfg.strict = True
    try:
        strict = validate(run, "valid", 11)
    finally:
        run.task.cfg.strict = False
    assert strict["accuracy"] == lenient["accuracy"] and strict["precision"] != lenient["precision"]


def test_the_words_of_one_tag_are_a_mini_batch(run: SimpleNamespace) -> None:
    """Their losses add up to the whole one's, and sentences without the tag are left out."""
    run.model.eval()
    objective, sample = run.criterion.objective, batch(run, list(range(8)), "valid")
    parts = [objective.of_class(sample, k) for k in range(objective.classes())]
    whole = objective.loss(objective.predict(run.model, sample), sample).item()
    there = [part for part in parts if part is not None]
    losses = [objective.loss(objective.predict(run.model, part), part).item() for part in there]
    assert sum(losses) == pytest.approx(whole, rel=1e-5)
    assert sum(part["nlabelled"] for part in there) == sample["nlabelled"]
    assert any(part["nsentences"] < 8 for part in there) and len(there) >= 4
    for part in there:
        assert part["ntokens"] == int(part["net_input"]["src_tokens"].ne(1).sum())
        assert len(part["id"]) == part["nsentences"] == len(part["net_input"]["src_tokens"])
    assert objective.of_class({**sample, "target": torch.zeros_like(sample["target"])}, 1) is None
