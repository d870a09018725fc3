"""Packaging of fairseq_adv. Two things are unusual here.

``fairseq_adv_compat.pth`` lets fairseq 0.12.2 be imported at all on Python >= 3.11, so it has to be in
site-packages itself, for ``pip install .`` and for ``pip install -e .`` alike, and go on uninstall.

README.md has relative links, which GitHub resolves and PyPI does not. :func:`long_description` makes them
absolute where the repository's address is known, as in GitHub Actions, or from ``FAIRSEQ_ADV_URL``.
"""

import base64
import hashlib
import os
import posixpath
import re
import shutil
import sys
import zipfile
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036 (pip looks at python_requires after it has run this)
    sys.exit("error: fairseq_adv needs Python 3.10, torch 2.6 or later; on older ones, use fairseq_adv 0.3")

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

PTH = "fairseq_adv_compat.pth"
CORPUS = ["zstandard>=0.19"]
PLOTS = ["matplotlib>=3.6"]
ATTACKS = ["nltk>=3.9.2"]  # reads a tagger from any folder
DATASETS = ["datasets>=2.20"]
DOCS = ["mkdocs-material>=9.7", "mkdocstrings[python]>=0.30", "ruff"]
# The last releases for the hydra 1.0 of fairseq 0.12.2.
SWEEPS = ["hydra-joblib-launcher==1.1.0", "hydra-submitit-launcher==1.0.1", "submitit"]
RETRIEVAL = ["tantivy>=0.25"]
WSC = ["spacy>=3.5"]
HF = ["transformers>=4.57"]
TRAINER = ["accelerate>=1.10"]  # transformers' Trainer, in the tests of fairseq_adv.loop
NOTEBOOK = ["ipykernel>=6.29", "nbclient>=0.10", "nbformat>=5.10", *HF, *PLOTS]
VERSION = re.search(
    r'^__version__ = "(.+)"$', Path("fairseq_adv/__init__.py").read_text(encoding="utf-8"), re.M
)[1]


def repository_url(environment=os.environ):
    """The repository's address on GitHub, or "" where nothing says it."""
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    return environment.get("FAIRSEQ_ADV_URL", f"{server}/{name}" if server and name else "").rstrip("/")


