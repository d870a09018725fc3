"""Random changes of good files, and random texts and numbers, drawn by hypothesis from a fixed seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# What readers stumble over, put into the middle of a good file.
TOKENS: tuple[bytes, ...] = (
    b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\t", b"\x0b", b"\x0c",
    b"\x1c", b"\x85", "\u2028".encode(), "\u00a0".encode(), b" ", b'"', b'""', b"'", b"\\", b"\\ud800",
    b"\\u0000", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"NaN", b"Infinity", b"-Infinity",
    b"1e400", b"-1", b"0", b"-0.0", b"1.5", b"9" * 30, b"9" * 5000, b"[" * 100_000, b'{"a":' * 5000,
    b"#fairseq:overwrite", b"<s>", b"[UNK]", b"@", b"_", b"(A)", b"PK\x03\x04", b"\x1f\x8b", b"\x80\x02",
    "²".encode(), "\U0001f600".encode(), b"e\xcc\x81",
)  # fmt: skip

# No half characters: they can't be written.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ODD_TEXTS = TEXTS | st.sampled_from([token.decode("utf-8", "ignore") for token in TOKENS if len(token) < 50])


def fuzz(test: Callable[[Any], bool], strategy: Any, examples: int) -> int:
    """Calls ``test`` with so many values of the strategy, the same in every run.

    Returns:
        how often the test returned true.
    """
    count = 0

    def counted(value: Any) -> None:
        nonlocal count
        count += test(value)

    chosen = settings(
        max_examples=examples, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    chosen(given(strategy)(counted))()
    return count


@st.composite
def damaged(draw: Any, good: bytes) -> bytes:
    """The bytes of a good file with one to four changes: cut out, put in, repeated, or a bit flipped."""
    content = good
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        gone = draw(st.sampled_from([0, 0, 1, 2, 5, 20, len(content)]))
        start = draw(st.integers(0, len(content)))
        put = draw(
            st.sampled_from(TOKENS)
            | st.binary(max_size=4)
            | st.just(content[start : start + draw(st.integers(1, 40))])
            | st.just(bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in content[at : at + 1]))
        )
        content = content[:at] + put + content[at + gone :]
    return content


# What a JSON file may hold where a reader expects something else.
JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**30, float("nan"), float("inf"), "", "7", "a b", "\ud800", "\0", [], {},
    [None], [1], ["a"], [["a"]], [{}], {"": None}, {"a": 1}, {"a": ["b"]}, [[]], "é\u2028", "../a", "/a",
)  # fmt: skip


def json_documents(content: bytes) -> list[Any]:
    """The one of a JSON file, or those of its lines."""
    try:
        return [json.loads(content)]
    except ValueError:
        return [json.loads(line) for line in content.splitlines()]


@st.composite
def other_values(draw: Any, documents: list[Any]) -> bytes:
    """JSON lines in which one to three values are replaced, left out, renamed, or put in another's place."""
    changed = copy.deepcopy(documents)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(_places(changed))))
        how = draw(st.sampled_from(["replace"] * 6 + ["copy", "leave out", "rename"]))
        if how == "copy":
            other, at = draw(st.sampled_from(list(_places(changed))))
            holder[key] = copy.deepcopy(other[at])
        elif how == "replace" or holder is changed:
            holder[key] = copy.deepcopy(draw(st.sampled_from(JSON_VALUES)))
        elif how == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["", "a", "label", "\ud800", *holder]))] = holder.pop(key)
        else:
            holder.pop(key)
    return "".join(json.dumps(one) + "\n" for one in changed).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All (list or object, index or name) in it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])
