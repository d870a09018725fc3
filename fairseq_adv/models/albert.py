"""ALBERT v2 (Lan et al., ICLR 2020, section 3.1) as fairseq's RoBERTa with two changes.

The word embeddings have their own width E, and a linear layer projects them to the encoder's width H
(factorised embeddings); one Transformer layer is applied L times (shared layers). Tasks and objectives find
the same parts as in RoBERTa: ``encoder.sentence_encoder``, ``encoder.lm_head`` and classification heads.

- The adversarial methods perturb ``embed_tokens``: words of width E, before positions, LayerNorm and the
  projection to H. FreeLB's magnitudes for ALBERT are for that space. After the projection, a perturbation
  would move positions as well as words.
- fairseq has no segments. As for BERT, ``fairseq-adv convert`` adds segment A's row to the row of every
  position.
- Dropout after the feed-forward network, which transformers' ALBERT lacks, follows the authors' code.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import torch
from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta.model import RobertaEncoder, RobertaLMHead, RobertaModel
from fairseq.models.roberta.model import base_architecture as roberta_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.utils import safe_getattr, safe_hasattr
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError

# ALBERT's is 1e-12, fairseq's 1e-5. Padding has embeddings without variance, and 1 / sqrt(1e-12) is infinite
# in fp16.
LAYER_NORM_EPSILON = 1e-9
MAX_LAYERS = 1000


class SharedLayers(nn.ModuleList):
    """Stands in for a list of ``times`` layers that are all the same one, so its weights exist only once.

    Args:
        times: how often a forward pass applies it.
        layerdrop: fraction of the applications that a training pass skips (``--encoder-layerdrop``).
    """

    def __init__(self, layer: nn.Module, times: int, layerdrop: float) -> None:
        super().__init__()
        self.times, self.layerdrop = times, layerdrop
        self.add_module("0", layer)

    def __len__(self) -> int:
        return self.times

    def __getitem__(self, index: Any) -> Any:
        return ([self._modules["0"]] * self.times)[index]

    def __iter__(self) -> Iterator[Any]:
        kept = self.times
        if self.training and self.layerdrop > 0:
            kept = int((torch.rand(self.times) > self.layerdrop).sum())
        return iter(self[:kept])


class AlbertTransformer(TransformerEncoderBase):
    """fairseq's encoder with a projection after the embeddings and one shared layer.

    Args:
        cfg: fairseq's Transformer options; ``encoder.embed_dim`` is H.
        embed_tokens: the word embeddings, of width E.
    """

    layers: nn.ModuleList

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        times, layerdrop = cfg.encoder.layers, cfg.encoder.layerdrop
        cfg.encoder.layers, cfg.encoder.layerdrop = 1, 0.0
        super().__init__(cfg, dictionary, embed_tokens)
        self.layers = SharedLayers(self.layers[0], times, layerdrop)
        self.num_layers = times
        self.input_projection = nn.Linear(embed_tokens.embedding_dim, cfg.encoder.embed_dim)

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The input of the layers, (rows, tokens, H), and the word embeddings, (rows, tokens, E)."""
        x, embedded = super().forward_embedding(src_tokens, token_embedding)
        return self.input_projection(x), embedded


class AlbertLMHead(RobertaLMHead):
    """RoBERTa's masked-LM head with a dense layer from H to E; the output matrix is (words, E)."""

    def __init__(
        self, width: int, input_width: int, words: int, activation_fn: str, weight: nn.Parameter | None
    ) -> None:
        super().__init__(input_width, words, activation_fn, weight)
        self.dense = nn.Linear(width, input_width)


