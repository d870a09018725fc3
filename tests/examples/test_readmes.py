"""The READMEs of the recipes: what they name is there, tables are the yamls'; commands: tests/docs."""

from __future__ import annotations

import re

import pytest
from omegaconf import OmegaConf
from recipes import EXAMPLES, GLUE, composed, launcher
from test_recipes import AUTHORS

FOLDERS = ["alum", "arc", "commonsense_qa", "flooding", "glue", "ner", "qnli_ranking", "race", "squad", "wsc"]
GROUPS = (
    "common", "task", "model", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset",
    "distributed_training", "checkpoint", "ema",
)  # fmt: skip


def text_of(folder: str) -> str:
    return (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_readme_names_is_there(folder: str) -> None:
    """Every key and method; links, files and options: tests/docs."""
    text, fairseq = text_of(folder), launcher().fairseq_keys()
    files = [path for path in (EXAMPLES / folder).glob("config/**/*.yaml") if "adversary" not in path.parts]
    own = [OmegaConf.load(str(path)) for path in files]
    keys = re.findall(rf"(?<![\w/])({'|'.join(GROUPS)})\.(?!pt\b)([a-z]\w+)", text)
    for group, key in keys:
        known = {*fairseq.get(group, ()), *(key for config in own for key in config.get(group, ()))}
        assert key in known, f"{group}.{key}"
    for method in {path.stem for path in (EXAMPLES / folder).glob("config/**/method/*.yaml")}:
        assert f"`{method}`" in text or f"`method={method}`" in text, method


@pytest.mark.parametrize("folder", ["arc", "commonsense_qa", "ner", "qnli_ranking", "race", "squad", "wsc"])
def test_the_readme_shows_the_numbers_of_the_yaml(folder: str) -> None:
    """Rows of its table: | `key` | value | source |."""
    rows: dict[str, str] = dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+?) \|", text_of(folder), re.MULTILINE))
    assert "criterion.adv_lr" in rows and "optimization.lr" in rows
    config = composed(folder, "method=freelb")
    for key, told in rows.items():
        group, _, name = key.partition(".")
        found = config[group][name]
        plain = found[0] if name == "lr" else found
        same = told == str(plain).lower() if isinstance(plain, (bool, str)) else float(told) == float(plain)
        assert same, key


def test_the_readme_of_glue_shows_the_sizes_of_freelb() -> None:
    """Those of the scripts, and of the paper."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text_of("glue").splitlines()]
    shown = {row[0]: [float(cell) for cell in row[1:]] for row in rows if row[0] in GLUE and len(row) == 9}
    assert shown == {task: [*AUTHORS["freelb"][task], *AUTHORS["freelb_paper"][task]] for task in GLUE}


def test_the_readme_of_alum_shows_the_presets_as_they_are() -> None:
    """Rows of its table: | `method` | projection | shared dropout | divergence |."""
    row = re.compile(r"^\| `(alum_\w+)` \| (`\w+` \| \w+ \| `[\w-]+`) \|", re.MULTILINE)
    rows = dict(row.findall(text_of("alum")))
    assert set(rows) == {"alum_vat", "alum_paper", "alum_mtdnn"}
    for method, told in rows.items():
        for name in ("finetune", "roberta_base"):
            keys = composed(name, f"method={method}").criterion
            shared = {"true": "yes", "false": "no"}[keys.vat_share_dropout]
            assert told == f"`{keys.vat_projection}` | {shared} | `{keys.vat_divergence}`", method
