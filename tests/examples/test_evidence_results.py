"""The evidence run's numbers: intervals and tests against simulations and by hand, and the pages."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_samples import EVIDENCE, record_of, table_rows
from support import slow

import gains  # isort: skip
import grid  # isort: skip
import records as kept  # isort: skip
import write_results as pages  # isort: skip
from gains import Gain
from grid import GRID, TASKS
from records import Block

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
    parts = [Gain(np.array([1.0, 3.0, 2.0]), 0.3), Gain(np.array([3.0, 1.0, 2.0]), 0.6)]
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
        (0.8, 0.01, 0.001, "a gain"), (0.3, 0.005, 0.01, "a gain, but a smaller one than is of interest"),
        (-0.4, 0.01, 0.01, "a loss"), (0.1, 0.01, 0.3, "no gain of interest"),
        (0.4, 0.09, 0.3, "not decided"), (0.8, 0.01, 0.05, "not decided"), (-0.3, 0.25, 0.6, "not decided"),
    ],
)  # fmt: skip
def test_what_is_said(mean: float, variance: float, p: float, words: str) -> None:
    assert gains.verdict(of_moments(mean, variance, 41), p, 0.5) == words


def test_the_interval_for_other_tasks() -> None:
    """Of eight draws from tasks whose gains differ, in 93 to 97 % of 2000 it covers their mean."""
    draws = np.random.default_rng(2).normal(1.0, 2.0, (2000, 8))
    halves = [gains.of_other_tasks([Gain(np.full(2, mean), 0.0) for mean in means]) for means in draws]
    assert 0.93 <= np.mean(abs(draws.mean(1) - 1) < halves) <= 0.97


# --- arms


def by_name(*found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found}


RATES = {"standard": [1e-4, 5e-5, 2e-4], "freelb": [1e-4, 5e-5]}
ABOUT = {"encoder": "minilm", "rows": 1000, "tasks": ["Subj"], "seeds": [11, 12], "rates": RATES}


def of_each_rate(seed: int, *dev: tuple[float, float], **more: Any) -> list[dict[str, Any]]:
    """Records of all trainings of a seed, with these dev scores; their test scores say the opposite."""
    cells = [grid.Cell("minilm", "Subj", 1000, name, lr, seed) for name, some in RATES.items() for lr in some]
    found = [record_of(cell, *scores, **more) for cell, scores in zip(cells, dev)]
    for one in found:
        one["scores"]["test"] = {"accuracy": -one["scores"]["valid"]["accuracy"], "loss": 0.0}
    return found


@pytest.mark.parametrize(
    ("dev", "rate"),
    [
        (((50, 1.0), (60, 2.0), (55, 0.1)), 5e-5), (((60, 1.0), (60, 1.0), (60, 0.9)), 2e-4),
        (((60, 1.0), (60, 1.0), (60, 1.0)), 1e-4),
    ],
)  # fmt: skip
def test_an_arm_chooses_by_dev_rows_alone(dev: Any, rate: float, tmp_path: Path) -> None:
    """Accuracy, then the loss, then the default; freelb takes its default in any case."""
    block = Block(ABOUT, by_name(*of_each_rate(11, *dev, (60, 1.0), (70, 1.0))), tmp_path)
    chosen = [block.model(arm, "Subj", 11)["lr"] for arm in ("plain", "freelb", "freelb tuned")]
    assert chosen == [rate, 1e-4, 5e-5]


def test_seeds_that_are_not_done_or_of_two_makers_do_not_count(tmp_path: Path) -> None:
    five = [(50.0, 1.0)] * 5
    found = [*of_each_rate(11, *five), *of_each_rate(12, *five)]
    found[5]["cpu_seconds"], found[8]["cpu_seconds"] = 20.0, 60.0  # seed 12: standard, freelb at the default
    block = Block(ABOUT, by_name(*found), tmp_path)
    assert block.seeds == [11, 12] and block.is_complete
    assert block.price("plain") == "2.5" and block.price("freelb") == "2.0"
    for changed in ({"starts": 2}, {"machine": "Intel of another model"}):
        again = Block(ABOUT, by_name(*found[:9], {**found[9], **changed}), tmp_path)
        assert again.seeds == [11, 12] and again.price("freelb tuned") == "2.0", "the other seed's"
    assert (
        Block(ABOUT, by_name(*({**one, "machine": "NVIDIA H200"} for one in found)), tmp_path).price("plain")
        == ""
    )
    for less in (found[:9], [*found[:9], {**found[9], "machine": "AMD EPYC, 2 cores"}]):
        block = Block(ABOUT, by_name(*less), tmp_path)
        assert block.seeds == [11] and not block.is_complete


# --- the pages


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pages to write; 500 rows of each task, and three seeds in each block."""
    sizes = {"dev": 20, "attacked": 100, "tested": 350}
    small = [{**block, "seeds": block["seeds"][:3]} for block in GRID["blocks"]]
    for name, value in {**sizes, "blocks": small}.items():
        monkeypatch.setitem(GRID, name, value)
    for cached in (kept._answers, kept._rows):
        cached.cache_clear()
    for page in ("RESULTS", "DETAILS"):
        (tmp_path / f"{page}.md").write_text("above\n<!-- tables: begin -->\n<!-- tables: end -->\n")
    rng = np.random.default_rng(0)
    for task in TASKS:
        labels = rng.integers(0, 2, 500).astype(np.uint8)
        (tmp_path / "records" / task).mkdir(parents=True)
        path = tmp_path / "records" / task / "rows.npz"
        np.savez(path, ids=np.arange(500), groups=np.arange(500, dtype=np.uint16) // 2, labels=labels)
    return tmp_path


def write(folder: Path) -> str:
    pages.write(pages.parser().parse_args(["--records", str(folder / "records"), "--pages", str(folder)]))
    return (folder / "RESULTS.md").read_text(encoding="utf-8")


# The share of right answers, and of those that stay right; the dev accuracy decides for 5e-5.
SHARES = {("standard", 5e-5): (0.7, 0.3), ("freelb", 1e-4): (0.9, 0.4), ("freelb", 5e-5): (0.8, 0.5)}


def fill_in(folder: Path, cells: list[grid.Cell]) -> None:
    """Records of cells: answers are right by chance, as :data:`SHARES` says, each with 90 % or more."""
    rng, found = np.random.default_rng(len(cells)), folder / "records"
    for cell in cells:
        places = 100 + np.random.default_rng(cell.seed).permutation(400).astype(np.uint16)
        dev, train = places[:20], places[20:30]
        groups, labels = kept.read_arrays(found / cell.task / "rows.npz", "groups", "labels")
        answers = {"dev_places": dev, "train_places": train}
        share, stays = SHARES.get((cell.method, cell.lr), (0.95, 0.95) if cell.rows == 1000 else (0.6, 0.2))
        tested = np.flatnonzero(~np.isin(groups, groups[places[:30]]))[:350]
        for name, some in (("valid", labels[dev]), ("test", labels[tested])):
            said = np.where(rng.random(len(some)) < share, some, 1 - some)
            certain = np.full((len(some), len(TASKS[cell.task].labels)), -np.inf)
            certain[:, :2] = np.log(np.where(np.arange(2) == said[:, None], 0.9, 0.1))
            answers[name] = np.maximum(certain, -20).astype(np.float16)
        cost = {"standard": 10.0, "freelb": 24.0, "pgd": 26.0}[cell.method]
        bits = "".join("01"[stay] for stay in (rng.random(100) < stays).astype(int))
        on_words = {name: {"right": bits[::-1], "queries": 30.0} for name in cell.word_attacks}
        dev_score = 60.0 if cell.lr == 5e-5 else 50.0
        more = {"attacked": bits, "word_attacks": on_words, "cpu_seconds": cost}
        kept.append(record_of(cell, dev_score, **more), answers, found)


def test_rows_are_paired_by_their_place(folder: Path) -> None:
    """An answer is right wherever the place is no multiple of 3; draws differ by seed."""
    cells = [cell for cell in grid.cells() if (cell.task, cell.rows) == ("Subj", 1000)][4:6]
    fill_in(folder, cells)
    (block, *_), records = kept.blocks(folder / "records")
    labels = kept.read_arrays(folder / "records" / "Subj" / "rows.npz", "labels")[0]
    for cell in cells:
        path = kept.answers_of(records[cell.name], folder / "records")
        dev, train = kept.read_arrays(path, "dev_places", "train_places")
        sides = {place // 2 for place in (*dev.tolist(), *train.tolist())}
        tested = [place for place in range(500) if place // 2 not in sides][:350]
        answers = np.eye(2, dtype=np.float16)[[labels[p] if p % 3 else 1 - labels[p] for p in tested]]
        np.savez(path, dev_places=dev, train_places=train, test=answers)
        by_hand = np.zeros((250, 2))
        for place in tested:
            by_hand[place // 2, int(not place % 3)] += 1
        bits = "".join("01"[place % 5 == 0] for place in range(100))
        record = {**records[cell.name], "attacked": bits, "word_attacks": {"pwws": {"right": bits[::-1]}}}
        assert block.counts(record, "accuracy").tolist() == by_hand.tolist()
        assert block.counts(record, "moved")[:3].tolist() == [[1, 1], [0, 2], [1, 1]]
        assert block.counts(record, "pwws").sum(0).tolist() == [20, 80] and not block.has_collapsed(record)
        sure, right = np.e / (1 + np.e), by_hand[:, 0].sum() / by_hand.sum()
        expected = 2 * (right * (1 - sure) ** 2 + (1 - right) * sure**2)
        assert block.brier(record) == pytest.approx(expected) and block.brier(record, 2.0) != expected
    kept._answers.cache_clear()
    np.savez(path, dev_places=dev, train_places=train, test=np.eye(2)[[0] * len(tested)])
    assert block.has_collapsed(record), "more than 99 % of the answers are one class"
    path.unlink()
    kept._answers.cache_clear()
    with pytest.raises(DataError, match=r"\.npz: missing or damaged .*Restore it"):
        block.brier(record)


def test_the_pages_show_what_there_is(folder: Path) -> None:
    """No cells; all but one of the first block's; these, but not all its seeds; all cells."""
    assert "Nothing is shown before 3 seeds" in write(folder) and not list(folder.glob("*.svg"))
    cells = grid.cells()
    fill_in(folder, cells[:134])
    assert "Nothing is shown before 3 seeds" in write(folder)
    fill_in(folder, cells[134:135])
    GRID["blocks"][0]["seeds"].append(14)  # of the fixture's own list
    text = write(folder)
    assert "The comparison is not complete (3 of 4 seeds): nothing is concluded" in text
    assert not re.search(r"a gain|a loss|no gain|not decided| p [=<]", text), "no verdict"
    GRID["blocks"][0]["seeds"].pop()
    fill_in(folder, cells[135:])
    text = write(folder)
    gain = (
        r"a gain\.\*\* \*freelb\* − \*plain\*: \+(.*) ± (.*) \(tasks as a sample of tasks: ± .*\) points, p "
    )
    told = re.findall(rf"{gain}[<=] 0\.0\d{{3}} after Holm; (?:0\.5|2) is of interest", text)
    assert len(told) == 2
    assert all(abs(float(one) - true) < 2 * float(half) < 8 for (one, half), true in zip(told, (20, 10)))
    rows = [list(map(float, numbers)) for _, *numbers in table_rows(text)[2:]]
    expected = [(70, 90, 80), (30, 40, 50), (0.5, 0.18, 0.34), (0.42, 0.18, 0.32), (3, 2.4, 4.8)]
    assert len(rows) == 5
    for numbers, right, slack in zip(rows, expected, (2, 4, 0.04, 0.04, 0.01)):
        assert numbers == pytest.approx(right, abs=slack)
    details = (folder / "DETAILS.md").read_text(encoding="utf-8")
    arms = ["plain", "freelb", "freelb tuned"]
    first, *others = details.partition("## CoLA")[0].split("\n## ")[1:]
    assert first.startswith("minilm, 1000 rows, 3 seeds: plain, freelb, freelb tuned")
    by_task = [row for row in table_rows(first) if row[0] in TASKS][:8]
    assert np.mean([float(row[2]) for row in by_task]) == pytest.approx(rows[0][1], abs=0.1)
    means = [row[4] for row in table_rows(first) if row[0] == "mean"]
    assert all(mean.startswith(f"+{one} ± {half} (") for mean, (one, half) in zip(means, told))
    assert "| plain | 5e-05 × 24 | 0 of 24 | 3.0 |\n| freelb | 0.0001 × 24 | 0 of 24 | 2.4 |" in first
    heads = [one.partition("\n")[0] for one in others]
    assert [head.split(",")[0] for head in heads] == ["mpnet", "minilm", "minilm", "minilm"]
    assert heads[-1].endswith("plain, pgd") and "tuned" not in "".join(heads)
    found = table_rows(details.partition("## CoLA")[2])[2:]
    tasks = 6 * ["CoLA"] + 6 * ["movie-reviews"]
    assert [[row[0], row[2]] for row in found] == list(map(list, zip(tasks, 4 * arms)))
    assert float(found[1][3]) == pytest.approx(80, abs=5)
    has_gain = [place % 3 > 0 and row[1] != "AUC × 100" for place, row in enumerate(found)]
    assert [row[4] != "" for row in found] == has_gain, "AUC has no interval"
    assert text.count("\n") < 60 and text.count("![") == 1 and sum(map(len, rows)) <= 20
    figure = (folder / "levels.svg").read_bytes()
    assert b"SNLI, 4000 rows (plain: 0.0001 alone)" in figure and b"TREC, 4000 rows" not in figure
    assert b"SNLI, 1000 rows -->" in figure, "where plain has several rates nothing is said"
    alone = [one.partition("\n")[0] for one in others if "*plain* is `standard` at 0.0001 alone." in one]
    assert [head[:20] for head in alone] == ["minilm, 250 rows, 3 ", "minilm, 4000 rows, 3"]
    assert write(folder) == text and (folder / "levels.svg").read_bytes() == figure, "the same records"


def test_the_pages_in_the_project_are_those_of_its_records(tmp_path: Path) -> None:
    for page in ("RESULTS.md", "DETAILS.md"):
        (tmp_path / page).write_text((EVIDENCE / page).read_text(encoding="utf-8"))
    pages.write(pages.parser().parse_args(["--pages", str(tmp_path)]))
    drawn = f"Matplotlib v{version('matplotlib')}," in (EVIDENCE / "levels.svg").read_text(encoding="utf-8")
    for page in ["RESULTS.md", "DETAILS.md", *["levels.svg"] * drawn]:  # by another version it is another
        own = (EVIDENCE / page).read_text(encoding="utf-8")
        assert (tmp_path / page).read_text(encoding="utf-8") == own, "run examples/evidence/write_results.py"


def test_a_record_and_its_answers_are_of_one_model() -> None:
    """The pages take accuracy from the answers, and what is attacked from the record; both have the loss."""
    every, records = kept.blocks(EVIDENCE / "records")
    for name, record in records.items():
        for split in ("valid", "test"):
            found, labels, _ = every[0].answers(record, split)
            loss = -found[np.arange(len(labels)), labels].mean(dtype=float)
            is_one = abs(loss / record["scores"][split]["loss"] - 1) < 3e-4  # in fp16
            assert is_one, f"{name}: its answers to the {split} rows are another model's"


def test_tables_go_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    for _ in range(2):
        write_between(page, "| a |\n")
    markers = "<!-- tables: begin -->\n\n| a |\n\n<!-- tables: end -->"
    assert page.read_text(encoding="utf-8") == f"before\n{markers}\nafter\n"
    page.write_text("none\n")
    with pytest.raises(DataError, match=r"gone\.md: no such page; pass one that has the lines <!-- tables"):
        write_between(tmp_path / "gone.md", "| a |\n")
    with pytest.raises(DataError, match=r"page\.md: the lines <!-- tables: begin --> and .* are missing"):
        write_between(page, "x")
    assert page.read_text(encoding="utf-8") == "none\n"
