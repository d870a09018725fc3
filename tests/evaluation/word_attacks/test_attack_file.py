"""Attacks on the examples of a file with real models: what is written, how it resumes, what is refused."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import glue_samples
import pytest
from hf_models import save_bert
from small_wordnet import small_wordnet
from support import (
    CommandMain,
    command,
    start_command,
    write_json_lines,
    write_questions,
    writers,
)
from tiny import glue_model, save

from fairseq_adv import load
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import words_of
from fairseq_adv.evaluation.word_attacks.resources import Resources
from fairseq_adv.evaluation.word_attacks.victim import AttackedFile, Victim, read_examples

pytest.importorskip("nltk")
pytest.importorskip("transformers")
RESOURCES = {field.name for field in fields(Resources)}
DEEPWORDBUG = ["--attack", "deepwordbug", "--cpu"]
TEXTS = ["--text", "text", "--label", "label"]


@pytest.fixture
def attack(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("attack", capsys)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of single texts, a.pt, and some texts with the classes that it gives them."""
    folder = tmp_path_factory.mktemp("films")
    return _model(folder, "SST-2")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    return _model(folder, "RTE")


def _model(folder: Path, task: str) -> Path:
    glue_model(folder, task)
    texts = glue_samples.pairs()
    rows: list[Any] = [first for first, _ in texts] if task == "SST-2" else texts
    answers = load(folder / "a.pt", device="cpu").predict(rows)
    table = []
    for number, (row, answer) in enumerate(zip(rows, answers)):
        label = answer.label if number % 4 else next(n for n in answer.probabilities if n != answer.label)
        first, second = (row, None) if isinstance(row, str) else row
        table.append({"text": first, "label": label, **({} if second is None else {"second": second})})
    write_json_lines(folder / "rows.jsonl", table)
    return folder


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def lines(out: Path) -> list[dict[str, Any]]:
    return read(out / "examples.jsonl")


