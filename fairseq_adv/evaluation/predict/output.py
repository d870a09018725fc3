"""The leaderboards' file formats.

GLUE: ``index<TAB>prediction`` under a header. ARC and CommonsenseQA: ``id,label`` without a header, as in the
sample predictions of AI2's evaluator. SuperGLUE's WSC: one JSON object per line, with the label "True" or
"False".
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_text import plain_cell, table_text
from fairseq_adv.evaluation.predict.benchmarks import PredictionTask
from fairseq_adv.evaluation.predict.decisions import Decisions

GLUE_HEADER = "index\tprediction"


def benchmark_text(of: PredictionTask, decisions: Decisions, file: Path) -> str:
    """The answers in a leaderboard's format."""
    ids, answers = decisions.scores.ids.tolist(), decisions.answers
    if of.name == "STS-B":
        return glue_lines([stsb_answer(float(answer)) for answer in answers])
    if of.glue is not None:
        return glue_lines(answers)
    if of.name == "wsc":
        return wsc_lines(ids, answers)
    refuse_other_questions(file, ids)
    return choice_lines(ids, answers)


def glue_lines(answers: Sequence[str]) -> str:
    """A GLUE file; position i is the row with index i."""
    return "".join([f"{GLUE_HEADER}\n", *(f"{index}\t{answer}\n" for index, answer in enumerate(answers))])


def stsb_answer(value: float) -> str:
    """A similarity from 0 to 5 with three decimals.

    Args:
        value: the model's output, which is a fifth of that (fairseq's recipe divides the scores by 5).
    """
    return f"{min(max(value * 5.0, 0.0), 5.0):.3f}"


def choice_lines(ids: Sequence[str], answers: Sequence[str]) -> str:
    """``id,label`` for each question; a comma or quote in an id is quoted."""
    return table_text(zip(ids, answers))


def refuse_other_questions(path: Path, ids: Sequence[str]) -> None:
    """Raises DataError if ``path`` has the answers to other questions, which would be lost."""
    if not path.is_file():
        return
    with open(path, encoding="utf-8", newline="") as file:
        there = [plain_cell(row[0]) for row in csv.reader(file) if row]
    if sorted(there) != sorted(ids):
        raise DataError(
            f"{path}: has the answers to other questions ({len(there)}, such as "
            f"{there[0] if there else '-'}). Pass another --out, or remove the file."
        )


def wsc_lines(ids: Sequence[str], answers: Sequence[str]) -> str:
    """SuperGLUE's WSC.jsonl."""
    wrong = next((one for one in ids if not one.isascii() or not one.isdigit()), None)
    if wrong is not None:
        raise DataError(f"row {wrong}: its idx is not a number. SuperGLUE's own files number their lines.")
    return "".join(json.dumps({"idx": int(i), "label": answer}) + "\n" for i, answer in zip(ids, answers))
