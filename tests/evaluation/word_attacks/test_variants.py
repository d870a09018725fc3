"""Attacks that try variants of a text, and the limits that a model must keep under them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import glue_samples
import numpy as np
import pytest
from support import CommandMain, write_json_lines
from test_attack_file import films, lines, read  # noqa: F401 - films: a fixture

from fairseq_adv import load
from fairseq_adv.cli.attack import MISSED
from fairseq_adv.data.text.word_text import Harmless, WordText, changed
from fairseq_adv.evaluation.attack_settings import Gate, Variants
from fairseq_adv.evaluation.word_attacks.schedule import run_together
from fairseq_adv.evaluation.word_attacks.search import Example, Outcome
from fairseq_adv.evaluation.word_attacks.victim import try_variants

pytest.importorskip("transformers")
TEXTS = ["--text", "text", "--label", "label", "--cpu"]


def outcome(text: str, right: Any, kind: str = "spaced", gold: int = 1) -> Outcome:
    """The attack with four variants on a model that gives the class 1 the probability ``right(text)``."""

    def victim(questions: Sequence[Any]) -> list[Any]:
        return [np.array([1 - right(texts[0]), right(texts[0])]) for _, texts in questions]

    def change(example: Example, share: float, numbers: Any) -> WordText:
        return changed(kind, example.text, share, numbers, Harmless(["x"]), "", 4)

    example, settings = Example("7", WordText.of([text]), gold), Variants(kind, variants=4)
    ((_, found),) = run_together([(0, try_variants(example, settings, victim, change))], 1)
    return found


def words_left(text: str) -> int:
    return sum(len(word) > 1 for word in text.split())


@pytest.mark.parametrize(
    ("kind", "text", "right", "expected"),
    [
        # flips when 3 of 4 words are spaced; 1 + 3 texts are asked about
        ("spaced", "aa bb cc dd", lambda text: 0.4 + 0.1 * words_left(text), ("succeeded", 3, 4, 0.5)),
        ("spaced", "aa bb cc dd", lambda text: 0.6 + 0.1 * words_left(text), ("failed", 4, 5, 0.6)),
        ("spaced", "aa bb", lambda text: 0.1 * words_left(text), ("skipped", 0, 1, 0.2)),
        ("spaced", "a 7", lambda text: 0.9, ("failed", 0, 1, 0.9)),  # nothing to change
        ("appended", "?!", lambda text: 0.9 - text.count("x"), ("failed", 0, 1, 0.9)),  # nor here
        ("homoglyphs", "tt cc tt cc", lambda text: 0.9 if "c" in text else 0.2, ("succeeded", 2, 4, 0.2)),
        ("appended", "t", lambda text: 0.92 - 0.2 * text.count("x"), ("succeeded", 3, 4, 0.32)),
        # of those that don't flip, the one that comes nearest
        ("appended", "t", lambda text: 0.6 if text.count("x") == 2 else 0.9, ("failed", 2, 5, 0.6)),
    ],
)
def test_more_and_more_changes(kind: str, text: str, right: Any, expected: Any) -> None:
    found = outcome(text, right, kind)
    assert (found.status, len(found.text.changed()), found.queries) == expected[:3]
    assert found.after == pytest.approx(expected[3]) and found.before == pytest.approx(right(text))


def summary(name: str, aua: float, suc: float | None) -> dict[str, Any]:
    return {"attack": name, "aua": aua, "suc": suc}


@pytest.mark.parametrize(
    ("gate", "missed", "told"),
    [
        (Gate(), [], []),
        (
            Gate(0.8, 0.2), [],
            ["accuracy under attack of at least 80 %: kept", "flip rate of at most 20 %: kept"],
        ),
        (
            Gate(0.81), [("a", "min_accuracy", 0.8)],
            ["accuracy under attack of at least 81 %: missed under a (80 %)"],
        ),
        (
            Gate(None, 0.19), [("a", "max_flip_rate", 0.2)],
            ["flip rate of at most 19 %: missed under a (20 %)"],
        ),
    ],
)  # fmt: skip
def test_limits(gate: Gate, missed: list[Any], told: list[str]) -> None:
    """A limit that is just kept is kept."""
    both = [summary("a", 80.0, 20.0), summary("b", 90.0, 0.0)]
    assert [tuple(one.values()) for one in gate.misses(both)] == missed
    assert gate.lines(both) == [f"gate: {line}" for line in told]
    limits = {"min_accuracy": gate.min_accuracy, "max_flip_rate": gate.max_flip_rate}
    assert gate.as_json(both) == ({} if not told else {"gate": {**limits, "missed": gate.misses(both)}})


@pytest.mark.parametrize("rows", [125, 1000])
def test_a_limit_that_is_just_kept_is_kept_at_any_share(rows: int) -> None:
    for count in range(rows + 1):
        share = round(count / rows, 3)
        assert not Gate(share, share).misses([summary("a", 100 * count / rows, 100 * count / rows)])


def test_a_model_that_was_never_right_misses_every_flip_rate() -> None:
    gate = Gate(max_flip_rate=1)
    assert gate.misses([summary("a", 0.0, None)]) == [
        {"attack": "a", "limit": "max_flip_rate", "value": None}
    ]
    assert gate.lines([summary("a", 0.0, None)])[0].endswith("missed under a (no answer was right)")


@pytest.fixture
def attack(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("attack", capsys)


def test_the_command(films: Path, tmp_path: Path, attack: CommandMain) -> None:  # noqa: F811
    """Each record is the model's answer to the changed text; the same seed gives the same bytes."""
    words = [films / "a.pt", "--words", "spaced", "homoglyphs", "appended", "--data", films / "rows.jsonl"]
    words += [*TEXTS, "--variants", "3", "--max-appended", "5"]
    done = attack(*words, "--out", tmp_path / "one", "--json")
    assert done.returncode == 0, done.stderr
    found, model = json.loads(done.stdout), load(films / "a.pt", device="cpu")
    assert list(found) == ["attacks"] and list(found["attacks"]) == ["spaced", "homoglyphs", "appended"]
    for kind, one in found["attacks"].items():
        records = lines(tmp_path / "one" / kind)
        answers = model.predict([record["changed"][0] for record in records])
        assert [answer.label for answer in answers] == [record["predicted"] for record in records]
        assert one["flipped"] == [record["id"] for record in records if record["status"] == "succeeded"]
        assert one["settings"] == {
            "attack": kind, "variants": 3, "seed": 1,
            **({"max_appended": 5} if kind == "appended" else {"max_changed_share": 1.0}),
        }  # fmt: skip
        assert one == json.loads((tmp_path / "one" / kind / "summary.json").read_text())
    assert sum(len(one["flipped"]) for one in found["attacks"].values()) > 0
    done = attack(*words, "--out", tmp_path / "two")
    assert "Look-alike letters: 3 variants per row, the last with 100 % of the words changed" in done.stdout
    assert "the last with 5 words appended, from everyday words; seed 1" in done.stdout
    for kind in found["attacks"]:
        same, other = ((tmp_path / out / kind / "examples.jsonl").read_bytes() for out in ("one", "two"))
        assert same == other
    done = attack(*words, "--out", tmp_path / "three", "--seed", "2")
    assert lines(tmp_path / "three" / "appended") != lines(tmp_path / "one" / "appended")
    assert (
        "has an attack with a different settings"
        in attack(*words, "--out", tmp_path / "one", "--seed", "2").stderr
    )


