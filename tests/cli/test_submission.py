"""fairseq-adv submission: GLUE's files are checked row by row and zipped."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from support import CommandMain

# What https://gluebenchmark.com asks for.
ROWS = {
    "CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "STS-B": 1379, "QQP": 390965, "MNLI-m": 9796, "MNLI-mm": 9847,
    "QNLI": 5463, "RTE": 3000, "WNLI": 146, "AX": 1104,
}  # fmt: skip
ANSWERS = {
    "STS-B": ["0.000", "2.5", "5.000", "5"],
    "QNLI": ["entailment", "not_entailment"],
    "RTE": ["entailment", "not_entailment"],
    **{name: ["contradiction", "entailment", "neutral"] for name in ("MNLI-m", "MNLI-mm", "AX")},
}


def lines_of(name: str) -> list[str]:
    answers = ANSWERS.get(name, ["0", "1"])
    return ["index\tprediction", *(f"{i}\t{answers[i % len(answers)]}" for i in range(ROWS[name]))]


def write(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines_of(name)))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("submission", capsys)


def test_all_eleven(run: CommandMain, tmp_path: Path) -> None:
    folder = write(tmp_path / "answers", *ROWS)
    (folder / "RTE-valid.tsv").write_text("of another split\n")
    done = run(folder, tmp_path / "out.zip")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "out.zip") as file:
        assert sorted(file.namelist()) == sorted(f"{name}.tsv" for name in ROWS)
        for name in file.namelist():
            assert file.read(name) == (folder / name).read_bytes()
    assert "note" not in done.stdout
    first = (tmp_path / "out.zip").read_bytes()
    assert run(folder, tmp_path / "out.zip").returncode == 0
    assert (tmp_path / "out.zip").read_bytes() == first


def test_missing_files_are_named(run: CommandMain, tmp_path: Path) -> None:
    folder = write(tmp_path / "answers", "RTE", "WNLI")
    done = run(folder, tmp_path / "out.zip")
    assert done.returncode == 2 and not (tmp_path / "out.zip").exists()
    assert (
        "CoLA.tsv, SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, MNLI-m.tsv, MNLI-mm.tsv, QNLI.tsv, AX.tsv missing"
        in (done.stderr)
    )
    done = run(folder, tmp_path / "out.zip", "--allow-missing")
    assert done.returncode == 0 and "GLUE's server will refuse the zip: CoLA.tsv" in done.stdout
    with zipfile.ZipFile(tmp_path / "out.zip") as file:
        assert sorted(file.namelist()) == ["RTE.tsv", "WNLI.tsv"]
    (tmp_path / "empty").mkdir()
    done = run(tmp_path / "empty", tmp_path / "out2.zip", "--allow-missing")
    assert done.returncode == 2 and not (tmp_path / "out2.zip").exists()


BAD = [
    ("WNLI", 0, "id\tlabel", "WNLI.tsv:1: expected the header 'index\\tprediction', found 'id\\tlabel'"),
    ("WNLI", 5, "5\t1", "WNLI.tsv:6: expected index 4 and a tab, found '5\\t1'"),
    ("WNLI", 5, "4\t1\r", "WNLI.tsv:6: expected one of 0, 1, found '1\\r'"),
    ("AX", 9, "8\tyes", "AX.tsv:10: expected one of contradiction, entailment, neutral, found 'yes'"),
    ("STS-B", 3, "2\t5.001", "STS-B.tsv:4: expected a number from 0 to 5, found '5.001'"),
    ("STS-B", 3, "2\tnan", "STS-B.tsv:4: expected a number from 0 to 5, found 'nan'"),
]


@pytest.mark.parametrize(("name", "line", "text", "message"), BAD, ids=range(len(BAD)))
def test_a_wrong_line_is_named(
    name: str, line: int, text: str, message: str, run: CommandMain, tmp_path: Path
) -> None:
    folder = write(tmp_path / "answers", name)
    lines = lines_of(name)
    lines[line] = text
    (folder / f"{name}.tsv").write_bytes("".join(f"{one}\n" for one in lines).encode())
    done = run(folder, tmp_path / "out.zip", "--allow-missing")
    assert done.returncode == 2 and done.stderr == f"error: {folder}/{message}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers"]


def test_missing_and_extra_rows_are_named(run: CommandMain, tmp_path: Path) -> None:
    folder = write(tmp_path / "answers", "WNLI")
    lines = lines_of("WNLI")
    (folder / "WNLI.tsv").write_text("\n".join(lines[:-1]) + "\n")
    done = run(folder, tmp_path / "out.zip", "--allow-missing")
    assert "WNLI.tsv:146: 145 rows, but the test set of WNLI has 146" in done.stderr
    (folder / "WNLI.tsv").write_text("\n".join([*lines, "146\t0"]) + "\n")
    done = run(folder, tmp_path / "out.zip", "--allow-missing")
    assert "WNLI.tsv:148: 147 rows, but the test set of WNLI has 146" in done.stderr
