"""The objectives restated in plain torch, and an update of fairseq's trainer taken apart.

What ``references.py`` needs of a model: losses and predictions at X + delta, through ``token_embeddings=``
instead of a hook; the noise from which delta starts, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from support import (
    as_task,
    batch,
    build,
    gradients,
    train_args,
    write_corpus,
    write_label_sets,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_tags
from torch import Tensor

from fairseq_adv.perturbation import Perturbation, find_layers
from fairseq_adv.perturbation.geometry import Groups, row_seeds

AT_TOKENS = ("tagging", "span_qa")
OBJECTIVES = (
    "classes", "regression", "windows", "commonsense_qa", "wsc", "masked_lm", *AT_TOKENS, "multi_label",
)  # fmt: skip
HEAD = "sentence_classification_head"
ROWS = [0, 1, 2, 3, 4]
DIM = 16
ALPHA, EPSILON, START = 0.4, 0.6, 0.5
FP16 = "--memory-efficient-fp16"
DROPOUT = ["--dropout", "0.2", "--attention-dropout", "0.2"]


def options(
    alpha: float = ALPHA, epsilon: float = EPSILON, start: float = START, steps: int = 3
) -> list[str]:
    """Sizes of a perturbation for FreeLB and its relatives."""
    return [
        "--adv-steps", str(steps), "--adv-lr", str(alpha),
        "--adv-max-norm", str(epsilon), "--adv-init-mag", str(start),
    ]  # fmt: skip


# --- data and runs ------------------------------------------------------------------------------


def write_all(new_folder: Callable[[str], Path]) -> dict[str, Path]:
    """The folder of each objective."""
    return {
        "classes": write_task(new_folder("classes"), classes=3),
        "regression": write_task(new_folder("regression"), classes=1),
        "windows": write_task(new_folder("windows"), classes=3),
        "commonsense_qa": write_questions(new_folder("questions")),
        "wsc": write_wsc(new_folder("wsc")),
        "masked_lm": write_corpus(new_folder("corpus")),
        "tagging": write_tags(new_folder("tags")),
        "span_qa": write_spans(new_folder("spans"), impossible=True),
        "multi_label": write_label_sets(new_folder("labels"), labels=3),
    }


def run_of(folders: dict[str, Path], objective: str, method: str, *words: str) -> SimpleNamespace:
    """A run of a method on an objective; a head for tokens gets predictions that differ."""
    task, classes, more = as_task(objective)
    run = build(train_args(folders[objective], None, method, *more, *words, task=task, classes=classes))
    for name, parameter in run.model.named_parameters():
        if "token_head" in name:
            torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(1))
    return run


def one_step(run: SimpleNamespace, sample: dict[str, Any], update: int = 0, **kwargs: Any) -> Any:
    """One call of the task's training step, as the trainer makes it; returns its result."""
    run.trainer.zero_grad()
    torch.manual_seed(update)
    return run.task.train_step(
        sample=sample, model=run.trainer.model, criterion=run.trainer.criterion,
        optimizer=run.trainer.optimizer, update_num=update, **kwargs,
    )  # fmt: skip


@contextmanager
def recorded() -> Iterator[list[Tensor]]:
    """Collects the delta that each pass used."""
    deltas: list[Tensor] = []
    original = Perturbation.applied

    @contextmanager
    def applied(self: Perturbation, *choices: bool, **named: bool) -> Iterator[None]:
        with original(self, *choices, **named):
            yield
        assert self.delta is not None
        deltas.append(self.delta.detach().clone())

    Perturbation.applied = applied  # type: ignore[method-assign, assignment]
    try:
        yield deltas
    finally:
        Perturbation.applied = original  # type: ignore[method-assign]


def flat(run: SimpleNamespace) -> Tensor:
    """All weights in one fp64 vector."""
    return torch.cat([p.detach().double().flatten().clone() for p in run.model.parameters()])


def change(run: SimpleNamespace, *parts: Sequence[int]) -> Tensor:
    """What an update with these mini-batches does to the weights, in fp64."""
    before = flat(run)
    torch.manual_seed(1)
    assert run.trainer.train_step([batch(run, list(rows)) for rows in parts or [ROWS]]) is not None
    return flat(run) - before


