"""The model card of an export: README.md, from the contents of the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from fairseq_adv.data.printable import printable
from fairseq_adv.data.run_metrics import IN_BITS, NoMetrics, read_metrics, unit
from fairseq_adv.hub.trained_checkpoint import (
    CHOICES,
    CLASSES,
    MASKED_LM,
    REGRESSION,
    SPANS,
    TAGS,
    Trained,
    TrainedState,
    number,
)

PIPELINES = {
    CLASSES: "text-classification", REGRESSION: "text-classification", MASKED_LM: "fill-mask",
    TAGS: "token-classification",
}  # fmt: skip
_TAGS = {**PIPELINES, SPANS: "question-answering"}  # for the card; transformers 5 has no such pipeline

_WHAT = {
    CLASSES: "It predicts one of the classes {classes}.",
    REGRESSION: "It predicts a number, on the scale of its training labels.",
    CHOICES: "It scores the choices of a question; the softmax over them gives their probabilities.",
    MASKED_LM: "It is a masked language model.",
    TAGS: "It predicts one of the tags {classes} for each word, at the word's first token.",
    SPANS: "It answers a question with a span of its context; the first token stands for no answer.",
}
_PIPELINE = """from transformers import pipeline
model = pipeline("{pipeline}", model="{folder}")
print(model({call}))"""
_PAIR = ', "text_pair": "another, if it was trained on pairs"'
_CALLS = {
    CLASSES: f'{{"text": "one text"{_PAIR}}}, top_k=None',
    REGRESSION: f'{{"text": "one text"{_PAIR}}}',
    MASKED_LM: '"The sky is " + model.tokenizer.mask_token + "."',
    TAGS: '"Words separated by spaces , as in the training data ."',
}
_SPANS = """import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForQuestionAnswering.from_pretrained("{folder}")
question, context = "Who sang?", "In the 1990s she sang."
rows = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
(offsets,), begin = rows.pop("offset_mapping").tolist(), rows.sequence_ids(0).index(1)
found = model(**rows)
scores = found.start_logits[0, begin:-1, None] + found.end_logits[0, None, begin:-1]
allowed = torch.ones_like(scores).triu().tril(29)  # an answer has 30 tokens at most
first, last = divmod(int(scores.masked_fill(allowed == 0, -1e9).argmax()), len(scores))
print(context[offsets[begin + first][0]:offsets[begin + last][1]].strip())"""
_CHOICES = """from transformers import AutoModelForMultipleChoice, AutoTokenizer
tokenizer, model = (auto.from_pretrained("{folder}") for auto in (AutoTokenizer, AutoModelForMultipleChoice))
choices = ["first", "second"]
rows = tokenizer([{first} for choice in choices],
                 [{second} for choice in choices],
                 truncation="only_first", padding=True, return_tensors="pt")
print(model(**{{name: ids[None] for name, ids in rows.items()}}).logits.softmax(-1))"""
_ROWS = {
    "arc_retrieval": ('"the documents of " + choice', '"the question " + choice'),
    "commonsense_qa": ('"Q: the question"', '"A: " + choice'),
    "qnli_ranking": ('"Q: the question"', '"A: " + choice'),
}
# Options that only matter to the training script, or are not informative here.
_LEFT_OUT = {"_name", "classification_head_name", "regression_target", "positive_label"}
_OF_FLOODING = ("flood", "accordance")


_CALIBRATED = """The probabilities are calibrated if the logits are divided by the temperature in config.json:
`model(**rows).logits.div(model.config.fairseq_adv_temperature).softmax(-1)`, {temperature:.3f} here. A
pipeline doesn't do that. No answer changes."""


