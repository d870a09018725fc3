"""The evidence run's numbers: intervals and tests against simulations and by hand, and the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_samples import table_rows
from support import slow
from test_evidence import EXAMPLES, record_of

import gains  # isort: skip
import grid  # isort: skip
import records as kept  # isort: skip
import splits  # isort: skip
import write_results as pages  # isort: skip
from gains import Gain
from splits import GRID, TASKS

from tables import write_between  # isort: skip

from fairseq_adv.data.errors import DataError

SEEDS, ROWS = 8, 1500


@pytest.fixture
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gains, "REPLICATES", 200)
    gains._weights.cache_clear()


def simulated(rng: Any, gain: float, runs: float, rows: float) -> Gain:
    """A comparison with a known gain, a share of 1: what runs (a seed) and rows (for all seeds) add to it is
    drawn too, and the answers are drawn with the probabilities that result.
    """
    of_runs, of_rows = rng.uniform(-runs, runs, (SEEDS, 1)), rng.choice((-rows, rows), (1, ROWS))
    common = rng.choice((-0.15, 0.15), (1, ROWS))
    ours = rng.random((SEEDS, ROWS)) < 0.7 + gain + of_runs + of_rows + common
    theirs = rng.random((SEEDS, ROWS)) < 0.7 + common
    return gains.gain(*([np.stack([s, ~s], 1).astype(np.float32) for s in some] for some in (ours, theirs)))


@pytest.mark.usefixtures("few_replicates")
@pytest.mark.parametrize(("runs", "rows"), [slow(0.01, 0.0), slow(0.01, 0.12), slow(0.03, 0.05)])
def test_intervals_cover_the_true_gain(runs: float, rows: float) -> None:
    """93 to 97 % of 4500, whose standard error is 0.3, and of 1500 means over three tasks, with 0.6."""
    rng = np.random.default_rng(3)
    found = [simulated(rng, 0.01, runs, rows) for _ in range(4500)]
    means = [gains.mean_gain(found[i : i + 3]) for i in range(0, 4500, 3)]
    covered = [abs(one.mean - 1) < one.half for one in found]
    assert 0.93 <= np.mean(covered) <= 0.97
    assert 0.93 <= np.mean([abs(one.mean - 1) < one.half for one in means]) <= 0.97
    assert np.mean([one.half for one in means]) < 0.75 * np.mean([one.half for one in found])


@pytest.mark.usefixtures("few_replicates")
def test_p_of_no_gain_is_uniform() -> None:
    rng = np.random.default_rng(5)
    ps = np.array([simulated(rng, 0.0, 0.01, 0.05).p for _ in range(300)])
    assert 0.02 <= (ps < 0.05).mean() <= 0.08 and 0.4 < (ps < 0.5).mean() < 0.6


def test_the_variance_is_that_of_two_way_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cameron, Gelbach and Miller (2011): over seeds, plus over rows, less over answers, in closed form; the
    difference of the last two, S (S - 1) covariances over S^2, with their correction for few clusters.
    """
    monkeypatch.setattr(gains, "REPLICATES", 8000)
    gains._weights.cache_clear()
    rng = np.random.default_rng(1)
    ours = rng.random((5, 400)) < 0.7 + rng.choice((-0.25, 0.25), (1, 400))
    theirs = rng.random((5, 400)) < 0.7
    counts = [[np.stack([s, ~s], 1).astype(float) for s in some] for some in (ours, theirs)]
    found = gains.gain(counts[0], counts[1])
    d = 100 * (ours.astype(float) - theirs)
    by_rows = d.mean(0).var() / 400
    by_answers = d.var(axis=1).sum() / 400 / 25
    over_seeds = d.mean(1).var(ddof=1) / 5
    assert by_rows > 1.5 * by_answers
    assert found.variance == pytest.approx(over_seeds + (by_rows - by_answers) * 5 / 4, rel=0.04)
    assert found.mean == pytest.approx(d.mean()) and len(found.found) == 5
    assert found.freedom == pytest.approx(4 * (found.variance / over_seeds) ** 2)
    gains._weights.cache_clear()


def of_moments(mean: float, variance: float, seeds: int, shared: float = 0.0) -> Gain:
    """A gain with these numbers; the variance is that over seeds, divided by their number."""
    ends = np.arange(seeds) - (seeds - 1) / 2
    return Gain(mean + ends * (variance * seeds / ends.var(ddof=1)) ** 0.5, shared)