def move_average(run: SimpleNamespace) -> torch.nn.Module:
    """The average of the weights, moved away from them, so that its term has a gradient."""
    average: torch.nn.Module = run.trainer.ema.get_model()
    with torch.no_grad():
        for p in average.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(3)) * 0.1)
    return average


# --- what a model computes at X + delta ---------------------------------------------------------


def features(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> Tensor:
    """The encoder's output at X + delta."""
    if hasattr(run.model, "hf"):
        states: Tensor = run.model.hf.base_model(**hf_inputs(run, tokens, delta))[0]
        return states
    encoder = run.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens)
    moved = embedded + delta.to(embedded.dtype)
    return encoder.extract_features(tokens, token_embeddings=moved)[0]  # type: ignore[no-any-return]


def hf_inputs(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """The same for one of transformers' encoders, to which X + delta is given as ``inputs_embeds``."""
    embedded = run.model.hf.get_input_embeddings()(tokens) + delta
    return {"inputs_embeds": embedded, "attention_mask": tokens.ne(1).long()}


def hf_logits(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> Tensor:
    """What one of transformers' models returns at X + delta, head included."""
    inputs = hf_inputs(run, tokens, delta)
    if "MultipleChoice" in type(run.model.hf).__name__:
        inputs = {name: value.unsqueeze(1) for name, value in inputs.items()}
    output = run.model.hf(**inputs)
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], -1)
    return output.logits.float()  # type: ignore[no-any-return]


def predictions(run: SimpleNamespace, sample: dict[str, Any], objective: str, delta: Tensor) -> list[Tensor]:
    """The logits of each prediction, one by one; a regression's number; of each label those of no and yes."""
    tokens = sample["net_input"]["src_tokens"]
    if objective in AT_TOKENS:
        return _token_predictions(run, sample, _token_scores(run, tokens, delta))
    if objective == "masked_lm":
        return list(_word_scores(run, tokens, delta)[sample["target"] != 1])
    if objective == "wsc":
        scores = _span_scores(run, sample, delta)
        # A single score is a certain prediction, not a regression's number.
        return [F.pad(scores[rows], (0, 1), value=-1e4) for rows in examples_of(sample)]
    if hasattr(run.model, "hf"):
        scores = hf_logits(run, tokens, delta)
    else:
        scores = run.model.classification_heads[HEAD](features(run, tokens, delta)).float()
    if objective == "commonsense_qa":
        return [scores.view(-1)[rows] for rows in examples_of(sample)]
    if objective == "windows":
        return [scores[rows].mean(0) for rows in examples_of(sample)]
    if objective == "multi_label":
        return [torch.stack([0 * logit, logit]) for logit in scores.flatten()]
    return list(scores)