def model_card(
    state: TrainedState, trained: Trained, classes: Sequence[str], folder: str, temperature: float = 1.0
) -> str:
    """The text of README.md.

    Folders and files are named without their paths.
    """
    criterion = _word(state.criterion.get("_name", "unknown"))
    data = ", ".join(_base(part) for part in (state.data or "").split(":") if part) or "unknown data"
    converted = trained.kind == MASKED_LM and not state.updates
    made = f"trained with `--criterion {criterion}` on {data}"
    if converted:
        made = "not trained since `fairseq-adv convert`; its conversion.json records whether the head is new"
    what = _WHAT[trained.kind].format(classes=", ".join(f"`{_word(name)}`" for name in classes))
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            *([f"pipeline_tag: {_TAGS[trained.kind]}"] if trained.kind in _TAGS else []),
            "tags:",
            "- fairseq",
            *([f"- {criterion}"] if re.fullmatch(r"[a-z_]+", criterion) else []),
            "---",
            "# An encoder" if converted else f"# {criterion} on {data}",
            "",
            f"A fairseq model, {made}. {what}",
            "",
            "```python",
            _use(state, trained, folder),
            "```",
            "",
            f"A row has at most {trained.longest} tokens. `truncation=True` cuts longer ones, but not where "
            "fairseq does."
            + ("" if trained.kind == MASKED_LM else " White space around a text is removed, as in training."),
            "",
            *([] if temperature == 1 else [_CALIBRATED.format(temperature=temperature), ""]),
            *([] if converted else _report(state)),
            "## Command",
            "",
            f"`fairseq-adv export {_base(str(state.path))} {_word(folder)}`",
            "",
            f"SHA-256 of the checkpoint: {state.sha256}",
            "",
        ]
    )


def _use(state: TrainedState, trained: Trained, folder: str) -> str:
    folder = printable(re.sub(r'["\\\n]', "_", folder))
    if trained.kind == CHOICES:
        first, second = _ROWS[str(state.task["_name"])]
        return _CHOICES.format(folder=folder, first=first, second=second)
    if trained.kind == SPANS:
        return _SPANS.format(folder=folder)
    pipeline, call, data = PIPELINES[trained.kind], _CALLS[trained.kind], Path(state.data or "")
    if (data / "input0").is_dir() and not (data / "input1").is_dir():
        call = call.replace(_PAIR, "")
    return _PIPELINE.format(pipeline=pipeline, folder=folder, call=call)


def _report(state: TrainedState) -> list[str]:
    return ["## Training", "", *_table(_training(state)), "", "## Scores", "", *_scores(state), ""]


def _training(state: TrainedState) -> dict[str, str]:
    words = [f"--criterion {_word(state.criterion.get('_name', 'unknown'))}"]
    unused = () if state.criterion.get("flood_level") else _OF_FLOODING
    words += [
        _option(name, value)
        for name, value in state.criterion.items()
        if name not in _LEFT_OUT and not name.startswith(unused)
    ]
    found = {
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
            found[name] = _word(part[option])
    return found


def _option(name: str, value: Any) -> str:
    """As on a command line; empty for an option that is off."""
    if value is None or value is False:
        return ""
    flag = "--" + _word(name).replace("_", "-")
    return flag if value is True else f"{flag} {_base(value) if isinstance(value, str) else _word(value)}"


def _scores(state: TrainedState) -> list[str]:
    metric = str(state.checkpoint.get("best_checkpoint_metric", "loss"))
    found = {
        f"{_named(metric)} on the validation split": (metric, number(state.extra.get("val_loss"))),
        f"best {_named(metric)} during training": (metric, number(state.extra.get("best"))),
        **_others(state, metric),
    }
    rows = {text: f"{unit(name) * value:.6g}" for text, (name, value) in found.items() if value is not None}
    return _table(rows) if rows else ["The checkpoint has no scores."]


def _others(state: TrainedState, metric: str) -> dict[str, tuple[str, float | None]]:
    """The other scores of the checkpoint's validation, if the metrics.jsonl of its run is beside it."""
    try:
        run = read_metrics(state.path.parent)
    except NoMetrics:
        return {}
    first = run.valid_splits[0]
    return {
        f"{_named(name)} on {_word(split)}": (name, value)
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
