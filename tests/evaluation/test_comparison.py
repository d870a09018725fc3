"""Runs side by side as text."""

from __future__ import annotations

from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import Summary, table

PLAIN = Summary("plain", "standard", "", 1200, "accuracy", 81.234, 3, 0.4567, seconds_per_update=0.25)
OTHER = Summary("a-long-name", "freelb", "steps 3, lr 0.1", 60, "accuracy", 82.5, 10, 0.4)


def test_what_a_run_does_not_hold_is_a_dash() -> None:
    head, line, plain, other, empty, note = table([PLAIN, OTHER, Summary("new")]).splitlines()
    assert head.split() == [
        "run", "criterion", "updates", "dev", "accuracy", "epoch", "dev", "loss", "s/update", "sizes",
    ]  # fmt: skip
    assert plain.split() == ["plain", "standard", "1200", "81.23", "3", "0.457", "0.25", "–"]
    assert other.split() == [
        "a-long-name",
        "freelb",
        "60",
        "82.50",
        "10",
        "0.400",
        "–",
        "steps",
        "3,",
        "lr",
        "0.1",
    ]
    assert empty.split() == ["new", *"–––––––"]
    assert plain.index("1200") + 4 == other.index("60") + 2  # numbers end below each other
    assert set(line) == {"-"} and "in nats" in note


def test_scores_of_different_names_are_named() -> None:
    rows = table([PLAIN, Summary("mlm", metric="ppl", score=3.5)]).splitlines()
    assert "dev score" in rows[0]
    assert "81.23 accuracy" in rows[2] and "3.50 ppl" in rows[3]


def test_an_attack_has_two_columns() -> None:
    attacked = Summary("a", "pgd", loss=0.5, attacked=[(1.25, 12.5), (2.5, 1.0)])
    attacks = [Attack(epsilon=size, step_size=0.2, steps=2, relative=True) for size in (0.4, 0.8)]
    head, _, row, note = table([attacked], attacks).splitlines()
    assert "loss@0.4  acc@0.4  loss@0.8  acc@0.8  s/update" in head
    assert row.split() == ["a", "pgd", *"–––", "0.500", "1.250", "12.50", "2.500", "1.00", "–", "–"]
    assert "@0.4: under attack, after 2 ascent steps within epsilon 0.4 (40 % of the norm of an" in note
