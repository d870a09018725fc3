"""``fairseq-adv prepare classification``, ``nli`` and ``choices`` as commands: options, reports, mistakes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from glue_recipe import written
from glue_samples import small_wordpiece
from support import CommandMain

COLUMNS = ["--text", "text", "--label", "label"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_wordpiece(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def classification(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("prepare classification", capsys)


def csv(path: Path, count: int, header: str = "text,label") -> Path:
    rows = [header, *(f'"a, b {number}",{"pos" if number % 3 else "so so"}' for number in range(count))]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_files_in_any_order_of_words(classification: CommandMain, encoder: Path, tmp_path: Path) -> None:
    train, test = csv(tmp_path / "train.csv", 20), csv(tmp_path / "test.csv", 4)
    out = tmp_path / "out"
    done = classification(train, "--test", test, *COLUMNS, "--encoder", encoder, out)
    said = [line for line in done.stdout.splitlines() if "<unk>" not in line]
    assert (done.returncode, said) == (0, [
        f"classification: wrote {out} (train 18, valid 2, test 4)",
        "  note: no validation split: held out 2 of 20 training rows (--valid-share 0.1 --seed 1)",
        f"  note: rows of test that are also in train: 4, such as {test}:2 ({train}:2)",
        "  note: 2 classes: pos, 'so so'",
    ])  # fmt: skip
    assert "classification: 100%" in done.stderr  # the bar
    again = classification(*COLUMNS, "--encoder", encoder, "--test", test, train, out)
    assert again.stdout.splitlines()[0].endswith("is already there and made from these files; nothing to do")
    other = [*COLUMNS, "--encoder", encoder, "--valid-share", "0.5", train, out]
    refused = classification(*other)
    assert refused.returncode == 2 and refused.stderr.startswith(f"error: {out}: was made from other files")
    assert "(train 10, valid 10)" in classification(*other, "--overwrite").stdout


def test_columns_without_names_pairs_and_numbers(
    classification: CommandMain, encoder: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.tsv").write_text("a\tb\t0.5\nc\td\t2\ne\tf\t1\n")
    (tmp_path / "valid.jsonl").write_text('{"1": "a", "2": "b", "3": 1}\n')
    words = [tmp_path / "train.tsv", "--valid", tmp_path / "train.tsv", "--text", "1", "--text-pair", "2"]
    words += ["--label", "3", "--regression", "--no-header", "--encoder", encoder, tmp_path / "out"]
    done = classification(*words)
    assert done.returncode == 0 and "note: numbers from 0.5 to 2" in done.stdout
    assert "12/12" in done.stderr and "text/s" in done.stderr  # two texts in each of 6 rows
    assert (tmp_path / "out/label/valid.label").read_text() == "0.5\n2.0\n1.0\n"
    assert (tmp_path / "out/input1/valid.idx").is_file()


def test_a_table_as_excel_writes_it(classification: CommandMain, encoder: Path, tmp_path: Path) -> None:
    """In countries with decimal commas: semicolons, and a byte order mark or Windows' own encoding."""
    table = "ID;Review text;Stars\r\n" + '1;"good; “very”\nfine";5\r\n2;dull;1\r\n' * 3
    (tmp_path / "reviews.csv").write_bytes(table.encode("utf-8-sig"))
    words = ["--text", "Review text", "--label", "Stars", "--encoder", encoder, tmp_path / "out"]
    done = classification(tmp_path / "reviews.csv", *words)
    assert done.returncode == 0 and "note: 2 classes: 1, 5" in done.stdout
    notes = [line for line in done.stderr.splitlines() if "reviews.csv" in line]
    assert notes == [f"note: {tmp_path}/reviews.csv: read as a table with cells separated by semicolons"]
    (tmp_path / "windows.csv").write_bytes(table.encode("cp1252"))
    done = classification(tmp_path / "windows.csv", *words)
    assert done.returncode == 2 and "windows.csv:2: not utf-8" in done.stderr
    assert "such as cp1252 (Excel on Windows)" in done.stderr
    done = classification(tmp_path / "windows.csv", *words, "--encoding", "cp1252")
    assert "is already there and made from these files" in done.stdout


def test_a_data_set_of_the_hub(
    classification: CommandMain, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"text": f"a {number}", "label": number % 2} for number in range(10)])
    splits = {"plain": datasets.DatasetDict(train=rows, test=rows)}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, **_: splits[config])
    words = ["--dataset", "news", "--config", "plain", *COLUMNS, "--encoder", encoder, tmp_path / "out"]
    assert "(train 9, valid 1, test 10)" in classification(*words).stdout
    monkeypatch.setitem(sys.modules, "datasets", None)
    done = classification(*words)
    assert done.returncode == 2 and done.stderr.startswith("error: --dataset needs Hugging Face's datasets")


