"""Copies of training texts: what is added, of which rows, and that an attack would make the same."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from glue_samples import small_wordpiece
from support import CommandMain, write_json_lines

from fairseq_adv.data.classes.prepare_classification import (
    Augment,
    PrepareConfig,
    augmented,
    prepare_classification,
)
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import LabelledRows
from fairseq_adv.data.text.indexed import count_index
from fairseq_adv.data.text.word_text import KINDS, Harmless, WordText, changed
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

pytestmark = pytest.mark.fast
TEXTS = ["so nice a day", "over and out", "no", "?!", "mmmm ftt", "yes of course"]
LABELS = ["fine", "bad", "fine", "bad", "fine", "bad"]


def rows(name: str = "train", pairs: bool = False) -> LabelledRows:
    first = [f"first {k}" for k in range(len(TEXTS))]
    inputs = (first, [*TEXTS]) if pairs else ([*TEXTS],)
    return LabelledRows(name, inputs, [*LABELS], [f"{name}.csv:{k + 2}" for k in range(len(TEXTS))])


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_what_an_attack_makes(kind: str, pairs: bool) -> None:
    """The rows stay; then come copies, but of none in which nothing can change, with the row's label."""
    train = rows(pairs=pairs)
    found, told = augmented(train, Augment([kind]), 3)
    changeable = [
        k for k, text in enumerate(TEXTS) if text != "?!" and (kind, text) != ("homoglyphs", "mmmm ftt")
    ]
    assert found.inputs[0][:6] == train.inputs[0] and found.inputs[-1][:6] == TEXTS
    copies = found.inputs[-1][6:]
    for k, copy in zip(changeable, copies):
        numbers = random.Random(f"3:{kind}:{k}")
        share = numbers.randint(1, 10) / 10
        expected = changed(kind, WordText.of([TEXTS[k]]), share, numbers, Harmless(), LABELS[k])
        assert (copy,) == expected.texts() and copy != TEXTS[k]
    assert found.labels[6:] == [LABELS[k] for k in changeable] and len(copies) == len(changeable)
    assert not pairs or found.inputs[0][6:] == [f"first {k}" for k in changeable]
    same = f"; {6 - len(changeable)} had nothing to change"
    assert told == [f"augmented: {len(changeable)} copies, {kind}, of 6 training rows{same}"]
    assert found.where[6:] == [f"train.csv:{k + 2}" for k in changeable]
    assert augmented(train, Augment([kind]), 3) == (found, told)
    assert augmented(train, Augment([kind]), 4) != (found, told)


def test_a_change_that_makes_no_copy_takes_no_labels() -> None:
    """As look-alikes of Latin letters where there are none."""
    texts = (["好看", "难看"],)
    train = LabelledRows("train", texts, ["fine", "bad"], ["train.csv:2", "train.csv:3"])
    found, told = augmented(train, Augment(["homoglyphs"]), 1)
    assert found == train and "augmented: 0 copies, homoglyphs" in told[0]


def test_a_share_of_the_rows_of_a_class() -> None:
    found, told = augmented(rows(), Augment(["spaced", "appended", "spaced"], 0.3, "FINE"), 1)
    assert found.labels[6:] == ["fine", "fine"]  # rounded up, of three, for each kind once
    assert [line.split(", of")[1] for line in told] == [" 3 training rows"] * 2
    with pytest.raises(DataError, match=r"--augment-class odd: not in training\. Pass one of bad, fine"):
        augmented(rows(), Augment(["spaced"], only_class="odd"), 1)


