"""transformers answers with an export of a tagging or span_qa model what fairseq answers."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import export_samples
import hf_models
import pytest
import torch
from support import slow
from token_data import span_question, write_squad

from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.predict import Request, predict
from fairseq_adv.evaluation.trained import load
from fairseq_adv.hub.export import export_checkpoint

transformers = pytest.importorskip("transformers", reason="compares with transformers' own models")
KINDS = ["roberta", "deberta-v3", slow("modernbert"), slow("albert")]
SENTENCES = hf_models.SENTENCES
CLOSE = 1e-5


@pytest.fixture(scope="module", params=KINDS)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_samples.encoder(tmp_path_factory.mktemp(request.param), request.param)


def trained(folder: Path, encoder: Path, task: str) -> Path:
    more = ["--window-tokens", "100", "--max-answer-tokens", "30"] if task == "span_qa" else []
    return export_samples.train(
        folder / "run" / "model.pt", encoder, folder, "--tokenizer-dir", str(encoder),
        "--max-positions", "128", *more, task=task,
    )  # fmt: skip


def test_tags_through_the_pipeline(encoder: Path, tmp_path: Path) -> None:
    """The label and the score at each word's first token; the model's names of the tags."""
    rows = [[f"{word}\t{'BI'[k % 2]}-X" for k, word in enumerate(text.split())] for text in SENTENCES]
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text("\n\n".join("\n".join(one) for one in rows), encoding="utf-8")
    checkpoint = trained(tmp_path, encoder, "tagging")
    result = export_checkpoint(checkpoint, tmp_path / "out")
    assert result.model == "AutoModelForTokenClassification" and result.classes == ("O", "B-X", "I-X")
    named = export_checkpoint(checkpoint, tmp_path / "named", labels="no,begin,in")
    assert named.classes == ("no", "begin", "in")
    pipeline = transformers.pipeline("token-classification", model=str(tmp_path / "out"), ignore_labels=[])
    assert list(pipeline.model.config.id2label.values()) == ["O", "B-X", "I-X"]
    ours = load(str(checkpoint), str(tmp_path), ["valid"], cpu=True)
    ours.model.eval()
    seen = set()
    for number, text in enumerate(SENTENCES):
        text, data = " ".join(text.split()), ours.task.dataset("valid")
        sample = data.collater([data[number]])
        with torch.no_grad():
            shares = ours.objective.log_probabilities(ours.objective.predict(ours.model, sample)).exp()
        # The first token that starts there: ALBERT's may be the blank before the word.
        theirs = {one["start"]: one for one in reversed(pipeline(text))}
        starts = [match.start() for match in re.finditer(r"\S+", text)]
        assert len(starts) == len(shares)
        for start, share in zip(starts, shares):
            found = theirs[start] if start in theirs else theirs[start - 1]  # RoBERTa's has the blank
            best = int(share.argmax())
            assert found["entity"] == ours.task.tags[best]
            assert abs(float(found["score"]) - float(share[best])) < CLOSE
            seen.add(round(float(share[best]), 3))
    assert len(seen) > 10  # the words decide


def test_spans_have_the_same_logits_and_answers(encoder: Path, tmp_path: Path) -> None:
    """From the same texts, with the lines of the model card; transformers 5 has no pipeline for it."""
    paragraphs = []
    for k, question in enumerate(["Who read the book?", " What? ", "Is it cold"]):
        context = SENTENCES[3 * k + 1]
        paragraphs.append((context, [span_question(str(k), context, context[:5].strip(), question)]))
    for split in ("train", "valid"):
        write_squad(tmp_path / f"{split}.json", *paragraphs)
    checkpoint = trained(tmp_path, encoder, "span_qa")
    assert export_checkpoint(checkpoint, tmp_path / "out").model == "AutoModelForQuestionAnswering"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out").eval()
    assert tokenizer.model_max_length == 100
    ours = load(str(checkpoint), str(tmp_path), ["valid"], cpu=True)
    ours.model.eval()
    data = ours.task.dataset("valid")
    for window in range(len(data)):
        question, sample = data.question_of(window), data.collater([data[window]])
        context = data.squad.contexts[question.context]
        rows = tokenizer(question.text, context, return_tensors="pt")
        with torch.no_grad():
            found = ours.objective.predict(ours.model, sample)[0]
            theirs = model(**rows)
        logits = torch.stack([theirs.start_logits[0], theirs.end_logits[0]])
        assert logits.shape == found.shape and len(data) == 3
        there = found.isfinite()
        assert float((logits - found)[there].abs().max()) < CLOSE


def test_the_lines_of_the_card_answer(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, with the answer that predict writes."""
    question, context = "Who sang?", "In the 1990s she sang."
    rows = (context, [span_question("0", context, "she", question)])
    for split in ("train", "valid"):
        write_squad(tmp_path / f"{split}.json", rows)
    checkpoint = trained(tmp_path, encoder, "span_qa")
    export_checkpoint(checkpoint, tmp_path / "out")
    lines = re.search(
        r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert lines is not None
    monkeypatch.chdir(tmp_path)
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(lines[1], "README.md", "exec"), {})
    answer = said.getvalue().strip()
    out = tmp_path / "answers"
    predict(Request("squad", out, [checkpoint], (), tmp_path, "valid", running=InferenceConfig(cpu=True)))
    assert answer == json.loads((out / "predictions-valid.json").read_text())["0"] and answer in context
