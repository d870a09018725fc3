"""A method written for version 0.2 trains as before, and is told the new names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY, register_criterion
from support import batch, build, train_args, write_task

from fairseq_adv.criterions.freelb import FreeLBConfig, FreeLBCriterion
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig
from fairseq_adv.criterions.mini_batch import MiniBatch, Start
from fairseq_adv.perturbation import Groups


def test_old_names_work_and_warn(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: CRITERION_REGISTRY.pop("of_version_0_2", None))
    with pytest.warns(DeprecationWarning, match="descends_once is has_single_backward now"):

        @register_criterion("of_version_0_2", dataclass=MethodConfig)
        class OfVersion02(Method):
            descends_once = False

            def step(self, batch: MiniBatch) -> Log:
                with pytest.warns(DeprecationWarning, match="no_sync_unless"):
                    synced = batch.no_sync_unless(True)
                with pytest.warns(DeprecationWarning, match="computing is autocast"):
                    computing = batch.computing()
                with synced, computing:
                    predictions, loss = batch.forward()
                with pytest.warns(DeprecationWarning, match="average is ema_parts"):
                    assert batch.average is None
                batch.backward(loss)
                return self.log(predictions, loss, batch.sample)

    assert OfVersion02.has_single_backward is False and Method.has_single_backward is True
    data, ends = write_task(tmp_path), []
    for criterion in ("of_version_0_2", "standard"):
        run = build(train_args(data, None, criterion))
        run.trainer.begin_epoch(1)
        run.trainer.train_step([batch(run, [0, 1, 2])])
        ends.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
    assert torch.equal(*ends)


def test_a_start_of_version_0_2_is_used(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: CRITERION_REGISTRY.pop("with_a_start", None))
    with pytest.warns(DeprecationWarning, match=r"AdversarialMethod\.start is MiniBatch\.noise"):

        @register_criterion("with_a_start", dataclass=FreeLBConfig)
        class WithAStart(FreeLBCriterion):
            def start(self, batch: MiniBatch, groups: Groups | None, update: int) -> Start:
                return lambda mask, dim: mask.unsqueeze(-1).float().expand(*mask.shape, dim)

    run = build(train_args(write_task(tmp_path), None, "with_a_start", "--adv-steps", "1"))
    sample = batch(run, [0, 1, 2])
    *_, log = run.task.train_step(sample, run.model, run.criterion, run.trainer.optimizer, 0)
    entries = run.model.args.encoder_embed_dim * sample["net_input"]["src_lengths"]
    assert float(log["adv_norm"]) == pytest.approx(float(entries.double().sqrt().sum()))
