"""Where and how far the embeddings move: hooks, geometry, and the loop of passes.

This package imports only torch. It depends on no trainer, loss or configuration.
"""

from fairseq_adv.perturbation.dropout import DropoutReplay, layers_with_masks
from fairseq_adv.perturbation.embeddings import EncoderParts, Perturbation, find_token_embedding
from fairseq_adv.perturbation.first_layer import FirstLayer, find_layers
from fairseq_adv.perturbation.geometry import Groups
from fairseq_adv.perturbation.normalized import NormalizedPerturbation
from fairseq_adv.perturbation.passes import Pass, Passes
from fairseq_adv.perturbation.precision import float32_embedding
from fairseq_adv.perturbation.token_aware import TokenAwarePerturbation

__all__ = [
    "DropoutReplay",
    "EncoderParts",
    "FirstLayer",
    "Groups",
    "NormalizedPerturbation",
    "Pass",
    "Passes",
    "Perturbation",
    "TokenAwarePerturbation",
    "find_layers",
    "find_token_embedding",
    "float32_embedding",
    "layers_with_masks",
]
