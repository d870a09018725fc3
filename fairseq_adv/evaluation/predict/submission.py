"""Checks GLUE's eleven prediction files, and packs them into the zip that its server accepts."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import task_layout
from fairseq_adv.data.io import atomic_open
from fairseq_adv.evaluation.predict.benchmarks import GLUE_HEADER

# File -> (rows of the test set, task whose labels it has).
FILES: dict[str, tuple[int, str]] = {
    "CoLA.tsv": (1063, "CoLA"),
    "SST-2.tsv": (1821, "SST-2"),
    "MRPC.tsv": (1725, "MRPC"),
    "STS-B.tsv": (1379, "STS-B"),
    "QQP.tsv": (390965, "QQP"),
    "MNLI-m.tsv": (9796, "MNLI"),
    "MNLI-mm.tsv": (9847, "MNLI"),
    "QNLI.tsv": (5463, "QNLI"),
    "RTE.tsv": (3000, "RTE"),
    "WNLI.tsv": (146, "WNLI"),
    "AX.tsv": (1104, "AX"),
}
_SCORE = re.compile(r"[0-9]+(\.[0-9]+)?")


def make_submission(folder: Path, out: Path, allow_missing: bool = False) -> tuple[dict[str, int], list[str]]:
    """Checks the prediction files in ``folder`` and zips them."""
    if out.suffix != ".zip":
        raise DataError(f"{out}: GLUE requires a zip. Pass a name that ends in .zip.")
    counts: dict[str, int] = {}
    missing: list[str] = []
    contents: dict[str, bytes] = {}
    for name, (rows, task) in FILES.items():
        path = folder / name
        if not path.is_file():
            missing.append(name)
            continue
        contents[name] = path.read_bytes()
        check_file(path, contents[name], rows, task)
        counts[name] = rows
    if not contents or (missing and not allow_missing):
        raise DataError(
            f"{folder}: {', '.join(missing)} missing. Make them with fairseq-adv predict"
            + (", or pass --allow-missing." if contents else ".")
        )
    _zip(out, contents)
    return counts, missing


def check_file(path: Path, content: bytes, rows: int, task: str) -> None:
    """Checks one prediction file."""
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}:{number}: not UTF-8. Make the file again with fairseq-adv predict."
        ) from error
    if lines and not lines[-1]:
        lines.pop()
    if not lines or lines[0] != GLUE_HEADER:
        found = lines[0] if lines else "nothing"
        raise DataError(f"{path}:1: expected the header {GLUE_HEADER!r}, found {found[:60]!r}")
    for number, line in enumerate(lines[1:], start=2):
        index, tab, answer = line.partition("\t")
        if number - 1 > rows:
            raise DataError(
                f"{path}:{number}: one row too many; the test set of {task} has {rows} rows, 0 to {rows - 1}"
            )
        if not tab or index != str(number - 2):
            raise DataError(f"{path}:{number}: expected index {number - 2} and a tab, found {line[:60]!r}")
        _check_answer(f"{path}:{number}", answer, task)
    if len(lines) - 1 < rows:
        raise DataError(
            f"{path}:{len(lines) + 1}: row {len(lines) - 1} is missing; the test set of {task} has {rows} "
            "rows. Was the file made from the whole test set?"
        )


def _check_answer(where: str, answer: str, task: str) -> None:
    classes = task_layout(task).classes
    if classes:
        if answer not in classes:
            raise DataError(f"{where}: expected one of {', '.join(sorted(classes))}, found {answer!r}")
    elif not _SCORE.fullmatch(answer) or not 0.0 <= float(answer) <= 5.0:
        raise DataError(f"{where}: expected a number from 0 to 5, found {answer!r}")


def _zip(out: Path, contents: dict[str, bytes]) -> None:
    with atomic_open(out) as whole, zipfile.ZipFile(whole, "w") as file:
        for name in sorted(contents):
            # A fixed date, so that the same answers give the same zip.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            file.writestr(entry, contents[name])
