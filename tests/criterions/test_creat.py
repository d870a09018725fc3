"""CreAT in fairseq's trainer. Its gradient: test_restated.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import CREAT_ARGS, batch
from torch import nn

from criterions.restated import (
    DIM,
    one_step,
    recorded,
    run_of,
)
from criterions.restatements import Restated
from fairseq_adv.objectives.encoder_states import first_states

K, EPSILON = 3, 0.5  # CREAT_ARGS's
ROWS = [0, 1, 2, 3]


def test_the_weight_of_the_similarity_does_not_grow_with_the_batch(folders: dict[str, Path]) -> None:
    """An example's delta is the same alone and among others; with the option it is that of tau times 4."""
    run = run_of(folders, "classes", "creat", *CREAT_ARGS)
    whole = batch(run, ROWS)
    longest = whole["net_input"]["src_tokens"].size(1)
    alone = next(row for row in ROWS if batch(run, [row])["net_input"]["src_tokens"].size(1) < longest)
    single = batch(run, [alone])
    width = single["net_input"]["src_tokens"].size(1)
    with recorded() as deltas:
        one_step(run, whole)
        one_step(run, single)
    torch.testing.assert_close(deltas[K - 1][alone, :width], deltas[-1][0], rtol=1e-4, atol=1e-6)
    assert not deltas[K - 1][alone, width:].any()
    summed = run_of(folders, "classes", "creat", *CREAT_ARGS, "--creat-sum-similarity")
    with recorded() as deltas:
        one_step(summed, whole)
    summed.cfg.criterion.creat_tau *= len(ROWS)
    expected = Restated(summed, whole, "classes")
    expected.creat()
    assert expected.delta is not None
    torch.testing.assert_close(deltas[-1], expected.delta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("words", [[], ["--encoder-layerdrop", "0.9"], ["--whole-last-layer"]])
def test_the_state_is_that_of_the_whole_encoder(folders: dict[str, Path], words: list[str]) -> None:
    """Also where the last layer is computed for the first token alone, or is dropped."""
    run = run_of(folders, "commonsense_qa", "creat", *words)
    sample = batch(run, ROWS)
    run.model.train()
    torch.manual_seed(3)
    with run.criterion.objective.first_states(run.model) as states:
        run.criterion.objective.predict(run.model, sample)
    torch.manual_seed(3)
    whole, _ = run.model.encoder.extract_features(sample["net_input"]["src_tokens"])
    assert len(states) == 1 and states[0].shape == (len(whole), DIM)
    torch.testing.assert_close(states[0], whole[:, 0], rtol=1e-5, atol=1e-6)
    assert not run.model.encoder.sentence_encoder._forward_hooks


class OtherEncoder(nn.Module):
    """An encoder that is not fairseq's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(5, 2)


def test_an_encoder_without_such_a_state_is_refused_before_training(folders: dict[str, Path]) -> None:
    message = "OtherEncoder has none of fairseq's Transformer encoders.* or another --criterion"
    with pytest.raises(ValueError, match=message), first_states(OtherEncoder()):
        pass
    run = run_of(folders, "classes", "creat")
    run.criterion.objective.check_model = lambda model: None
    with pytest.raises(ValueError, match=message):
        run.criterion.begin_epoch(1, OtherEncoder())