def test_numbers_by_hand() -> None:
    """t(.975, 4) = 2.7764, and t = 1 with one degree of freedom has p = 0.5."""
    assert of_moments(1.0, 0.25, 5).half == pytest.approx(2.776445 * 0.5, rel=1e-6)
    assert of_moments(2.0, 4.0, 2).p == pytest.approx(0.5) and Gain(np.zeros(5), 0.0).p == 1
    assert of_moments(1.0, 0.2, 5, 0.2).freedom == pytest.approx(4 * 2**2), "Satterthwaite"
    parts = [Gain(np.array([1.0, 3.0, 2.0]), 0.3), Gain(np.array([3.0, 1.0, 2.0, 9.0]), 0.6)]
    mean = gains.mean_gain(parts)
    assert mean.found.tolist() == [2, 2, 2] and mean.variance == pytest.approx(0.9 / 4), "opposite seeds"
    mean = gains.mean_gain([parts[0], parts[0]])
    assert mean.over_seeds == pytest.approx(parts[0].over_seeds), "seeds that move tasks together"
    assert gains.holm([0.03, 0.02]) == [0.04, 0.04] and gains.holm([0.01, 0.9]) == [0.02, 0.9]
    assert gains.holm([0.6, 0.7]) == [1.0, 1.0]
    assert gains.score(np.array([[3.0, 1.0], [0.0, 4.0]])).tolist() == [75, 0]
    labels, predicted = np.array([1, 1, 1, 0, 0, 1]), np.array([1, 0, 1, 0, 1, 1])
    counts = gains.count(predicted, labels, np.array([0, 0, 2, 2, 2, 2]), 3, "mcc")
    assert counts.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [2, 1, 0, 1]]
    assert gains.score(counts.sum(0)) == pytest.approx(100 * (3 - 1) / (4 * 4 * 2 * 2) ** 0.5)
    assert gains.score(np.array([4.0, 0, 0, 0])) == 0, "not defined"
    plain = gains.count(predicted, labels, np.array([0, 0, 2, 2, 2, 2]), 3, "accuracy")
    assert plain.tolist() == [[1, 1], [0, 0], [3, 1]]


@pytest.mark.parametrize(
    ("mean", "variance", "p", "words"),
    [
        (0.8, 0.01, 0.001, "helps"), (0.3, 0.005, 0.001, "helps (less than half a point)"),
        (-0.4, 0.01, 0.01, "harms"), (0.1, 0.01, 0.3, "no gain of interest"), (0.4, 0.09, 0.3, "not decided"),
        (-0.3, 0.25, 0.6, "not decided"),
    ],
)  # fmt: skip
def test_what_is_said(mean: float, variance: float, p: float, words: str) -> None:
    found = of_moments(mean, variance, 41)
    assert gains.verdict(found, p, of_moments(0.3, 0.01, 41)) == words
    no_gain = "a gain, but none is shown at equal learning rates" if words.startswith("helps") else words
    assert gains.verdict(found, p, of_moments(0.1, 0.01, 41)) == no_gain


