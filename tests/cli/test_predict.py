"""``fairseq-adv predict``: from training to a leaderboard's file, and answers to texts."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from support import (
    PLUGIN,
    CommandMain,
    fairseq_train,
    handle_interrupts,
    run_command,
    start_command,
    train_args,
    verb,
    write_questions,
)
from trained_films import train_films

from fairseq_adv.cli import predict, verb_parser
from fairseq_adv.cli.predict import name_without_ending
from fairseq_adv.evaluation.trained import Trained

COMMAND = verb("predict")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    data = write_questions(folder / "data")
    fairseq_train(*train_args(data, folder / "save", "standard", task="commonsense_qa"))
    return folder


def command(trained: Path, out: Path, *more: str) -> list[str]:
    checkpoint = str(trained / "save" / "checkpoint_best.pt")
    return [
        *COMMAND, checkpoint, "--task", "commonsense_qa", "--data", str(trained / "data"),
        "--out", str(out), "--cpu", *more,
    ]  # fmt: skip


def test_trained_model_to_file_and_the_score_that_training_logged(
    trained: Path, tmp_path: Path, run: CommandMain
) -> None:
    done = run_command(*command(trained, tmp_path, "--split", "valid"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert first == f"wrote {tmp_path}/predictions-valid.csv (8 rows, 1 model)"
    validated = run_command(
        str(Path(sys.executable).parent / "fairseq-validate"), str(trained / "data"), "--user-dir",
        PLUGIN, "--task", "commonsense_qa", "--valid-subset", "valid",
        "--path", str(trained / "save" / "checkpoint_best.pt"), "--cpu", "--batch-size", "4",
        "--classification-head-name", "sentence_classification_head",
    )  # fmt: skip
    assert validated.returncode == 0, validated.stderr
    accuracy = float(second.split("accuracy: ")[1])
    assert f"| accuracy {accuracy:g} " in validated.stdout + validated.stderr
    (scores,) = (tmp_path / "scores").iterdir()  # need no model
    words = ["--task", "commonsense_qa", "--split", "valid", "--out", tmp_path / "again", "--scores", scores]
    assert run(*words).returncode == 0
    answers = [path / "predictions-valid.csv" for path in (tmp_path, tmp_path / "again")]
    assert answers[0].read_bytes() == answers[1].read_bytes()


@pytest.mark.timing
def test_stopped_in_the_middle_and_run_again(trained: Path, tmp_path: Path) -> None:
    # So many questions, one at a time, that it takes seconds.
    rows = (trained / "data" / "test.jsonl").read_text().splitlines()
    many = [json.dumps({**json.loads(rows[i % 5]), "id": f"q{i}"}) for i in range(4000)]
    (trained / "data" / "test-many.jsonl").write_text("".join(f"{row}\n" for row in many))
    words = command(trained, tmp_path / "out", "--split", "test-many")
    process = start_command([*words, "--batch-size", "1"], preexec_fn=handle_interrupts)
    assert process.stderr is not None
    seen = b""
    # Not its first line: the compiled module that fairseq then imports swallows an interrupt as it is loaded.
    while not re.search(rb"\b[1-9]\d*/4000 ", seen):
        block = process.stderr.read1(1000)  # type: ignore[attr-defined]
        assert block, seen.decode()
        seen += block
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate()
    assert process.returncode == 130, rest.decode()
    assert b"stopped; run the same command again to resume" in rest
    assert b"Traceback" not in rest and not (tmp_path / "out").exists()
    again = run_command(*words)
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / "out" / "predictions-test-many.csv").read_text().splitlines()) == 4000


def test_a_mistake_ends_without_a_traceback(trained: Path, tmp_path: Path) -> None:
    path = trained / "data" / "test-broken.jsonl"
    path.write_text(
        '{"id": "1", "question": {"stem": "w1", "choices": [{"label": "A", "text": "w2"}]}}\n{"id"\n'
    )
    done = run_command(*command(trained, tmp_path / "out", "--split", "test-broken"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {path}:2: not JSON")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of single texts, save/checkpoint_best.pt, with its tokenizer beside it."""
    return train_films(tmp_path_factory.mktemp("films"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("predict", capsys)


def checkpoint(films: Path) -> Path:
    return films / "save" / "checkpoint_best.pt"


def test_texts_on_standard_input(films: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The committee met .\n\nnaïve café\r\nlast"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    done = run(checkpoint(films), "--stdin", "--cpu")
    assert done.returncode == 0 and done.stderr == ""  # no bar
    labels, shares = zip(*(line.split("\t") for line in done.stdout.splitlines()))
    assert len(labels) == 4 and set(labels) <= {"0", "1"} and all(0.5 <= float(p) <= 1 for p in shares)
    # The same texts from a file.
    (films / "in.txt").write_text("The committee met .\n\nnaïve café\nlast\n", encoding="utf-8")
    rows = run(checkpoint(films), "--input", films / "in.txt", "--cpu").stdout.splitlines()
    assert rows[0].split("\t")[:2] == ["index", "prediction"]
    assert [row.split("\t")[1] for row in rows[1:]] == list(labels)


def test_a_reader_who_has_enough_ends_it_quietly(films: Path) -> None:
    predict = shlex.join([*COMMAND, str(checkpoint(films)), "--stdin", "--cpu"])
    endless = "yes \"a film$(printf ' %.0s' {1..2000})\""  # some 30 lines fill a block
    line = f"{endless} | timeout 120 {predict} | head -1; echo ${{PIPESTATUS[1]}}"
    done = run_command("bash", "-c", line, PYTHONUNBUFFERED="")
    assert done.stdout.splitlines()[1:] == ["0"] and done.stdout[0] in "01"
    assert done.stderr == ""


def test_a_file_of_texts(films: Path, tmp_path: Path, run: CommandMain) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text('id,review\n7,"A film, and ""more"""\n8,Twice before\n')
    done = run(checkpoint(films), "--input", path, "--text", "review", "--out", tmp_path / "out", "--cpu")
    assert done.stdout == f"wrote {tmp_path}/out/predictions-reviews.tsv (2 rows)\n"
    lines = (tmp_path / "out" / "predictions-reviews.tsv").read_text().splitlines()
    head, first, second = (line.split("\t") for line in lines)
    assert sorted(head[2:]) == ["0", "1"] and [first[0], second[0]] == ["0", "1"]
    for row in (first, second):
        assert row[1] == head[2 + (float(row[3]) > float(row[2]))]
    # The same rows in a table without a header, in another encoding.
    other = tmp_path / "reviews.tsv"
    other.write_bytes('7\tA film, and "more"\n8\tTwice before\n'.encode("utf-16"))
    words = ["--input", other, "--no-header", "--text", "2", "--encoding", "utf-16", "--cpu"]
    assert run(checkpoint(films), *words).stdout.splitlines() == lines


def test_columns_that_are_kept_stand_beside_the_answers(
    films: Path, tmp_path: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"id": 7, "t": "A \\"film\\"", "x": null}\n{"id": "=1+1", "t": "Twice", "x": true}\n'
    )
    words = [checkpoint(films), "--input", tmp_path / "a.jsonl", "--text", "t", "--cpu"]
    plain = [line.split("\t") for line in run(*words).stdout.splitlines()]
    kept = list(csv.reader(io.StringIO(run(*words, "--keep", "id", "t", "x").stdout), delimiter="\t"))
    assert [row[:1] + row[4:] for row in kept] == plain
    assert [row[1:4] for row in kept] == [["id", "t", "x"], ["7", 'A "film"', ""], ["'=1+1", "Twice", "True"]]
    (tmp_path / "a.txt").write_text("A film\nTwice\n")
    done = run(checkpoint(films), "--input", tmp_path / "a.txt", "--keep", "text", "--cpu")
    assert [row.split("\t")[1] for row in done.stdout.splitlines()] == ["text", "A film", "Twice"]
    done = run(*words, "--keep", "title")
    assert done.returncode == 2 and "a.jsonl:1: no column 'title'. The columns are 'id', 't'" in done.stderr
    (tmp_path / "c.jsonl").write_text('{"t": "A film", "prediction": 1}\n')
    monkeypatch.delattr(Trained, "predictions")  # told before the models run
    done = run(checkpoint(films), "--input", tmp_path / "c.jsonl", "--text", "t", "--keep", "prediction")
    assert done.returncode == 2 and "--keep prediction: the answers have a column of this name" in done.stderr


def test_a_date_is_kept(films: Path, tmp_path: Path, run: CommandMain) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet

    day = pyarrow.array([datetime.date(2026, 1, 2)])
    parquet.write_table(pyarrow.table({"t": ["A film"], "day": day}), tmp_path / "a.parquet")
    done = run(checkpoint(films), "--input", tmp_path / "a.parquet", "--text", "t", "--keep", "day", "--cpu")
    assert done.stdout.splitlines()[1].split("\t")[1] == "2026-01-02", done.stderr


@pytest.mark.parametrize(("option", "name"), [("label", "stars"), ("keep", "id")])
def test_models_behind_columns_are_models(option: str, name: str, tmp_path: Path) -> None:
    """argparse takes them for further labels; a model may be a file or a folder."""
    models, texts = [tmp_path / "checkpoint.pt", tmp_path / "my-model"], tmp_path / "new.csv"
    models[1].mkdir()
    for path in (models[0], models[1] / "config.json", texts):
        path.touch()
    words = ["--input", str(texts), "--text", "review", f"--{option}", name, *map(str, models)]
    args = verb_parser(["predict", *words]).parse_args(words)
    predict._check(args)
    assert args.checkpoints == models and getattr(args, option) == [name]


def test_questions_of_a_file(trained: Path, tmp_path: Path, run: CommandMain) -> None:
    model, file = trained / "save" / "checkpoint_best.pt", trained / "data" / "valid.jsonl"
    rows = run(model, "--input", file, "--cpu").stdout.splitlines()
    assert [row.split("\t")[0] for row in rows[1:]] == [f"valid-{i}" for i in range(8)]
    assert rows[1].split("\t")[1] in "ABC"
    done = run(model, "--input", file, "--text", "stem", "--cpu")
    assert done.returncode == 2 and "--label, --no-header and --encoding are for models of" in done.stderr
    kept = run(model, "--input", file, "--keep", "answerKey", "--cpu").stdout.splitlines()
    assert kept[0].split("\t")[:3] == ["index", "answerKey", "prediction"]
    keys = [json.loads(line)["answerKey"] for line in file.read_text().splitlines()]
    assert [row.split("\t")[1] for row in kept[1:]] == keys
    # As people write their own, and as prepare choices reads them.
    own = [json.loads(line) for line in file.read_text().splitlines()]
    own = [
        {"question": row["question"]["stem"], "choices": [one["text"] for one in row["question"]["choices"]]}
        for row in own
    ]
    plain = tmp_path / "own.jsonl"
    plain.write_text("".join(json.dumps(row) + "\n" for row in own))
    answers = run(model, "--input", plain, "--cpu").stdout.splitlines()
    assert [row.split("\t")[0] for row in answers[1:]] == [f"own-{i}" for i in range(1, 9)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CHECKPOINT"], "--out is missing"),
        (["--stdin"], "no checkpoint given"),
        (["CHECKPOINT", "--stdin", "--task", "RTE"], "--task is for --data, not for --stdin. Leave it out."),
        (["CHECKPOINT", "--stdin", "--out", "OUT"], "--out is for --data and --input; --stdin prints"),
        (["CHECKPOINT", "--data", "DATA", "--out", "OUT", "--text", "a"], "--text needs --input"),
        (["CHECKPOINT", "--input", "DATA"], "data: a folder. Pass a file"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], message: str, films: Path, tmp_path: Path, run: CommandMain
) -> None:
    places = {"CHECKPOINT": checkpoint(films), "DATA": films / "data", "OUT": tmp_path / "out"}
    done = run(*(places.get(word, word) for word in words), "--cpu")
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.tsv", "a"), ("a.b.csv", "a.b"), ("eng.testa", "eng.testa"), ("dev.conll", "dev"), ("a", "a")],
)
def test_answers_are_named_by_the_file(name: str, expected: str) -> None:
    assert name_without_ending(Path(name)) == expected
