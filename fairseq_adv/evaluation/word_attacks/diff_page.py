"""A page that shows what an attack changed: one HTML file without scripts or links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fairseq_adv.evaluation.word_attacks.summary import lines

_STYLE = """body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto; }
article { border-top: 1px solid #ccc; padding: .6em 0; }
del { background: #fdd; color: #900; } ins { background: #dfd; color: #060; text-decoration: none; }
.about { color: #666; font-size: .85em; }"""
_ORDER = {"succeeded": 0, "failed": 1, "skipped": 2}


def page(found: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """The page: the summary, then the examples, starting with those whose answer changed.

    Args:
        found: the summary.
        records: of the examples.
    """
    title = escape(f"{found['title']}: what changed")
    ordered = sorted(records, key=lambda record: _ORDER[record["status"]])
    body = "".join(map(_article, ordered))
    numbers = escape("\n".join(lines(found)))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
{_STYLE}
</style></head>
<body><h1>{title}</h1>
<pre>{numbers}</pre>
{body}</body></html>
"""


def _article(record: Mapping[str, Any]) -> str:
    about = (
        f"{record['id']}: {record['status']}, {record['why']}; right answer {record['label']}, the model's "
        f"{record['predicted']}; probability of the right one {record['before']:.3f}"
    )
    if record["status"] != "skipped":
        about += f" to {record['after']:.3f}, {record['queries']} queries"
    texts = "".join(f"<p>{text}</p>" for text in _marked(record) if text)
    return f'<article><p class="about">{escape(about)}</p>{texts}</article>\n'


def _marked(record: Mapping[str, Any]) -> list[str]:
    """The texts with their changes marked."""
    found = [""] * len(record["original"])
    ends = [0] * len(found)
    for (text, start, end), (before, after) in zip(record["places"], record["changes"]):
        original = record["original"][text]
        found[text] += escape(original[ends[text] : start])
        found[text] += f"<del>{escape(before)}</del> <ins>{escape(after)}</ins>"
        ends[text] = end
    return [mark + escape(original[end:]) for mark, original, end in zip(found, record["original"], ends)]