def test_only_one_class_and_its_words_from_others(
    films: Path, tmp_path: Path, attack: CommandMain  # noqa: F811
) -> None:  # fmt: skip
    """Rows keep their numbers in the file; --examples counts those of the class."""
    rows = read(films / "rows.jsonl")
    names = load(films / "a.pt", device="cpu").labels
    words = [films / "a.pt", "--words", "appended", "--data", films / "rows.jsonl", *TEXTS]
    texts = write_json_lines(tmp_path / "texts.jsonl", [{"text": f"of {n}", "label": n} for n in names])
    given = ["--only-class", names[1].upper(), "--examples", "2", "--append-texts", texts, "--out"]
    assert attack(*words, *given, tmp_path / "out").returncode == 0
    found = lines(tmp_path / "out" / "appended")
    ids = [str(number) for number, row in enumerate(rows) if row["label"] == names[1]]
    assert [record["id"] for record in found] == ids[:2]
    added = {word.strip() for record in found for _, word in record["changes"]}
    assert added and added <= {"of", names[0]}
    listed = tmp_path / "list.txt"
    listed.write_text("so be it\n")
    done = attack(*words, "--append-words", listed, "--out", tmp_path / "listed")
    assert "appended, from a file" in done.stdout
    added = {
        word.strip() for record in lines(tmp_path / "listed" / "appended") for _, word in record["changes"]
    }
    assert added == {"so be it"}
    greedy = [films / "a.pt", "--attack", "deepwordbug", "--data", films / "rows.jsonl", *TEXTS]
    done = attack(*greedy, "--only-class", names[1], "--examples", "2", "--out", tmp_path / "greedy")
    assert [record["id"] for record in lines(tmp_path / "greedy")] == ids[:2]


