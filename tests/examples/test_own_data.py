"""docs/own-data.md and README: their commands, from each data set's own files to a file of predictions."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq.data import data_utils
from hf_models import save_bert
from recipes import ROOT
from support import environment

import fairseq_adv.cli

PAGE = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = {
    section.split("\n")[0]: block.group(1)
    for section in PAGE.split("\n### ")[1:]
    if (block := re.search(r"```bash\n(.*?)```", section, re.DOTALL))
}
TRAIN, TEST = 20, 5


def json_lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def ag_news(count: int, split: str) -> dict[str, str]:
    rows = [f'"{1 + k % 4}","Title, {k}","A ""text"" about {k}"\n' for k in range(count)]
    return {f"ag_news/{split}.csv": "".join(rows)}


def trec(count: int, split: str) -> dict[str, str]:
    rows = [f"{('HUM:ind', 'DESC:def', 'NUM:date')[k % 3]} What is na\xefve {k} ?\n" for k in range(count)]
    return {f"trec/{'train_5500' if split == 'train' else 'TREC_10'}.label": "".join(rows)}


def scitail(count: int, split: str) -> dict[str, str]:
    rows = [f"The film {k}.\tA film was {k}.\t{('entails', 'neutral')[k % 2]}\n" for k in range(count)]
    names = ["train", "dev"] if split == "train" else ["test"]
    return {f"SciTailV1.1/tsv_format/scitail_1.0_{name}.tsv": "".join(rows) for name in names}


def anli(count: int, split: str) -> dict[str, str]:
    rows = [{"context": f"The {k}.", "hypothesis": "A b.", "label": "enc"[k % 3]} for k in range(count)]
    names = ["train", "dev"] if split == "train" else ["test"]
    return {f"anli_v1.0/R{turn}/{name}.jsonl": json_lines(*rows) for turn in (1, 2, 3) for name in names}


def hellaswag(count: int, split: str) -> dict[str, str]:
    files = {}
    for name in ["train", "val"] if split == "train" else ["test"]:
        rows = [
            {"ind": k, "ctx_a": f"The film {k}.", "ctx_b": "She" if k % 2 else "",
             "endings": ["a.", "b.", "c.", "d."], "label": "" if name == "test" else k % 4}
            for k in range(count)
        ]  # fmt: skip
        files[f"hellaswag/hellaswag_{name}.jsonl"] = json_lines(*rows)
    return files


# Each data set's files, and the names of what is chosen among.
DATA: dict[str, tuple[Callable[[int, str], dict[str, str]], list[str]]] = {
    "AG News": (ag_news, ["1", "2", "3", "4"]), "TREC": (trec, ["DESC:def", "HUM:ind", "NUM:date"]),
    "SciTail": (scitail, ["entails", "neutral"]), "ANLI": (anli, ["contradiction", "entailment", "neutral"]),
    "HellaSWAG": (hellaswag, ["A", "B", "C", "D"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT."""
    folder = tmp_path_factory.mktemp("encoder")
    save_bert(folder / "minilm")
    return folder / "minilm"


@pytest.fixture
def place(tmp_path: Path, minilm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are run: with the encoder under the pages' name."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "minilm").symlink_to(minilm)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(name: str, place: Path) -> None:
    maker, _ = DATA[name]
    for path, content in {**maker(TRAIN, "train"), **maker(TEST, "test")}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content.encode("latin-1"))


def test_each_data_set_has_three_commands() -> None:
    assert list(COMMANDS) == list(DATA)
    for block in COMMANDS.values():
        lines = block.replace("\\\n", " ").splitlines()
        assert [shlex.split(line)[:2] for line in lines] == [
            ["fairseq-adv", verb] for verb in ("prepare", "train", "predict")
        ]


@pytest.mark.parametrize("name", list(DATA))
def test_the_first_command_makes_the_data(name: str, place: Path) -> None:
    write_files(name, place)
    line = COMMANDS[name].replace("\\\n", " ").splitlines()[0]
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
    )
    assert fairseq_adv.cli.main(words.stdout.splitlines()[1:]) == 0
    (out,) = [path for path in (place / "out").iterdir() if path.name != "minilm"]
    if name == "HellaSWAG":
        assert len((out / "test.jsonl").read_text().splitlines()) == TEST
        return
    lines = (out / "label" / "dict.txt").read_text().splitlines()
    assert [line.rsplit(" ", 1)[0] for line in lines] == DATA[name][1]
    parts = 3 if name == "ANLI" else 1
    assert len(data_utils.load_indexed_dataset(str(out / "input0" / "test"), None)) == parts * TEST


# Around the README's loop: what it has already, and that it trained.
LOOP = """
import torch
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained("my-model").train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
loader = [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([0, 2])}] * 2
before = [weight.detach().clone() for weight in model.parameters()]
"""
LEARNED = """
assert freelb.log["adv_ratio"] > 0.005 and not all(map(torch.equal, before, model.parameters()))
"""


def test_the_commands_of_the_readme(place: Path) -> None:
    """From a csv to a model for transformers and to predictions, and its lines of Python."""
    rows = [f'"A film, {k}",{1 + k % 3}\n' for k in range(TRAIN)]
    (place / "reviews.csv").write_text("review,stars\n" + "".join(rows))
    (place / "new.csv").write_text("review\nA film\nAnother\n")
    verbs = ("prepare", "train", "predict", "export")
    found = {verb: re.findall(rf"^fairseq-adv {verb} .*\n", README, re.M) for verb in verbs}
    prepare, train, predict, export = (lines[0] for lines in found.values())
    assert f"{prepare}{train}{predict}" in PAGE and all(len(lines) == 1 for lines in found.values())
    loop, use = re.findall(r"```python\n(.*?)```", README, re.S)
    script = f"{prepare}{train}{predict}{export}\npython - <<'END'\n{LOOP}{loop}{LEARNED}{use}END\n"
    done = subprocess.run(
        ["bash", "-ec", script], capture_output=True, text=True, env=environment(), timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (file,) = [path for path in (place / "out" / "answers").iterdir() if path.is_file()]
    head, *answers = file.read_text().splitlines()
    assert head.split("\t")[1:] == ["prediction", "1", "2", "3"] and len(answers) == 2
    assert (place / "my-model" / "model.safetensors").is_file()
    printed = done.stdout.splitlines()[-1]
    assert sum(map(float, re.findall(r"0\.\d+", printed))) == pytest.approx(1, abs=1e-3), printed
