"""Packaging of fairseq_adv. What is unusual here: a ``.pth`` file goes beside the packages.

``fairseq_adv_compat.pth`` lets fairseq 0.12.2 be imported at all on Python >= 3.11, so it has to lie in
site-packages itself, for ``pip install .`` and for ``pip install -e .`` alike, and to go on uninstall.
"""

import base64
import hashlib
import os
import zipfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

PTH = "fairseq_adv_compat.pth"
CORPUS = ["zstandard>=0.19"]
PLOTS = ["matplotlib>=3.6"]
ATTACKS = ["nltk>=3.9"]
DATASETS = ["datasets>=2.20"]
DOCS = ["mkdocs-material>=9.7", "mkdocstrings[python]>=0.30", "ruff"]
SUBMITIT = ["hydra-submitit-launcher==1.0.1", "submitit"]
RETRIEVAL = ["opensearch-py", "tantivy>=0.25"]
WSC = ["spacy>=3.5"]


class BuildPyWithPth(build_py):
    """Puts the .pth file into the root of the wheel."""

    def run(self):
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
    version="0.1.0",
    description="Adversarial training of language models inside fairseq's own trainer: a --user-dir plug-in",
    long_description=Path("README.md").read_text(encoding="utf-8") if Path("README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_adv", "fairseq_adv.*", "fairseq_adv_compat", "fairseq_adv_cli"]),
    # The explicit root makes an editable install a plain path in site-packages, which costs nothing at
    # start-up; the import hook that setuptools writes otherwise costs milliseconds.
    package_dir={"": "."},
    package_data={"": ["py.typed", "*.json", "*.yaml", "*.txt"]},
    python_requires=">=3.9",
    install_requires=[
        "fairseq==0.12.2",
        "filelock",
        # The oldest that works on each Python: torchrun of 1.13 fails on 3.11, that of 2.3 crashes on 3.12,
        # and torch.save of 2.5 fails on 3.13. 1.13.0 evaluates text (CVE-2022-45907).
        "torch>=1.13.1; python_version < '3.11'",
        "torch>=2.0; python_version == '3.11'",
        "torch>=2.4; python_version == '3.12'",
        "torch>=2.6; python_version >= '3.13'",
        "numpy",
        "safetensors",
        "sentencepiece>=0.1.97",
        "tiktoken",
        "tokenizers",
        "tqdm",
    ],
    extras_require={
        "attacks": ATTACKS,  # parts of speech for fairseq-adv attack --attack textfooler
        "corpus": CORPUS,  # corpora in .zst
        "datasets": DATASETS,  # fairseq-adv prepare classification --dataset
        "docs": DOCS,  # the documentation site, scripts/docs.sh
        "plots": PLOTS,  # figures of fairseq-adv figures
        "retrieval": RETRIEVAL,  # documents for ARC
        "submitit": SUBMITIT,  # sweeps of hydra's through SLURM
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
            "ruff",
            "scikit-learn",
            "scipy",
            "seqeval",
            "setuptools>=64",
            "transformers",
            *ATTACKS,
            *CORPUS,
            *DATASETS,
            *DOCS,
            *PLOTS,
            *RETRIEVAL,
            *SUBMITIT,
            *WSC,
        ],
    },
    entry_points={"console_scripts": ["fairseq-adv=fairseq_adv_cli:main"]},
    cmdclass={"build_py": BuildPyWithPth, "editable_wheel": EditableWheelWithPth},
    zip_safe=False,
)
