"""Checkpoints of tiny models with random weights, and data folders in GLUE's classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import glue_samples
import torch
from support import VOCABULARY, build, train_args, write_encoder, write_json_lines, write_task

from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.evaluation.predict.ensemble import Scores


def save(data: Path, path: Path, *extra: str, task: str = "sentence_prediction", classes: int = 2) -> Path:
    """A checkpoint as fairseq-train writes it before the first update; another --seed, another model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        run = build(train_args(data, path.parent / "unused", "standard", *extra, classes=classes, task=task))
    path.parent.mkdir(parents=True, exist_ok=True)
    # fairseq draws small weights: all rows would look alike.
    generator = torch.Generator().manual_seed(run.cfg.common.seed)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 1.0)
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return path


def glue_model(
    folder: Path, task: str, *extra: str, encoder: Callable[[Path], Path] = glue_samples.small_wordpiece
) -> Path:
    """encoder/, data/ and a.pt, a model of a task of GLUE; the data names the tokenizer, as after prepare."""
    tokenizer = tokenizer_for_encoder(encoder(folder / "encoder"))
    glue_samples.WRITERS[task](folder / "raw")
    prepare(folder / "raw", task, folder / "data", tokenizer, progress=False)
    classes = {"STS-B": 1, "MNLI": 3}.get(task, 2)
    save(folder / "data", folder / "a.pt", *(extra or ("--max-positions", "64")), classes=classes)
    return folder


def rename_labels(data: Path, *names: str) -> Path:
    """Gives the classes of a data folder these names, in the dictionary's order."""
    path = data / "label" / "dict.txt"
    lines = path.read_text().splitlines()
    for k, name in enumerate(names):
        lines[k] = f"{name} {lines[k].split()[1]}"
    path.write_text("\n".join(lines) + "\n")
    return data


def with_test_splits(data: Path, **counts: int) -> Path:
    """Adds test splits without labels, made of other sentences."""
    for split, count in counts.items():
        other = write_task(data.parent / f"{data.name}-{split}", valid=count, seed=len(split))
        for ending in ("bin", "idx"):
            (other / "input0" / f"valid.{ending}").rename(data / "input0" / f"{split}.{ending}")
    return data


def qnli(folder: Path, questions: list[list[str]], split: str = "test") -> Path:
    """A qnli_ranking folder whose test questions have choices with these labels; the texts differ."""
    write_encoder(folder)
    words = iter(VOCABULARY * 9)
    for name in ("train", "valid"):
        choices = [{"label": "0", "text": "w1 w2"}, {"label": "1", "text": "w3"}]
        row = {"id": f"{name}-0", "question": {"stem": "w5", "choices": choices}, "answerKey": "1"}
        write_json_lines(folder / f"{name}.jsonl", [row])
    rows = []
    for number, labels in enumerate(questions):
        choices = [{"label": label, "text": f"{next(words)} {next(words)}"} for label in labels]
        rows.append({"id": f"{split}-{number}", "question": {"stem": next(words), "choices": choices}})
    write_json_lines(folder / f"{split}.jsonl", rows)
    return folder


def tsv(path: Path) -> list[str]:
    """The answers of a GLUE file, whose header and indices are as they must be."""
    lines = path.read_text().split("\n")
    assert lines[0] == "index\tprediction" and lines[-1] == ""
    cells = [line.split("\t") for line in lines[1:-1]]
    assert [index for index, _ in cells] == [str(i) for i in range(len(cells))]
    return [answer for _, answer in cells]


def kept(out: Path) -> list[Scores]:
    """The scores in an output folder."""
    return [Scores.load(path) for path in sorted((out / "scores").iterdir())]
