"""Tries perturbation sizes for an encoder, as fractions of its embeddings' norm, and writes a table.

Each run is a fairseq-adv train command in a folder of its own, with its log. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.processes import python_module
from fairseq_adv.evaluation.attack_settings import Attack

from .data_folder import count_classes, detect_task
from .encoder_folder import model_args
from .number_types import count, positive, with_commas
from .script import VerbParser

if TYPE_CHECKING:
    from fairseq_adv.evaluation.summaries import Summary

_COMMAND = "command.txt"  # of a run
_SIZES = {"adv_steps", "adv_max_norm", "adv_lr", "adv_init_mag"}


def sweep_options(parser: VerbParser) -> None:
    parser.describe(__doc__)
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="binarised sentence_prediction folder with train and valid")
    add(
        "encoder",
        type=Path,
        metavar="ENCODER",
        help="a Hugging Face folder, or one that convert wrote",
    )
    add("out", type=Path, metavar="OUT", help="output folder for the runs and RESULTS.md")
    add("--ratios", type=with_commas, default=[0.005, 0.01, 0.02, 0.04, 0.08],
        help="epsilon as fractions of ||X||, the mean norm of a training sentence's embeddings, separated by "
        "commas")  # fmt: skip
    add("--alphas", type=with_commas, default=[0.33],
        help="step sizes alpha as fractions of epsilon, separated by commas")  # fmt: skip
    add("--starts", type=with_commas, default=[0.5],
        help="m of the random start as fractions of epsilon, separated by commas")  # fmt: skip
    add("--attack-ratio", type=positive,
        help="epsilon / ||X|| of the attack on the results (default: the median of --ratios)")  # fmt: skip
    add("--seeds", type=count, default=2, help="runs per setting, with seeds 1, 2, …")
    add("--criterion", default="freelb", help="criterion to train with")
    add("--adv-steps", type=count, default=3, help="passes of the criterion, K")
    add("--num-classes", type=count, help="number of classes (default: from DATA)")
    add("--max-epoch", type=count, default=3, help="training epochs")
    add("--batch-size", type=count, default=16, metavar="N", help="examples per mini-batch")
    add("--precision", choices=("auto", "fp32", "bf16"),
        help="precision of the training runs, as for fairseq-adv train; runs without perturbation then use "
        "--criterion standard (default: fp32; with --metric accuracy, these use fairseq's own "
        "criterion)")  # fmt: skip
    add("--lr", type=positive, default=5e-5, help="learning rate")
    add("--metric", default="accuracy", help="validation metric that selects the best checkpoint")


def sweep(args: argparse.Namespace) -> None:
    """Trains every setting with every seed, one after the other, and measures each."""
    from fairseq_adv.data.io import atomic_write
    from fairseq_adv.evaluation.summaries import LOWER, summarise

    if args.metric in LOWER:
        raise DataError(f"--metric {args.metric}: the table has the loss. Pass a score, such as accuracy.")
    _check(args.data, args.criterion)
    norm = embedding_norm(args.data, args.encoder)
    # One attack for all settings, in the middle of the range, so that their losses can be compared.
    epsilon = (args.attack_ratio or statistics.median(args.ratios)) * norm
    attack = Attack(epsilon=epsilon, step_size=epsilon / 2, steps=5)
    rows: dict[Setting, list[Summary]] = {}
    text = ""
    runs = [
        (seed, setting, args.out / f"{setting.name}-seed{seed}")
        for seed, setting in itertools.product(range(1, args.seeds + 1), settings(args))
    ]
    for seed, setting, folder in runs:
        _check_begun(folder, command(args, setting, norm, seed, folder))
    for number, (seed, setting, folder) in enumerate(runs, start=1):
        is_new = not (folder / "done").exists()
        if is_new:
            words = command(args, setting, norm, seed, folder)
            atomic_write(folder / _COMMAND, shlex.join(words) + "\n")
            print(f"{number} of {len(runs)}: {folder}", flush=True)
            status = _run_to_its_end(python_module("fairseq_adv", *words[1:]))
            if status:
                raise DataError(
                    f"{folder}: the training ended with status {status}, see above and {folder}/train.log. "
                    "Fix that and run the same command again; finished runs are kept."
                )
            (folder / "done").touch()
        found = summarise(folder, args.metric, [attack])
        rows.setdefault(setting, []).append(found)
        if is_new:
            print(f"  dev {args.metric} {found.score:.1f}, loss {found.loss:.3f}", flush=True)
        (folder / "checkpoint_last.pt").unlink(missing_ok=True)
        text = table(rows, norm, attack, args.metric)
        atomic_write(args.out / "RESULTS.md", text + "\n")
    print(text)


def _check(data: Path, criterion: str) -> None:
    """Raises DataError if the data have no classes, or the criterion lacks options of the sweep."""
    from fairseq_adv.criterions import methods

    if detect_task(data) != "text_classification" or count_classes(data) is None:
        raise DataError(f"{data}: not texts with classes. Pass a folder from prepare glue or classification")
    able = [name for name, method in methods().items() if {*method.own_options()} >= _SIZES]
    if criterion not in able:
        raise DataError(
            f"--criterion {criterion}: lacks sizes that a sweep sets. Pass one of {', '.join(able)}"
        )


def _run_to_its_end(words: Sequence[str]) -> int:
    """A run's status. Its bar and its warnings are shown; the rest is told by the sweep, or in its log."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as run:
        try:
            return run.wait()
        except KeyboardInterrupt:  # or SIGTERM
            run.terminate()  # it ends after its update, with a checkpoint
            run.wait()
            raise


