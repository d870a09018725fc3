"""The edit distance of two texts in letters (Levenshtein)."""

from __future__ import annotations

from fairseq_adv.evaluation.word_attacks.words import WordText


def is_near(original: WordText, changed: WordText, most: int) -> bool:
    """Whether at most ``most`` insertions, deletions and replacements of letters turn one text into the
    other.

    Args:
        original: the original example.
        changed: the same with other words.
        most: 0 or more.
    """
    # The distances of the changed words sum to at least that of the texts, and are cheap.
    if (
        sum(distance(before, after, len(before) + len(after)) for _, before, after in changed.changed())
        <= most
    ):
        return True
    return distance("\n".join(original.originals), "\n".join(changed.texts()), most) <= most


def distance(first: str, second: str, most: int) -> int:
    """The Levenshtein distance, or any number above ``most`` if it is larger."""
    if abs(len(first) - len(second)) > most:
        return most + 1
    far = most + 1
    row: list[int] = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        begin, end = max(1, i - most), min(len(second), i + most)  # outside: more than `most` edits
        above = row
        row = [far] * (len(second) + 1)
        row[begin - 1] = i if begin == 1 else far
        for j in range(begin, end + 1):
            replaced = above[j - 1] + (letter != second[j - 1])
            row[j] = min(replaced, above[j] + 1 if j < i + most else far, row[j - 1] + 1)
    return row[-1]
