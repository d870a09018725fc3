#!/usr/bin/env python3
"""Fine-tunes a small encoder on part of SQuAD v1.1 on a CPU with three methods; tests on adversarial SQuAD.

  examples/squad/small_runs.py ../shared/data out/squad-small
  examples/squad/small_runs.py ../shared/data out/squad-small --table --into page.md

Finished runs are kept. A run that was interrupted or had other settings starts again.

All methods share encoder, data, batches, learning rate, schedule and number of updates. Perturbation sizes
are relative to the embeddings, and among the candidates of examples/evidence. AddSent also contains the
original questions, so it gives the score on the dev questions as well.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from driver import Record, Run, make
from tables import Column, outcome, table

METHODS = {"standard": [], "freelb": small.RELATIVE, "alum_vat": small.RELATIVE_VAT}
TRAIN = "squad/train-v1.1.answerable-of-v2-slice.json"
ADD_SENT = "squad/sample1k-HCVerifyAll.json"
SCORES = {
    "F1, dev questions": "original_f1", "EM": "original_exact",
    "F1, AddSent (worst variant)": "adversarial_f1", "EM, AddSent": "adversarial_exact",
    "F1, plain mean of all rows": "f1",
}  # fmt: skip


def parser() -> ArgumentParser:
    options = small.parser(__doc__, "squad")
    small.add_names(options, "--methods", list(METHODS))
    small.add_seeds(options)
    small.add_number(options, "--updates", "of 8 windows each", 100)
    small.add_number(options, "--originals", "dev questions to use, with all their AddSent variants", 60)
    return options


def prepare(options: Namespace) -> str:
    """Writes the training questions and some dev questions with their variants; returns the folder, relative
    to OUT.
    """
    from fairseq_adv.data.spans.scoring import original_of
    from fairseq_adv.data.spans.squad import read_squad

    squad = read_squad(options.data / ADD_SENT)
    names = [question.id for question in squad.questions if "-" not in question.id]
    chosen = set(small.spread_rows(names, options.originals))
    content = json.loads((options.data / ADD_SENT).read_text(encoding="utf-8"))
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [row for row in paragraph["qas"] if original_of(row["id"]) in chosen]
        article["paragraphs"] = [one for one in article["paragraphs"] if one["qas"]]
    folder: Path = options.out / f"squad-{options.originals}"
    folder.mkdir(exist_ok=True)
    (folder / "train.json").write_bytes((options.data / TRAIN).read_bytes())
    (folder / "valid.json").write_text(json.dumps(content), encoding="utf-8")
    return folder.name


def run(options: Namespace, method: str, seed: int, data: str) -> Run:
    name = f"squad-{method}-{seed}"
    words = [
        *small.encoder_words(options), *small.COMMON, *small.schedule(3e-4, options.updates),
        "--task", "span_qa", "--tokenizer-dir", options.encoder, "--criterion", method, *METHODS[method],
        "--window-tokens", "128", "--window-overlap", "32", "--batch-size", "8", "--disable-validation",
        "--save-interval", "1000",
    ]  # fmt: skip
    checkpoint, answers = f"{name}/checkpoint_last.pt", f"{name}/predictions-valid.json"
    predict = [
        "fairseq-adv", "predict", checkpoint, "--task", "squad", "--data", data, "--split", "valid", "--out",
        name, "--cpu",
    ]  # fmt: skip
    score = ["fairseq-adv", "score", "squad", f"{data}/valid.json", answers, "--json"]
    return Run(
        name, data, f"{options.encoder}/model.pt", words, seed, {"method": method},
        after={"predict": predict, "score": score}, delete=["checkpoint_*.pt"],
    )  # fmt: skip


def work(options: Namespace) -> None:
    data = prepare(options)
    runs = [run(options, method, seed, data) for seed in options.seeds for method in options.methods]
    make(runs, options.out, options.jobs)


def first_words(folder: Path) -> dict[str, float]:
    """The scores of a baseline without a model, which answers with the first three words of the context."""
    from fairseq_adv.data.spans.squad import read_squad
    from fairseq_adv.evaluation.span_report import span_report

    squad = read_squad(folder / "valid.json")
    answers: dict[str, Any] = {
        question.id: " ".join(squad.contexts[question.context].split()[:3]) for question in squad.questions
    }
    return span_report(answers, squad.golds())


def tables(records: list[Record], out: Path) -> list[str]:
    columns = [
        small.SEEDS, small.UPDATES,
        *(Column(head, outcome("score", name), 2, True) for head, name in SCORES.items()),
        small.SPEED, small.CPU, small.PEAK,
    ]  # fmt: skip
    found = first_words(out / records[0]["data"])
    return [
        *table(records, {"method": list(METHODS)}, columns),
        f"Without a model, the first three words of the context: F1 {found['original_f1']:.2f} on the dev "
        f"questions, {found['adversarial_f1']:.2f} on AddSent.",
        "",
    ]


def main() -> int:
    options = parser().parse_args()
    return small.command(options, [TRAIN, ADD_SENT], work, lambda records: tables(records, options.out))


if __name__ == "__main__":
    sys.exit(main())
