"""The commands and code blocks of the project's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shell_words import Unreadable, calls

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "examples/**/README.md",
    "benchmarks/README.md",
)  # fmt: skip
GROUPS = ("prepare", "retrieve", "score")  # verbs that have verbs
CHECKED = ("bash", "python")
NO_CODE = ("", "text", "csv", "tsv", "json", "jsonl", "yaml", "toml", "bibtex", "diff", "mermaid")
_FENCE = re.compile(r"^([ >]*)(`{3,}|~{3,})[ ]*([^\n`]*)\n(.*?)^[ >]*\2[ ]*$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
# Code in a sentence that is a command, or begins one.
_COMMAND = re.compile(
    r"(fairseq-(adv|train|hydra-train)|torchrun|sbatch|pip|uv|python[\d.]*|textattack) "
    r"|(\./)?(scripts|benchmarks|examples|tests)/\S+\.(py|sh|sbatch)\b|(\./)?(\.ci/|\.venv/|VENV/)\S"
)
# A block without a language that has such a line should say that it is bash.
_BASH_LINE = re.compile(
    r"^(\$ |(\./)?(scripts|examples|benchmarks)/\S+\.(py|sh)|fairseq-(adv|train) |pip install )", re.MULTILINE
)


@dataclass(frozen=True)
class Snippet:
    """A block of code, or code in a sentence.

    Attributes:
        where: page and line, such as "docs/attacks.md:12".
        language: of a block; "inline" in a sentence.
    """

    where: str
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes:
        where: page and line.
        words: the program and its arguments.
        whole: whether all of its words are there: none is "…", and it isn't a mention such as
            "fairseq-adv predict --vote".
    """

    where: str
    words: tuple[str, ...]
    whole: bool = True


def pages() -> list[str]:
    """The pages that are checked, from the project's folder."""
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def snippets(text: str, page: str) -> Iterator[Snippet]:
    """The blocks of a page, then the code in its sentences that is a command."""

    def where(at: int) -> str:
        return f"{page}:{text.count(chr(10), 0, at) + 1}"

    for block in _FENCE.finditer(text):
        inner = "\n".join(line.removeprefix(block[1]) for line in block[4].splitlines())
        yield Snippet(where(block.start(4)), block[3].strip(), inner)
    for code in _INLINE.finditer(_sentences(text)):
        words = " ".join(code[2].replace("\\|", "|").split())
        if _COMMAND.match(words):
            yield Snippet(where(code.start()), "inline", words)


def open_fences(text: str) -> list[int]:
    """The lines of a page that begin a block which has no end."""
    lines = _sentences(text).splitlines()
    return [line for line, words in enumerate(lines, 1) if re.match(r"[ >]*(```|~~~)", words)]


def _sentences(text: str) -> str:
    """A page with blanks in the place of its blocks."""
    return _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)


def commands(snippet: Snippet) -> list[Command]:
    """The commands of bash, or of a sentence.

    Raises:
        Unreadable: the text is not bash. Names page and line.
    """
    page, line = snippet.where.rsplit(":", 1)
    try:
        found = calls(snippet.text, int(line))
    except Unreadable as error:
        raise Unreadable(f"{snippet.where}: {error}") from error
    mention = snippet.language == "inline" and any(_is_mention(one.words) for one in found)
    return [Command(f"{page}:{one.line}", one.words, one.whole and not mention) for one in found]


def _is_mention(words: Sequence[str]) -> bool:
    """Whether code in a sentence only names a command or its options: nothing that it works on follows."""
    verbs = 0
    if words[0] == "fairseq-adv":
        verbs = 2 if words[1:2] and words[1] in GROUPS else 1
    return not words[1 + verbs :] or words[1 + verbs].startswith("-")


def fault_of_a_fence(snippet: Snippet) -> str:
    """What is wrong with a block's language; "" if nothing is."""
    if snippet.language not in (*CHECKED, *NO_CODE, "inline"):
        return f"{snippet.where}: ```{snippet.language}: write ```bash or ```python, or one of {NO_CODE}"
    if snippet.language == "" and _BASH_LINE.search(snippet.text):
        return f"{snippet.where}: a block of commands: write ```bash"
    return ""
