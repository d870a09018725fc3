"""The model card of an export: README.md, from the contents of the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from fairseq_adv.data.printable import printable
from fairseq_adv.data.run_metrics import IN_BITS, NoMetrics, read_metrics, unit
from fairseq_adv.data.text.long_texts import HEAD_TAIL, WINDOWS
from fairseq_adv.hub.trained_checkpoint import (
    MASKED_LM,
    REGRESSION,
    Trained,
    TrainedState,
    number,
)
from fairseq_adv.tasks.task_record import ModelCard, record_named

# Options that only matter to the training script, or are not informative here.
_LEFT_OUT = {"_name", "classification_head_name", "regression_target", "positive_label"}
_OF_FLOODING = ("flood", "accordance")


_CALIBRATED = """The probabilities are calibrated if the logits are divided by the temperature in config.json:
`model(**rows).logits.div(model.config.fairseq_adv_temperature).softmax(-1)`, {temperature:.3f} here. A
pipeline doesn't do that. No answer changes."""
_LONG = {
    HEAD_TAIL: " The scores below are of rows that have a quarter of these from the text's beginning and the "
    "rest from its end, as `fairseq-adv predict` reads a longer text.",
    WINDOWS: " The scores below are of the mean of the logits over all windows of a text, as `fairseq-adv "
    "predict` reads it; the code above reads the first window alone.",
}

_THRESHOLDS = """A text has the labels whose probability is at least that in `fairseq_adv_thresholds` of
config.json, fitted on validation rows: {thresholds}. A pipeline only gives probabilities."""

_NOT_MEASURED = """The weights are the average that the training kept. Its validations, and the choice of the
checkpoint, were of the weights that it trained."""


def model_card(
    state: TrainedState, trained: Trained, classes: Sequence[str], folder: str, temperature: float = 1.0,
    thresholds: Mapping[str, float] | None = None, averaged: bool = False,
) -> str:  # fmt: skip
    """The text of README.md.

    Folders and files are named without their paths.

    Args:
        averaged: the weights are the average, of which a training measures no scores.
    """
    criterion = _word(state.criterion.get("_name", "unknown"))
    data = ", ".join(_base(part) for part in (state.data or "").split(":") if part) or "unknown data"
    converted = trained.goal == MASKED_LM and not state.updates
    made = f"trained with `--criterion {criterion}` on {data}"
    if converted:
        made = "not trained since `fairseq-adv convert`; its conversion.json records whether the head is new"
    card = _card_of(state, trained)
    what = card.what.format(classes=", ".join(f"`{_word(name)}`" for name in classes))
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            *([f"pipeline_tag: {card.pipeline_tag}"] if card.pipeline_tag else []),
            "tags:",
            "- fairseq",
            *([f"- {criterion}"] if re.fullmatch(r"[a-z_]+", criterion) else []),
            "---",
            "# An encoder" if converted else f"# {criterion} on {data}",
            "",
            f"A fairseq model, {made}. {what}",
            "",
            "```python",
            card.use(printable(re.sub(r'["\\\n]', "_", folder)), Path(state.data or "")),
            "```",
            "",
            f"A row has at most {trained.longest} tokens. `truncation=True` cuts longer ones, but not where "
            "fairseq does."
            + ("" if trained.goal == MASKED_LM else " White space around a text is removed, as in training.")
            + _LONG.get(str(state.task.get("long_texts")), ""),
            "",
            *([] if temperature == 1 else [_CALIBRATED.format(temperature=temperature), ""]),
            *([_THRESHOLDS.format(thresholds=_shares(thresholds)), ""] if thresholds else []),
            *([] if converted else _report(state, trained, averaged)),
            "## Command",
            "",
            f"`fairseq-adv export {'--ema ' * averaged}{_base(str(state.path))} {_word(folder)}`",
            "",
            f"SHA-256 of the checkpoint: {state.sha256}",
            "",
        ]
    )


def _shares(thresholds: Mapping[str, float]) -> str:
    return ", ".join(f"{_word(name)} {share:.3f}" for name, share in thresholds.items())


def _card_of(state: TrainedState, trained: Trained) -> ModelCard:
    record = record_named(state.task.get("_name"))
    card = None if record is None else record.regression_card if trained.goal == REGRESSION else record.card
    assert card is not None  # trained_for has found it
    return card


def _report(state: TrainedState, trained: Trained, averaged: bool) -> list[str]:
    scores = [_NOT_MEASURED] if averaged else _scores(state, trained.goal == REGRESSION)
    return ["## Training", "", *_table(_training(state)), "", "## Scores", "", *scores, ""]


def _training(state: TrainedState) -> dict[str, str]:
    words = [f"--criterion {_word(state.criterion.get('_name', 'unknown'))}"]
    unused = () if state.criterion.get("flood_level") else _OF_FLOODING
    words += [
        _option(name, value)
        for name, value in state.criterion.items()
        if name not in _LEFT_OUT and not name.startswith(unused)
    ]
    rows = {
        "method": " ".join(word for word in words if word),
        "task": _word(state.task.get("_name")),
        "updates": str(state.updates),
    }
    parts: list[tuple[str, Mapping[str, Any], str]] = [
        ("learning rate", state.optimization, "lr"),
        ("mini-batch, examples", state.dataset, "batch_size"),
        ("mini-batch, tokens", state.dataset, "max_tokens"),
        ("mini-batches per update", state.optimization, "update_freq"),
    ]
    for name, part, option in parts:
        if part.get(option) is not None:
            rows[name] = _word(part[option])
    return rows


def _option(name: str, value: Any) -> str:
    """Writes an option as on a command line; "" if it is off."""
    if value is None or value is False:
        return ""
    flag = "--" + _word(name).replace("_", "-")
    return flag if value is True else f"{flag} {_base(value) if isinstance(value, str) else _word(value)}"


def _scores(state: TrainedState, regression: bool) -> list[str]:
    named = _word if regression else _named
    metric = str(state.checkpoint.get("best_checkpoint_metric", "loss"))
    scores = {
        f"{named(metric)} on the validation split": (metric, number(state.extra.get("val_loss"))),
        f"best {named(metric)} during training": (metric, number(state.extra.get("best"))),
        **_others(state, metric, named),
    }
    rows = {text: f"{unit(name) * value:.6g}" for text, (name, value) in scores.items() if value is not None}
    return _table(rows) if rows else ["The checkpoint has no scores."]


def _others(
    state: TrainedState, metric: str, named: Callable[[str], str]
) -> dict[str, tuple[str, float | None]]:
    """The other scores of the checkpoint's validation, if the metrics.jsonl of its run is beside it."""
    try:
        run = read_metrics(state.path.parent)
    except NoMetrics:
        return {}
    first = run.valid_splits[0]
    return {
        f"{named(name)} on {_word(split)}": (name, value)
        for split in run.valid_splits
        for line in run.of(split)
        if line.update == state.updates
        for name, value in line.scores.items()
        if (split, name) != (first, metric)
    }


def _named(name: str) -> str:
    return _word(name) + " (nats)" * (name in IN_BITS)


def _table(rows: Mapping[str, str]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def _word(value: Any) -> str:
    """A value of the configuration, without characters that Markdown or a terminal would interpret."""
    if isinstance(value, (list, tuple)):
        return ", ".join(_word(one) for one in value)
    return printable(re.sub(r"[`|<>\[\]\s]+", " ", str(value)).strip()[:200])


def _base(path: str) -> str:
    """The name of a file or folder, without its path."""
    return _word(PurePath(path).name or path)
