#!/usr/bin/env python3
"""Fine-tunes a small encoder on named entities on a CPU with three methods, and scores the test sentences.

  examples/ner/small_runs.py ../shared/data out/ner-small
  examples/ner/small_runs.py ../shared/data out/ner-small --table --into page.md

Finished runs are kept. A run that was interrupted or had other settings starts again.

All methods share encoder, data, batches, learning rate, schedule and number of updates. Perturbation sizes
are relative to the embeddings, and among the candidates of examples/evidence.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from driver import Record, Run, make
from tables import Column, outcome, table

METHODS = {
    "standard": [],
    "freelb": small.RELATIVE,
    "alum_vat": small.RELATIVE_VAT,
}
CORPORA = {"NCBI-disease": "NCBI-disease-IOB", "BC5CDR": "BC5CDR-IOB"}
SPLITS = ("train", "devel", "test")
SCORES = ("f1", "precision", "recall")


def parser() -> ArgumentParser:
    options = small.parser(__doc__, "ner/NCBI-disease-IOB and ner/BC5CDR-IOB")
    small.add_names(options, "--corpora", list(CORPORA))
    small.add_names(options, "--methods", list(METHODS))
    small.add_seeds(options)
    small.add_number(options, "--updates", "of 16 sentences each", 150)
    small.add_number(options, "--measured", "sentences to use of devel and of test, evenly spaced", 940)
    return options


def prepare(options: Namespace, corpus: str) -> str:
    """Writes all training sentences and some of the others; returns the folder, relative to OUT."""
    folder: Path = options.out / f"{corpus}-{options.measured}"
    for split in SPLITS:
        source = options.data / "ner" / CORPORA[corpus] / f"{split}.tsv"
        text = source.read_text(encoding="utf-8").strip("\n")
        sentences = [one + "\n" for one in text.split("\n\n")]
        if split != "train" and len(sentences) > options.measured:
            sentences = small.spread_rows(sentences, options.measured)
        folder.mkdir(exist_ok=True)
        (folder / f"{split}.tsv").write_text("\n".join(sentences), encoding="utf-8")
    return folder.name


def run(options: Namespace, corpus: str, method: str, seed: int, data: str) -> Run:
    name = f"{corpus}-{method}-{seed}"
    words = [
        *small.encoder_words(options), *small.COMMON, *small.schedule(3e-4, options.updates),
        "--task", "tagging", "--tokenizer-dir", options.encoder, "--criterion", method, *METHODS[method],
        "--batch-size", "16", "--batch-size-valid", "32", "--save-interval", "1000",
        "--validate-interval", "1000", "--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric",
    ]  # fmt: skip
    test = [
        "fairseq-adv", "validate", f"{name}/checkpoint_last.pt", "--data", data, "--split", "test", "--cpu",
        "--json",
    ]  # fmt: skip
    return Run(
        name, data, f"{options.encoder}/model.pt", words, seed, {"corpus": corpus, "method": method},
        after={"test": test}, delete=["checkpoint_*.pt"],
    )  # fmt: skip


def work(options: Namespace) -> None:
    data = {corpus: prepare(options, corpus) for corpus in options.corpora}
    runs = [
        run(options, corpus, method, seed, data[corpus])
        for seed in options.seeds for corpus in options.corpora for method in options.methods
    ]  # fmt: skip
    make(runs, options.out, options.jobs)


def most_frequent_tags(folder: Path) -> dict[str, float]:
    """The scores of a baseline without a model: each word gets its most frequent tag in the training data,
    an unknown word O.
    """
    from fairseq_adv.data.tags.columns import read_columns
    from fairseq_adv.data.tags.schemes import OUTSIDE
    from fairseq_adv.evaluation.entity_report import entity_report

    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in read_columns(folder / "train.tsv"):
        for word, tag in zip(sentence.words, sentence.tags or ()):
            seen[word.lower()][tag] += 1
    most = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    test = read_columns(folder / "test.tsv")
    predicted = [[most.get(word.lower(), OUTSIDE) for word in sentence.words] for sentence in test]
    return entity_report([sentence.tags or () for sentence in test], predicted)


def tables(records: list[Record], out: Path) -> list[str]:
    lines = []
    for corpus in CORPORA:
        own = [record for record in records if record["labels"]["corpus"] == corpus]
        columns = [
            small.SEEDS, small.UPDATES,
            *(Column(f"test {name}", outcome("test", name), 2, True) for name in SCORES),
            small.SPEED, small.CPU, small.PEAK,
        ]  # fmt: skip
        lines += table(own, {"corpus": [corpus], "method": list(METHODS)}, columns)
        if own:
            found = most_frequent_tags(out / own[0]["data"])
            lines += [
                f"Without a model, each word with its most frequent tag: F1 {found['f1']:.2f}, precision "
                f"{found['precision']:.2f}, recall {found['recall']:.2f}.",
                "",
            ]
    return lines


def main() -> int:
    options = parser().parse_args()
    needs = [f"ner/{CORPORA[corpus]}/{split}.tsv" for corpus in options.corpora for split in SPLITS]
    return small.command(options, needs, work, lambda records: tables(records, options.out))


if __name__ == "__main__":
    sys.exit(main())
