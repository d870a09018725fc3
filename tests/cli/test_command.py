"""The console command ``fairseq-adv``."""

from __future__ import annotations

import importlib.machinery
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from support import all_verbs, command, run_command

import fairseq_adv.cli
from fairseq_adv.cli import doctor
from fairseq_adv.data.checked_json import json_line
from fairseq_adv.evaluation.predict.benchmarks import BENCHMARKS
from fairseq_adv.tasks.task_record import described_tasks

ROOT = Path(__file__).resolve().parents[2]
USER_DIR = str(ROOT / "fairseq_adv")


def python_cli(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(sys.executable, "-m", "fairseq_adv", *words)


def test_user_dir_prints_a_folder_and_nothing_else() -> None:
    """The checkout's, or that of a copy which pip made."""
    done = run_command(command("fairseq-adv"), "user-dir")
    path = done.stdout.rstrip("\n")
    assert (path == USER_DIR or (Path(path) / "criterions" / "freelb.py").exists()) and done.stderr == ""


def test_nothing_that_only_tells_imports_torch_or_fairseq() -> None:
    helps = [[*verb.split(), "--help"] for verb in ("", "prepare", "retrieve", "score", *all_verbs())]
    code = (
        "import sys, fairseq_adv.cli\n"
        "heavy = {'torch', 'numpy', 'fairseq', 'hydra', 'omegaconf', 'tantivy', 'spacy'}\n"
        f"for words in {[['user-dir'], ['doctor'], ['--version'], *helps]}:\n"
        "    try: fairseq_adv.cli.main(words)\n"
        "    except SystemExit: pass\n"
        "    assert not heavy & set(sys.modules), words\n"
    )
    done = run_command(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(helps)


def test_a_second_fairseq_adv_is_no_user_dir(tmp_path: Path) -> None:
    (tmp_path / "fairseq_adv").mkdir()
    (tmp_path / "fairseq_adv" / "__init__.py").write_text("raise SystemExit('its code was run')\n")
    (tmp_path / "numpy").mkdir()
    for name, told in (("numpy", "a second numpy, beside the one"), ("a.py", "no such folder. Pass")):
        (tmp_path / "a.py").touch()
        done = python_cli("validate", "model.pt", "--user-dir", str(tmp_path / name))
        assert done.returncode == 2 and done.stderr.startswith(f"error: --user-dir {tmp_path}/{name}: {told}")
    done = python_cli("validate", "model.pt", "--user-dir", str(tmp_path / "fairseq_adv"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"error: --user-dir {tmp_path}/fairseq_adv: a second fairseq_adv, beside the one in" in done.stderr


@pytest.mark.parametrize("old", fairseq_adv.cli.REMOVED)
def test_what_was_removed_names_what_replaces_it(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--help"], ["data", "out"], ["--neighbours=1"]):
        assert fairseq_adv.cli.main([*old.replace(" --", " data --").split(), *more]) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1
        assert shown.err.startswith(f"error: fairseq-adv {old}: removed; ")


def test_json_has_no_number_that_is_not_finite() -> None:
    nested = {"loss": float("nan"), "a": {"b": [1.5, float("inf"), "x"]}, "c": (None, 2)}
    assert json_line(nested) == '{"loss": null, "a": {"b": [1.5, null, "x"]}, "c": [null, 2]}'


def test_each_benchmark_is_answered_by_a_task() -> None:
    answered = {name for record in described_tasks().values() for name in record.benchmarks}
    assert answered == set(BENCHMARKS)


def test_a_wrong_name_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    words = ["predict", "a.pt", "--task", "nope", "--out", "out"]
    code = f"import sys, fairseq_adv.cli as cli; print(cli.main({words}), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "2 False\n" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: --task nope: no such task. Choose one of "), done.stderr


# --- doctor -------------------------------------------------------------------------------------

HEALTHY = {
    "torch": "2.13.0+cpu", "numpy": "2.4.6", "fairseq": "0.12.2", "hydra-core": "1.0.7", "omegaconf": "2.0.6",
    "pip": "23.2.1", "fairseq_adv": "0.1.0",
}  # fmt: skip


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``report(torch="1.12")`` -> exit status and text of the doctor on a machine with these versions."""

    def run(**changed: str) -> tuple[int, str]:
        versions = {**HEALTHY, **{name.replace("_core", "-core"): v for name, v in changed.items()}}
        monkeypatch.setattr(doctor, "installed", lambda name: versions.get(name, ""))
        monkeypatch.setattr(doctor, "_cuda", lambda: doctor.Finding("CUDA", "built for CPU only"))
        monkeypatch.setattr(doctor, "_pth", lambda: doctor.Finding("compat .pth", "active"))
        return doctor.doctor(Namespace()), capsys.readouterr().out

    return run


def test_doctor_on_this_machine() -> None:
    done = python_cli("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (*("Python", "pip", "numpy", "torch", "CUDA", "fairseq", "hydra-core", "omegaconf", "apex"),
                 r"compat \.pth +active", r"fairseq's C\+\+ +built"):  # fmt: skip
        assert re.search(rf"^{line} *\S*", done.stdout, re.MULTILINE), line
    assert "nothing is broken" in done.stdout


@pytest.mark.parametrize(
    ("python", "changed", "broken", "said"),
    [
        ((3, 10), {"torch": "2.6.0", "numpy": "1.26.4"}, "", ""),
        ((3, 9), {}, "Python", "needs 3.10 to 3.14; fairseq_adv<0.4 works with older ones"),
        ((3, 10), {"torch": "2.5.1"}, "torch", "needs 2.6; fairseq_adv<0.4 works with older ones"),
        ((3, 10), {"fairseq": "0.12.3"}, "fairseq", "fix: pip install fairseq==0.12.2"),
        ((3, 10), {"hydra_core": "1.3.2"}, "hydra-core", "fix: pip install hydra-core==1.0.7"),
    ],
)
def test_doctor_names_what_is_broken_and_the_mend(
    report: Any, monkeypatch: pytest.MonkeyPatch, python: Any, changed: dict[str, str], broken: str, said: str
) -> None:
    monkeypatch.setattr(sys, "version_info", python)
    status, text = report(**changed)
    assert status == bool(broken) and said in text
    assert text.splitlines()[-1] == (f"broken: {broken}" if broken else "nothing is broken")
    assert said or ("WRONG" not in text and "note" not in text)


@pytest.mark.parametrize(
    ("inside", "status", "said"),
    [("multi_tensor_apply", 0, "(NVIDIA's)"), ("views", 1, "fix: pip uninstall apex")],
)
def test_doctor_tells_the_two_projects_named_apex_apart(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, status: int, said: str
) -> None:
    (tmp_path / "apex" / inside).mkdir(parents=True)
    (tmp_path / "apex" / "__init__.py").write_text("raise RuntimeError('the doctor imports nothing')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found, text = report()
    assert found == status and said in text


def test_doctor_sees_missing_extensions_and_a_pth_that_was_not_run(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages' .pth files
    python.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        found = doctor._pth()
        patch.setattr(sys, "path", [str(tmp_path)])
        deleted = doctor._pth()
    assert found.broken and found.value == "not active" and "did not run" in found.problem
    assert not deleted.broken and deleted.problem == found.problem
    monkeypatch.setattr(importlib.machinery, "EXTENSION_SUFFIXES", [".of-another-python.so"])
    status, text = report()
    assert status == 0 and "note: Python in place of data_utils_fast and token_block_utils_fast" in text


def test_options_lists_what_fairseq_s_help_leaves_out() -> None:
    done = run_command(sys.executable, "-m", "fairseq_adv", "options", "freelb")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "--adv-max-norm" in text and "epsilon, radius of the ball" in text and "(default: 3)" in text
