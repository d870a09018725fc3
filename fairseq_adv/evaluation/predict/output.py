"""The leaderboards' file formats, and one with probabilities.

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
from fairseq_adv.evaluation.predict.ensemble import Scores, probabilities

GLUE_HEADER = "index\tprediction"


def glue_lines(answers: Sequence[str]) -> str:
    """A GLUE file; position i is the row with index i."""
    return "".join([f"{GLUE_HEADER}\n", *(f"{index}\t{answer}\n" for index, answer in enumerate(answers))])


def probability_lines(scores: Scores, answers: Sequence[str]) -> str:
    """A TSV: index, prediction, and the probability of each class or choice; a regression has no such
    columns.

    Args:
        scores: of one model, or the means over several.
        answers: (n,) a label, or a number as text.
    """
    head, names = ["index", "prediction"], scores.labels[0].tolist()
    if scores.kind == "values":
        rows = [[name, f"{float(answer):.6f}"] for name, answer in zip(scores.ids.tolist(), answers)]
    else:
        alike = bool((scores.labels == scores.labels[:1]).all())
        head += names if alike else [f"choice {k}" for k in range(1, len(names) + 1)]
        shares = [
            [f"{share:.6f}" if name else "" for share, name in zip(row, scores.row_labels(number))]
            for number, row in enumerate(probabilities(scores.log_probs).tolist())
        ]
        rows = [[name, answer, *row] for name, answer, row in zip(scores.ids.tolist(), answers, shares)]
    return table_text([head, *rows], delimiter="\t")


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
    """SuperGLUE's WSC.jsonl.

    Raises:
        DataError: an id is not a number, so the examples are not SuperGLUE's.
    """
    wrong = next((one for one in ids if not one.isascii() or not one.isdigit()), None)
    if wrong is not None:
        raise DataError(f"row {wrong}: its idx is not a number. SuperGLUE's own files number their lines.")
    return "".join(json.dumps({"idx": int(i), "label": answer}) + "\n" for i, answer in zip(ids, answers))
