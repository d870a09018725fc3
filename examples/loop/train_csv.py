#!/usr/bin/env python3
"""Trains a classifier of texts with FreeLB in a plain PyTorch loop.

  examples/loop/train_csv.py train.csv valid.csv --model out/minilm --out out/freelb --bf16

The files have the columns text and label. Prints the accuracy on VALID after each epoch.
"""

import argparse
import csv
import sys
from functools import partial

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

from fairseq_adv.cli.script import count, exit_status, positive, whole
from fairseq_adv.data.errors import DataError
from fairseq_adv.loop import FreeLB


def parser():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("train")
    options.add_argument("valid")
    options.add_argument("--model", required=True, help="a Hugging Face folder, or a name on the hub")
    options.add_argument("--out", required=True, help="the trained model's folder")
    options.add_argument("--lr", type=positive, default=5e-5)
    options.add_argument("--epochs", type=count, default=3)
    options.add_argument("--rows", type=count, default=16, help="rows of a mini-batch")
    options.add_argument("--accumulate", type=count, default=2, help="mini-batches of an update")
    options.add_argument("--bf16", action="store_true", help="bf16 autocast")
    options.add_argument("--seed", type=whole, default=1)
    return options


def read(path, names=()):
    """Pairs of a text and a label, which is one of ``names`` if there are any."""
    found = []
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file)
        for row in lines:
            text, label = row.get("text"), row.get("label")
            is_cut = None in row  # more cells than columns
            if is_cut or text is None or label is None or (names and label not in names):
                wanted = f", one of {', '.join(names)}" if names else ""
                quote = "; put a text with commas in quotes" if is_cut else ""
                raise DataError(f"{path}: line {lines.line_num}: pass a text and a label{wanted}{quote}")
            found.append((text, label))
    if not found:
        raise DataError(f"{path}: no rows. Pass a csv with the columns text and label")
    return found


def make_batch(tokenizer, names, rows):
    texts, labels = zip(*rows)
    batch = tokenizer(list(texts), truncation=True, padding=True, return_tensors="pt")
    batch["labels"] = torch.tensor([names.index(label) for label in labels])
    return batch


@torch.no_grad()
def accuracy(model, batches, device):
    model.eval()
    right = total = 0
    for batch in batches:
        batch = batch.to(device)
        right += (model(**batch).logits.argmax(-1) == batch["labels"]).sum().item()
        total += len(batch["labels"])
    return right / total


def main(words=None):
    options = parser().parse_args(words)
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = read(options.train)
    names = sorted({label for _, label in train})
    valid = read(options.valid, names)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=len(names), id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    ).to(device)  # fmt: skip
    loader = partial(DataLoader, batch_size=options.rows, collate_fn=partial(make_batch, tokenizer, names))
    train_batches, valid_batches = loader(train, shuffle=True), loader(valid)

    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    updates = options.epochs * -(-len(train_batches) // options.accumulate)
    schedule = get_linear_schedule_with_warmup(optimizer, updates // 16, updates)
    freelb = FreeLB(model)
    for epoch in range(options.epochs):
        model.train()
        for number, batch in enumerate(train_batches, 1):
            batch = batch.to(device)
            before = (number - 1) // options.accumulate * options.accumulate
            size = min(options.accumulate, len(train_batches) - before)  # of the update, less at the end

            # One forward pass; FreeLB makes three, and their backward passes.
            def closure(batch=batch, size=size):
                with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
                    return model(**batch).loss / size

            loss = freelb(closure, attention_mask=batch["attention_mask"])
            if number % options.accumulate == 0 or number == len(train_batches):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        last, moved = loss.item() * size, freelb.log["adv_ratio"].item()
        found = accuracy(model, valid_batches, device)
        print(
            f"epoch {epoch + 1}: loss {last:.3f}, delta {moved:.2%} of the embeddings, accuracy {found:.2%}"
        )
        model.save_pretrained(options.out)
        tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
