"""Hook of MkDocs: the site's pages are the repository's own Markdown files, at their own places.

So one relative link works on GitHub and in the site. A link to a file that is no page leads to the source if
``SOURCE_URL`` is set (``https://HOST/OWNER/NAME/blob/REF``), and is the file's name otherwise. What leads
nowhere is left as it is: ``mkdocs build --strict`` refuses it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ("*.svg", "*.png", "*.css", "*.js")
FOLDERS = ("docs", "examples")  # whose images and styles are copied

_LIST_ITEM = re.compile(r"(?:[-*+]|\d+[.)]) ")
_BADGE = re.compile(r"\[!\[[^]]*\]\((?:https?://|\.\./\.\./actions/)[^)]*\)\]\([^)]*\)\n?")
_FENCE = re.compile(r" *(`{3,}|~{3,})")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the extension that rewrites links to the source."""
    config.markdown_extensions.append(_SOURCES)  # an instance is allowed, too
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces what MkDocs found under docs/ by files whose names count from the repository's root."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    found = {name for name in _named(config.nav) if name.endswith(".md") and (ROOT / name).is_file()}
    found |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    for folder in FOLDERS:
        for pattern in ASSETS:
            found |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(pattern)}
    for name in sorted(found):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leaves out badges, which other hosts draw, and makes GitHub's lists Python-Markdown's."""
    _SOURCES.name, _SOURCES.files = page.file.src_uri, files
    return "\n".join(_with_separated_lists(_BADGE.sub("", markdown).split("\n")))


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _named(entry)


def _with_separated_lists(lines: Iterable[str]) -> Iterator[str]:
    """Python-Markdown wants blank lines around lists and their code, and 4 blanks before an item's parts."""
    fence, shift, before, in_list = "", 0, "", False
    for line in lines:
        marks = _FENCE.match(line)
        indent = len(line) - len(line.lstrip(" "))
        is_item = _LIST_ITEM.match(line) is not None
        if fence:
            yield " " * shift + line if line else line
            if marks and line.strip() == fence:
                fence = before = ""
                if in_list:
                    yield ""
            continue
        if is_item:
            if before.strip() and not in_list:
                yield ""
            in_list = True
        elif line.strip() and not indent and not before.strip():
            in_list = False
        begins = not before.strip() or marks or _LIST_ITEM.match(line.lstrip())
        shift = 4 - indent if in_list and 0 < indent < 4 and begins else 0
        if marks:
            fence = marks[1]
            if in_list:
                yield ""
        yield " " * shift + line
        before = line


class _SourceLinks(Treeprocessor):
    """Links to files that are no pages. Runs before MkDocs' own processor, which checks the others."""

    def __init__(self, md: Markdown, where: _Sources) -> None:
        super().__init__(md)
        self.where = where

    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            target = link.get("href", "")
            if self.where.files is None or target.startswith("#") or urlsplit(target).scheme:
                continue
            self._rewrite(link, urlsplit(target).path, self.where.files)

    def _rewrite(self, link: Element, written: str, files: Files) -> None:
        page = self.where.name
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(written)))
        if files.get_file_from_path(path) is not None or path.startswith("..") or not (ROOT / path).exists():
            return  # to a page, or wrong: MkDocs checks it
        if files.get_file_from_path(f"{path}/README.md") is not None:
            link.set("href", f"{written.rstrip('/')}/README.md")  # GitHub shows it with the folder
        elif os.environ.get("SOURCE_URL"):
            link.set("href", f"{os.environ['SOURCE_URL'].rstrip('/')}/{path}")
        else:
            _as_name(link, path)


def _as_name(link: Element, path: str) -> None:
    """The link becomes its text and the file's name, or the name alone where that is the text."""
    text = "".join(link.itertext())
    link.tag = "span"
    for attribute in list(link.attrib):
        del link.attrib[attribute]
    if path == text or path.endswith("/" + text):
        for child in list(link):
            link.remove(child)
        link.text = ""
        SubElement(link, "code").text = AtomicString(path)
    else:
        last = list(link)[-1] if len(link) else None
        if last is None:
            link.text = AtomicString(f"{link.text} (")
        else:
            last.tail = AtomicString(f"{last.tail or ''} (")
        code = SubElement(link, "code")
        code.text = AtomicString(path)
        code.tail = AtomicString(")")


class _Sources(Extension):
    """Attributes: ``name`` and ``files``: the page at hand, and all files of the site."""

    name = ""
    files: Files | None = None

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(_SourceLinks(md, self), "source_links", 5)  # after "inline", 20


_SOURCES = _Sources()