def test_no_seed_counts_after_one_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the mean over tasks would be of different seeds."""
    right = np.array([[1.0, 0.0], [0.0, 1.0]])
    results = pages.Results.__new__(pages.Results)
    for seeds, found in (((1, 2, 3, 5), 3), ((1, 3, 4, 5), 0)):
        records = dict.fromkeys(seeds, right)
        monkeypatch.setattr(pages.Results, "of", lambda *_, records=records: records)
        one = results.gain("TREC", "freelb", counts=lambda counts: counts)
        assert (0 if one is None else len(one.found)) == found


def test_a_seed_that_is_not_attacked_ends_those_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.array([[1.0, 0.0], [0.0, 1.0]])
    results = pages.Results.__new__(pages.Results)
    records = {seed: {"attacks": {"0.01": seed != 4}} for seed in (1, 2, 3, 4, 5)}
    monkeypatch.setattr(pages.Results, "of", lambda *_: records)
    one = results.gain("TREC", "freelb", counts=lambda of: right if of["attacks"]["0.01"] else None)
    assert one is not None and len(one.found) == 3


def test_calibration_by_hand() -> None:
    found = np.array([[0.9, 0.1], [0.6, 0.4], [0.62, 0.38], [0.2, 0.8]])
    labels = np.array([0, 0, 1, 1])
    assert pages.brier(found, labels) == pytest.approx(2 * (0.01 + 0.16 + 0.62**2 + 0.04) / 4)
    expected = (0.1 + 0.22 + 0.2) / 4  # 0.6 and 0.62 share a bin
    assert pages.expected_calibration_error(found, labels) == pytest.approx(expected)


# --- the pages


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pages to write, and small tasks."""
    monkeypatch.setattr(splits, "TRAINED", 10)
    for page in ("RESULTS", "DETAILS"):
        (tmp_path / f"{page}.md").write_text("above\n<!-- tables: begin -->\n<!-- tables: end -->\n")
    rng = np.random.default_rng(0)
    for task in TASKS:
        names = ("labels", *TASKS[task].further)
        labels: dict[str, Any] = {name: rng.integers(0, 2, 310).astype(np.uint8) for name in names}
        (tmp_path / "records" / task).mkdir(parents=True)
        path = tmp_path / "records" / task / "rows.npz"
        np.savez(path, ids=np.arange(310), groups=np.arange(310, dtype=np.uint16) // 2, **labels)
    return tmp_path


def write(folder: Path) -> str:
    pages.write(pages.parser().parse_args(["--records", str(folder / "records"), "--pages", str(folder)]))
    return (folder / "RESULTS.md").read_text()


def fill_in(folder: Path, cells: list[grid.Cell], gained: float = 0.0, seed: int = 0) -> None:
    """Records of cells: 70 % of all answers are right, and ``gained`` more of freelb's, drawn at random."""
    rng, found = np.random.default_rng(seed), folder / "records"
    for cell in cells:
        right = rng.binomial(25, 0.5, 4).tolist()
        speed = 1 + 8 * (cell.method == "freelb" and cell.seed < 6)  # of most, on another machine
        more = {
            "machine": f"{speed} GHz",
            "attacks": {f"{radius:g}": {"rows": [25] * 4, "right": right} for radius in cell.radii},
            "word_attacks": {name: {"right": "01" * 9, "queries": 3} for name in cell.word_attacks},
            "cpu_seconds": 10.0 * GRID["methods"][cell.method].get("cost", 1) / speed,
        }
        answers: dict[str, Any] = {}
        if not cell.is_choice:
            answers["draw"] = np.arange(10, dtype=np.uint16)
            for name in ("test", *TASKS[cell.task].further):
                of = "labels" if name == "test" else name
                (labels,) = kept.read_arrays(found / cell.task / "rows.npz", of)
                labels = labels[10:] if name == "test" else labels
                is_right = rng.random(len(labels)) < 0.7 + (gained if cell.method == "freelb" else 0)
                said = np.where(is_right, labels, 1 - labels)  # one of the first two classes
                answers[name] = np.eye(len(TASKS[cell.task].labels), dtype=np.float16)[said][:, :-1]
        kept.append(record_of(cell, 50 + cell.setting, **more), answers, found)


def every_choice() -> list[grid.Cell]:
    return [cell for name in GRID["methods"] for cell in grid.choices(name)]


@pytest.mark.slow
def test_the_pages_show_what_there_is(folder: Path) -> None:
    """No cells; all but one of the primary ones; all of them."""
    assert "**No cells yet.**" in write(folder) and not list(folder.glob("*.svg"))
    fill_in(folder, every_choice())
    cells = grid.cells(kept.read_records(folder / "records"))
    primary = [cell for cell in cells if cell.is_primary and not cell.is_choice]
    fill_in(folder, primary[:-1], gained=0.2)
    text = write(folder)
    controls = [cell for cell in cells if cell.is_control]
    fill_in(folder, controls[:-1], seed=2)
    for last in (primary[-1], controls[-1]):
        assert "are not complete: nothing is concluded" in text
        assert not re.search("helps|harms|no gain|not decided| p [=<]", text), "no verdict"
        fill_in(folder, [last], gained=0.2)
        text = write(folder)
    fill_in(folder, [cell for cell in cells if not cell.is_choice and cell.method == "noise"], seed=1)
    text = write(folder)
    rows = {row[0]: row for row in table_rows(text)}
    of_tasks = [row for name, row in rows.items() if name.endswith(("(accuracy)", "(mcc)"))]
    gained = [[float(cell) for cell in row[1].split(" ± ")] for row in of_tasks]
    for row, (mean, half) in zip(of_tasks, gained):
        assert abs(mean - (20 if "accuracy" in row[0] else 40)) < 2 * half, row
    told = rows["mean of 6"]
    assert float(told[1].split(" ± ")[0]) == pytest.approx(np.mean([mean for mean, _ in gained]), abs=0.01)
    mean, half = map(float, told[2].split(" ± "))
    verdict = "no gain of interest" if mean + half < 0.5 else "not decided"
    assert f"- **`freelb`: helps.** {told[1]} points" in text
    assert f"p < 0.001 after Holm; {told[3]} at equal learning rates." in text
    assert re.search(rf"- \*\*`pgd`: {verdict}\.\*\* .* p = (0\.\d\d\d|1\.000) after Holm; ", text)
    own, equal = rows["`freelb`"], rows["`freelb` at equal learning rates"]
    assert own[-1] == equal[-1] == "3.0", "its price"
    assert "" not in own and equal[3:5] == ["", ""], "words: not attacked at equal rates"
    assert all(one != other for one, other in zip(own[1:-1], equal[1:-1]) if one and other)
    records = kept.read_records(folder / "records")
    places = [(task, seed) for task in TASKS for seed in (1, 2, 3, 4)]
    stay = [
        [sum(records[f"{task}-{name}-{seed}"]["attacks"]["0.01"]["right"]) for task, seed in places]
        for name in ("freelb-3", "standard-2")
    ]
    assert float(equal[1].split(" ± ")[0]) == pytest.approx(np.subtract(*stay).mean(), abs=0.01)
    assert text.count("\n") < 60 and text.count("![") == 1, "two screens and one figure"
    details = (folder / "DETAILS.md").read_text()
    movies = details.partition("## movie-reviews")[2].partition("## CoLA")[0]
    equal, plain = [row for row in table_rows(movies) if row[0].startswith("`standard`")]
    assert equal[:2] == ["`standard`, 0.0002", "5"] and plain[0] == "`standard`, 0.0004"
    assert plain[1:3] == ["8", "0"] and float(plain[3]) == pytest.approx(70, abs=3)
    over_controls = [float(row[3].split(" ± ")[0]) for row in [told, *of_tasks]]
    assert over_controls[0] == pytest.approx(np.mean(over_controls[1:]), abs=0.01) and min(over_controls) > 10
    assert over_controls != [float(row[1].split(" ± ")[0]) for row in [told, *of_tasks]]
    assert "one class): `standard` 0 of 48, `freelb` 0 of 48, `pgd` 0 of 48." in text
    assert "| `noise`, " in details and "| chosen |" in details
    noise = [row for row in table_rows(details) if row[0] == "`noise`"][:2]  # its tasks, and other texts
    assert "products at equal learning rates | tweets |" in details
    for _, *gained, price in noise:
        assert "" not in gained and price == "1.0"
        assert gained[0] != gained[1] and gained[2] != gained[3], "another standard"
    figures = {path.name: path.read_bytes() for path in folder.glob("gain.*g")}
    assert sorted(figures) == ["gain.svg"]
    assert write(folder) == text, "the same records make the same pages"
    assert figures == {path.name: path.read_bytes() for path in folder.glob("gain.*g")}
    elsewhere = folder / "records" / "movie-reviews.jsonl"
    lines = elsewhere.read_text().splitlines(keepends=True)
    own = f'"movie-reviews-standard-{pages.Results(folder / "records").chosen["standard"]}-'
    elsewhere.write_text("".join(x.replace('"1 GHz"', '"2 GHz"') if own in x else x for x in lines))
    write(folder)
    again = [row[-1] for row in table_rows((folder / "DETAILS.md").read_text()) if row[0] == "`noise`"]
    assert again[:2] == ["1.0", "1.0"], "a learning rate costs no time, so any run of standard will do"


def test_answers_that_are_missing_are_named(folder: Path) -> None:
    fill_in(folder, every_choice())
    first = [cell for cell in grid.cells(kept.read_records(folder / "records")) if not cell.is_choice][:54]
    fill_in(folder, first)
    (folder / "records" / "movie-reviews" / f"{first[0].name}.npz").unlink()
    with pytest.raises(DataError, match=r"-1\.npz: missing or damaged .*Restore it"):
        write(folder)


def test_the_pages_in_the_project_are_those_of_its_records(tmp_path: Path) -> None:
    for page in ("RESULTS.md", "DETAILS.md"):
        (tmp_path / page).write_text((EXAMPLES / "evidence" / page).read_text())
    pages.write(pages.parser().parse_args(["--pages", str(tmp_path)]))
    for page in ("RESULTS.md", "DETAILS.md"):
        own = (EXAMPLES / "evidence" / page).read_text()
        assert (tmp_path / page).read_text() == own, "run examples/evidence/write_results.py"


def test_tables_go_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    for _ in range(2):
        write_between(page, "| a |\n")
    markers = "<!-- tables: begin -->\n\n| a |\n\n<!-- tables: end -->"
    assert page.read_text() == f"before\n{markers}\nafter\n"
    page.write_text("none\n")
    with pytest.raises(DataError, match=r"gone\.md: no such page; pass one that has the lines <!-- tables"):
        write_between(tmp_path / "gone.md", "| a |\n")
    with pytest.raises(DataError, match=r"page\.md: the lines <!-- tables: begin --> and .* are missing"):
        write_between(page, "x")
    assert page.read_text() == "none\n"
