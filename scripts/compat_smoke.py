"""Runs each of fairseq's commands once with the plug-in, in the environment of the current Python.

    python scripts/compat_smoke.py FOLDER

Writes a tiny data set into FOLDER, trains ``--criterion freelb`` on it, resumes, validates, trains from a
yaml and on two processes, and loads the result with ``RobertaModel.from_pretrained``. Prints a line for
each step; if one fails, prints its output and exits with status 1. For scripts/compat_matrix.sh.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from fairseq_adv.data.processes import python_code

BIN = Path(sys.executable).parent
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "red", "old", "slowly", "and"]
MODEL = {
    "encoder-layers": "1", "encoder-embed-dim": "16", "encoder-ffn-embed-dim": "32",
    "encoder-attention-heads": "2", "max-positions": "32",
}  # fmt: skip
YAML = """# @package _group_
common: {{cpu: true, user_dir: {user_dir}, log_format: simple}}
task: {{_name: sentence_prediction, data: {data}, num_classes: 2, init_token: 0, max_positions: 32}}
criterion: {{_name: freelb, classification_head_name: sentence_classification_head, regression_target: false}}
model: {{_name: roberta, {model}}}
dataset: {{batch_size: 4, num_workers: 0}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 3, lr: [0.001]}}
checkpoint: {{no_epoch_checkpoints: true, save_dir: {save}}}
"""
FROM_PRETRAINED = """
import sys, torch
from fairseq.models.roberta import RobertaModel
model = RobertaModel.from_pretrained(sys.argv[1], "checkpoint_last.pt", sys.argv[2], bpe=None)
logits = model.predict("sentence_classification_head", torch.tensor([[0, 5, 6, 2]]), return_logits=True)
assert logits.shape == (1, 2) and bool(torch.isfinite(logits).all()), logits
"""


def run(step: str, *words: object, expect: str = "") -> None:
    """Runs one command and prints the time it took; exits with status 1 if it fails."""
    start = time.time()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=env, check=False)
    output = done.stdout + done.stderr
    if done.returncode != 0 or expect not in output:
        print(f"{step}: FAILED (status {done.returncode}, expected {expect!r})\n{output[-6000:]}")
        sys.exit(1)
    print(f"{step}: ok, {time.time() - start:.0f} s", flush=True)


def write_text(folder: Path) -> None:
    """Sentences and labels, one per line."""
    for split, count in (("train", 24), ("valid", 8)):
        rows = [[WORDS[(i * 7 + j * (i + 1)) % len(WORDS)] for j in range(4 + i % 7)] for i in range(count)]
        (folder / f"{split}.input0").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{split}.label").write_text("".join(f"{i % 2}\n" for i in range(count)))


def main() -> None:
    """Runs all steps, in the folder given on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder)
    data, save = folder / "data", folder / "save"
    for part in ("input0", "label"):
        run(
            f"fairseq-preprocess {part}", BIN / "fairseq-preprocess", "--only-source", "--workers", 2,
            "--trainpref", folder / f"train.{part}", "--validpref", folder / f"valid.{part}",
            "--destdir", data / part,
        )  # fmt: skip
    user_dir = subprocess.run([BIN / "fairseq-adv", "user-dir"], capture_output=True, text=True, check=True)
    plugin = user_dir.stdout.strip()
    model = [word for name, value in MODEL.items() for word in (f"--{name}", value)]
    train = [
        BIN / "fairseq-train", data, "--user-dir", plugin, "--task", "sentence_prediction",
        "--num-classes", 2, "--init-token", 0, "--arch", "roberta", *model,
        "--criterion", "freelb", "--adv-steps", 2, "--batch-size", 4,
        "--optimizer", "adam", "--lr", "0.001", "--cpu", "--num-workers", 0,
        "--no-epoch-checkpoints", "--log-format", "simple",
    ]  # fmt: skip
    run("fairseq-train freelb", *train, "--save-dir", save, "--max-update", 4, expect="done training")
    resumed = [*train, "--save-dir", save, "--max-update", 8]
    run("fairseq-train freelb, resumed", *resumed, expect="@ 4 updates")
    run(
        "fairseq-validate", BIN / "fairseq-validate", data, "--user-dir", plugin, "--criterion", "freelb",
        "--task", "sentence_prediction", "--num-classes", 2, "--init-token", 0, "--batch-size", 4, "--cpu",
        "--path", save / "checkpoint_last.pt", expect="valid on 'valid' subset",
    )  # fmt: skip
    gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--save-dir", folder / "two"]
    launch = [BIN / "torchrun", "--standalone", "--nproc_per_node", 2, *train, *gloo]
    run("torchrun, two workers", *launch, "--max-update", 2, expect="done training")
    run("torchrun, two workers, resumed", *launch, "--max-update", 4, expect="@ 2 updates")
    fields = ", ".join(f"{name.replace('-', '_')}: {value}" for name, value in MODEL.items())
    yaml = YAML.format(user_dir=plugin, data=data, model=fields, save=folder / "hydra")
    (folder / "smoke.yaml").write_text(yaml)
    hydra = [BIN / "fairseq-hydra-train", "--config-dir", folder, "--config-name", "smoke"]
    run("fairseq-hydra-train", *hydra, f"hydra.run.dir={folder / 'out'}", expect="done training")
    run("from_pretrained", *python_code(FROM_PRETRAINED), save, data)
    run("fairseq-adv doctor", BIN / "fairseq-adv", "doctor", expect="nothing is broken")


if __name__ == "__main__":
    main()