@pytest.mark.parametrize("how", ["--words spaced appended", "--attack deepwordbug"])
def test_the_status_of_a_missed_limit(how: str, films: Path, tmp_path: Path, attack: CommandMain) -> None:  # noqa: F811
    words = [films / "a.pt", *how.split(), "--data", films / "rows.jsonl", *TEXTS, "--out", tmp_path / "out"]
    assert MISSED == 3
    kept = attack(*words, "--min-accuracy", "0.01", "--max-flip-rate", "1", "--json")
    found = json.loads(kept.stdout)
    assert kept.returncode == 0 and found["gate"] == {
        "min_accuracy": 0.01, "max_flip_rate": 1, "missed": [],
    }  # fmt: skip
    missed = attack(*words, "--min-accuracy", "1", "--json")  # a quarter of the answers were wrong before
    found = json.loads(missed.stdout)
    summaries = found["attacks"].values() if "--words" in how else [found]
    assert missed.returncode == 3 and found["gate"]["missed"] == [
        {"attack": one["attack"], "limit": "min_accuracy", "value": one["aua"] / 100} for one in summaries
    ]  # fmt: skip
    told = attack(*words, "--min-accuracy", "1", "--max-flip-rate", "1")
    assert told.returncode == 3 and "gate: flip rate of at most 100 %: kept" in told.stdout
    assert "gate: accuracy under attack of at least 100 %: missed under " in told.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (f"--words spaced --{name}", "--append-texts and --max-appended need --words appended. Leave")
            for name in ("append-words a", "max-appended 3")
        ),
        ("--words appended --max-changed-share .3", "--max-changed-share needs --words spaced or homogl"),
        ("--words appended --append-words a --append-texts b", "--append-words and --append-texts: pass one"),
        ("--words spaced --only-class x", "--only-class x: not one of the model's classes. Pass one of"),
        ("--words wavy", "invalid choice: 'wavy'"),
        ("--words spaced --min-accuracy 90", "--min-accuracy: must be"),
        ("--words spaced --side question", "--side: invalid choice"),
    ],
)
def test_mistakes(words: str, message: str, films: Path, tmp_path: Path, attack: CommandMain) -> None:  # noqa: F811
    """One line; argparse ends by itself."""
    given = [films / "a.pt", "--data", films / "rows.jsonl", *TEXTS, "--out", tmp_path / "out"]
    code: Any = None
    try:
        done = attack(*given, *words.split())
        code, told = done.returncode, done.stderr
    except SystemExit as end:
        code, told = end.code, attack.capsys.readouterr().err
    assert code == 2
    assert message in told.splitlines()[-1] and not list(tmp_path.glob("out/*/settings.json"))


def test_a_file_without_the_class(films: Path, tmp_path: Path, attack: CommandMain) -> None:  # noqa: F811
    names = load(films / "a.pt", device="cpu").labels
    data = write_json_lines(
        tmp_path / "rows.jsonl", [{"text": glue_samples.pairs()[0][0], "label": names[0]}]
    )
    words = [films / "a.pt", "--words", "spaced", "--data", data, *TEXTS, "--out", tmp_path / "out"]
    done = attack(*words, "--only-class", names[1])
    assert (
        done.returncode == 2 and f"no row of the class {names[1]}. Pass another --only-class" in done.stderr
    )