def test_where_appended_words_come_from(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("never mind\n")
    listed, _ = augmented(rows(), Augment(["appended"], append_words=tmp_path / "words.txt"), 1)
    assert all(text.endswith(" never mind") for text in listed.inputs[0][6:])
    others, _ = augmented(rows(), Augment(["appended"], append_other_classes=True), 1)
    words = {
        label: {w for t, name in zip(TEXTS, LABELS) if name != label for w in t.split()} for label in LABELS
    }
    originals = [text for text in TEXTS if text != "?!"]
    for original, text, label in zip(originals, others.inputs[0][6:], others.labels[6:]):
        assert text.startswith(original) and {*text[len(original) :].split()} <= words[label]


def test_only_the_training_rows_are_copied(tmp_path: Path) -> None:
    """Those left, if valid rows are held out. The same options make nothing new, others another folder."""
    tokenizer = tokenizer_for_encoder(small_wordpiece(tmp_path / "encoder"))
    splits = [rows(), rows("valid"), rows("test")]

    def made(out: str, given: list[LabelledRows], augment: Augment | None, **how: Any) -> Any:
        config = PrepareConfig(tokenizer, progress=False, allow_odd_labels=True, augment=augment, **how)
        return prepare_classification(given, tmp_path / out, config)

    plain, more = made("plain", splits, None), made("more", splits, Augment(["spaced"]))
    assert (plain.rows, more.rows) == (
        {"train": 6, "valid": 6, "test": 6}, {"train": 11, "valid": 6, "test": 6},
    )  # fmt: skip
    for part in ("input0", "label"):
        for split in ("valid", "test"):
            files = [tmp_path / out / part / f"{split}.bin" for out in ("plain", "more")]
            assert files[0].read_bytes() == files[1].read_bytes()
    assert any("augmented: 5 copies, spaced" in note for note in more.notes)
    assert made("more", splits, Augment(["spaced"])).reused
    with pytest.raises(DataError, match="more: was made from other files or options"):
        made("more", splits, Augment(["homoglyphs"]))
    held = made("held", [rows()], Augment(["appended"], append_other_classes=True), valid_share=0.4)
    assert (
        held.rows["valid"] + held.rows["train"] - sum("?" not in t for t in TEXTS)
        < 6
        < sum(held.rows.values())
    )
    assert count_index(tmp_path / "held" / "input0", "valid")[0] == held.rows["valid"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--append-words x", "--append-words: needs --augment appended"),
        ("--augment appended --append-words x --append-other-classes", "pass one of them"),
        ("--augment-class bad", "--augment-share and --augment-class need --augment"),
        (
            "--regression --augment spaced --augment-class 1",
            "--augment-class: the texts have no single class",
        ),
        ("--label-separator | --augment appended --append-other-classes", "the texts have no single class"),
    ],
)
def test_mistakes(words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_wordpiece(tmp_path / "encoder")
    data = write_json_lines(tmp_path / "rows.jsonl", [{"text": t, "label": n} for t, n in zip(TEXTS, LABELS)])
    prepare = CommandMain("prepare classification", capsys)
    given = [data, tmp_path / "out", "--text", "text", "--label", "label", "--encoder", tmp_path / "encoder"]
    done = prepare(*given, *words.split())
    assert done.returncode == 2 and told in done.stderr and not (tmp_path / "out").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_wordpiece(tmp_path / "encoder")
    table = [{"text": f"{t} {k}", "label": n} for k in range(4) for t, n in zip(TEXTS, LABELS)]
    data = write_json_lines(tmp_path / "rows.jsonl", table)
    prepare = CommandMain("prepare classification", capsys)
    given = [data, "--valid", data, tmp_path / "out", "--text", "text", "--label", "label"]
    done = prepare(*given, "--encoder", tmp_path / "encoder", "--augment", *KINDS, "--augment-share", "0.5")
    assert done.returncode == 0, done.stderr
    told = Counter(line.split(",")[1].strip() for line in done.stdout.splitlines() if "augmented: " in line)
    assert told == dict.fromkeys(KINDS, 1) and count_index(tmp_path / "out" / "input0", "valid")[0] == 24
    copies = sum(int(line.split()[2]) for line in done.stdout.splitlines() if "note: augmented" in line)
    assert count_index(tmp_path / "out" / "input0", "train")[0] == 24 + copies > 24 + 30