class AlbertEncoder(RobertaEncoder):
    """RoBERTa's encoder, with the parts above in place of its own."""

    def __init__(self, args: Any, dictionary: Any) -> None:
        super().__init__(args, dictionary)
        for module in self.modules():
            if hasattr(module, "normalized_shape"):  # torch's LayerNorm, or apex's on a GPU
                module.eps = LAYER_NORM_EPSILON

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Embedding:
        """The word embeddings, (words, E)."""
        return nn.Embedding(vocab_size, self.args.encoder_input_dim, padding_idx)

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Embedding) -> AlbertTransformer:
        """Embeddings, projection and shared layer."""
        encoder = AlbertTransformer(TransformerConfig.from_namespace(args), dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder

    def build_lm_head(
        self, embed_dim: int, output_dim: int, activation_fn: str, weight: nn.Parameter | None
    ) -> AlbertLMHead:
        """The masked-LM head; its output matrix is ``weight``, or a new one if that is ``None``."""
        return AlbertLMHead(embed_dim, self.args.encoder_input_dim, output_dim, activation_fn, weight)


@register_model("albert")
class AlbertModel(RobertaModel):
    """ALBERT, with RoBERTa's options and ``--encoder-input-dim`` for E."""

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        """Empty: ``fairseq-adv convert`` gets models from Hugging Face."""
        return {}

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Adds the options."""
        RobertaModel.add_args(parser)
        parser.add_argument("--encoder-input-dim", type=int, metavar="E", help="width of the word embeddings")

    @classmethod
    def build_model(cls, args: Any, task: Any) -> AlbertModel:
        """A model with new weights.

        Raises:
            DataError: an option is invalid; the message names it.
        """
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, False)
        base_architecture(args)
        if not safe_hasattr(args, "max_positions"):
            args.max_positions = safe_getattr(args, "tokens_per_sample", task.max_positions())
        check_options(args)
        encoder = AlbertEncoder(args, task.source_dictionary)
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, True)
        return cls(args, encoder)

    @classmethod
    def from_pretrained(
        cls, model_name_or_path: str, checkpoint_file: str = "model.pt", data_name_or_path: str = ".",
        bpe: str = "albert", **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Like RoBERTa's; ``bpe_albert_model`` is the path of the encoder's ``spiece.model``."""
        return super().from_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, bpe=bpe, **kwargs
        )


def check_options(args: Any) -> None:
    """Checks the sizes.

    Raises:
        DataError: a size is invalid, or only makes sense for layers that are not shared.
    """
    if args.encoder_layers_to_keep:
        raise DataError(
            "--encoder-layers-to-keep: all layers of an albert model are the same layer. Leave it out, and "
            "pass the number of layers as --encoder-layers"
        )
    for name in ("encoder_layers", "encoder_input_dim", "encoder_embed_dim", "encoder_attention_heads"):
        value, most = getattr(args, name), MAX_LAYERS if name == "encoder_layers" else None
        if not isinstance(value, int) or value < 1 or (most is not None and value > most):
            option = f"--{name.replace('_', '-')}"
            limits = f"from 1 to {most}" if most else "of at least 1"
            raise DataError(f"{option} {value}: pass a whole number {limits}")
    if args.encoder_embed_dim % args.encoder_attention_heads:
        raise DataError(
            f"--encoder-embed-dim {args.encoder_embed_dim} is not a multiple of --encoder-attention-heads "
            f"{args.encoder_attention_heads}"
        )


def _defaults(args: Any, layers: int, width: int, inner: int, heads: int) -> None:
    sizes = {
        "encoder_input_dim": 128, "encoder_layers": layers, "encoder_embed_dim": width,
        "encoder_ffn_embed_dim": inner, "encoder_attention_heads": heads,
        # v2 was pre-trained without dropout, and uses gelu's tanh approximation.
        "dropout": 0.0, "attention_dropout": 0.0, "pooler_dropout": 0.1, "activation_fn": "gelu_accurate",
    }  # fmt: skip
    for name, value in sizes.items():
        setattr(args, name, safe_getattr(args, name, value))
    roberta_architecture(args)


@register_model_architecture("albert", "albert_base")
def base_architecture(args: Any) -> None:
    """ALBERT-base v2."""
    _defaults(args, 12, 768, 3072, 12)


@register_model_architecture("albert", "albert_large")
def large_architecture(args: Any) -> None:
    """ALBERT-large v2."""
    _defaults(args, 24, 1024, 4096, 16)


@register_model_architecture("albert", "albert_xlarge")
def xlarge_architecture(args: Any) -> None:
    """ALBERT-xlarge v2."""
    _defaults(args, 24, 2048, 8192, 16)


@register_model_architecture("albert", "albert_xxlarge")
def xxlarge_architecture(args: Any) -> None:
    """ALBERT-xxlarge v2, which FreeLB fine-tunes."""
    _defaults(args, 12, 4096, 16384, 64)
