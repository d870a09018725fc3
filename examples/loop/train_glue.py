#!/usr/bin/env python3
"""Trains a classifier of texts, or of pairs of texts, with transformers' Trainer and an adversarial method.

Files are csv with a column "label" and one or two columns of text. All of TrainingArguments are options:

  examples/loop/train_glue.py --model out/minilm --train_file train.csv --validation_file valid.csv \\
      --output_dir out/freelb --learning_rate 1e-4 --num_train_epochs 3 --per_device_train_batch_size 16 \\
      --gradient_accumulation_steps 2 --eval_strategy epoch
"""

import csv
import sys
from dataclasses import dataclass, field
from typing import Literal

import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

from fairseq_adv import loop
from fairseq_adv.cli.script import exit_status
from fairseq_adv.data.errors import DataError


@dataclass
class Options:
    model: str = field(metadata={"help": "a Hugging Face folder, or a name on the hub"})
    train_file: str
    validation_file: str
    method: Literal["FreeLB", "PGD", "ALUM", "SMART", "R3F", "Noise", "none"] = field(
        default="FreeLB", metadata={"help": "a class of fairseq_adv.loop; none: plain training"}
    )
    max_length: int = 512


def read(path, names=()):
    """The texts, a tuple for each row, and the labels, which are of ``names`` if there are any."""
    texts, labels = [], []
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file)
        for row in lines:
            is_cut, label = None in row, row.pop("label", None)  # more cells than columns
            others = list(row.values())
            is_odd = is_cut or label is None or None in others or not 1 <= len(others) <= 2
            if is_odd or (names and label not in names):
                wanted = f", one of {', '.join(names)}" if names else ""
                quote = "; put a text with commas in quotes" if is_cut else ""
                told = f"{path}: line {lines.line_num}: pass one or two texts and a label{wanted}{quote}"
                raise DataError(told)
            texts.append(tuple(others))
            labels.append(label)
    if not texts:
        raise DataError(f"{path}: no rows. Pass a csv with a column label and one or two columns of text")
    return texts, labels


def accuracy(predicted):
    return {"accuracy": (predicted.predictions.argmax(-1) == predicted.label_ids).mean().item()}


def parser():
    return transformers.HfArgumentParser((Options, TrainingArguments), description=__doc__.split("\n")[0])


def main(words=None):
    options, training = parser().parse_args_into_dataclasses(words)
    transformers.set_seed(training.seed)
    names = sorted(set(read(options.train_file)[1]))
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=len(names), id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )  # fmt: skip

    def rows(path):
        texts, labels = read(path, names)
        encoded = [tokenizer(*one, truncation=True, max_length=options.max_length) for one in texts]
        return [{**row, "labels": names.index(label)} for row, label in zip(encoded, labels)]

    trainer = Trainer(
        model, training, train_dataset=rows(options.train_file), eval_dataset=rows(options.validation_file),
        processing_class=tokenizer, compute_metrics=accuracy,
    )  # fmt: skip
    trainer.model_accepts_loss_kwargs = False  # else it does not divide the loss by the accumulation steps
    if options.method != "none":
        loop.attach(trainer, getattr(loop, options.method))
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    sys.exit(exit_status(main))
