"""benchmarks/word_attack.py: what it times is the command's attack, and TextAttack's comes to the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import glue_model

import fairseq_adv
from fairseq_adv.evaluation.attack_settings import ATTACKS
from fairseq_adv.evaluation.word_attacks.attack_file import Request, attack_file
from fairseq_adv.evaluation.word_attacks.resources import Resources
from fairseq_adv.evaluation.word_attacks.victim import AttackedFile

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import word_attack

REPO = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("FAIRSEQ_ADV_TEXTATTACK", "")
COUNTS = ("skipped", "failed", "succeeded", "queries", "rows", "texts")
REFERENCES = REPO / "tests/references/textattack"
TEXTS = (REFERENCES / "texts.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model of single texts, and lines that it mostly has right."""
    folder = glue_model(tmp_path_factory.mktemp("made"), "SST-2")
    answers = fairseq_adv.load(folder / "a.pt", device="cpu").predict(TEXTS)
    labels = ["01"[(answer.label == "1") ^ (k % 6 == 5)] for k, answer in enumerate(answers)]
    lines = [f"{label} {text}\n" for label, text in zip(labels, TEXTS)]
    (folder / "lines.txt").write_text("".join(lines), encoding="latin-1")
    known = [
        json.loads(line) for line in (REFERENCES / "wordnet.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    table = {one["word"].lower(): one["candidates"][:5] for one in known}
    (folder / "neighbours.json").write_text(json.dumps(table))
    return folder / "a.pt", folder / "lines.txt"


def counts(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line.get(name, 0) for name in COUNTS}


def test_our_side_is_the_command(
    made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, file = made
    words = [str(checkpoint), str(file), "--side", "ours", "--attack", "deepwordbug", "--repeats", "1"]
    assert word_attack.main(words) == 0
    line = json.loads(capsys.readouterr().out)
    columns = AttackedFile(file, "text", label="label", encoding="latin-1", examples=20)
    settings, resources = ATTACKS["deepwordbug"], Resources(stop_words=word_attack.STOP_WORDS)
    attack_file(Request(checkpoint, columns, tmp_path / "out", settings, resources))
    records = [json.loads(one) for one in (tmp_path / "out/examples.jsonl").read_text().splitlines()]
    attacked = [record for record in records if record["status"] != "skipped"]
    for status in ("skipped", "failed", "succeeded"):
        assert line.get(status, 0) == sum(record["status"] == status for record in records)
    for name in ("queries", "rows"):
        assert line[name] == pytest.approx(sum(one[name] for one in attacked) / len(attacked), abs=0.005)
    assert len(records) == line["examples"] == 20 and 0 < len(attacked) < 20
    assert 0 < line["cpu_seconds"][1] <= line["cpu_seconds"][0] <= line["cpu_seconds"][2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--attack", "textfooler"], "--neighbours is required with --attack textfooler"),
        (["--attack", "pwws", "--neighbours", "x.json"], "--neighbours is required with --attack textfooler"),
        (["--attack", "pwws"], "no/checkpoint.pt"),
    ],
)
def test_a_wrong_line_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word_attack.main(["no/checkpoint.pt", "no/file.txt", "--side", "ours", *words]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and message in error


@pytest.mark.skipif(
    not PYTHON, reason="FAIRSEQ_ADV_TEXTATTACK=PYTHON of an environment with TextAttack (docs/textattack.md)"
)
@pytest.mark.parametrize("attack", ["pwws", "textfooler"])
def test_both_sides_come_to_the_same(made: tuple[Path, Path], attack: str) -> None:
    """Attacks without random numbers: the same outcomes, queries, rows and texts."""
    more = ["--neighbours", str(made[1].parent / "neighbours.json")] if attack == "textfooler" else []
    # Else NumPy's argsort, and with it TextAttack, orders equal words as the processor likes.
    env = {**os.environ, "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3 AVX512_ICL AVX512_SPR"}
    found = []
    for side in ("ours", "textattack"):
        words = [*map(str, made), "--side", side, "--attack", attack, "--repeats", "1", *more]
        command = [PYTHON, "-W", "ignore", str(REPO / "benchmarks/word_attack.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(counts(json.loads(done.stdout.splitlines()[-1])))
    assert found[0] == found[1] and found[0]["succeeded"] and found[0]["skipped"]