def test_an_attack_and_what_it_leaves(
    films: Path, tmp_path: Path, attack: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records' texts and probabilities are the model's; the summary counts them.

    Each text is computed alone. Mini-batches of other sizes and lengths are other sums, by other kernels: in
    fp32 they give this model, whose weights are of order 1, answers that are up to 5e-6 apart.
    """
    alone = lambda dataset, names, how: [[row] for row in range(len(dataset))]  # noqa: E731
    monkeypatch.setattr("fairseq_adv.evaluation.trained.batches_by_length", alone)
    out = tmp_path / "out"
    words = [films / "a.pt", *DEEPWORDBUG, "--data", films / "rows.jsonl", *TEXTS, "--out", out]
    done = attack(*words)
    assert done.returncode == 0 and sorted(p.name for p in out.iterdir()) == [
        "changes.html", "examples.jsonl", "settings.json", "summary.json",
    ]  # fmt: skip
    records, model = lines(out), load(films / "a.pt", device="cpu")
    given = read(films / "rows.jsonl")
    assert [(r["original"], r["label"]) for r in records] == [([g["text"]], g["label"]) for g in given]
    after = model.predict([record["changed"][0] for record in records])
    for number, (record, answer) in enumerate(zip(records, after)):
        assert record["predicted"] == answer.label
        assert record["after"] == pytest.approx(answer.probabilities[record["label"]], abs=1e-6)  # six digits
        expected = (
            "skipped" if number % 4 == 0 else "failed" if answer.label == record["label"] else "succeeded"
        )
        assert record["status"] == expected
    found = json.loads((out / "summary.json").read_text())
    count = {
        status: sum(r["status"] == status for r in records) for status in ("skipped", "failed", "succeeded")
    }
    attacked = [r for r in records if r["status"] != "skipped"]
    assert min(count.values()) > 0
    assert found["clean"] == pytest.approx(100 * len(attacked) / len(records))
    assert found["aua"] == pytest.approx(100 * count["failed"] / len(records))
    assert found["suc"] == pytest.approx(100 * count["succeeded"] / len(attacked))
    assert found["queries"] == pytest.approx(sum(r["queries"] for r in attacked) / len(attacked))
    won = [len(r["changes"]) / r["words"] for r in attacked if r["status"] == "succeeded"]
    assert found["changed"] == pytest.approx(100 * sum(won) / len(won))
    assert (
        "DeepWordBug, " in done.stdout and "may change: 100 %; at most 30 letters per example;" in done.stdout
    )
    assert "sentence similarity: not compared" in done.stdout and "importance: unknown ([UNK])" in done.stdout
    page = (out / "changes.html").read_text(encoding="utf-8")
    assert page.count("<article>") == len(records) and page.count("<del>") == sum(
        len(r["changes"]) for r in records
    )


@pytest.mark.timing
def test_an_interrupted_attack_resumes(films: Path, tmp_path: Path, attack: CommandMain) -> None:
    """After kill -9 with half a line in the file: the same results as without, and what was done is kept."""
    rows = read(films / "rows.jsonl") * 4
    data = write_json_lines(tmp_path / "rows.jsonl", rows)
    # One at a time: whom an example shares a mini-batch with is felt in the last digits, which decide ties.
    words = [str(films / "a.pt"), *DEEPWORDBUG, "--data", str(data), *TEXTS, "--at-once", "1"]
    out, part = tmp_path / "cut", tmp_path / "cut" / "examples.jsonl.part"
    process = start_command([command("fairseq-adv"), "attack", *words, "--out", str(out)])
    assert process.stdout is not None
    while not (part.is_file() and part.read_bytes().count(b"\n") > 3):
        assert process.poll() is None
        time.sleep(0.01)
    while pids := writers(process.stdout):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.communicate()
    done = part.read_bytes()
    part.write_bytes(done[: done.rfind(b"\n") + 1] + b'{"id": "99')
    assert attack(*words, "--out", str(out)).returncode == 0
    assert attack(*words, "--out", str(tmp_path / "whole")).returncode == 0
    assert lines(out) == lines(tmp_path / "whole")
    summaries = [(folder / "summary.json").read_bytes() for folder in (out, tmp_path / "whole")]
    assert summaries[0] == summaries[1] and not part.exists()
    again = attack(*words, "--out", str(out))
    assert again.returncode == 0 and "DeepWordBug" in again.stdout  # from the summary


def test_a_folder_of_another_attack_is_refused(films: Path, tmp_path: Path, attack: CommandMain) -> None:
    words = [films / "a.pt", *DEEPWORDBUG, "--data", films / "rows.jsonl", *TEXTS, "--examples", "3"]
    out = ["--out", str(tmp_path / "out")]
    assert attack(*words, *out).returncode == 0
    others = [(["--seed", "2"], "settings"), (["--examples", "4"], "file")]
    for more, what in [*others, (["--precision", "bf16"], "precision")]:
        done = attack(*words, *out, *more)
        told = f"has an attack with a different {what}. Pass another --out"
        assert done.returncode == 2 and told in done.stderr
    near = ["--out", str(tmp_path / "near")]
    assert attack(*words, *near, "--precision", "bf16").returncode == 0
    assert "has an attack with a different precision. Pass" in attack(*words, *near).stderr
    first, second = ([line["after"] for line in lines(tmp_path / name)] for name in ("out", "near"))
    assert first != second
    (tmp_path / "out" / "settings.json").unlink()
    done = attack(*words, *out)
    assert done.returncode == 2 and "is from an attack with unknown settings" in done.stderr


@pytest.mark.parametrize(("side", "changes"), [("first", [True, False]), (None, [False, True])])
def test_one_side_of_a_pair(
    side: str | None, changes: list[bool], pairs: Path, tmp_path: Path, attack: CommandMain
) -> None:
    words = [pairs / "a.pt", *DEEPWORDBUG, "--data", pairs / "rows.jsonl", *TEXTS, "--text-pair", "second"]
    done = attack(*words, *([] if side is None else ["--side", side]), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    changed = [[a != b for a, b in zip(r["original"], r["changed"])] for r in lines(tmp_path / "out")]
    assert [any(column) for column in zip(*changed)] == changes


@pytest.mark.parametrize("side", ["question", "choices", "documents"])
def test_questions(side: str, tmp_path: Path, attack: CommandMain) -> None:
    """Only the named texts change; a document that two choices share changes for both."""
    data = write_questions(tmp_path / "data", para=True)
    save(data, tmp_path / "a.pt", "--max-positions", "120", task="arc_retrieval")
    rows = read(data / "valid.jsonl")
    for row in rows:
        choices = row["question"]["choices"]
        choices[1]["para"] = choices[0]["para"] = "w1 w2 w3 w4"
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    words = [str(tmp_path / "a.pt"), *DEEPWORDBUG, "--data", str(file), "--side", side]
    assert attack(*words, "--out", str(tmp_path / "out")).returncode == 0
    mapped = attack(*words, "--label-map", "A=B", "--out", str(tmp_path / "mapped"))
    assert mapped.returncode == 2 and "--label-map" in mapped.stderr and "takes questions" in mapped.stderr
    kinds = set()
    for record in lines(tmp_path / "out"):
        assert record["names"].count("document 1") == 1
        kinds |= {
            name.partition(" ")[0]
            for name, a, b in zip(record["names"], record["original"], record["changed"])
            if a != b
        }
    assert kinds == {side.removesuffix("s")}
    model = load(tmp_path / "a.pt", device="cpu")
    examples = read_examples(AttackedFile(file, side=side), model)
    assert [one.example.gold for one in examples] == ["ABCDEFGH".index(r["answerKey"]) for r in rows]
    texts = examples[0].example.text.originals
    row = examples[0].row(("Q", "D", *texts[2:]))
    assert row.stem == "Q" and [choice.context for choice in row.choices][:2] == ["D", "D"]
    first = Victim(model, examples)([("0", texts)])[0]
    choices = [(c["text"], c.get("para", "")) for c in rows[0]["question"]["choices"]]
    (answer,) = model.predict([(rows[0]["question"]["stem"], choices)])
    assert first.tolist() == pytest.approx(list(answer.probabilities.values()), abs=1e-6)


def test_a_change_that_makes_a_question_too_long(tmp_path: Path, attack: CommandMain) -> None:
    """It leaves the right answer certain; a question that is too long as it is is refused."""
    data = write_questions(tmp_path / "data", choices=(2,))
    save(data, tmp_path / "a.pt", "--max-positions", "12", task="arc_retrieval")
    choices = [{"label": "A", "text": "w3"}, {"label": "B", "text": "w4"}]
    rows = [
        {"id": stem, "question": {"stem": stem, "choices": choices}, "answerKey": "B"}
        for stem in ("w1 " * 9, "w1 " * 10)
    ]
    model = load(tmp_path / "a.pt", device="cpu")
    examples = read_examples(AttackedFile(write_json_lines(tmp_path / "rows.jsonl", rows)), model)
    victim = Victim(model, examples)
    fits, long = (("0", (word + " w1" * 8, "w3", "w4")) for word in ("w2", "[UNK]"))
    (alone,), found = victim([fits]), victim([long, fits, long])
    assert found[0].tolist() == found[2].tolist() == [0, 1]
    assert found[1] == pytest.approx(alone) and victim([long])[0].tolist() == [0, 1]
    with pytest.raises(DataError, match=r"rows.jsonl:2: .* 13 tokens"):
        victim([fits, ("1", examples[1].example.text.originals)])
    out = tmp_path / "out"
    done = attack(tmp_path / "a.pt", *DEEPWORDBUG, "--data", tmp_path / "rows.jsonl", "--out", out)
    assert done.returncode == 2 and not out.exists()  # before the first is attacked


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with a masked-LM head, a table of neighbours, WordNet, nltk's tagger."""
    from nltk.tag.perceptron import PerceptronTagger

    folder = tmp_path_factory.mktemp("resources")
    save_bert(folder / "encoder", head=True)
    texts = " ".join(text.lower() for pair in glue_samples.pairs() for text in pair)
    words = sorted(set(words_of(texts)))
    near = {word: [words[i - 1], words[i - 2], words[i - 3]] for i, word in enumerate(words)}
    (folder / "near.json").write_text(json.dumps(near), encoding="utf-8")
    small_wordnet(folder / "wordnet")
    tagger = PerceptronTagger(load=False)
    tagger.train([[(word, ("NN", "JJ")[i % 2]) for i, word in enumerate(words)]])
    for part, value in zip(("weights", "tagdict", "classes"), tagger.encode_json_obj()):
        (folder / f"averaged_perceptron_tagger_eng.{part}.json").write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("bert-attack --masked-lm R/encoder --similarity-encoder R/encoder --candidates 4",
         ["BERT-Attack-style", "candidates: masked lm; 4 per word", "unknown ([MASK])",
          "0.2 (cosine, against the original", "may change: 40 %"]),
        ("textfooler --neighbours R/near.json --similarity-encoder R/encoder --tagger R --check-short-texts",
         ["TextFooler-style", "candidates: neighbours; 50 per word", "importance: delete",
          "0.840845 (angular, against the current text",
          "15 words around the change, short texts too", "part of speech: compared"]),
        ("textbugger --neighbours R/near.json --queries-per-word 3",
         ["TextBugger-style",
          "candidates: inserted blank, deleted inside, swapped inside, lookalikes, neighbours; 5 per word",
          "sentence similarity: not compared", "queries: 3 per word"]),
        ("pwws --wordnet R/wordnet --stop-words R/near.json",
         ["PWWS", "candidates: wordnet; all per word", "weighted-saliency ([UNK])",
          "stop words: from a file"]),
    ],
)  # fmt: skip
def test_every_attack_and_its_settings(
    options: str, told: list[str], films: Path, resources: Path, tmp_path: Path, attack: CommandMain
) -> None:
    """What was set stands beside the numbers; candidates are asked about."""
    words = [
        str(resources) if word == "R" else word.replace("R/", f"{resources}/") for word in options.split()
    ]
    rows = [*read(films / "rows.jsonl"), *read_answers(films, [{"text": "a good film"}])]
    data = ["--data", write_json_lines(tmp_path / "rows.jsonl", rows), *TEXTS]
    done = attack(films / "a.pt", "--attack", *words, *data, "--cpu", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [text for text in told if text not in done.stdout] == []
    asked = [r["queries"] - 1 - r["words"] for r in lines(tmp_path / "out") if r["status"] != "skipped"]
    assert max(asked) > 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert set(found["made_from"]["resources"]) == {
        word[2:].replace("-", "_") for word in words if word[2:].replace("-", "_") in RESOURCES
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--attack textfooler", "--attack textfooler needs --neighbours"),
        ("--attack deepwordbug --neighbours a.json", "--neighbours: --attack deepwordbug doesn't use it"),
        ("--attack bert-attack --candidates 0", "--candidates 0: a masked LM can propose any word"),
        ("--attack deepwordbug --similarity 0.9", "--similarity: needs --similarity-encoder"),
        ("--attack textfooler --unknown-word x", "--unknown-word: --importance delete doesn't use it"),
        ("--attack deepwordbug --side second", "--side second: not in this file. Pass one of first"),
    ],
)  # fmt: skip
def test_mistakes(words: str, message: str, films: Path, tmp_path: Path, attack: CommandMain) -> None:
    """One line, and nothing that looks like a result."""
    given = [str(films / "a.pt"), "--data", str(films / "rows.jsonl"), *TEXTS, "--cpu"]
    done = attack(*given, "--out", str(tmp_path / "out"), *words.split())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("error: ") and message in done.stderr
    assert not (tmp_path / "out" / "settings.json").exists()


