"""TextAttack attacks what fairseq_adv.load gives: its own recipes, run in an environment that has TextAttack.

tests/references/textattack/README.md says how to make one; FAIRSEQ_ADV_TEXTATTACK names its python.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import glue_samples
import numpy as np
import pytest
import torch
from tiny import glue_model

import fairseq_adv
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.temperature import save_temperature

PYTHON = os.environ.get("FAIRSEQ_ADV_TEXTATTACK", "")
needs_textattack = pytest.mark.skipif(
    not PYTHON, reason="FAIRSEQ_ADV_TEXTATTACK=PYTHON of an environment with TextAttack (docs/textattack.md)"
)


def random_model(folder: Path, task: str) -> Path:
    """A tiny model of GLUE's ``task``."""
    return glue_model(folder, task) / "a.pt"


def attack(
    checkpoint: Path, recipe: str, examples: list[tuple[Any, int]]
) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).parent.parent / "references" / "textattack" / "attack_checkpoint.py"
    request = {"checkpoint": str(checkpoint), "recipe": recipe, "examples": examples}
    return subprocess.run(
        [PYTHON, "-W", "ignore", str(script)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=600,
    )


SENTENCES = [text for text in glue_samples.AWKWARD if len(text.split()) > 3]
PAIRS = [(first, second) for first in SENTENCES[-3:] for second in SENTENCES[:3]]


@needs_textattack
@pytest.mark.parametrize(
    ("task", "recipe", "texts"),
    [
        ("SST-2", "DeepWordBugGao2018", SENTENCES), ("SST-2", "PWWSRen2019", SENTENCES[-4:]),
        ("RTE", "DeepWordBugGao2018", PAIRS),
    ],
)  # fmt: skip
def test_stock_recipes_attack_a_checkpoint(task: str, recipe: str, texts: list[Any], tmp_path: Path) -> None:
    """The wrapper answers as the model does; each outcome is what the model says of the final text."""
    checkpoint = random_model(tmp_path, task)
    model = fairseq_adv.load(checkpoint, device="cpu")
    answers = model.predict(texts)
    places = [model.labels.index(answer.label) for answer in answers]
    examples = [
        (text, 1 - place if k % 4 == 3 else place) for k, (text, place) in enumerate(zip(texts, places))
    ]
    done = attack(checkpoint, recipe, examples)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["silent"] and told["dtype"] == "torch.float32"
    for row, answer in zip(told["probabilities"], answers):
        assert row == pytest.approx(list(answer.probabilities.values()), abs=1e-6)
        assert sum(row) == pytest.approx(1, abs=2e-7)
    for k, ((text, label), result) in enumerate(zip(examples, told["results"])):
        given = text if isinstance(text, str) else list(text)
        final = result["final"] if isinstance(text, str) else tuple(result["final"])
        fooled = model.labels.index(model.predict([final])[0].label) != label
        assert (result["outcome"] == "Skipped") == (k % 4 == 3)
        assert fooled == (result["outcome"] != "Failed")
        assert (result["final"] == given) or result["outcome"] != "Skipped"
        assert (result["num_queries"] == 1) or result["outcome"] != "Skipped"
    assert {"Skipped", "Successful"} <= {result["outcome"] for result in told["results"]}


@needs_textattack
def test_a_regression_is_refused(tmp_path: Path) -> None:
    done = attack(random_model(tmp_path, "STS-B"), "DeepWordBugGao2018", [(("a b", "c d"), 0)])
    assert done.returncode == 1
    message = "DataError: TextAttack attacks models with classes, but this one predicts numbers"
    assert done.stderr.splitlines()[-1].endswith(message)


def test_a_temperature_changes_no_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper's probabilities are those without one. Of TextAttack only a class's name is needed."""
    for name in ("textattack", "textattack.models", "textattack.models.wrappers"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(ModelWrapper=object))
    wrapped = runpy.run_module("fairseq_adv.hub.textattack")["TextAttackModel"]
    checkpoint = random_model(tmp_path, "SST-2")
    plain = fairseq_adv.load(checkpoint, device="cpu")
    save_temperature(checkpoint, 3.0, {})
    calibrated = fairseq_adv.load(checkpoint, device="cpu")
    expected = [list(answer.probabilities.values()) for answer in plain.predict(SENTENCES)]
    told = [list(answer.probabilities.values()) for answer in calibrated.predict(SENTENCES)]
    assert told != pytest.approx(np.array(expected), abs=0.01)
    found = wrapped(calibrated)(SENTENCES)
    assert found.numpy() == pytest.approx(np.array(expected), abs=1e-6) and found.dtype == torch.float32
    assert wrapped(calibrated)([]).shape == (0, 2)
    calibrated.several = True
    with pytest.raises(DataError, match="one class a text"):
        wrapped(calibrated)


@pytest.mark.skipif(importlib.util.find_spec("textattack") is not None, reason="TextAttack is installed")
def test_without_textattack_the_error_says_where_to_read() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"needs TextAttack .*: see docs/textattack\.md"):
        import fairseq_adv.hub.textattack  # noqa: F401
