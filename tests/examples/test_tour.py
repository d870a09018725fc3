"""examples/quickstart/tour.ipynb: its outputs as they are committed, and a run with a tiny encoder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hf_models import save_bert
from recipes import ROOT

nbformat = pytest.importorskip("nbformat", reason="the extra notebook is not installed")
nbclient = pytest.importorskip("nbclient", reason="the extra notebook is not installed")
TOUR = ROOT / "examples" / "quickstart" / "tour.ipynb"


@pytest.fixture
def tour() -> Any:
    return nbformat.read(TOUR, as_version=4)


def outputs(notebook: Any) -> list[dict[str, Any]]:
    """The data of every output, by MIME type; fails for an error and for a line on stderr."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type in ("display_data", "execute_result"), output
            found.append(dict(output.data))
    return found


def check_outputs(notebook: Any) -> None:
    """Tables and figures, in their order, and nothing else."""
    kinds = [
        next(kind for kind in ("image/png", "text/markdown") if kind in data) for data in outputs(notebook)
    ]
    assert kinds == ["text/markdown", "image/png", *["text/markdown"] * 3]


def test_the_committed_outputs_are_of_one_run_and_name_no_machine(tour: Any) -> None:
    nbformat.validate(tour)
    check_outputs(tour)
    code = [cell for cell in tour.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert TOUR.stat().st_size < 150_000
    texts = [text for data in outputs(tour) for kind, text in data.items() if kind.startswith("text/")]
    assert not re.search(r"/(home|root|tmp|work|Users|usr|opt)\b", "\n".join(texts))


@pytest.mark.slow
def test_the_notebook_runs(tour: Any, tmp_path: Path) -> None:
    save_bert(tmp_path / "hf")
    (tmp_path / "reviews").mkdir()
    rows = "".join(f"a film {n}{n % 7},{'negative' if n % 3 else 'positive'}\n" for n in range(40))
    for name in ("train.csv", "valid.csv"):
        (tmp_path / "reviews" / name).write_text(f"text,label\n{rows}")
    (parameters,) = [cell for cell in tour.cells if "parameters" in cell.metadata.get("tags", [])]
    given = {
        "ENCODER": f"{tmp_path}/hf", "REVIEWS": f"{tmp_path}/reviews", "OUT": f"{tmp_path}/out", "EPOCHS": 1,
        "ROWS": 24, "ATTACKED_TEXTS": 4,
    }  # fmt: skip
    assert re.findall(r"^(\w+) = ", parameters.source, re.M) == list(given)
    parameters.source = "\n".join(f"{name} = {value!r}" for name, value in given.items())
    for cell in tour.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    where = {"metadata": {"path": str(TOUR.parent)}}
    nbclient.NotebookClient(tour, timeout=600, kernel_name="python3", resources=where).execute()
    check_outputs(tour)
    *_, answers = outputs(tour)
    rows = [line.split(" | ") for line in answers["text/markdown"].splitlines()[2:]]
    assert len(rows) == 4
    for _, ours, theirs in rows:  # a label and its probability
        assert ours.split()[0] == theirs.split()[0] and ours.split()[0] in ("negative", "positive")
        assert float(ours.split()[1]) == pytest.approx(float(theirs.split()[1]), abs=0.002)
    assert (tmp_path / "out" / "my-model" / "config.json").is_file()
    assert sorted(path.name for path in TOUR.parent.iterdir()) == ["README.md", "table.py", "tour.ipynb"]
