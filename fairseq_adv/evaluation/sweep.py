"""Fine-tunes an encoder with perturbations of several sizes and compares the results."""

from __future__ import annotations

import itertools
import shlex
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.data import Dictionary, data_utils

import fairseq_adv
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import Summary, summarise


@dataclass(frozen=True)
class Setting:
    """A perturbation in fractions: epsilon of ||X||, alpha and m of epsilon. Ratio 0: no perturbation."""

    ratio: float
    alpha: float = 0.0
    start: float = 0.0

    @property
    def name(self) -> str:
        if self.ratio == 0:
            return "plain"
        return f"eps{self.ratio:g}-alpha{self.alpha:g}-start{self.start:g}"


class Sweep:
    """Runs every setting with every seed, one after the other; finished runs are reused.

    Args:
        options: those of ``fairseq-adv sweep``, and ``model_args``, the encoder's sizes as arguments for
            fairseq-train.
    """

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.norm = embedding_norm(options.data, options.encoder)
        # One attack for all settings, in the middle of the range, so that their losses can be compared.
        epsilon = (options.attack_ratio or statistics.median(options.ratios)) * self.norm
        self.attack = Attack(epsilon=epsilon, step_size=epsilon / 2, steps=5)

    def settings(self) -> Iterator[Setting]:
        """Training without perturbation first, then all combinations."""
        yield Setting(0)
        options = self.options
        for ratio, alpha, start in itertools.product(options.ratios, options.alphas, options.starts):
            yield Setting(ratio, alpha, start)

    def run(self) -> str:
        """Trains, measures and returns the table, which is also written to ``RESULTS.md``.

        Raises:
            DataError: a run failed.
            FullDisk: there is no space left for the outputs.
        """
        rows: dict[Setting, list[Summary]] = {}
        for seed, setting in itertools.product(range(1, self.options.seeds + 1), self.settings()):
            folder = self.options.out / f"{setting.name}-seed{seed}"
            if not (folder / "done").exists():
                self._train(setting, seed, folder)
            summary = summarise(folder, self.options.metric, [self.attack])
            rows.setdefault(setting, []).append(summary)
            (folder / "checkpoint_last.pt").unlink(missing_ok=True)
            self._write(self._table(rows))
        return self._table(rows)

    def _train(self, setting: Setting, seed: int, folder: Path) -> None:
        command = self.command(setting, seed, folder)
        atomic_write(folder / "command.txt", shlex.join(command) + "\n")
        status = subprocess.run(command).returncode
        if status:
            raise DataError(
                f"{folder}: fairseq-train ended with status {status}; see its output above. Fix that "
                "and run the same command again; finished runs are kept."
            )
        (folder / "done").touch()

    def command(self, setting: Setting, seed: int, folder: Path) -> list[str]:
        """The ``fairseq-train`` command of one run."""
        o = self.options
        updates = o.max_epoch * -(-_rows(o.data, "train") // o.batch_size)
        epsilon = setting.ratio * self.norm
        method = ["--criterion", "standard" if o.precision else "sentence_prediction"]
        if setting.ratio:
            method = [
                "--criterion", o.criterion, "--adv-steps", str(o.adv_steps),
                "--adv-max-norm", f"{epsilon:.4g}", "--adv-lr", f"{setting.alpha * epsilon:.4g}",
                "--adv-init-mag", f"{setting.start * epsilon:.4g}",
            ]  # fmt: skip
        if o.precision:  # an option of our criterions only
            method += ["--precision", o.precision]
        return [
            str(Path(sys.executable).with_name("fairseq-train")), str(o.data),
            "--user-dir", str(Path(fairseq_adv.__file__).parent),
            "--task", "sentence_prediction", "--num-classes", str(o.num_classes),
            "--init-token", "0", "--separator-token", "2",
            *o.model_args,
            "--finetune-from-model", str(o.encoder / "model.pt"), *method,
            "--dropout", "0.1", "--attention-dropout", "0.1", "--weight-decay", "0.1", "--clip-norm", "1.0",
            "--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-06",
            "--lr", str(o.lr), "--lr-scheduler", "polynomial_decay",
            "--warmup-updates", str(updates * 6 // 100),
            "--total-num-update", str(updates), "--max-epoch", str(o.max_epoch),
            "--batch-size", str(o.batch_size), "--required-batch-size-multiple", "1", "--seed", str(seed),
            "--best-checkpoint-metric", o.metric, "--maximize-best-checkpoint-metric",
            "--no-epoch-checkpoints", "--save-dir", str(folder),
            "--log-file", str(folder / "train.log"), "--log-format", "json",
        ]  # fmt: skip

    def _table(self, rows: dict[Setting, list[Summary]]) -> str:
        lines = [
            f"Mean ||X||_F of a sentence: {self.norm:.2f}. Perturbed: {self.attack.steps} ascent steps of "
            f"{self.attack.step_size:.3g} within epsilon {self.attack.epsilon:.3g}, loss in nats. "
            "Mean over the seeds (lowest to highest).",
            "",
            f"| ε/‖X‖ | α/ε | m/ε | measured ‖δ‖/‖X‖ | dev {self.options.metric} | dev loss "
            "| loss perturbed | seeds |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for setting, seeds in rows.items():
            first = "plain" if not setting.ratio else f"{setting.ratio:g}"
            shares = ("", "") if not setting.ratio else (f"{setting.alpha:g}", f"{setting.start:g}")
            columns = [
                first, *shares, f"{statistics.mean(s.ratio for s in seeds):.4f}" if setting.ratio else "",
                _spread([s.score for s in seeds], 1), _spread([s.loss for s in seeds], 3),
                _spread([s.attacked[0][0] for s in seeds], 3), str(len(seeds)),
            ]  # fmt: skip
            lines.append("| " + " | ".join(columns) + " |")
        return "\n".join(lines)

    def _write(self, text: str) -> None:
        atomic_write(self.options.out / "RESULTS.md", text + "\n")


def _spread(values: list[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def _rows(data: Path, split: str) -> int:
    dictionary = Dictionary.load(str(data / "input0" / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(data / "input0" / split), dictionary)
    if dataset is None:
        raise DataError(f"{data}: no input0/{split}.idx. Prepare the data with fairseq-adv prepare glue")
    return len(dataset)


def embedding_norm(data: Path, encoder: Path, sentences: int = 1000) -> float:
    """Mean Frobenius norm of the word embeddings of a training sentence (input0 and input1 together).

    Args:
        data: binarised folder.
        encoder: folder with ``model.pt``.
        sentences: number of sentences to measure, the first ones.

    Raises:
        DataError: a file is missing.
    """
    if not (encoder / "model.pt").is_file():
        raise DataError(f"{encoder}/model.pt: no such file. Pass a folder written by fairseq-adv convert")
    weights = load_checkpoint_to_cpu(str(encoder / "model.pt"))["model"]
    squares = weights["encoder.sentence_encoder.embed_tokens.weight"].float().pow(2).sum(dim=1)
    total = torch.zeros(min(sentences, _rows(data, "train")))
    for name in ("input0", "input1"):
        if (data / name).is_dir():
            dictionary = Dictionary.load(str(data / name / "dict.txt"))
            rows = data_utils.load_indexed_dataset(str(data / name / "train"), dictionary)
            for i in range(len(total)):
                total[i] += squares[rows[i].long()].sum()
    return float((total + squares[0]).sqrt().mean())  # plus <s>, which begins every input
