"""The small runs of the examples: tiny real trainings from the command line to the tables."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_runs import table_rows, words, write_glue, write_small_encoder
from support import run_command, write_questions, write_wsc
from token_data import write_spans, write_tags

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the small runs read, of the encoder's words."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    (folder / "text").mkdir()
    for split, lines in (("train", 300), ("valid", 60)):
        (folder / "text" / f"{split}.txt").write_text("".join(f"{words(rng, 40)}\n\n" for _ in range(lines)))
    for task in ("CoLA", "MRPC", "RTE"):
        write_glue(folder / "glue", task)
    write_questions(folder / "commonsense_qa", choices=(5,), train=64)
    write_wsc(folder / "wsc", train=32)
    return folder


def small_runs(where: str, *given: object) -> subprocess.CompletedProcess[str]:
    return run_command(sys.executable, str(EXAMPLES / where / "small_runs.py"), *map(str, given))


def records(out: Path) -> dict[str, dict[str, object]]:
    return {path.stem: json.loads(path.read_text()) for path in (out / "records").glob("*.json")}


def test_a_training_its_attack_and_its_table(tmp_path: Path, data: Path, encoder: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.md"
    page.write_text("<!-- tables: begin -->\n<!-- tables: end -->\n")
    sizes = ["--tasks", "RTE", "--methods", "standard", "--seeds", 3, "--rows", 40, "--updates", 6]
    given = [data, out, "--encoder", encoder, "--attacked", 1, *sizes]
    done = small_runs("glue", *given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    head, row = table_rows(done.stdout)
    assert head[:5] == ["task", "method", "seeds", "updates", "dev accuracy"] and len(head) == 15
    assert row[:4] == ["`RTE`", "`standard`", "3", "6"] and all(row)
    (record,) = records(out).values()
    attack = record["outcomes"]["attack"]  # type: ignore[index]
    assert attack["examples"] == 16 and attack["perturbed_loss"] > attack["loss"]
    assert record["peak_mib"] > 0 and not list(out.glob("*/checkpoint_*.pt"))  # type: ignore[operator]

    again = small_runs("glue", *given, "--into", page)
    assert again.returncode == 0 and "== RTE" in done.stdout and "== RTE" not in again.stdout
    assert table_rows(page.read_text()) == [head, row]
    shown = small_runs("glue", "nowhere", out, "--table")
    assert table_rows(shown.stdout) == [head, row]


@pytest.mark.parametrize(
    ("where", "given", "message"),
    [
        ("glue", ["nowhere", "OUT"], "nowhere/glue/RTE/train.tsv: no such file"),
        ("glue", ["DATA", "OUT", "--methods", "plain"], "invalid choice: 'plain'"),
        ("glue", ["DATA", "OUT", "--rows", "0"], "argument --rows: must be 1 or more, not 0"),
        ("glue", ["DATA", "OUT", "--encoder", "gone"], "gone/model.pt: no such file"),
        ("glue", ["DATA", "OUT", "--into", "gone.md"], "gone.md"),
        ("glue", ["DATA", "OUT", "--table"], "OUT: contains no finished runs"),
        ("flooding", ["DATA", "OUT", "--methods", "flooding-x"], "'flooding-x': pass standard, freelb, auto"),
        ("alum", ["DATA", "OUT", "--stages", "tune"], "invalid choice: 'tune'"),
        (".", ["DATA", "OUT", "--tasks", "race"], "race: no such file"),
        ("ner", ["DATA", "OUT", "--corpora", "CoNLL"], "invalid choice: 'CoNLL'"),
        ("squad", ["DATA", "OUT"], "squad/train-v1.1.answerable-of-v2-slice.json: no such file"),
    ],
)
def test_mistakes_are_told_before_training(
    tmp_path: Path, data: Path, where: str, given: list[str], message: str
) -> None:
    out = tmp_path / "OUT"
    done = small_runs(where, *(str({"DATA": data, "OUT": out}.get(word, word)) for word in given))
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not list(out.glob("*/train.log"))


@pytest.mark.slow
def test_entities_and_spans(tmp_path: Path, data: Path, encoder: Path) -> None:
    """Trained, scored, and set beside what needs no model; adversarial SQuAD by its variants."""
    tokens = write_tags(tmp_path / "tags", train=40, valid=12)
    ner = data / "ner" / "NCBI-disease-IOB"
    ner.mkdir(parents=True)
    for name, split in (("train", "train"), ("devel", "valid"), ("test", "valid")):
        shutil.copy(tokens / f"{split}.tsv", ner / f"{name}.tsv")
    given = ["--encoder", encoder, "--seeds", 1, "--updates", 4]
    done = small_runs("ner", data, tmp_path / "ner", *given, "--corpora", "NCBI-disease", "--measured", 6)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    head, *rows = table_rows(done.stdout)
    assert [row[1] for row in rows] == ["`standard`", "`freelb`", "`alum_vat`"] and "test f1" in head
    assert "each word with its most frequent tag: F1 " in done.stdout
    spans = write_spans(tmp_path / "spans", train=30, valid=10)
    content = (spans / "valid.json").read_text().replace('"valid-', '"v')
    (data / "squad").mkdir()
    shutil.copy(spans / "train.json", data / "squad" / "train-v1.1.answerable-of-v2-slice.json")
    squad = json.loads(content)
    for paragraph in squad["data"][0]["paragraphs"]:
        (row,) = paragraph["qas"]
        paragraph["qas"].append({**row, "id": f"{row['id']}-high-conf-turk0", "question": "w1 ?"})
    (data / "squad" / "sample1k-HCVerifyAll.json").write_text(json.dumps(squad))
    done = small_runs("squad", data, tmp_path / "squad", *given, "--originals", 4)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    head, *rows = table_rows(done.stdout)
    assert len(rows) == 3 and "F1, AddSent (worst variant)" in head and all(all(row) for row in rows)
    found = records(tmp_path / "squad")["squad-freelb-1"]["outcomes"]["score"]  # type: ignore[index]
    assert (found["total"], found["adversarial_total"], found["original_total"]) == (8, 4, 4)


@pytest.mark.slow
def test_the_reasoning_tasks(tmp_path: Path, data: Path, encoder: Path) -> None:
    (data / "wsc" / "valid.jsonl").rename(data / "wsc" / "val.jsonl")
    # The candidates are there already, so that none have to be found.
    shutil.copytree(data / "wsc", tmp_path / "out" / "wsc")
    given = ["--encoder", encoder, "--tasks", "commonsense_qa", "wsc", "--updates", 20]
    done = small_runs(".", data, tmp_path / "out", *given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    head, *rows = table_rows(done.stdout)
    expected = [(task, method) for task in ("commonsense_qa", "wsc") for method in ("freelb", "standard")]
    assert [tuple(cell.strip("`") for cell in row[:2]) for row in rows] == expected
    assert rows[0][head.index("chance")] == "20.00" and all(row[head.index("at last")] for row in rows)


@pytest.mark.slow
def test_flooding_and_its_accordance(tmp_path: Path, data: Path, encoder: Path) -> None:
    methods = ["measured", "standard", "flooding-0.69", "auto-head"]
    given = ["--tasks", "MRPC", "--rows", 40, "--epochs", 2, "--seeds", 1, "--attacked", 1]
    out = tmp_path / "out"
    done = small_runs("flooding", data, out, "--encoder", encoder, "--methods", *methods, *given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    rows = {row[1]: row for row in table_rows(done.stdout) if len(row) == 13}
    flooded = rows["method"].index("% of updates flooded, last epoch")
    assert rows["`standard`"][flooded] == "" and rows["`measured`"][flooded] == "0"
    assert rows["`flooding-0.69`"][flooded] != "0"  # the labels are drawn: the loss stays near ln 2
    # Measuring changes nothing: not the logged losses, not what the attack finds in the last checkpoint.
    assert rows["`measured`"][2:flooded] == rows["`standard`"][2:flooded]
    made = records(out)
    assert made["MRPC-measured-1"]["outcomes"]["attack"] == made["MRPC-standard-1"]["outcomes"]["attack"]  # type: ignore[index]
    searched = [row[1] for row in table_rows(done.stdout) if len(row) == 8]
    assert searched == ["method", "`auto-head`", "`measured`"]
    curve = (out / "MRPC-measured-1" / "accordance.csv").read_text().splitlines()
    assert len(curve) == 1 + 6, "a measurement after each of six updates, half of an epoch's three"


@pytest.mark.slow
def test_alum_in_all_its_stages(tmp_path: Path, data: Path, encoder: Path) -> None:
    sizes = ["--warmup-updates", 6, "--minutes", 0.1, "--epsilons", 0.5, "--updates", 10, "--seeds", 1]
    given = [data, tmp_path / "out", "--encoder", encoder, *sizes, "--starts", "plain"]
    done = small_runs("alum", *given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    rows = table_rows(done.stdout)
    names = ["`start of both`", "`plain`", "`ALUM`", "`plain, as many updates as ALUM`"]
    assert [row[0] for row in rows[1:5]] == names
    updates = [int(row[1]) for row in rows[1:5]]
    # On a busy machine the time may be over after the first update.
    assert updates[0] == 6 and updates[1] >= updates[2] == updates[3] >= 1
    clean = rows[0].index("valid loss, first rows")
    assert all(float(row[clean]) < float(row[clean + 1]) for row in rows[1:5])  # under attack
    tuned = [tuple(cell.strip("`") for cell in row[:3]) for row in rows[6:]]
    methods = ("standard", "alum_vat", "smart")
    assert tuned == [(task, "plain", method) for task in ("MRPC", "RTE") for method in methods]
    again = small_runs("alum", *given)
    assert again.returncode == 0 and "== " not in again.stdout and table_rows(again.stdout) == rows
