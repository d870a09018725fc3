"""The commands and code blocks of the project's pages. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "examples/**/README.md",
    "benchmarks/README.md",
)  # fmt: skip
NO_CODE = ("", "text", "csv", "tsv", "json", "jsonl", "yaml", "toml", "bibtex", "diff", "mermaid")
# Encoder sizes as fairseq-adv convert writes them; "$(cat DIR/model_args.txt)" stands for such a line.
MODEL_ARGS = "--arch roberta_base --encoder-layers 6 --encoder-embed-dim 384 --max-positions 510"
_FENCE = re.compile(r"^([ >]*)(`{3,}|~{3,})[ ]*([^\n`]*)\n(.*?)^[ >]*\2[ ]*$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
# Code in a sentence that is a command, or begins one; in a block without a language it should be in bash.
_COMMAND = re.compile(
    r"(?:\$ )?((fairseq-(adv|train|hydra-train)|torchrun|sbatch|pip|uv|python[\d.]*|textattack) "
    r"|(\./)?(scripts|benchmarks|examples|tests)/\S+\.(py|sh|sbatch)\b|(\./)?(\.ci/|\.venv/|VENV/)\S)"
)
_KEYWORDS = ("do", "then", "else", "if", "elif", "while", "until", "!", "{")
# With how many words of their own, themselves included.
_WRAPPERS = {"env": 1, "exec": 1, "nice": 3, "nohup": 1, "taskset": 3, "time": 1, "timeout": 2}


@dataclass(frozen=True)
class Command:
    where: str  # page and line
    words: tuple[str, ...]  # the program and its arguments
    whole: bool  # all of its words are there: it is in a block, and none of them is "…"


def pages() -> list[str]:
    """The pages that are checked, from the project's folder."""
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def snippets(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, language and text of the blocks of a page, then ("inline") of commands in its sentences.

    Raises:
        ValueError: a block has no end, or its language hides commands.
    """
    for block in _FENCE.finditer(text):
        inner = "\n".join(line.removeprefix(block[1]) for line in block[4].splitlines())
        line, language = text.count("\n", 0, block.start(4)) + 1, block[3].strip()
        if language not in ("bash", "python", *NO_CODE):
            raise ValueError(f"{line}: ```{language}: write ```bash or ```python, or one of {NO_CODE}")
        if not language and any(map(_COMMAND.match, inner.splitlines())):
            raise ValueError(f"{line}: a block of commands: write ```bash")
        yield line, language, inner
    sentences = _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for code in _INLINE.finditer(sentences):
        words = " ".join(code[2].replace("\\|", "|").split())
        if _COMMAND.match(words):
            yield text.count("\n", 0, code.start()) + 1, "inline", words
    if open_ := re.search(r"^[ >]*(```|~~~)", sentences, re.MULTILINE):
        raise ValueError(f"{text.count(chr(10), 0, open_.start()) + 1}: this block of code has no end")


def commands(text: str, where: str, line: int = 1, whole: bool = True) -> Iterator[Command]:
    """The simple commands of bash, those of substitutions first, and with each value of a loop.

    Raises:
        ValueError: a quote or a parenthesis is not closed; names the line.
    """
    usage = re.compile(r"(?<!\S)\[(?=[\w.\-])([^\[\]\n]*)\](?!\S)")  # [--option a|b] may be given
    text = usage.sub(lambda part: re.sub(r"(\w+)(\|\w+)+", r"\1", part[1]), text)
    text = re.sub(r"\$\(\(.*?\)\)", "1", re.sub(r"(?<!\S)#[^\n]*", "", text))
    for name, values in re.findall(r"\b(\w+)=\(([^)]*)\)", text):
        text = text.replace(f'"${{{name}[@]}}"', values.replace("\n", " "))
    text = re.sub(r"\b\w+=\([^)]*\)", lambda array: "\n" * array[0].count("\n"), text)
    loops: dict[str, list[str]] = {}
    for part in re.findall(r"(?:\\\n|'[^']*'|\"[^\"]*\"|[^\n])*\n?", text):
        number, line = line, line + part.count("\n")
        part = part.replace("\\\n", " ")
        while inner := re.search(r"[$<]\(([^()]*)\)", part):
            found = re.fullmatch(r"(?:which|command -v) (\S+)|(cat) \S*model_args\.txt", inner[1])
            yield from () if found else commands(inner[1], where, number, whole)
            value = "VALUE" if not found else found[1] or MODEL_ARGS
            part = part.replace(inner[0], value)
        if "$(" in part:
            raise ValueError(f"{number}: ) is missing")
        try:
            found_here = list(_split(part))
        except ValueError as error:
            raise ValueError(f"{number}: {error}") from error
        for words in found_here:
            while words and (words[0] in _KEYWORDS or re.match(r"\w+=", words[0])):
                words = words[1:]
            while words and words[0] in _WRAPPERS:
                words = words[_WRAPPERS[words[0]] :]
            if words and words[0] == "for":
                loops[f"${words[1]}"] = words[3:]
            elif words and words[0] not in ("done", "fi", "}"):
                is_whole = whole and not any(re.fullmatch(r"(.*=)?(…|\.\.\.)", word) for word in words)
                kept = [word for word in words if not re.fullmatch(r"(.*=)?(…|\.\.\.)|key=value", word)]
                name = next((name for name in loops if name in " ".join(kept)), "$")
                for value in loops.get(name, [name]):
                    told = tuple(word.replace(name, value) for word in kept)
                    yield Command(f"{where}:{number}", told, is_whole)


def _split(text: str) -> Iterator[list[str]]:
    """The commands of a line, without redirections."""
    lexer = shlex.shlex(re.sub(r"\d>", ">", text), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for token in lexer:
        if token.strip("<>&|") == "" and token[0] in "<>":
            next(lexer)
        elif token.strip(";|&()") == "":
            yield words
            words = []
        else:
            words.append(token)
    yield words
