"""fairseq-adv figures as a command: on the log and the checkpoints of real trainings."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from support import (
    CommandMain,
    fairseq_train,
    handle_interrupts,
    run_command,
    start_command,
    train_args,
    verb,
    without_matplotlib,
    write_task,
)

from fairseq_adv.evaluation.figures.accordance_log import read_accordance
from fairseq_adv.evaluation.log_lines import VALID, log_lines

COMMAND = verb("figures")
PROBE = ["--batches", "4", "--batch-size", "8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings, measured/ (no flooding) and flooded/, measured every third update; epochs of 6."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_task(folder / "data", train=24)
    for name, level in (("measured", "0"), ("flooded", "0.6")):
        (folder / name).mkdir()
        fairseq_train(
            *train_args(data, folder / name, "flooding", "--flood-level", level),
            "--accordance-interval", "3", "--accordance-batches", "3", "--accordance-batch-size", "8",
            "--no-last-checkpoints", "--log-file", str(folder / name / "train.log"),
        )  # fmt: skip
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("figures", capsys)


def rows(out: Path) -> list[dict[str, str]]:
    with open(f"{out}.csv", newline="") as file:
        return list(csv.DictReader(file))


def is_png(out: Path) -> bool:
    return Path(f"{out}.png").read_bytes().startswith(b"\x89PNG")


def test_a_real_log_becomes_a_table_and_a_figure(trained: Path, tmp_path: Path, run: CommandMain) -> None:
    done = run("log", trained / "measured", tmp_path / "new" / "figure")
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path}/new/figure.png and {tmp_path}/new/figure.csv" in done.stdout
    assert is_png(tmp_path / "new" / "figure")
    found = rows(tmp_path / "new" / "figure")
    # The same numbers, looked for in the log by other means.
    text = (trained / "measured" / "train.log").read_text()
    logged = {}
    for part in re.findall(r'\{.*"accordance_update": .*\}', text):
        values = json.loads(part)
        logged[int(values["accordance_update"])] = values
    assert sorted(logged) == [3, 6, 9, 12] == [int(row["update"]) for row in found]
    for row in found:
        values = logged[int(row["update"])]
        for group in ("all", "encoder", "head"):
            cosine = float(values[f"accordance_{group}"])
            assert float(row[f"cosine_{group}"]) == pytest.approx(cosine, rel=1e-5)
            assert float(row[f"eq13_{group}"]) == pytest.approx(cosine / 2, rel=1e-5)
        assert float(row["train_loss_nats"]) == pytest.approx(float(values["accordance_loss_nats"]), rel=1e-5)
    dev = re.findall(r'"valid_loss_nats": "([\d.]+)".*?"valid_num_updates": "(\d+)"', text)
    assert {row["update"]: float(row["dev_loss_nats"]) for row in found if row["dev_loss_nats"]} == {
        update: pytest.approx(float(loss), rel=1e-5) for loss, update in dev
    }
    assert {"6", "12"} == {update for _, update in dev}


def test_a_log_of_one_group_needs_no_option(trained: Path, tmp_path: Path, run: CommandMain) -> None:
    text = (trained / "measured" / "train.log").read_text()
    text = re.sub(r'"(train_)?accordance_(all|encoder)": "[-\d.e]+", ', "", text)
    (tmp_path / "head.log").write_text(text)
    done = run("log", tmp_path / "head.log", tmp_path / "f")
    assert done.returncode == 0 and "in group head" in done.stdout, done.stderr
    assert "cosine_head" in rows(tmp_path / "f")[0] and "cosine_all" not in rows(tmp_path / "f")[0]


def test_the_checkpoints_say_what_the_training_said(trained: Path, tmp_path: Path, run: CommandMain) -> None:
    """The same batches are drawn with the training's --seed; the model has no dropout."""
    checkpoints = [trained / "measured" / f"checkpoint{epoch}.pt" for epoch in (2, 1)]
    words = [
        "checkpoints",
        *checkpoints,
        tmp_path / "f",
        "--batches",
        3,
        "--batch-size",
        8,
        "--seed",
        7,
        "--cpu",
    ]
    done = run(*words)
    assert done.returncode == 0 and "measured: 2 measurements, updates 6 to 12" in done.stdout, done.stderr
    assert is_png(tmp_path / "f")
    log = {one.update: one for one in read_accordance(trained / "measured").measurements}
    dev = {
        one.updates: one.loss_nats
        for one in log_lines(trained / "measured" / "train.log")
        if one.kind == VALID
    }
    for row in rows(tmp_path / "f"):
        update = int(row["update"])
        for group, value in log[update].cosine.items():
            assert float(row[f"cosine_{group}"]) == pytest.approx(value, abs=2e-4)
        assert float(row["dev_loss_nats"]) == pytest.approx(dev[update], abs=1e-5)
    assert run(*words, "--seed", 8).returncode == 0
    assert len(list((tmp_path / "f.kept").iterdir())) == 4


def test_the_score_over_the_levels(trained: Path, tmp_path: Path, run: CommandMain) -> None:
    done = run(
        "levels", trained / "measured", trained / "flooded", tmp_path / "f.png", "--metric", "accuracy"
    )
    assert done.returncode == 0 and is_png(tmp_path / "f"), done.stderr
    levels = rows(tmp_path / "f")
    assert [row["flood_level_nats"] for row in levels] == ["0", "0.6"]
    for row in levels:
        text = (trained / row["names"] / "train.log").read_text()
        scores = re.findall(r'"valid_accuracy": "([\d.]+)"', text)
        assert float(row["last_accuracy_mean"]) == float(scores[-1])
    done = run("levels", trained / "measured", trained / "measured", tmp_path / "f")
    assert done.returncode == 2 and "needs two or more flood levels" in done.stderr