def _check_begun(folder: Path, words: Sequence[str]) -> None:
    """Raises DataError if a run is finished or can resume, but was trained by another command."""
    file = folder / _COMMAND
    is_begun = any((folder / name).exists() for name in ("done", "checkpoint_last.pt"))
    if not is_begun or not file.exists():
        return
    if _meant(shlex.split(file.read_text(encoding="utf-8"))) != _meant(words):
        raise DataError(f"{folder}: was trained by another command ({file}). Pass another OUT, or remove it.")


def _meant(words: Sequence[str]) -> list[str]:
    """A command of :func:`command` without the program and the folder, and with its files' whole paths."""
    where = [place + 1 for place, word in enumerate(words) if word in ("train", "--encoder")]
    meant = [os.path.realpath(word) if place in where else word for place, word in enumerate(words)]
    return meant[meant.index("train") : meant.index("--save-dir")]


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


def settings(args: argparse.Namespace) -> Iterator[Setting]:
    """Training without perturbation first, then all combinations."""
    yield Setting(0)
    for ratio, alpha, start in itertools.product(args.ratios, args.alphas, args.starts):
        if ratio:
            yield Setting(ratio, alpha, start)


def command(args: argparse.Namespace, setting: Setting, norm: float, seed: int, folder: Path) -> list[str]:
    """The ``fairseq-adv train`` command of one run."""
    if setting.ratio:
        epsilon = setting.ratio * norm
        method = [
            "--criterion", args.criterion, "--adv-steps", str(args.adv_steps),
            "--adv-max-norm", f"{epsilon:.4g}", "--adv-lr", f"{setting.alpha * epsilon:.4g}",
            "--adv-init-mag", f"{setting.start * epsilon:.4g}", "--precision", args.precision or "fp32",
        ]  # fmt: skip
    elif args.precision or args.metric != "accuracy":  # which fairseq's own criterion doesn't have
        method = ["--criterion", "standard", "--precision", args.precision or "fp32"]
    else:
        method = ["--criterion", "sentence_prediction"]
    classes = ["--num-classes", str(args.num_classes)] if args.num_classes else []
    own = [
        "--task", "sentence_prediction", *classes, *method,
        "--dropout", "0.1", "--attention-dropout", "0.1", "--weight-decay", "0.1", "--lr", str(args.lr),
        "--max-epoch", str(args.max_epoch), "--batch-size", str(args.batch_size), "--seed", str(seed),
        "--valid-subset", "valid", "--best-checkpoint-metric", args.metric,
        "--maximize-best-checkpoint-metric", "--save-dir", str(folder),
    ]  # fmt: skip
    return ["fairseq-adv", "train", str(args.data), "--encoder", str(args.encoder), *own]


def table(rows: Mapping[Setting, Sequence[Summary]], norm: float, attack: Attack, metric: str) -> str:
    """A line for each setting, in Markdown."""
    lines = [
        f"Mean ||X||_F of a sentence: {norm:.2f}. Perturbed: {attack.steps} ascent steps of "
        f"{100 * attack.step_size / norm:.3g} % within epsilon {100 * attack.epsilon / norm:.3g} % of it, "
        "loss in nats. Mean over the seeds (lowest to highest).",
        "",
        f"| ε/‖X‖ | α/ε | m/ε | measured ‖δ‖/‖X‖ | dev {metric} | dev loss | loss perturbed | seeds |",
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


def _spread(values: list[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def embedding_norm(data: Path, encoder: Path) -> float:
    """Mean Frobenius norm of the word embeddings of a training sentence (input0 and input1 together).

    It is the mean of the first 1000.
    """
    import torch
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu
    from fairseq.data import data_utils

    from fairseq_adv.data.tokenizers import is_hugging_face
    from fairseq_adv.data.tokenizers.text_to_ids import load_dictionary
    from fairseq_adv.models.transformers_models import word_embeddings

    if is_hugging_face(encoder):
        squares = word_embeddings(encoder).pow(2).sum(dim=1)
    elif not (encoder / "model.pt").is_file():
        raise DataError(f"{encoder}/model.pt: no such file. Pass a folder written by fairseq-adv convert")
    else:
        model_args(encoder)  # refuses what is no encoder before its weights are read
        weights = load_checkpoint_to_cpu(str(encoder / "model.pt"))["model"]
        squares = weights["encoder.sentence_encoder.embed_tokens.weight"].float().pow(2).sum(dim=1)
    inputs = []
    for name in ("input0", "input1"):
        if name == "input0" or (data / name).is_dir():
            dictionary = load_dictionary(data / name / "dict.txt")
            inputs.append(data_utils.load_indexed_dataset(str(data / name / "train"), dictionary))
    if inputs[0] is None:
        raise DataError(f"{data}: no input0/train.idx. Prepare the data with fairseq-adv prepare glue")
    total = torch.zeros(min(1000, len(inputs[0])))
    for rows in inputs:
        for i in range(len(total)):
            total[i] += squares[rows[i].long()].sum()
    return float((total + squares[0]).sqrt().mean())  # plus <s>, which begins every input
