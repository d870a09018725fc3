"""One encoder by both paths, converted and as it is: freelb trains both to equal losses and predictions.

LayerNorm's epsilon is fairseq's 1e-5 on both sides, and there is no dropout. The segments' embeddings are not
trained: convert adds them to the positions', which Adam then moves once, not twice.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import hf_models
import pytest
import torch
from hf_encoders import WORDS, of_transformers, save_encoder
from support import batch, build, train_args

from fairseq_adv.cli import main as fairseq_adv
from fairseq_adv.hub.convert import convert_hf_checkpoint

HEAD = "classification_heads.sentence_classification_head."
HEADS = {  # fairseq's names -> transformers'
    "bert": {"dense": "bert.pooler.dense", "out_proj": "classifier"},
    "roberta": {"dense": "classifier.dense", "out_proj": "classifier.out_proj"},
}
RECIPE = [
    "--adv-relative", "--adv-lr", "0.0033", "--adv-max-norm", "0.01", "--adv-init-mag", "0.005",
    "--optimizer", "torch_adamw", "--clip-norm", "0", "--pooler-dropout", "0",
]  # fmt: skip


def save_tiny(folder: Path, kind: str) -> None:
    """A random encoder with the files of both paths' tokenizers."""
    if kind == "roberta":
        from transformers import RobertaTokenizerFast

        hf_models.save_roberta(folder)
        RobertaTokenizerFast.from_pretrained(folder).save_pretrained(folder)
        return
    save_encoder(folder, kind, WORDS)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    rows = [*sorted(vocabulary, key=vocabulary.__getitem__), "[unused0]", "[unused1]", "[unused2]"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in rows))


def both_paths(hf: Path, root: Path, kind: str, rate: str) -> dict[str, SimpleNamespace]:
    """A run of freelb with the folder as it is, and one with its conversion, from equal weights."""
    config = json.loads((hf / "config.json").read_text())
    (hf / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    convert_hf_checkpoint(hf, root / "converted")
    texts, runs = root / "texts.txt", {}
    texts.write_text(
        "".join(f"{number % 2} {' '.join(WORDS[number : 2 * number + 4])}\n" for number in range(10)) * 4
    )
    for side, encoder in (("native", root / "converted"), ("hf", hf)):
        words = ["prepare", "classification", texts, root / side, "--text", "text", "--label", "label"]
        fairseq_adv([*map(str, words), "--encoder", str(encoder)])
        args = train_args(root / side, None, "freelb", *RECIPE, "--lr", rate, task="text_classification")
        if side == "hf":
            args = [*of_transformers(args, encoder), "--max-positions", "40"]
        else:
            args += [*(encoder / "model_args.txt").read_text().split(), "--whole-last-layer"]
        runs[side] = build([*args, "--dropout", "0", "--attention-dropout", "0"])
    theirs = dict(runs["hf"].model.hf.named_parameters())
    theirs[f"{kind}.embeddings.token_type_embeddings.weight"].requires_grad_(False)
    head = {
        f"{HEAD}{ours}.{part}": theirs[f"{name}.{part}"]
        for ours, name in HEADS[kind].items()
        for part in ("weight", "bias")
    }
    weights = torch.load(root / "converted" / "model.pt", weights_only=False)["model"]
    runs["native"].model.load_state_dict({**weights, **head})
    return runs


def check_equal(runs: dict[str, SimpleNamespace], updates: int) -> None:
    count, size = len(runs["hf"].task.dataset("train")), 4
    losses: dict[str, list[float]] = {side: [] for side in runs}
    for update in range(updates):
        rows = [(size * update + place) % count for place in range(size)]
        for side, run in runs.items():
            sample, objective = batch(run, rows), run.criterion.objective
            with torch.no_grad():
                losses[side].append(
                    float(objective.loss(objective.predict(run.model, sample), sample)) / size
                )
            run.trainer.set_num_updates(update)
            run.trainer.train_step([sample])
    hf, native = (torch.tensor(losses[side]) for side in ("hf", "native"))
    assert (hf - native).abs().max() <= 1e-5
    assert native[-8:].mean() < native[:8].mean() - 0.05  # it learns
    answers = []
    for run in runs.values():
        with torch.no_grad():
            answers.append(run.criterion.objective.predict(run.model.eval(), batch(run, range(count))))
    torch.testing.assert_close(*answers, rtol=0, atol=5e-5)
    assert torch.equal(*(answer.argmax(1) for answer in answers))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_fifty_updates_are_equal(tmp_path: Path, kind: str) -> None:
    save_tiny(tmp_path / "encoder", kind)
    check_equal(both_paths(tmp_path / "encoder", tmp_path, kind, rate="5e-3"), 50)


@pytest.mark.slow
def test_fifty_updates_of_minilm_are_equal(tmp_path: Path, minilm_hf: Path) -> None:
    shutil.copytree(minilm_hf, tmp_path / "encoder")
    check_equal(both_paths(tmp_path / "encoder", tmp_path, "bert", rate="1e-4"), 50)
