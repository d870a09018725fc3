"""scripts/quickstart.sh: mistakes are told in one line, before its set-up begins; and what it ends with."""

from __future__ import annotations

import concurrent.futures
import re
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import run_command

import fairseq_adv.evaluation.attack as attack
from fairseq_adv import load
from fairseq_adv.evaluation import summaries
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import Summary


@pytest.mark.parametrize(
    "name", ["quickstart", "setup_env", "test", "docs", "compat_matrix", "release_check"]
)
def test_help_from_any_folder(repo: Path, name: str) -> None:
    done = run_command("bash", f"../scripts/{name}.sh", "--help", cwd=repo / "docs", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "") and f"scripts/{name}.sh" in done.stdout


def test_weights_in_a_bin(repo: Path, tmp_path: Path) -> None:
    """They belong to the name under which a table is kept."""
    encoder = tmp_path / "my encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    names = set()
    for weights in ("1", "2"):
        (encoder / "pytorch_model.bin").write_text(weights)
        words = ["--encoder", str(encoder), "--out", str(tmp_path / "out")]
        done = run_command(
            "bash", "-x", str(repo / "scripts" / "quickstart.sh"), *words, PYTHON=f"{tmp_path}/no-python",
            VENV=f"{tmp_path}/env",
        )  # fmt: skip
        assert "1/5 the environment (.venv) … failed" in done.stdout, done.stderr
        names |= set(re.findall(r"data-my encoder-(\w{8})", done.stderr))
    assert len(names) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--glue", "{tmp}/gone"], "--glue {tmp}/gone: no such folder"),
        (
            ["--glue", "{tmp}/films"],
            "--glue {tmp}/films: the folder must be named after its task: CoLA,",
        ),
        (["--glue", "{tmp}/RTE"], "--glue {tmp}/RTE: no train.tsv in it"),
        (["--encoder", "{tmp}/films"], "--encoder {tmp}/films: no config.json in it"),
        (["--epochs", "08"], "--epochs 08: pass a whole number from 1 to 9999"),
        (["--epochs", "99999999999999999999"], "--epochs 99999999999999999999: pass"),
        (["--epochs", ""], "--epochs : pass"),
        (["--epochs"], "--epochs needs a value"),
        (["--seed", "one"], "--seed one: pass a whole number from 0 to 9999"),
        (["--out", "{tmp}/file/out"], "--out {tmp}/file/out: can't be created"),
        (["--out", "{tmp}/taken"], "--out {tmp}/taken: can't be written"),
        (["--precision", "fp16"], "--precision fp16: pass auto, fp32 or bf16"),
        (["--out", ""], "--out: empty"),
        (["--speed", "1"], "unknown option '--speed'"),
    ],
)
def test_a_mistake_is_told_before_the_set_up(
    repo: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    for name in ("films", "RTE", "taken/quickstart.log"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    words = [word.format(tmp=tmp_path) for word in words]
    if "--out" not in words:
        words = ["--out", f"{tmp_path}/out", *words]
    # Were the set-up to begin, this Python would end it.
    places = {"VENV": f"{tmp_path}/env", "PYTHON": f"{tmp_path}/no-python"}
    done = run_command("bash", str(repo / "scripts" / "quickstart.sh"), *words, **places)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: " + message.format(tmp=tmp_path)) and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_table(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attacked(checkpoint: str, how: Attack, split: str) -> dict[str, float]:
        assert (checkpoint, how.steps, how.relative) == ("out/freelb/checkpoint_best.pt", 5, True)
        assert (how.step_size, split) == (how.epsilon / 2, "test")
        return {"examples": 40, "accuracy": 81.25, "perturbed_accuracy": 80 - 1000 * how.epsilon}

    monkeypatch.setattr(attack, "attack_checkpoint", attacked)
    # In a process of its own it would be the real one.
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", lambda n, _: ThreadPoolExecutor(n))
    run = Summary("freelb", updates=94, seconds_per_update=0.5)
    monkeypatch.setattr(summaries, "summarise", lambda folder: run)
    table = runpy.run_path(str(repo / "examples" / "quickstart" / "table.py"))
    picture = tmp_path / "bars.svg"
    assert table["main"](["out/freelb", "--picture", str(picture)]) == 0
    first, second, last = (re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines())
    assert first == ["accuracy (%) on 40 unseen sentences, their embeddings moved by up to"]
    assert second == ["0 %", "1 %", "2 %", "training"]
    assert last == ["freelb", "81.2", "70.0", "60.0", "47 s"]
    numbers = re.findall(r"<!-- ([\d.]+\.\d) -->", picture.read_text(encoding="utf-8"))
    assert numbers == ["81.2", "70.0", "60.0"]  # above the bars


@pytest.mark.slow
def test_three_seeds(repo: Path, tmp_path: Path, reviews_folder: Path) -> None:
    """The real thing, as a stranger runs it: minutes for each seed."""
    (tmp_path / "reviews").symlink_to(reviews_folder)
    script, env = repo / "scripts" / "quickstart.sh", str(Path(sys.executable).parent.parent)
    for seed in (1, 2, 3):
        words = ["--out", str(tmp_path), "--seed", str(seed)]
        done = run_command("bash", str(script), *words, VENV=env)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) <= 40 and not done.stderr
        assert re.search(r"4/5 .* … (\d+ % ){3,}\d+ s$", done.stdout, re.M)  # progress while it trains
        assert re.search(r"^    (bf16 autocast|fp32): this processor has ", done.stdout, re.M)
        assert "accuracy (%) on 300 unseen sentences, their embeddings moved by up to\n" in done.stdout
        log = (tmp_path / "quickstart.log").read_text(encoding="utf-8")
        assert set(re.findall(r"learning rate ([\d.e-]+);", log)) == {"0.0001"}
        assert "This one's answer is negative, with probability 0." in lines[-2]
        own = lines[-1].replace("A terrible, boring film.", "A wonderful film, I loved it.")
        assert run_command("bash", "-c", own).stdout.startswith("positive\t0.")
        found: list[float] = []
        for run in ("standard", "freelb"):
            model = load(tmp_path / "runs-minilm-movies-1" / f"{run}-seed{seed}" / "checkpoint_best.pt")
            answers = model.predict(["A terrible, boring film.", "A wonderful film, I loved it."])
            assert [answer.label for answer in answers] == ["negative", "positive"]
            table = re.search(rf"^{run}-seed{seed}((?: +\d+\.\d){{3}}) +\d+ s$", done.stdout, re.M)
            assert table is not None
            plain, at_1, at_2 = map(float, table[1].split())
            assert plain > 76 and at_2 < at_1 < plain
            found.append(at_2)
        assert found[1] > found[0]  # FreeLB resists
