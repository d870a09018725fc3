"""What the tests of the recipes share: the launcher, as module and command, and folders for it."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from corpus_shards import pretraining_args, write_shards
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from hf_encoders import save_encoder
from omegaconf import OmegaConf
from support import (
    PLUGIN,
    VOCABULARY,
    build,
    load_script,
    run_command,
    train_args,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_tags

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
GLUE = ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst_2", "sts_b"]
RECIPES = {
    "glue": "glue/config/glue.yaml",
    "albert": "glue/config/albert/albert.yaml",
    "flooding": "flooding/config/glue.yaml",
    "finetune": "alum/config/finetune/glue.yaml",
    "commonsense_qa": "commonsense_qa/config/commonsense_qa.yaml",
    "qnli_ranking": "qnli_ranking/config/qnli_ranking.yaml",
    "wsc": "wsc/config/wsc.yaml",
    "race": "race/config/race.yaml",
    "union": "arc/config/union.yaml",
    "arc": "arc/config/arc.yaml",
    "squad": "squad/config/squad.yaml",
    "ner": "ner/config/ner.yaml",
    "roberta_base": "alum/config/pretrain/roberta_base.yaml",
    "roberta_large": "alum/config/pretrain/roberta_large.yaml",
    "bert_base": "alum/config/pretrain/bert_base.yaml",
}
CLASSES = ("glue", "albert", "flooding", "finetune")
AS_THEY_ARE = {"albert": "albert", "flooding": "bert"}  # recipes of transformers' encoders
AT_TOKENS = {"squad": "span_qa", "ner": "tagging"}
PRETRAINING = ("roberta_base", "roberta_large", "bert_base")
# A model and a run that a CPU ends in a second.
TINY = [
    "model.encoder_layers=2", "model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=32",
    "model.encoder_attention_heads=2", "optimization.max_update=2", "optimization.update_freq=[2]",
    "dataset.num_workers=0", "common.cpu=true", "common.fp16=false", "common.log_interval=1",
    "optimization.lr=[0.01]", "common.seed=7", "lr_scheduler.warmup_updates=0",
]  # fmt: skip
# Adam with a large epsilon doesn't divide small gradients by their own size: rounding stays rounding.
SMOOTH = ["model.dropout=0", "model.attention_dropout=0", "optimizer.adam_eps=1", "optimization.lr=[1]"]


def recipe(name: str) -> Path:
    return EXAMPLES / RECIPES[name]


@cache
def launcher() -> ModuleType:
    """examples/run.py, which is a script and in no package."""
    return load_script(EXAMPLES / "run.py")


def composed(name: str, *overrides: str) -> Any:
    """A recipe's configuration, without what fairseq adds."""
    return copy.deepcopy(_composed(name, overrides))


@cache
def _composed(name: str, overrides: tuple[str, ...]) -> Any:
    given = ["task.data=/data", f"common.user_dir={PLUGIN}", "checkpoint.save_dir=/save"]
    return launcher().composed(recipe(name), [*given, *overrides], strict=False)


def completed(config: Any) -> Any:
    """What fairseq-hydra-train makes of it before it trains: a key that fairseq has not is refused."""
    whole = OmegaConf.merge(OmegaConf.structured(FairseqConfig), config)
    add_defaults(whole)
    return OmegaConf.create(OmegaConf.to_container(whole, resolve=True, enum_to_str=True))


def run_py(name: str | Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The command, with this Python's commands first on the path; in this process if it only shows them."""
    program = [str(EXAMPLES / "run.py"), str(recipe(name) if isinstance(name, str) else name)]
    program += map(str, words)
    if "--dry-run" not in words:
        return run_command(*program)
    out, err = StringIO(), StringIO()
    with mock.patch.object(sys, "argv", program), redirect_stdout(out), redirect_stderr(err):
        status = launcher().main()
    return subprocess.CompletedProcess(program, status, out.getvalue(), err.getvalue())


def own_keys(config: Any) -> set[str]:
    """The keys of a dataclass but those that it looks up in other groups."""
    fields = config.__dataclass_fields__
    return {name for name, field in fields.items() if not str(field.default).startswith("${")}


def methods(name: str) -> list[str]:
    return sorted(path.stem for path in (recipe(name).parent / "method").glob("*.yaml"))


def numbers(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, float]]]:
    """What a run logged, by tag."""
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    logs: dict[str, list[dict[str, float]]] = {"train_inner": [], "train": [], "valid": []}
    for line in done.stdout.splitlines():
        tag = re.search(r"\[(train_inner|train|valid)\]", line)
        if tag and line.endswith("}"):
            logs[tag[1]].append({k: float(v) for k, v in json.loads(line[line.index("{") :]).items()})
    return logs


def tiny_data(folder: Path, name: str, classes: int = 2) -> str:
    """DATA of a recipe; for ARC's stages and pre-training two folders joined by a colon."""
    if name in PRETRAINING:
        return str(write_shards(folder / "corpus", 2, words=sorted(VOCABULARY)))
    if name in CLASSES:
        return str(write_task(folder / "task", train=32, valid=16, classes=classes))
    if name == "wsc":
        return str(write_wsc(folder / "wsc", train=32, valid=16))
    if name in AT_TOKENS:
        write = write_spans if name == "squad" else write_tags
        return str(write(folder / name, train=32, valid=16))
    para, choices = name in ("race", "union", "arc"), (2,) if name == "qnli_ranking" else (3, 5, 4)
    return ":".join(
        str(write_questions(folder / f"{name}-{k}", train=32, valid=16, choices=choices, para=para, seed=k))
        for k in range(2 if name in ("union", "arc") else 1)
    )


def tiny_encoder(folder: Path, name: str) -> Path:
    """ENCODER_DIR for a recipe: model.pt and dict.txt, for some tasks a tokeniser; untrained."""
    if name in AS_THEY_ARE:
        save_encoder(folder / "hf", AS_THEY_ARE[name], VOCABULARY)
        return folder / "hf"
    data = tiny_data(folder / "data", name)
    first = Path(data.split(":")[0])
    if name in PRETRAINING:
        args = pretraining_args(Path(data), folder / "unused", "masked_lm", "--no-save-optimizer-state")
    elif name in CLASSES:
        args = train_args(Path(data), None, "sentence_prediction", "--no-save-optimizer-state")
        first /= "input0"
    else:
        task = AT_TOKENS.get(name, "commonsense_qa")
        args = train_args(Path(data), None, "standard", "--no-save-optimizer-state", task=task)
    build(args).trainer.save_checkpoint(str(folder / "model.pt"), {})
    for file in ("dict.txt", "tokenizer.json", "hf_vocabulary.json"):
        if (first / file).is_file():
            shutil.copy(first / file, folder)
    return folder