def test_the_loss_under_noise(trained: Path, tmp_path: Path, run: CommandMain) -> None:
    checkpoints = [trained / name / "checkpoint_best.pt" for name in ("measured", "flooded")]
    words = ["noise", *checkpoints, tmp_path / "f", "--stds", "0,0.5", "--cpu"]
    done = run(*words, "--labels", "plain, b = 0.6")
    assert done.returncode == 0 and is_png(tmp_path / "f"), done.stderr
    found = rows(tmp_path / "f")
    assert list(found[0]) == ["noise_std", "plain", "b = 0.6"]
    assert [row["noise_std"] for row in found] == ["0", "0.5"]
    for label, name in (("plain", "measured"), ("b = 0.6", "flooded")):
        dev = [one for one in log_lines(trained / name / "train.log") if one.kind == VALID]
        assert float(found[0][label]) == pytest.approx(min(one.loss_nats for one in dev), abs=1e-5)
        assert found[1][label] != found[0][label]
    assert run(*words).returncode == 0
    assert list(rows(tmp_path / "f")[0])[1:] == ["measured/checkpoint_best", "flooded/checkpoint_best"]
    for labels in ("one", "one,one", "one,two,three"):
        done = run(*words, "--labels", labels)
        assert done.returncode == 2 and "pass 2 different names" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log", "gone", "f"], "error: gone: no such log"),
        (["log", "FOLDER/data/label/dict.txt", "f"], "Run fairseq-train with --log-format json"),
        (["log", "FOLDER/measured", "f", "--group", "body"], "--group body: not measured"),
        (
            ["log", "FOLDER/measured", "FOLDER/flooded"],
            "the last argument is the output name",
        ),
        (["checkpoints", "a.pt", "b.pt"], "the last argument is the output name"),
        (["checkpoints", "gone.pt", "f"], "error: gone.pt: no such checkpoint"),
        (["checkpoints", "BEST", "f", "--batches", "1"], "error: --batches 1: pass 2 or more"),
        (["checkpoints", "BEST", "f", "--batch-size", "99"], "error: --batch-size 99: the split 'train'"),
        (["checkpoints", "BEST", "f", "--split", "gone"], "(input0/gone.idx). Choose another data folder or"),
        (
            ["checkpoints", "BEST", "f", "--valid-split", "gone"],
            "(input0/gone.idx). Choose another data fold",
        ),
        (["levels", "FOLDER/measured", "f"], "needs two or more flood levels"),
        (["levels", "FOLDER/measured", "FOLDER/flooded", "f", "--metric", "mcc2"], "no validation metric"),
        (["noise", "gone.pt", "f", "--stds", "0,1"], "error: gone.pt: no such checkpoint"),
        (["noise", "BEST", "f", "--stds", "0"], "--stds 0: pass two or more"),
    ],
)
def test_mistakes_are_told(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: CommandMain,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    best = str(trained / "measured" / "checkpoint_best.pt")
    done = run(*(word.replace("FOLDER", str(trained)).replace("BEST", best) for word in words))
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("error: "), done.stderr
    assert message in done.stderr and not list(tmp_path.glob("*.csv"))


def test_malformed_numbers_and_commands_end_with_2(trained: Path, run: CommandMain) -> None:
    for words in (["noise", "a.pt", "f", "--stds", "0,x"], ["nothing"], ["log", "a", "f", "--crossing", "x"]):
        with pytest.raises(SystemExit) as ended:
            run(*words)
        assert ended.value.code == 2


def test_without_matplotlib_the_csv_is_written(
    trained: Path, tmp_path: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_matplotlib(monkeypatch)
    done = run("log", trained / "measured", tmp_path / "f")
    assert done.returncode == 0 and f"wrote {tmp_path}/f.csv\n" in done.stdout, done.stderr
    assert (
        "note: no figure was drawn: that needs matplotlib" in done.stderr and "Traceback" not in done.stderr
    )
    assert len(rows(tmp_path / "f")) == 4 and not (tmp_path / "f.png").exists()


def test_stopped_in_the_middle_and_run_again(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "measured", tmp_path / "run")
    stds = ",".join(f"{i / 1000:g}" for i in range(200))  # so many that it takes seconds
    words = [
        *COMMAND, "noise", str(tmp_path / "run" / "checkpoint_best.pt"),
        str(tmp_path / "f"), "--stds", stds, "--cpu",
    ]  # fmt: skip
    process = start_command(words, preexec_fn=handle_interrupts)
    assert process.stderr is not None
    seen = b""
    while b"std 0.005" not in seen:
        block = process.stderr.read1(1000)  # type: ignore[attr-defined]
        assert block, seen.decode()
        seen += block
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate()
    assert process.returncode == 130 and b"stopped; run the same command again to resume" in rest
    assert b"Traceback" not in rest and not (tmp_path / "f.csv").exists()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "f.kept").glob("*.json")}
    assert 5 <= len(kept) < 200
    again = run_command(*words)
    assert again.returncode == 0, again.stderr
    assert len(rows(tmp_path / "f")) == 200 and is_png(tmp_path / "f")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
