"""SiFT: Scale-invariant Fine-Tuning (He et al., DeBERTa, ICLR 2021, arXiv 2006.03654, section 5).

ALUM's and SMART's regulariser, whose perturbation is of the layer-normalised embeddings: the norms of
embeddings differ between words and encoders, and a perturbation of one size meant something else for each.
"""

from dataclasses import dataclass

from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.criterions.alum_vat import ALUMConfig, ALUMCriterion
from fairseq_adv.criterions.method_options import option, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import as_data_error
from fairseq_adv.perturbation import NormalizedPerturbation, Perturbation, find_token_embedding
from fairseq_adv.perturbation.normalized import first_layer_norm


@dataclass
class SiFTConfig(ALUMConfig):
    """Options of ``--criterion sift``. Sizes are of embeddings whose entries have mean square 1."""

    vat_step_size: float = option(
        0.06,
        "eta, length of an ascent step",
        wanted="pass a finite length above 0, such as 0.06",
        above=0,
    )
    vat_epsilon: float = option(
        0.06,
        "epsilon, radius of the ball around the normalised embeddings, in the norm of --vat-projection",
        wanted="pass a finite radius above 0, such as 0.06",
        above=0,
    )
    vat_init_std: float = option(
        0.006,
        "sigma, standard deviation of each entry of the random start delta_0",
        wanted="pass a finite value above 0: at delta = 0 the divergence has no gradient",
        above=0,
    )


@register_criterion("sift", dataclass=SiFTConfig)
class SiFTCriterion(ALUMCriterion):
    """SiFT. Descends on l(f(x), y) + alpha * divergence(f(x), f(x + delta_K)), delta on LN(x).

    Raises:
        DataError: an option is out of range, or the encoder has no layer norm after its embeddings.
    """

    cfg: SiFTConfig
    suggested_options = "--vat-epsilon 0.06 --vat-step-size 0.06 --vat-init-std 0.006"

    def __init__(self, cfg: SiFTConfig, task: FairseqTask) -> None:
        if cfg.vat_relative:
            refuse(
                "vat-relative",
                "with --criterion sift",
                "leave it out; sizes are relative to the normalised embeddings already",
            )
        super().__init__(cfg, task)

    def perturbation(self, batch: MiniBatch) -> Perturbation:
        start = batch.noise("normal", self.cfg.vat_init_std, self.cfg.seed, by_length=False)
        groups = self.objective.groups(batch.sample)
        return NormalizedPerturbation(
            batch.model, batch.embedding, self.objective.padding_idx, start, groups=groups
        )

    def check_before_training(self, model: nn.Module) -> None:
        with as_data_error():
            first_layer_norm(model, find_token_embedding(model))
        super().check_before_training(model)
