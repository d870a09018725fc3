"""What a release is made of: one version, metadata for PyPI, citation, templates, recipes of environments."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import command, run_command

import fairseq_adv

ROOT = Path(__file__).resolve().parent.parent
URL = "https://github.com/someone/something"


@pytest.fixture(scope="module")
def setup() -> dict[str, Any]:
    """The functions of setup.py, and what it hands to setuptools under "setup"."""
    import setuptools

    given: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(setuptools, "setup", lambda **words: given.update(words))
        names: dict[str, Any] = {}
        exec(compile((ROOT / "setup.py").read_text(encoding="utf-8"), "setup.py", "exec"), names)
    return {**names, "setup": given}


def test_an_old_python_is_told_which_version_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"Python 3\.10, .* use fairseq_adv 0\.3$"):
        exec(compile((ROOT / "setup.py").read_text(encoding="utf-8"), "setup.py", "exec"), {})


# --- the version --------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere(setup: dict[str, Any]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## (\d\S*) – (\d{4}-\d\d-\d\d)$", changelog, re.M)
    assert latest is not None
    assert setup["setup"]["version"] == fairseq_adv.__version__ == citation["version"] == latest[1]
    assert citation["date-released"] == latest[2]


def test_the_command_prints_the_version_to_standard_output() -> None:
    import importlib.metadata

    done = run_command(command("fairseq-adv"), "--version")
    expected = f"fairseq_adv {importlib.metadata.version('fairseq_adv')}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


# --- the long description on PyPI ---------------------------------------------------------------

DIFFICULT = """\
[![tests](../../actions/workflows/tests.yml/badge.svg)](../../actions/workflows/tests.yml)
[![licence](https://img.shields.io/badge/licence-MIT-blue)](LICENSE) ![](docs/figure.svg "a title")
<p align="center"><img src="docs/figure.png" width="500"> <a href="docs/methods.md">methods</a></p>

[a](docs/a.md), [`code`](docs/b.md#part), [[1]](docs/c.md "title"), [up](#use), [other](https://example.org/x.md),
[mail](mailto:a@example.org), [by name][paper], [paper][], [paper] and `[not a link](in/code.md)`.

| cell [d](docs/d.md) | [e](<docs/e.md>) |
|---|---|
| 1 | 2 |

```bash
echo "[not a link](in/a/block.md)" ![x](y.png)
```

[paper]: docs/paper.md "The paper"
"""


class Targets(HTMLParser):
    """Every address in a page, but those that the renderer gives to headings."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = [str(value) for name, value in attributes if name in ("href", "src", "srcset")]
        self.found += [target for target in found if not target.startswith("#user-content-")]


def rendered(text: str) -> tuple[str, list[str]]:
    """The page that PyPI makes of a text, and its addresses."""
    markdown = pytest.importorskip("readme_renderer.markdown", reason="readme-renderer[md] is not installed")
    page = markdown.render(text)
    assert page is not None
    targets = Targets()
    targets.feed(page)
    return page, targets.found


README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [README, DIFFICULT], ids=["README.md", "difficult"])
@pytest.mark.parametrize("url", [URL, ""], ids=["with the address", "without"])
def test_the_long_description_has_no_relative_link(setup: dict[str, Any], text: str, url: str) -> None:
    page, targets = rendered(setup["long_description"](text, url, "v1.2.3"))
    assert all(re.match(r"https://|mailto:", target) for target in targets)
    assert (
        re.search(
            r"\]\((?!https|mailto)[^)]", re.sub(r"<code>.*?</code>|<pre.*?</pre>", "", page, flags=re.S)
        )
        is None
    )
    if url:
        _, relative = rendered(text)
        assert len(targets) >= len(relative) > 0


def test_links_of_the_long_description_are_those_of_github(setup: dict[str, Any]) -> None:
    _, targets = rendered(setup["long_description"](DIFFICULT, URL, "v1.2.3"))
    files, images = f"{URL}/blob/v1.2.3", f"{URL}/raw/v1.2.3"
    assert targets == [
        f"{URL}/actions/workflows/tests.yml", f"{URL}/actions/workflows/tests.yml/badge.svg",
        f"{files}/LICENSE", "https://img.shields.io/badge/licence-MIT-blue", f"{images}/docs/figure.svg",
        f"{images}/docs/figure.png", f"{files}/docs/methods.md",
        f"{files}/docs/a.md", f"{files}/docs/b.md#part", f"{files}/docs/c.md", f"{files}/README.md#use",
        "https://example.org/x.md", "mailto:a@example.org", *[f"{files}/docs/paper.md"] * 3,
        f"{files}/docs/d.md", f"{files}/docs/e.md",
    ]  # fmt: skip


def test_files_for_github_have_its_syntax() -> None:
    issues = ROOT / ".github" / "ISSUE_TEMPLATE"
    for schema, paths in {
        "github-issue-forms": [issues / "bug_report.yml", issues / "feature_request.yml"],
        "github-issue-config": [issues / "config.yml"],
        "citation-file-format": [ROOT / "CITATION.cff"],
    }.items():
        words = ["--builtin-schema", f"vendor.{schema}", *map(str, paths)]
        done = run_command(command("check-jsonschema"), *words)
        assert done.returncode == 0, done.stdout + done.stderr


# --- Dockerfile, Apptainer ----------------------------------------------------------------------

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
APPTAINER = (ROOT / "examples" / "environment" / "apptainer.def").read_text(encoding="utf-8")


def test_the_images_copy_what_an_install_needs(setup: dict[str, Any]) -> None:
    lines = re.findall(r"^COPY (.+)$", DOCKERFILE, re.M)
    copied = [word for line in lines for word in line.split()[:-1]]
    packages = {name.split(".")[0] for name in setup["setup"]["packages"]}
    files = ["setup.py", "pyproject.toml", "README.md", "LICENSE", "constraints.txt", setup["PTH"]]
    assert set(copied) == {*files, "scripts/repack_wheels.py", *packages}
    assert sorted(copied) == sorted(re.findall(r"^    (\S+) /src/$", APPTAINER, re.M))
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(copied) & set(ignored) and all((ROOT / name).exists() for name in copied)


def test_the_images_are_of_one_base_with_the_same_extras(setup: dict[str, Any]) -> None:
    (base,) = re.findall(r"^FROM (\S+)$", DOCKERFILE, re.M)
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.M)
    assert f"\nFrom: {base}\n" in APPTAINER and f"'.[{extras}]'" in APPTAINER
    assert set(extras.split(",")) < set(setup["setup"]["extras_require"])


def test_releases_are_checked_on_the_oldest_and_the_newest_python(setup: dict[str, Any]) -> None:
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(setup["setup"]["classifiers"]))
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    checked = release["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert checked == [supported[0], supported[-1]]
    assert setup["setup"]["python_requires"] == f">={supported[0]}"


# --- scripts/release_check.sh -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["--quick"], {}, "unknown option '--quick'"),
        ([], {"PYTHON": "/gone/python"}, "'/gone/python' was not found"),
        ([], {"GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": "v9.9.9"}, "the tag is v9.9.9"),
    ],
)
def test_the_release_check_finds_mistakes_first(
    words: list[str], environment: dict[str, str], message: str
) -> None:
    done = run_command("bash", str(ROOT / "scripts" / "release_check.sh"), *words, **environment)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(f"error: {message}")
