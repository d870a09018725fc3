"""fairseq-adv predict as a command: from training to a leaderboard's file."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from support import (
    PLUGIN,
    fairseq_train,
    handle_interrupts,
    run_command,
    start_command,
    train_args,
    verb,
    write_questions,
)

COMMAND = verb("predict")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    data = write_questions(folder / "data")
    fairseq_train(*train_args(data, folder / "save", "standard", task="commonsense_qa"))
    return folder


def command(trained: Path, out: Path, *more: str) -> list[str]:
    checkpoint = str(trained / "save" / "checkpoint_best.pt")
    return [
        *COMMAND, checkpoint, "--task", "commonsense_qa", "--data", str(trained / "data"),
        "--out", str(out), "--cpu", *more,
    ]  # fmt: skip


def test_trained_model_to_file_and_the_score_that_training_logged(trained: Path, tmp_path: Path) -> None:
    done = run_command(*command(trained, tmp_path, "--split", "valid"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert first == f"wrote {tmp_path}/predictions-valid.csv (8 rows, 1 model)"
    validated = run_command(
        str(Path(sys.executable).parent / "fairseq-validate"), str(trained / "data"), "--user-dir",
        PLUGIN, "--task", "commonsense_qa", "--valid-subset", "valid",
        "--path", str(trained / "save" / "checkpoint_best.pt"), "--cpu", "--batch-size", "4",
        "--classification-head-name", "sentence_classification_head",
    )  # fmt: skip
    assert validated.returncode == 0, validated.stderr
    accuracy = float(second.split("accuracy: ")[1])
    assert f"| accuracy {accuracy:g} " in (validated.stdout + validated.stderr).replace(
        "accuracy 0 ", "accuracy 0 "
    )


def test_stopped_in_the_middle_and_run_again(trained: Path, tmp_path: Path) -> None:
    # So many questions, one at a time, that it takes seconds.
    rows = (trained / "data" / "test.jsonl").read_text().splitlines()
    many = [json.dumps({**json.loads(rows[i % 5]), "id": f"q{i}"}) for i in range(4000)]
    (trained / "data" / "test-many.jsonl").write_text("".join(f"{row}\n" for row in many))
    words = command(trained, tmp_path / "out", "--split", "test-many")
    process = start_command([*words, "--batch-size", "1"], preexec_fn=handle_interrupts)
    assert process.stderr is not None
    seen = b""
    while b"row/s" not in seen:
        block = process.stderr.read1(1000)  # type: ignore[attr-defined]
        assert block, seen.decode()
        seen += block
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate()
    assert process.returncode == 130 and b"stopped; run the same command again to resume" in rest
    assert b"Traceback" not in rest and not (tmp_path / "out").exists()
    again = run_command(*words)
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / "out" / "predictions-test-many.csv").read_text().splitlines()) == 4000


def test_scores_alone_need_no_model(trained: Path, tmp_path: Path) -> None:
    assert run_command(*command(trained, tmp_path / "a")).returncode == 0
    file = str(next((tmp_path / "a" / "scores").iterdir()))
    words = [
        *COMMAND,
        "--task",
        "commonsense_qa",
        "--out",
        str(tmp_path / "b"),
        "--scores",
        file,
    ]
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    answers = [(tmp_path / name / "predictions.csv").read_bytes() for name in ("a", "b")]
    assert answers[0] == answers[1]


def test_a_mistake_ends_without_a_traceback(trained: Path, tmp_path: Path) -> None:
    path = trained / "data" / "test-broken.jsonl"
    path.write_text(
        '{"id": "1", "question": {"stem": "w1", "choices": [{"label": "A", "text": "w2"}]}}\n{"id"\n'
    )
    done = run_command(*command(trained, tmp_path / "out", "--split", "test-broken"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {path}:2: not json")
    assert not (tmp_path / "out").exists()