def _word_scores(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> Tensor:
    """(rows, tokens, words)."""
    if hasattr(run.model, "hf"):
        return hf_logits(run, tokens, delta)
    # Contiguous, as the masked positions are that the objectives project: else torch adds the bias after the
    # product, and in bf16 rounds twice.
    states = features(run, tokens, delta).contiguous()
    return run.model.encoder.lm_head(states).float()  # type: ignore[no-any-return]


def _token_scores(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> Tensor:
    """(rows, tokens, outputs)."""
    if hasattr(run.model, "hf"):
        return hf_logits(run, tokens, delta)
    head = run.model.classification_heads["token_head"].out_proj
    return F.linear(features(run, tokens, delta), head.weight, head.bias).float()


def _token_predictions(run: SimpleNamespace, sample: dict[str, Any], logits: Tensor) -> list[Tensor]:
    """Of a word's tags; of a window's allowed begins, and ends."""
    if "first" in sample:
        return list(logits.flatten(0, 1)[sample["first"]])
    return [logits[row, allowed, side] for row, allowed in enumerate(sample["allowed"]) for side in (0, 1)]


def _span_scores(run: SimpleNamespace, sample: dict[str, Any], delta: Tensor) -> Tensor:
    """The mean log-probability of each candidate in the pronoun's place."""
    tokens, span = sample["net_input"]["src_tokens"], sample["span"]
    masked = tokens.masked_fill(span, run.task.mask_index)
    log_probs = _word_scores(run, masked, delta).log_softmax(-1)
    return (log_probs.gather(2, tokens.unsqueeze(-1)).squeeze(-1) * span).sum(1) / span.sum(1)


def loss(run: SimpleNamespace, sample: dict[str, Any], objective: str, delta: Tensor) -> Tensor:
    """Summed over the batch."""
    if objective == "wsc":
        return _wsc_loss(_span_scores(run, sample, delta), sample)
    found = predictions(run, sample, objective, delta)
    if objective == "regression":
        return (torch.cat(found) - sample["target"].view(-1)).pow(2).sum()
    pairs = zip(found, _targets(sample, objective))
    own = class_options(run)
    losses = [
        F.cross_entropy(logits.unsqueeze(0), torch.tensor([target]), reduction="sum", **own)
        for logits, target in pairs
    ]
    return weight_of(objective) * torch.stack(losses).sum()


def class_options(run: SimpleNamespace) -> dict[str, Any]:
    """What torch's loss takes for ``--class-weights balanced`` and ``--label-smoothing``."""
    cfg = run.cfg.criterion
    if not cfg.class_weights:
        return {}
    rows = run.task.dataset("train")
    labels = np.concatenate([np.atleast_1d(rows[row]["target"]) for row in range(len(rows))])
    weights, there = torch.ones(len(run.criterion.objective.class_names())), np.unique(labels)
    weights[there] = torch.tensor(compute_class_weight("balanced", classes=there, y=labels)).float()
    return {"weight": weights, "label_smoothing": cfg.label_smoothing}


def weight_of(objective: str) -> float:
    """Of begin and end of a span, and of the labels of a text, the mean counts."""
    return {"span_qa": 1 / 2, "multi_label": 1 / 3}.get(objective, 1.0)


def _targets(sample: dict[str, Any], objective: str) -> list[int]:
    if objective == "span_qa":
        found = []
        for allowed, pair in zip(sample["allowed"], sample["target"].tolist()):
            places = allowed.nonzero().view(-1).tolist()
            found += [places.index(place) for place in pair]
        return found
    target = sample["target"]
    return (target[target != 1] if objective == "masked_lm" else target.view(-1)).tolist()  # type: ignore[no-any-return]


def _wsc_loss(scores: Tensor, sample: dict[str, Any]) -> Tensor:
    """fairseq's WSCCriterion: the margin loss with alpha 1 and beta 0, sentence by sentence."""
    total = scores.new_zeros(())
    for rows, target in zip(examples_of(sample), sample["target"]):
        query, candidates = scores[rows[0]], scores[rows[1:]]
        if target == 1:
            total = total + (-query + (candidates - query).clamp(min=0)).sum()
    return total


def loss_at(run: SimpleNamespace, sample: dict[str, Any], delta: Tensor) -> Tensor:
    """:func:`loss` of classes or numbers, also of a model with other embeddings."""
    return loss(run, sample, "regression" if run.cfg.task.num_classes == 1 else "classes", delta)


def state(run: SimpleNamespace, sample: dict[str, Any], delta: Tensor) -> Tensor:
    """(rows, dim), the last layer's state of the first token."""
    tokens = sample["net_input"]["src_tokens"]
    if "span" in sample:  # of WSC
        tokens = tokens.masked_fill(sample["span"], run.task.mask_index)
    return features(run, tokens, delta)[:, 0]


def states_at(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> Any:
    """The first layer's input, and <s> after the last one."""
    if hasattr(run.model, "hf"):
        last: list[Tensor] = []
        with find_layers(run.model)[-1].register_forward_hook(lambda *one: last.append(one[2])):
            out = run.model.hf.base_model(**hf_inputs(run, tokens, delta), output_hidden_states=True)
        state = last[-1][0] if isinstance(last[-1], tuple) else last[-1]  # before any final layer norm
        return out.hidden_states[0], state[:, 0]
    encoder = run.model.encoder.sentence_encoder
    out = encoder(tokens, return_all_hiddens=True, token_embeddings=encoder.embed_tokens(tokens) + delta)
    return out["encoder_states"][0].transpose(0, 1), out["encoder_states"][-1][0]


def first_layer(run: SimpleNamespace, tokens: Tensor, delta: Tensor) -> Tensor:
    """X + delta through positions, layer norm and the first layer: (tokens, rows, dim)."""
    encoder = run.model.encoder.sentence_encoder
    x, _ = encoder.forward_embedding(tokens, encoder.embed_tokens(tokens) + delta)
    padding = tokens.eq(1)
    x = (x * ~padding.unsqueeze(-1)).transpose(0, 1)
    return encoder.layers[0](x, encoder_padding_mask=padding)  # type: ignore[no-any-return]


def scores_behind(run: SimpleNamespace, tokens: Tensor, hidden: Tensor) -> Tensor:
    """From the first layer's output to the classification head's scores, (rows, classes)."""
    for layer in list(run.model.encoder.sentence_encoder.layers)[1:]:
        hidden = layer(hidden, encoder_padding_mask=tokens.eq(1))
    return run.model.classification_heads[HEAD](hidden.transpose(0, 1)).float()  # type: ignore[no-any-return]


# --- examples and noise -------------------------------------------------------------------------


def examples_of(sample: dict[str, Any]) -> list[list[int]]:
    """The rows of each example: candidates of a question or of a sentence of WSC, or windows of a text."""
    name = next((one for one in ("question", "sentence", "example") if one in sample), None)
    if name is not None and not (name == "sentence" and "span" not in sample):
        owners = sample[name].tolist()
        return [[r for r, owner in enumerate(owners) if owner == e] for e in range(sample["nsentences"])]
    return [[row] for row in range(len(sample["net_input"]["src_tokens"]))]


def draws(sample: dict[str, Any], kind: str, update: int = 0, dim: int = DIM) -> Tensor:
    """U(-1, 1) or N(0, 1) for the real tokens from each row's own generator, 0 on padding."""
    mask, examples = sample["net_input"]["src_tokens"].ne(1), examples_of(sample)
    owners = [e for row in range(len(mask)) for e, rows in enumerate(examples) if row in rows]
    ids = [int(sample["id"][owner]) for owner in owners]
    found = torch.zeros(*mask.shape, dim)
    for row, seed in enumerate(row_seeds(7, update, ids, Groups(torch.tensor(owners), len(examples)))):
        length, generator = int(mask[row].sum()), torch.Generator().manual_seed(seed)
        if kind == "uniform":
            found[row, :length] = 2 * torch.rand(length, dim, generator=generator) - 1
        else:
            found[row, :length] = torch.randn(length, dim, generator=generator)
    return found


def uniform_noise(sample: dict[str, Any], size: float, update: int = 0, dim: int = DIM) -> Tensor:
    """U(-size, size) / sqrt(L * D), L counting the real tokens of all rows of an example."""
    noise, lengths = draws(sample, "uniform", update, dim) * size, sample["net_input"]["src_tokens"].ne(1)
    for rows in examples_of(sample):
        noise[rows] /= (int(lengths[rows].sum()) * dim) ** 0.5
    return noise


def projected(delta: Tensor, epsilon: float, examples: Sequence[Sequence[int]]) -> Tensor:
    """Into the ball of each example; 0: there is none."""
    moved = delta.clone()
    for rows in map(list, examples):
        norm = float(delta[rows].norm())
        moved[rows] = delta[rows] * min(1.0, epsilon / norm) if norm > 0 and epsilon > 0 else delta[rows]
    return moved


# --- comparisons --------------------------------------------------------------------------------


def parameters_of(run: SimpleNamespace) -> list[Tensor]:
    """Those that a step has left a gradient."""
    return [p for p in run.model.parameters() if p.grad is not None]


def assert_near(
    run: SimpleNamespace, expected: Sequence[Tensor | None], tolerance: float, least: float = 1e-2
) -> None:
    """The gradients that a step has left, in one vector, to a share of its length."""
    pairs = [
        (ours, torch.zeros_like(ours) if grad is None else grad)
        for ours, grad in zip(gradients(run.model).values(), expected)
    ]
    whole = torch.cat([grad.flatten() for _, grad in pairs])
    assert whole.norm() > least
    rest = torch.cat([(ours - grad).flatten() for ours, grad in pairs]).norm()
    assert rest <= tolerance * whole.norm(), f"{rest / whole.norm():.2e}"


def assert_gradient(run: SimpleNamespace, total: Tensor, tolerance: float) -> None:
    """The gradient that a step has left is that of ``total``."""
    assert_near(run, torch.autograd.grad(total, parameters_of(run), allow_unused=True), tolerance)
