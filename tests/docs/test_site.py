"""The documentation site builds strictly, its links and anchors exist, and nothing comes from other hosts."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import griffe
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parent.parent.parent
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("source", "src"), ("source", "srcset")}


class Html(HTMLParser):
    """Attributes: ``ids``; ``targets``: (tag, attribute, value) of what a page loads or links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[tuple[str, str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value or "")
            elif name in ("href", "src", "srcset"):
                self.targets.append((tag, name, value or ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``scripts/docs.sh OUT`` with the Python at hand."""
    out = tmp_path_factory.mktemp("site")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    others = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    words = [str(ROOT / "scripts" / "docs.sh"), str(out)]
    done = subprocess.run(words, env={**others, "PATH": path, "VENV": "none"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    return {path: Html(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_is_there(site: Path) -> None:
    sources = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    sources += [*ROOT.glob("examples/*.md"), *ROOT.glob("examples/*/*.md")]
    assert len(sources) > 40
    for source in sources:
        page = site / source.relative_to(ROOT).with_suffix(".html")
        if source.stem in ("README", "index"):
            page = page.with_name("index.html")
        assert page.is_file(), source


def test_links_and_anchors_lead_somewhere(pages: dict[Path, Html]) -> None:
    wrong = []
    for path, page in pages.items():
        for tag, _, target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or (tag == "link" and not target):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file() or (
                parts.fragment and unquote(parts.fragment) not in (pages[there].ids if there in pages else ())
            ):
                wrong.append(f"{path.name}: {tag} {target}")
    assert not wrong


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Html]) -> None:
    loaded = [
        (path.name, target)
        for path, page in pages.items()
        for tag, name, target in page.targets
        if (tag, name) in LOADED and urlsplit(target).netloc
    ]
    assert not loaded
    for style in site.rglob("*.css"):
        text = re.sub(r"/\*.*?\*/", "", style.read_text(encoding="utf-8"), flags=re.S)
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text), style


def test_the_search_works_from_a_file(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ") and "fairseq_adv.perturbation.Perturbation" in index


# A small site with the hook and the settings of the real one.


@pytest.fixture
def small(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    (root / "examples" / "folder").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "site_pages.py", root / "docs")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = re.sub(r"  - mkdocstrings:\n(    .*\n)+", "", text[: text.index("\nnav:")])
    (root / "mkdocs.yml").write_text(f"{text}\nnav: [README.md, docs/page.md, examples/folder/README.md]\n")
    (root / "README.md").write_text("# Home\n\n[page](docs/page.md#a-part-of-it)\n")
    (root / "docs" / "page.md").write_text(
        "# Page\n\n## A part of it\n\n[home](../README.md) [script](../run.py)\n"
    )
    (root / "examples" / "folder" / "README.md").write_text("# Folder\n")
    (root / "run.py").write_text("")
    return root


def built(root: Path, page: str = "docs/page.html") -> str:
    """A page of the small site."""
    build(load_config(str(root / "mkdocs.yml"), strict=True, site_dir=str(root.parent / "out")))
    text = (root.parent / "out" / page).read_text(encoding="utf-8")
    return text[text.index("<article") : text.index("</article>")]


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("README.md", "#a-part-of-it", "#another-part", "another-part"),
        ("docs/page.md", "../run.py", "../walk.py", "walk.py"),
        ("mkdocs.yml", "docs/page.md, ", "", "docs/page.md"),
    ],
    ids=["anchor", "source", "unlisted page"],
)
def test_what_is_broken_fails(
    small: Path, file: str, old: str, new: str, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = (small / file).read_text()
    assert old in text
    (small / file).write_text(text.replace(old, new))
    with pytest.raises(Abort, match="strict"):
        built(small)
    assert any(named in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


def test_a_link_to_a_file_is_its_name_or_its_source(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_URL", raising=False)
    assert "<span>script (<code>run.py</code>)</span>" in built(small)
    monkeypatch.setenv("SOURCE_URL", "https://host.example/owner/name/blob/main")
    assert '<a href="https://host.example/owner/name/blob/main/run.py">script</a>' in built(small)


def test_lists_are_written_as_on_github(small: Path) -> None:
    (small / "docs" / "page.md").write_text(
        "# Page\n\n## A part of it\n\nText\n- one\n- two\n  on two lines\n\n"
        "1. first\n   - inner\n\n   ```bash\n   - code\n   ```\n2. second\n\n```\ntext\n- code\n```\n"
    )
    text = re.sub(r"<(?!/?(ul|ol|li|p)\b)[^>]+>|\s+", " ", built(small))
    text = re.sub(r" ?(<[^>]+>) ?", r"\1", text)
    assert "<p>Text</p><ul><li>one</li><li>two on two lines</li></ul>" in text
    assert text.count("<ol>") == 1 and text.count("<ul>") == 2 and text.count("<li>") == 5
    inside, after = (re.sub(r"\s+", " ", part) for part in text.split("</ol>"))
    assert "- code" in inside and "text - code" in after


def test_roles_of_docstrings_become_links(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text('"""See :class:`package.part.Thing`."""\n')
    (package / "part.py").write_text(
        'class Thing:\n    """Has :meth:`run`, of <s> a * b; not :meth:`stop`."""\n\n'
        "    def run(self):\n        pass\n"
    )
    extension = runpy.run_path(str(ROOT / "docs" / "site_docstrings.py"))["Docstrings"]()
    loaded = griffe.load(
        "package", search_paths=[str(tmp_path)], extensions=griffe.Extensions(extension), submodules=True
    )
    assert 'identifier="package.part.Thing"><code>Thing</code></autoref>' in loaded.docstring.value
    value = loaded["part.Thing"].docstring.value
    assert (
        'identifier="package.part.Thing.run"><code>run</code></autoref>, of &lt;s> a \\* b; not `stop`'
        in value
    )
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "package.part.Thing: its docstring refers to stop, which was not found"
    ]


# Pages that are made from code, and code on pages.


def test_the_diagram_is_that_of_the_code() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "draw_seam.py"))
    drawn = draw["drawn"](draw["traced_update"]())
    assert drawn == (ROOT / "docs" / "seam.svg").read_text(encoding="utf-8"), "run python docs/draw_seam.py"