def test_a_damaged_line_is_named(films: Path, tmp_path: Path, attack: CommandMain) -> None:
    out = tmp_path / "out"
    words = [films / "a.pt", *DEEPWORDBUG, "--data", films / "rows.jsonl", *TEXTS, "--out", out]
    assert attack(*words).returncode == 0
    kept = (out / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    (out / "summary.json").unlink()
    (out / "examples.jsonl").unlink()
    (out / "examples.jsonl.part").write_text(kept[0] + "\n" + '{"id": "1"}\n')
    done = attack(*words)
    assert (
        done.returncode == 2
        and "examples.jsonl.part:2: the key 'label' is missing. Delete the folder" in done.stderr
    )


def test_examples_without_a_word_to_change_are_told(
    pairs: Path, tmp_path: Path, attack: CommandMain, caplog: pytest.LogCaptureFixture
) -> None:
    """They can't be fooled, so they raise Aua."""
    rows = [
        {**row, "second": second}
        for row, second in zip(read(pairs / "rows.jsonl"), ("", "?!", "film", "actor"))
    ]
    columns = [*TEXTS, "--text-pair", "second"]
    given = [pairs / "a.pt", *DEEPWORDBUG, *columns, "--out", tmp_path / "out", "--data"]
    assert attack(*given, write_json_lines(tmp_path / "four.jsonl", rows)).returncode == 0
    assert "2 of 4 examples have no word to change" in caplog.text
    done = attack(
        *given[:-2], tmp_path / "none", "--data", write_json_lines(tmp_path / "two.jsonl", rows[:2])
    )
    told = "two.jsonl: no example has a word to change. Pass another --side"
    assert done.returncode == 2 and told in done.stderr


def test_an_attack_that_changes_nothing_keeps_no_limit(
    films: Path, tmp_path: Path, attack: CommandMain, caplog: pytest.LogCaptureFixture
) -> None:
    """As look-alikes of Latin letters where there are none: no answer could change."""
    rows = read(films / "rows.jsonl")
    shared = [films / "a.pt", *TEXTS, "--max-flip-rate", "1"]
    words = [*shared, "--words", "homoglyphs", "--variants", "2"]
    chinese = [{**row, "text": "难看"} for row in rows]
    right = read_answers(films, chinese)
    for name, some in (("none", right[:2]), ("some", [*right[:2], *rows])):
        caplog.clear()
        data = write_json_lines(tmp_path / f"{name}.jsonl", some)
        done = attack(*words, "--data", data, "--out", tmp_path / name)
        if name == "none":
            assert done.returncode == 2 and "homoglyphs changes nothing in these texts" in done.stderr
            (tmp_path / "near.json").write_text('{"nowhere": ["anywhere"]}')
            words_too = ["--attack", "textfooler", "--neighbours", tmp_path / "near.json"]
            done = attack(*shared, *words_too, "--data", data, "--out", tmp_path / "textfooler")
            assert done.returncode == 2 and "textfooler changes nothing in these texts" in done.stderr
        else:
            assert done.returncode == 0 and "homoglyphs changes nothing in " in caplog.text


def read_answers(films: Path, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows, with the model's own answers as labels."""
    answers = load(films / "a.pt", device="cpu").predict([row["text"] for row in rows])
    return [{**row, "label": answer.label} for row, answer in zip(rows, answers)]


def test_another_tokenizer_is_another_attack(films: Path, tmp_path: Path, attack: CommandMain) -> None:
    given = [films / "a.pt", *DEEPWORDBUG, "--data", films / "rows.jsonl", *TEXTS, "--examples", 2]
    given += ["--out", tmp_path / "out"]
    assert attack(*given, "--tokenizer-dir", films / "encoder").returncode == 0
    assert attack(*given, "--tokenizer-dir", films / "encoder").returncode == 0
    for other in ([], ["--tokenizer-dir", tmp_path]):
        done = attack(*given, *other)
        assert done.returncode == 2 and "has an attack with a different resources" in done.stderr


def test_labels_are_mapped_by_what_the_file_says(films: Path, tmp_path: Path, attack: CommandMain) -> None:
    """The command that the message gives is one of a shell."""
    row = {**read(films / "rows.jsonl")[0], "label": "very good"}
    data = write_json_lines(tmp_path / "rows.jsonl", [row])
    given = [films / "a.pt", *DEEPWORDBUG, "--data", data, *TEXTS, "--out", tmp_path / "out"]
    done = attack(*given, "--label-map", "very good=none")
    assert done.returncode == 2 and "label 'none' is not a class of" in done.stderr
    words = shlex.split(done.stderr[done.stderr.index("--label-map") : done.stderr.index(", or leave")])
    assert words[1].startswith("very good=") and attack(*given, *words).returncode == 0
