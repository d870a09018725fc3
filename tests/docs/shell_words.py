"""Reads the commands of a bash block with shlex. Nothing is run.

Loops, arrays and substitutions are understood as far as the pages use them; files and variables that only a
real shell knows stay as they are written.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

# Encoder sizes as fairseq-adv convert writes them; "$(cat DIR/model_args.txt)" stands for such a line.
MODEL_ARGS = (
    "--arch roberta_base --encoder-layers 6 --encoder-embed-dim 384 --encoder-ffn-embed-dim 1536 "
    "--encoder-attention-heads 12 --max-positions 510"
)
# Commands whose words are another command, each with the number of words that its own options take.
WRAPPERS = {"env": 0, "exec": 0, "nice": 2, "nohup": 0, "sudo": 0, "taskset": 2, "time": 0}
_KEYWORDS = ("do", "then", "else", "if", "elif", "while", "until", "!", "{")
_ENDS = ("done", "fi", "}", "esac")
_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
_HEREDOC = re.compile(r"<<-?'?(\w+)'?([^\n]*)(\n.*?)\n\1$", re.DOTALL | re.MULTILINE)
_ARRAY = re.compile(r"\b(\w+)=\(([^)]*)\)")
_SUBSTITUTION = re.compile(r"[$<]\(([^()]*)\)")
_USAGE = re.compile(r"(?<!\S)\[(?=[\w.\-])([^\[\]\n]*)\](?!\S)")


class Unreadable(ValueError):
    """Text that is not valid bash."""


@dataclass(frozen=True)
class Call:
    """A simple command.

    Attributes:
        line: where its line begins, counted from the first line of the document.
        words: the program and its arguments. Words such as … are left out.
        whole: whether nothing was left out.
    """

    line: int
    words: tuple[str, ...]
    whole: bool


def calls(text: str, line: int = 1) -> list[Call]:
    """The commands of ``text`` in their order, those of a line's substitutions first.

    Args:
        text: of the block. "[--option N]" is an option that may be given, "a|b" in it a choice.
        line: number of its first line.

    Raises:
        Unreadable: a quote or a parenthesis is not closed.
    """
    text = _USAGE.sub(lambda part: re.sub(r"(\w+)(\|\w+)+", r"\1", part[1]), _COMMENT.sub("", text))
    text = re.sub(r"\$\(\(.*?\)\)", "1", text)
    text = _HEREDOC.sub(lambda found: found[2] + "\n" * found[3].count("\n") + "\n", text)
    reader, part, start = _Reader(), "", line
    text = _ARRAY.sub(reader.keep_array, text)
    for number, row in enumerate(text.split("\n"), line):
        start = start if part else number
        part += row.removesuffix("\\") + ("" if row.endswith("\\") else "\n")
        try:
            if not row.endswith("\\"):
                reader.read(part, start)
                part = ""
        except ValueError as error:  # a quote or a parenthesis that ends on a later line
            reason = error
    if part:
        raise Unreadable(f"line {start}: {reason}")
    return reader.found


@dataclass
class _Reader:
    found: list[Call] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)

    def keep_array(self, array: re.Match[str]) -> str:
        self.values[f"{array[1]}[@]"] = [array[2].replace("\n", " ")]
        return "\n" * array[0].count("\n")

    def read(self, text: str, line: int) -> None:
        for name in [name for name in self.values if name.endswith("[@]")]:
            text = text.replace(f'"${{{name}}}"', self.values[name][0])
        text = self.without_substitutions(text, line)
        if "$(" in text:
            raise ValueError(") is missing")
        tokens = _tokens(text)
        words: list[str] = []
        while tokens:
            token = tokens.pop(0)
            if token[0] in "<>" and token.strip("<>&|") == "":
                if not tokens:
                    raise ValueError(f"{token} without a file")
                tokens.pop(0)
                if words and words[-1].isdigit():
                    words.pop()  # 2> and the like
            elif token.strip(";|&()") == "":
                self.call(words, line)
                words = []
            else:
                words.append(token)
        self.call(words, line)

    def without_substitutions(self, text: str, line: int) -> str:
        """The text with words in the place of its substitutions, whose commands are read."""

        def word(found: re.Match[str]) -> str:
            if program := re.fullmatch(r"(?:which|command -v) (\S+)", found[1]):
                return program[1]
            self.read(found[1], line)
            return MODEL_ARGS if re.fullmatch(r"cat \S*model_args\.txt", found[1]) else "VALUE"

        while _SUBSTITUTION.search(text):
            text = _SUBSTITUTION.sub(word, text)
        return text

    def call(self, words: list[str], line: int) -> None:
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if not words or words[0] in _ENDS:
            return
        if words[0] == "for":
            self.values[words[1]] = words[3:]
            return
        while words and (given := re.fullmatch(r"(\w+)=(.*)", words[0], re.DOTALL)):
            self.values[given[1]], words = [given[2]], words[1:]
        if words and words[0] in WRAPPERS:
            least = WRAPPERS[words[0]]
            self.call(words[1 + (least if words[1:2] and words[1].startswith("-") else 0) :], line)
        elif words:
            self.found += [Call(line, *without_gaps(one)) for one in self.expanded(words)]

    def expanded(self, words: list[str]) -> Iterator[list[str]]:
        """The command with each value of its variables."""
        names = dict.fromkeys(re.findall(r"\$\{?(\w+)\b", " ".join(words)))
        known = [name for name in names if self.values.get(name)]
        for values in itertools.product(*(self.values[name] for name in known)):
            one = words
            for name, value in zip(known, values):
                one = [
                    re.sub(rf"\$\{{{name}\}}|\${name}\b", value.replace("\\", r"\\"), word) for word in one
                ]
            yield one


def _tokens(text: str) -> list[str]:
    """Words without their quotes, and runs of operators.

    Raises:
        ValueError: a quote is not closed.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def without_gaps(words: list[str]) -> tuple[tuple[str, ...], bool]:
    """The words without … and the like, and whether there were none of these."""
    kept = [word for word in words if not re.fullmatch(r"(.*=)?(…|\.\.\.)", word)]
    return tuple(word for word in kept if word != "key=value"), len(kept) == len(words)
