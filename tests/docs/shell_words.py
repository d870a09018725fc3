"""Reads the commands of a bash block: its words, with quotes, loops, arrays and substitutions resolved.

Nothing is run. What the documents use of bash is understood; files and variables that only a real shell knows
stay as they are written.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Encoder sizes as fairseq-adv convert writes them; "$(cat DIR/model_args.txt)" stands for such a line.
MODEL_ARGS = [
    "--arch", "roberta_base", "--encoder-layers", "6", "--encoder-embed-dim", "384",
    "--encoder-ffn-embed-dim", "1536", "--encoder-attention-heads", "12", "--max-positions", "510",
]  # fmt: skip
# Commands whose words are another command, each with the number of words that its own options take.
WRAPPERS = {"env": 0, "exec": 0, "nice": 2, "nohup": 0, "sudo": 0, "taskset": 2, "time": 0}
_KEYWORDS = ("do", "then", "else", "if", "elif", "while", "until", "!", "{")
_ENDS = ("done", "fi", "}", "esac")
_DOLLAR = "\ue000"  # a dollar sign in single quotes, which is no expansion
_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)")
_USAGE = re.compile(r"(?<!\S)\[(?=[\w.\-])([^\[\]\n]*)\](?!\S)")


class Unreadable(ValueError):
    """Text that is not valid bash, or uses more of bash than is understood here."""


@dataclass(frozen=True)
class Token:
    """A word; or an operator, ``kind`` "op"; or the beginning of an array, whose name is ``text``."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Call:
    """A simple command.

    Attributes:
        line: where it begins, counted from the first line of the document.
        words: the program and its arguments. Words such as … are left out.
        whole: whether nothing was left out.
    """

    line: int
    words: tuple[str, ...]
    whole: bool


def calls(text: str, line: int = 1) -> list[Call]:
    """The commands of ``text`` in their order, those of substitutions first.

    Args:
        text: of the block. "[--option N]" is an option that may be given, "a|b" in it a choice.
        line: number of its first line.

    Raises:
        Unreadable: a quote or a parenthesis is not closed.
    """
    reader = _Reader()
    reader.read(_USAGE.sub(lambda part: re.sub(r"(\w+)(\|\w+)+", r"\1", part[1]), text), line)
    return reader.found