def long_description(text, url, ref):
    """Markdown for PyPI: no relative links.

    Args:
        text: Markdown with links relative to the repository's root, as GitHub shows it.
        url: the repository's address on GitHub; "": links become their text, and images are left out.
        ref: the tag or branch that links point to.
    """
    code = []  # code is not Markdown: out of the way first

    def keep(match):
        code.append(match[0])
        return f"\0{len(code) - 1}\0"

    def absolute(target, kind="blob"):
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.I):
            return target
        path, mark, anchor = target.partition("#")
        where = posixpath.normpath(posixpath.join(kind, ref, path.lstrip("/") or "README.md"))
        return url and f"{url}/{where}{mark}{anchor}"

    def image(match):
        target = absolute(match["target"], "raw")
        return target and f"![{match['text']}]({target}{match['title']})"

    def link(match):
        target = absolute(match["target"])
        return f"[{match['text']}]({target}{match['title']})" if target else match["text"]

    def tag(match):
        found = absolute(match["target"], "raw" if match["name"] != "href" else "blob")
        return found and f'{match["name"]}="{found}"'

    def definition(match):
        found = absolute(match["target"])
        if not found:
            dropped.append(match["id"])
        return found and f"[{match['id']}]: {found}{match['title']}"

    dropped = []
    end = r"\(\s*<?(?P<target>[^()\s<>]+)>?(?P<title>(?:\s+\"[^\"]*\")?)\s*\)"
    text = re.sub(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[ \t]*$", keep, text, flags=re.M | re.S)
    text = re.sub(r"(?<!`)(`+)(?!`)(?:(?!\n[ \t]*\n).)+?(?<!`)\1(?!`)", keep, text, flags=re.S)
    text = re.sub(r"!\[(?P<text>[^\]]*)\]" + end, image, text)
    text = re.sub(r"(?<!!)\[(?P<text>(?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*)\]" + end, link, text)
    text = re.sub(r"^ {0,3}\[(?P<id>[^\]]+)\]:\s*(?P<target>\S+)(?P<title>.*)$", definition, text, flags=re.M)
    for name in dropped:
        text = re.sub(rf"\[([^\[\]]+)\]\[{re.escape(name)}\]|\[({re.escape(name)})\](?:\[\])?", r"\1\2", text)
    text = re.sub(r"\b(?P<name>src|srcset|href)=\"(?P<target>[^\"]+)\"", tag, text)
    text = re.sub(r"<(?:img|source)\b(?![^>]*\bsrc)[^>]*>", "", text)
    return re.sub(r"\0(\d+)\0", lambda match: code[int(match[1])], text)


def project_urls(url):
    """The links that PyPI shows at the side."""
    if not url:
        return {}
    return {
        "Documentation": f"{url}/blob/v{VERSION}/README.md",
        "Changelog": f"{url}/blob/v{VERSION}/CHANGELOG.md",
        "Issues": f"{url}/issues",
        "Source": url,
    }


class BuildPyWithPth(build_py):
    """Puts the .pth file into the root of the wheel."""

    def run(self):
        if not getattr(self, "editable_mode", False):
            for name in (
                "fairseq_adv",
                "fairseq_adv_compat",
            ):  # an older version's modules would be packed too
                shutil.rmtree(os.path.join(self.build_lib, name), ignore_errors=True)
        super().run()
        if not getattr(self, "editable_mode", False):
            self.copy_file(PTH, os.path.join(self.build_lib, PTH))

    def get_outputs(self, include_bytecode=True):
        outputs = list(super().get_outputs(include_bytecode))
        if not getattr(self, "editable_mode", False):
            outputs.append(os.path.join(self.build_lib, PTH))
        return outputs


class EditableWheelWithPth(editable_wheel):
    """Adds the .pth file to the wheel that setuptools makes for ``pip install -e`` (PEP 660)."""

    def run(self):
        super().run()
        for wheel in Path(self.dist_dir).glob("fairseq_adv-*.whl"):
            add_to_wheel(wheel, PTH)


def add_to_wheel(wheel, name):
    """Writes the wheel again with the file ``name`` in its root, listed in its RECORD."""
    data = Path(name).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    beside = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as new:
        if name in old.namelist():
            return
        new.writestr(name, data)
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content = f"{name},sha256={digest},{len(data)}\n".encode() + content
            new.writestr(entry, content)
    os.replace(beside, wheel)


setup(
    name="fairseq_adv",
    version=VERSION,
    description="Adversarial training of language models: in fairseq's own trainer, or in your own loop",
    long_description=long_description(
        Path("README.md").read_text(encoding="utf-8") if Path("README.md").exists() else "",
        repository_url(),
        f"v{VERSION}",
    ),
    long_description_content_type="text/markdown",
    author="The fairseq_adv authors",
    license="MIT",
    project_urls=project_urls(repository_url()),
    keywords="adversarial training, fairseq, language models, FreeLB, ALUM, SMART, robustness",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *[f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)],
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["fairseq_adv", "fairseq_adv.*", "fairseq_adv_compat"]),
    # The explicit root makes an editable install a plain path in site-packages, which costs nothing at
    # start-up; the import hook that setuptools writes otherwise costs milliseconds.
    package_dir={"": "."},
    package_data={"": ["py.typed", "*.json", "*.yaml", "*.txt"]},
    python_requires=">=3.10",
    install_requires=[
        "fairseq==0.12.2",
        "filelock>=4",
        "torch>=2.6",
        "numpy",
        "safetensors",
        "scikit-learn",
        "scipy",
        "sentencepiece>=0.1.97",
        "seqeval>=1.2.2",
        "tiktoken",
        "tokenizers>=0.15.2",  # earlier ones read "[SEP]" in a text as the token
        "tqdm",
    ],
    extras_require={
        "attacks": ATTACKS,  # WordNet and parts of speech for fairseq-adv attack
        "corpus": CORPUS,  # corpora in .zst
        "datasets": DATASETS,  # fairseq-adv prepare classification --dataset
        "docs": DOCS,  # the documentation site, scripts/docs.sh
        "hf": HF,  # encoders of transformers as they are
        "notebook": NOTEBOOK,  # examples/quickstart/tour.ipynb
        "plots": PLOTS,  # examples/flooding/figures.py
        "retrieval": RETRIEVAL,  # documents for ARC
        "sweeps": SWEEPS,  # fairseq-hydra-train --multirun, several runs at once or through SLURM
        "wsc": WSC,  # noun phrases for WSC
        "test": [
            "check-jsonschema",
            "codespell",
            "hypothesis",
            "mypy",
            "pre-commit",
            "pytest",
            "pytest-xdist",
            "pyyaml",
            "readme-renderer[md]",
            "ruff",
            "setuptools>=64",
            *ATTACKS,
            *CORPUS,
            *DATASETS,
            *DOCS,
            *HF,
            *NOTEBOOK,
            *PLOTS,
            *RETRIEVAL,
            *SWEEPS,
            *TRAINER,
            *WSC,
        ],
    },
    entry_points={"console_scripts": ["fairseq-adv=fairseq_adv.cli:main"]},
    cmdclass={"build_py": BuildPyWithPth, "editable_wheel": EditableWheelWithPth},
    zip_safe=False,
)
