"""What an attack leaves for readers: its numbers, and a page that shows what it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fairseq_adv.evaluation.attack_settings import TITLES, Settings, Variants
from fairseq_adv.evaluation.word_attacks.search import FAILED, SKIPPED, STATUS, SUCCEEDED

_Records = Sequence[Mapping[str, Any]]


def summary(settings: Settings | Variants, made_from: Mapping[str, Any], records: _Records) -> dict[str, Any]:
    """The numbers of an attack, as TextAttack defines them, and the settings that they depend on.

    Returns:
        ``clean``: accuracy x 100 before; ``aua``: accuracy under attack x 100, over all examples; ``suc``:
        percentage of attacked examples whose answer changed; ``flipped``: the ids of these, if variants were
        tried; ``queries``: mean over attacked examples;
        ``changed``: mean percentage of changed words, over those whose answer changed. ``None`` if there are
        none to average.
    """
    is_tried = isinstance(settings, Variants)
    status = [record["status"] for record in records]
    n, skipped, failed, succeeded = len(records), *map(status.count, (SKIPPED, FAILED, SUCCEEDED))
    attacked = [record for record in records if record["status"] != SKIPPED]
    flipped = [record for record in attacked if record["status"] == SUCCEEDED]
    shares = [100 * len(record["changes"]) / record["words"] for record in flipped]
    return {
        "attack": settings.attack,
        "title": TITLES[settings.attack],
        "examples": n,
        "clean": 100 * (n - skipped) / n,
        "aua": 100 * failed / n,
        "suc": 100 * succeeded / len(attacked) if attacked else None,
        "queries": _mean([record["queries"] for record in attacked]),
        "rows": _mean([record["rows"] for record in attacked]),
        "changed": _mean(shares),
        **({"flipped": [record["id"] for record in flipped]} if is_tried else {}),
        "settings": settings.as_json(),
        "made_from": dict(made_from),
    }


def lines(results: Mapping[str, Any]) -> list[str]:
    """The summary for a reader, with all settings next to the numbers."""
    head, row = _cells(results)
    return [f"{results['title']}, {results['examples']} examples", head, row, *setting_lines(results)]


def table(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Attacks that tried variants of the same texts, for a reader."""
    width = max(len(results["title"]) for results in summaries)
    cells = [_cells(results) for results in summaries]
    rows = [f"{results['title']:{width}}{row}" for results, (_, row) in zip(summaries, cells)]
    settings = [f"{results['title']}: {line}" for results in summaries for line in setting_lines(results)]
    return [f"{summaries[0]['examples']} examples", " " * width + cells[0][0], *rows, *settings]


def _cells(results: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the numbers, and the numbers."""
    columns = (
        ("Clean", results["clean"]), ("Aua", results["aua"]), ("Suc", results["suc"]),
        ("#Query", results["queries"]), ("changed words %", results["changed"]),
    )  # fmt: skip
    head = "".join(f"{name:>{max(9, len(name) + 2)}}" for name, _ in columns)
    return head, "".join(f"{_text(value):>{max(9, len(name) + 2)}}" for name, value in columns)


def setting_lines(results: Mapping[str, Any]) -> list[str]:
    """The settings, for a reader."""
    settings, resources = results["settings"], results["made_from"]["resources"]
    if "variants" in settings:
        return [_budget(settings, resources)]
    tagged = settings["part_of_speech"] and "tagger" in resources
    budgets = [f"{settings['query_budget']} per example"] if settings["query_budget"] else []
    budgets += [f"{settings['queries_per_word']} per word"] if settings["queries_per_word"] else []
    words = "TextFooler's list" if "stop_words" not in resources else "from a file"
    sources = ", ".join(settings["sources"]).replace("_", " ")
    if {"neighbours", "wordnet", "masked_lm"} & set(settings["sources"]):
        sources += f"; {settings['candidates'] or 'all'} per word"
    edits = f"; at most {settings['max_edits']} letters per example" if settings["max_edits"] else ""
    compared = _compared(settings) if "similarity_encoder" in resources else "not compared"
    return [
        f"candidates: {sources}",
        f"importance: {settings['importance']}"
        + (f" ({settings['unknown_word']})" if settings["importance"] != "delete" else ""),
        f"sentence similarity: {compared}",
        f"part of speech: {'compared' if tagged else 'not compared'}; stop words: {words}",
        f"words that may change: {100 * settings['max_changed_share']:g} %{edits}; queries: "
        f"{' and '.join(budgets) if budgets else 'no limit'}; seed {settings['seed']}",
    ]


def _budget(settings: Mapping[str, Any], resources: Mapping[str, Any]) -> str:
    if "max_appended" in settings:
        places = {"append_words": "a file", "append_texts": "texts of other classes"}
        source = next((shown for name, shown in places.items() if name in resources), "everyday words")
        most = f"{settings['max_appended']} words appended, from {source}"
    else:
        most = f"{100 * settings['max_changed_share']:g} % of the words changed"
    return f"{settings['variants']} variants per row, the last with {most}; seed {settings['seed']}"


def _compared(settings: Mapping[str, Any]) -> str:
    size, short = settings["similarity_window"], settings["check_short_texts"]
    about = [settings["similarity_metric"], f"against the {settings['similarity_against']} text"]
    about += [f"{size} words around the change" if size else "the whole text"]
    about += ["short texts too" if short else "shorter texts not compared"] if size else []
    return f"at least {settings['similarity']:g} ({', '.join(about)})"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


_STYLE = """body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto; }
article { border-top: 1px solid #ccc; padding: .6em 0; }
del { background: #fdd; color: #900; } ins { background: #dfd; color: #060; text-decoration: none; }
.about { color: #666; font-size: .85em; }"""


def page(results: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """The page: the summary, then the examples, starting with those whose answer changed."""
    title = escape(f"{results['title']}: what changed")
    ordered = sorted(records, key=lambda record: -STATUS.index(record["status"]))
    body = "".join(map(_article, ordered))
    numbers = escape("\n".join(lines(results)))
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
    marked = [""] * len(record["original"])
    ends = [0] * len(marked)
    for (text, start, end), (before, after) in zip(record["places"], record["changes"]):
        original = record["original"][text]
        marked[text] += escape(original[ends[text] : start])
        marked[text] += f"<del>{escape(before)}</del> " if before else ""  # else the word was added
        marked[text] += f"<ins>{escape(after)}</ins>"
        ends[text] = end
    return [mark + escape(original[end:]) for mark, original, end in zip(marked, record["original"], ends)]