def test_mistakes_in_the_call(classification: CommandMain, encoder: Path, tmp_path: Path) -> None:
    train = csv(tmp_path / "train.csv", 4)
    with pytest.raises(SystemExit) as ended:
        classification(train, "--text", "text", "--label=a", "--label=b", "--encoder", encoder)
    assert ended.value.code == 2, "OUT is missing"
    rest = [*COLUMNS, "--encoder", encoder, tmp_path / "out"]
    for words, message in (
        ([*rest], "TRAIN is missing: pass the training file and OUT, or --dataset NAME and OUT"),
        ([train, "--dataset", "x", *rest], "--dataset excludes files"),
        ([train, *rest, "--valid-share", "2"], "--valid-share 2.0: pass a number between 0 and 1"),
        ([train, *rest, "--valid", train, "--valid-share", "0.2"], "--valid-share 0.2: the data has a valid"),
        ([train, *rest, "--text-pair", "label"], "two of them name the same column"),
        (
            [train, "--encoder", encoder, "--text", "text", "--label", "x", "label"],
            "OUT is missing: label, the",
        ),
    ):
        done = classification(*words)
        assert done.returncode == 2 and done.stderr.startswith("error: "), words
        assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_nli(capsys: pytest.CaptureFixture[str], encoder: Path, tmp_path: Path) -> None:
    nli = CommandMain("prepare nli", capsys)
    for turn in ("R1", "R2"):
        (tmp_path / "anli" / turn).mkdir(parents=True)
        for split in ("train", "dev"):
            rows = [{"context": f"a {label}", "hypothesis": "b", "label": label} for label in "enc"]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / "anli" / turn / f"{split}.jsonl").write_text(text)
    done = nli(tmp_path / "anli", "--encoder", encoder, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "(train 6, valid 6, valid-R1 3, valid-R2 3)" in done.stdout
    assert "rows of valid that are also in train: 6" in done.stdout and "rows of valid-R1" not in done.stdout
    assert "note: layout: ANLI's" in done.stdout and "contradiction, entailment, neutral" in done.stdout
    done = nli(tmp_path / "anli", tmp_path / "second", "--encoder", encoder, "--round", "R2")
    assert "(train 3, valid 3)" in done.stdout


def test_choices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    choices = CommandMain("prepare choices", capsys)
    row = json.dumps({"question": "w?", "choices": ["a", "b"], "answer": 0}) + "\n"
    (tmp_path / "mine.jsonl").write_text(row * 20)
    done = choices(f"train={tmp_path}/mine.jsonl", f"test={tmp_path}/mine.jsonl", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path}/out (train 18, valid 2, test 20), for --task arc_retrieval" in done.stdout
    before = written(tmp_path / "out")
    again = choices(f"train={tmp_path}/mine.jsonl", f"test={tmp_path}/mine.jsonl", tmp_path / "out")
    assert "nothing to do" in again.stdout and written(tmp_path / "out") == before


def test_suspicious_rows_are_told_or_refused(
    capsys: pytest.CaptureFixture[str], encoder: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,x\nb,y\na,y\n")
    (tmp_path / "valid.csv").write_text("text,label\nb,y\n  ,x\n")
    pairs = [{"premise": "a", "hypothesis": text, "label": label} for text, label in ("bx", "cy", "by")]
    questions = [{"question": "w?", "choices": list(texts), "answer": 0} for texts in ("ab", "ba")]
    for name, rows in (("nli", pairs), ("choices", questions)):
        (tmp_path / name).mkdir()
        for split in ("train", "dev"):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / name / f"{split}.jsonl").write_text(text)
    train, valid = tmp_path / "train.csv", tmp_path / "valid.csv"
    nli, nli_dev = tmp_path / "nli" / "train.jsonl", tmp_path / "nli" / "dev.jsonl"
    choices, choices_dev = tmp_path / "choices" / "train.jsonl", tmp_path / "choices" / "dev.jsonl"
    calls: dict[str, list[object]] = {
        "classification": [train, "--valid", valid, *COLUMNS, "--encoder", encoder],
        "nli": [nli.parent, "--encoder", encoder],
        "choices": [choices, choices_dev],
    }
    found = {
        "classification": [
            f"texts without a visible character: 1, the first at {valid}:3",
            f"texts with different labels: 1, such as {train}:2 ('x') and {train}:4 ('y')",
            f"rows of valid that are also in train: 1, such as {valid}:2 ({train}:3)",
        ],
        "nli": [
            f"texts with different labels: 1, such as {nli}:1 ('x') and {nli}:3 ('y')",
            f"rows of valid that are also in train: 3, such as {nli_dev}:1 ({nli}:1)",
        ],
        "choices": [
            f"texts with different labels: 1, such as {choices}:1 ('a') and {choices}:2 ('b')",
            f"rows of valid that are also in train: 2, such as {choices_dev}:1 ({choices}:1)",
        ],
    }
    for name, words in calls.items():
        prepare, out = CommandMain(f"prepare {name}", capsys), tmp_path / f"{name}-out"
        done = prepare(*words, out, "--refuse-suspicious")
        assert done.returncode == 2 and not list(tmp_path.glob(f"{name}-out*")), name
        assert done.stderr == (
            f"error: {'; '.join(found[name])}. Correct these rows, or leave --refuse-suspicious out.\n"
        )
        done = prepare(*words, out)
        assert done.returncode == 0 and [f"  note: {note}" for note in found[name]] == [
            line for line in done.stdout.splitlines() if any(note in line for note in found[name])
        ]
        assert "nothing to do" in prepare(*words, out).stdout
        assert prepare(*words, out, "--refuse-suspicious").returncode == 2  # an output that is there, too
