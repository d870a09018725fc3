"""The last layer for the first token alone: the same scores and gradients, in fewer products."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from criterions.restated import one_step
from fairseq.models.roberta.model import RobertaClassificationHead, RobertaModel
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from hf_encoders import WORDS, hf_run, save_encoder
from support import batch, build, flat_gradient, slow, train_args, write_questions, write_task
from torch.utils.flop_counter import FlopCounterMode

from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.objectives.first_token import last_layer_at_first_token

pytestmark = pytest.mark.fast

ROWS = [0, 1, 2, 3]
SIZES = {
    "standard": [],
    "freelb": ["--adv-lr", "0.3", "--adv-max-norm", "0.5", "--adv-init-mag", "0.4"],
    "yopo": ["--adv-lr", "0.3", "--adv-init-mag", "0.4", "--yopo-steps", "2"],
    "alum_vat": ["--vat-epsilon", "0.1", "--vat-step-size", "0.1", "--vat-init-std", "0.05"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "text_classification": write_task(tmp_path_factory.mktemp("classes")),
        "regression": write_task(tmp_path_factory.mktemp("regression"), classes=1),
        "commonsense_qa": write_questions(tmp_path_factory.mktemp("questions")),
    }


def side(folders: dict[str, Path], kind: str, criterion: str, *more: str) -> SimpleNamespace:
    task = "text_classification" if kind == "regression" else kind
    head = ["--init-token", "0", "--separator-token", "2", "--max-positions", "16"]
    head += ["--num-classes", "1" if kind == "regression" else "2"]
    words = [*([] if kind == "commonsense_qa" else head), *SIZES[criterion], *more]
    classes = 1 if kind == "regression" else 2
    return build(train_args(folders[kind], None, criterion, *words, task=task, classes=classes))


@pytest.mark.parametrize(
    ("kind", "criterion", "norm"),
    [
        *(("text_classification", criterion, []) for criterion in SIZES),
        ("regression", "standard", []),
        ("commonsense_qa", "freelb", []),
        ("text_classification", "freelb", ["--encoder-normalize-before"]),
    ],
)
def test_an_update_is_that_of_the_whole_layer(
    folders: dict[str, Path], kind: str, criterion: str, norm: list[str]
) -> None:
    """Without dropout: gradients to 1e-6."""
    gradients = []
    for words in ([], ["--whole-last-layer"]):
        run = side(folders, kind, criterion, *norm, *words)
        one_step(run, batch(run, ROWS))
        gradients.append(flat_gradient(run.model))
    difference = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert 0 < difference <= 1e-6 or torch.equal(*gradients)


# Of the 12 d^2 products for each token (ffn = 4 d), how many d^2 the last layer of a kind leaves out.
CUT = {
    **dict.fromkeys(("bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta"), 10),
    "deberta": 9, "deberta-v3": 9, "distilbert": 8, "mpnet": 8,
    "albert": 0, "modernbert": 0, "mobilebert": 0,  # their last layer can't be cut
}  # fmt: skip


PAIRS = [(kind, objective) for kind in CUT for objective in ("text_classification", "commonsense_qa")]
PAIRS.remove(("deberta", "commonsense_qa"))  # transformers has no multiple choice for DeBERTa 1
# Their heads are read alike.
ALIKE = ("albert", "camembert", "ernie", "mobilebert", "xlm-roberta")


@pytest.mark.parametrize(
    ("kind", "objective"),
    [slow(*pair) if pair[0] in ALIKE and pair[1] == "commonsense_qa" else pair for pair in PAIRS],
)
def test_so_is_that_of_an_encoder_of_transformers(
    tmp_path: Path, folders: dict[str, Path], kind: str, objective: str
) -> None:
    """Gradients to 1e-6, without the products of the last layer for all tokens but the first."""
    sizes = {"intermediate_size": 64, "hidden_dim": 64} if CUT[kind] else {}  # 4 d, d is 16
    save_encoder(tmp_path / "encoder", kind, WORDS, **sizes)
    data = {**folders, "text_classification": write_task(tmp_path / "classes")}
    words = tokenizer_for_encoder(tmp_path / "encoder").dictionary
    words.save(str(tmp_path / "classes" / "input0" / "dict.txt"))
    gradients, counts = [], []
    for more in ([], ["--whole-last-layer"]):
        run = hf_run(data, tmp_path / "encoder", objective, "freelb", *SIZES["freelb"], *more)
        sample = batch(run, ROWS)
        with FlopCounterMode(display=False) as counter:
            one_step(run, sample)
        counts.append(counter.get_total_flops())
        gradients.append(flat_gradient(run.model))
    assert (gradients[0] - gradients[1]).norm() <= 1e-6 * gradients[1].norm()
    tokens, passes = sample["net_input"]["src_tokens"], 3
    left_out = tokens.numel() - len(tokens.view(-1, tokens.size(-1)))
    # A product of the forward pass has two in the backward pass.
    assert counts[1] - counts[0] == passes * 3 * 2 * CUT[kind] * 16**2 * left_out


def test_a_head_that_reads_all_tokens_keeps_the_whole_layer(tmp_path: Path, folders: dict[str, Path]) -> None:
    save_encoder(tmp_path / "encoder", "electra", WORDS, summary_type="mean")
    run = hf_run(folders, tmp_path / "encoder", "commonsense_qa", "standard")
    assert run.model.first_token_modules is None


class Mean(RobertaClassificationHead):
    """Reads all tokens."""

    def forward(self, features: torch.Tensor, **options: Any) -> torch.Tensor:
        return super().forward(features.mean(1, keepdim=True), **options)  # type: ignore[no-any-return]


class Halved(TransformerEncoderLayerBase):
    def residual_connection(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return residual + x / 2


class OwnRoberta(RobertaModel):
    def forward(self, *words: Any, **options: Any) -> Any:
        return super().forward(*words, **options)


@pytest.mark.parametrize("own", ["a head", "a layer", "a forward pass"])
def test_parts_of_the_users_own_keep_the_whole_layer(folders: dict[str, Path], own: str) -> None:
    """And so train what is evaluated: without dropout the logits are the same in both."""
    run = side(folders, "text_classification", "standard")
    model: Any = run.model
    for part in model.modules():
        if own == "a head" and isinstance(part, RobertaClassificationHead):
            part.__class__ = Mean
        elif own == "a layer" and isinstance(part, TransformerEncoderLayerBase):
            part.__class__ = Halved
        elif own == "a forward pass" and isinstance(part, RobertaModel):
            part.__class__ = OwnRoberta
    sample = batch(run, ROWS)
    with last_layer_at_first_token(model):
        assert model.encoder.extract_features(sample["net_input"]["src_tokens"])[0].size(1) > 1
    if own == "a layer":  # fairseq's fast path of evaluation doesn't call it
        return
    trained = run.criterion.objective.predict(model, sample)
    model.eval()
    torch.testing.assert_close(trained, run.criterion.objective.predict(model, sample), rtol=1e-5, atol=1e-6)


def products(run: SimpleNamespace) -> int:
    """Floating-point operations of a plain forward and backward."""
    sample = batch(run, ROWS)
    with FlopCounterMode(display=False) as counter:
        one_step(run, sample)
    return int(counter.get_total_flops())


def test_it_saves_what_it_says(folders: dict[str, Path]) -> None:
    """Per token, a layer multiplies 12 d^2 (ffn = 4 d) for its projections: 10 d^2 go in the last one."""
    sizes = ["--encoder-layers", "1", "--encoder-embed-dim", "64", "--encoder-ffn-embed-dim", "256"]
    whole, cut = (products(side(folders, "text_classification", "standard", *sizes, *words))
                  for words in (["--whole-last-layer"], []))  # fmt: skip
    assert 2 / 12 < cut / whole < 0.35  # the attention's scores, one token and the head stay


def test_features_are_those_of_the_first_token_in_training_only(folders: dict[str, Path]) -> None:
    run = side(folders, "text_classification", "standard")
    tokens = batch(run, ROWS)["net_input"]["src_tokens"]
    model: Any = run.model
    with last_layer_at_first_token(model):
        cut, _ = model.encoder.extract_features(tokens)
    whole, _ = model.encoder.extract_features(tokens)
    assert cut.shape == (4, 1, 16) and whole.shape[1] == tokens.size(1)
    torch.testing.assert_close(cut[:, 0], whole[:, 0], rtol=1e-5, atol=1e-6)
    model.eval()
    with last_layer_at_first_token(model):
        evaluated, _ = model.encoder.extract_features(tokens)
    assert evaluated.shape == whole.shape


def test_re_computed_activations_keep_the_whole_layer(folders: dict[str, Path]) -> None:
    model = side(folders, "text_classification", "standard").model
    checkpoint_wrapper(model.encoder.sentence_encoder.layers[-1])
    with last_layer_at_first_token(model):
        assert model.encoder.extract_features(torch.tensor([[0, 5, 2]]))[0].shape == (1, 3, 16)


def test_an_error_leaves_the_layer_as_it_was(folders: dict[str, Path]) -> None:
    run = side(folders, "text_classification", "standard")
    layer = run.model.encoder.sentence_encoder.layers[-1]

    def fail() -> None:
        with last_layer_at_first_token(run.model):
            assert "forward" in vars(layer.self_attn)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "forward" not in vars(layer.self_attn) and "residual_connection" not in vars(layer)