@dataclass
class _Reader:
    found: list[Call] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)

    def read(self, text: str, line: int) -> None:
        words: list[str] = []
        start, array = line, ""
        for token in self.tokens(text, line):
            if token.kind == "array":
                array, self.values[token.text] = token.text, []
            elif array:
                if token.text == ")" and token.kind == "op":
                    array = ""
                elif token.kind == "word":
                    self.values[array].append(token.text)
            elif token.kind == "op":
                self.call(words, start)
                words = []
            else:
                start = start if words else token.line
                words.append(token.text)
        self.call(words, start)

    def call(self, words: list[str], line: int) -> None:
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if not words or words[0] in _ENDS:
            return
        if words[0] == "for":
            self.values[words[1]] = [value for word in words[3:] for value in self.spliced(word)]
            return
        while words and (given := _ASSIGNMENT.fullmatch(words[0])):
            self.values[given[1]], words = [given[2]], words[1:]
        if words and words[0] in WRAPPERS:
            least = WRAPPERS[words[0]]
            words = words[1 + (least if words[1:2] and words[1].startswith("-") else 0) :]
            self.call(words, line)
        elif words:
            self.found += [Call(line, *without_gaps(one)) for one in self.expanded(words)]

    def spliced(self, word: str) -> list[str]:
        """The words that one becomes: "${name[@]}" and the sizes of an encoder are several."""
        if name := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word):
            return self.values.get(name[1], [word])
        if re.fullmatch(r"\$\(cat \S*model_args\.txt\)", word):
            return MODEL_ARGS
        if program := re.fullmatch(r"\$\((?:which|command -v) (\S+)\)", word):
            return [program[1]]
        return [word]

    def expanded(self, words: list[str]) -> Iterator[list[str]]:
        """The command with each value of its variables."""
        words = [part for word in words for part in self.spliced(word)]
        names = dict.fromkeys(re.findall(r"\$\{?(\w+)\b", " ".join(words)))
        known = [name for name in names if self.values.get(name)]
        for values in itertools.product(*(self.values[name] for name in known)):
            one = words
            for name, value in zip(known, values):
                pattern = re.compile(rf"\$\{{{name}\}}|\${name}\b")
                one = [pattern.sub(lambda _, value=value: value, word) for word in one]  # type: ignore[misc]
            yield one

    def tokens(self, text: str, line: int) -> Iterator[Token]:
        at = 0
        word: str | None = None  # that is being read
        heredocs: list[str] = []  # whose lines follow the next line end

        def part(more: str) -> str:
            return (word or "") + more

        while at <= len(text):
            c = text[at : at + 1]
            if text.startswith("\\\n", at):
                at, line = at + 2, line + 1
            elif c == "\\":
                word, at = part(text[at + 1 : at + 2]), at + 2
            elif c == "'":
                end = self.end_of(text, "'", at + 1, line)
                word = part(text[at + 1 : end].replace("$", _DOLLAR))
                line, at = line + text.count("\n", at, end), end + 1
            elif c == '"':
                inner, end = self.quoted(text, at + 1, line)
                word, line, at = part(inner), line + text.count("\n", at, end), end
            elif text.startswith("$((", at):
                word, at = part("1"), self.end_of(text, "))", at + 3, line) + 2
            elif text.startswith("$(", at) or (text.startswith("<(", at) and word is None):
                inner, at = self.substituted(text, at + 2, line)
                word = part(inner)
            elif text.startswith("${", at):
                end = self.end_of(text, "}", at + 2, line) + 1
                word, at = part(text[at:end]), end
            elif c == "#" and word is None:
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif c == "(" and word and re.fullmatch(r"\w+=", word):
                yield Token("array", word[:-1], line)
                word, at = None, at + 1
            elif c and c not in " \t\n;|&()<>":
                word, at = part(c), at + 1
            else:
                if c in ("<", ">") and word is not None and word.isdigit():
                    word = None  # 2> and the like
                if word is not None:
                    yield Token("word", word, line)
                    word = None
                if c and c in "<>":
                    at = self.redirected(text, at, line, heredocs)
                    continue
                if c == "\n":
                    while heredocs:
                        end = self.end_of(text, f"\n{heredocs.pop(0)}", at, line) + 1
                        line, at = line + text.count("\n", at, end), max(text.find("\n", end), end)
                    line += 1
                if c and c in "\n;|&()":
                    yield Token("op", c, line)
                at += 1

    def redirected(self, text: str, at: int, line: int, heredocs: list[str]) -> int:
        """Where the text goes on after a redirection and its file."""
        found = re.compile(r"(<<<|<<-?|>>|>\||>&|<&|[<>])[ \t]*").match(text, at)
        assert found is not None
        name = re.compile(r"(\$\([^()]*\)|\"[^\"]*\"|'[^']*'|[^\s;|&()<>\"'$]|\$)+").match(text, found.end())
        if name is None:
            raise Unreadable(f"line {line}: {found[1]} without a file")
        if found[1] in ("<<", "<<-"):
            heredocs.append(name[0].strip("'\""))
        return name.end()

    def end_of(self, text: str, closing: str, at: int, line: int) -> int:
        end = text.find(closing, at)
        if end < 0:
            raise Unreadable(f"line {line}: {closing.strip()} is missing")
        return end

    def quoted(self, text: str, at: int, line: int) -> tuple[str, int]:
        """What stands in double quotes, and where the text goes on."""
        word = ""
        while text[at : at + 1] != '"':
            if at >= len(text):
                raise Unreadable(f'line {line}: " is missing')
            if text.startswith("$(", at) and not text.startswith("$((", at):
                inner, at = self.substituted(text, at + 2, line)
                word += inner
            elif text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`"):
                word, at = word + text[at + 1].replace("$", _DOLLAR), at + 2
            else:
                word, at = word + text[at], at + 1
        return word, at + 1

    def substituted(self, text: str, at: int, line: int) -> tuple[str, int]:
        """A substitution as it is written, and where the text goes on; its commands are read."""
        depth, end = 1, at
        while depth:
            if end >= len(text):
                raise Unreadable(f"line {line}: ) is missing")
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        inner = text[at : end - 1]
        self.read(inner, line)
        return f"$({inner})", end


def without_gaps(words: list[str]) -> tuple[tuple[str, ...], bool]:
    """The words without … and the like, and whether there were none of these."""
    kept = [word for word in words if not re.fullmatch(r"(.*=)?(…|\.\.\.)", word)]
    values = [_SUBSTITUTION.sub("VALUE", word).replace(_DOLLAR, "$") for word in kept]
    return tuple(word for word in values if word != "key=value"), len(kept) == len(words)
