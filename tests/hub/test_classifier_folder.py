"""A folder of transformers' …ForSequenceClassification is opened like a checkpoint; nothing in it is run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_encoders import KINDS, TEXT, save_encoder
from support import CommandMain, write_json_lines

from fairseq_adv import load
from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import LabelledRows
from fairseq_adv.data.temperature import (
    read_temperature,
    read_thresholds,
    save_temperature,
    save_thresholds,
)
from fairseq_adv.data.tokenizers.hf_tokenizer import check_settings
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.evaluation.attack import attack_checkpoint
from fairseq_adv.evaluation.attack_settings import Attack
from fairseq_adv.hub.classifier_folder import checkpoint_of
from fairseq_adv.models import transformers_models

transformers = pytest.importorskip("transformers")
CLASSES = ["unclear", "attack", "harmless"]  # not in the order of prepared data
LONG = " ".join(TEXT)


def save(folder: Path, kind: str, **changes: Any) -> Any:
    """A random classifier in a folder; returns transformers' model."""
    save_encoder(folder, kind, **changes)
    torch.manual_seed(2)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, id2label=dict(enumerate(CLASSES)), label2id={n: k for k, n in enumerate(CLASSES)}
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_its_answers_are_transformers_own(kind: str, tmp_path: Path) -> None:
    """Also to a text that is cut."""
    folder = tmp_path / "model"
    theirs = save(folder, kind)
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(folder), load(folder, device="cpu")
    for text in (*TEXT[:3], LONG):
        batch = tokenizer(text, truncation=True, max_length=40, return_tensors="pt")
        with torch.no_grad():
            expected = theirs(**batch).logits.softmax(-1)[0].tolist()
        (found,) = ours.predict([text])
        assert list(found.probabilities) == CLASSES
        assert list(found.probabilities.values()) == pytest.approx(expected, abs=2e-6)


def test_several_labels(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    theirs = save(folder, "roberta")
    edit(folder, problem_type="multi_label_classification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, found in zip(TEXT, load(folder, device="cpu").predict(TEXT)):
        with torch.no_grad():
            expected = theirs(**tokenizer(text, return_tensors="pt")).logits.sigmoid()[0].tolist()
        assert list(found.probabilities.values()) == pytest.approx(expected, abs=2e-6)
        held = [name for name, share in zip(CLASSES, expected) if share > 0.5]
        assert found.label == "|".join(held)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize(("first", "second"), [(9, 50), (50, 9), (40, 41), (41, 40), (0, 60), (19, 18)])
def test_of_a_pair_the_longer_text_is_cut(kind: str, first: int, second: int, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(folder, kind)
    (model,) = load(folder, device="cpu")._members
    pair = tuple(" ".join([word] * count) for word, count in zip(("film", "dull"), (first, second)))
    row = model.predictor.examples([pair]).dataset[0]["net_input.src_tokens"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = tokenizer(*pair, truncation=True, max_length=40)["input_ids"]
    own = model.predictor.tokenizer
    table = {number: int(entry) for number, entry in enumerate(own.table[:-1])}
    names = {tokenizer.cls_token_id: 0, tokenizer.sep_token_id: 2}
    assert row.tolist() == [names.get(one, table.get(one)) for one in expected]


@pytest.mark.parametrize("second", [0, 1])
def test_the_segments_of_a_pair_are_the_tokenizers(second: int, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, processors

    folder = tmp_path / "model"
    theirs = save(folder, "bert")
    engine = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[(one, engine.token_to_id(one)) for one in ("[CLS]", "[SEP]")],
    )  # fmt: skip
    engine.save(str(folder / "tokenizer.json"))
    for names in (None, ["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]):
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings.pop("model_input_names", None)
        settings |= {} if names is None else {"model_input_names": names}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        batch = transformers.AutoTokenizer.from_pretrained(folder)("a", "b")
        given = "token_type_ids" in batch  # without them a model takes zeros
        assert checkpoint_of(folder)["cfg"]["model"]["hf_segments"] == (given and second == 1)
    pairs = [(TEXT[2], TEXT[5]), (TEXT[7], TEXT[8])]
    found = load(folder, device="cpu").predict(pairs)  # of different lengths, in one mini-batch
    for pair, answer in zip(pairs, found):
        encoding = engine.encode(*pair)
        assert max(encoding.type_ids) == second
        with torch.no_grad():
            logits = theirs(
                input_ids=torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.type_ids])
            ).logits
        expected = logits.softmax(-1)[0].tolist()
        assert list(answer.probabilities.values()) == pytest.approx(expected, abs=2e-6)


def test_the_second_text_of_a_pair_may_begin_as_the_first(tmp_path: Path) -> None:
    """As with Gemma's and Llama's tokenizers, with add_bos_token and add_eos_token."""
    from tokenizers import Tokenizer, processors

    folder = tmp_path / "model"
    save(folder, "roberta")
    engine = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [(one, engine.token_to_id(one)) for one in ("<s>", "</s>")]
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> <s> $B </s>", special_tokens=ids
    )
    engine.save(str(folder / "tokenizer.json"))
    (model,) = load(folder, device="cpu")._members
    row = model.predictor.examples([(TEXT[2], TEXT[5])]).dataset[0]["net_input.src_tokens"].tolist()
    inner = [one for one in row if one in (0, 2)]
    assert inner == [0, 2, 0, 2] and row[0] == 0 and row[-1] == 2
    assert len(row) == len(engine.encode(TEXT[2], TEXT[5]).ids)


def test_settings_that_a_class_has_for_good(tmp_path: Path) -> None:
    """HerBERT's, whose text isn't lower-cased whatever the files leave out."""
    normalizer = {"type": "BertNormalizer", "lowercase": False, "strip_accents": False}
    steps = [{**normalizer, "clean_text": True, "handle_chinese_chars": True}, {"type": "BertPreTokenizer"}]
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"tokenizer_class": "HerbertTokenizer"}')
    check_settings(tmp_path, steps)
    path.write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(DataError, match="do_lower_case is True by default"):
        check_settings(tmp_path, steps)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"truncation_side": "left"}, "truncation_side is not right"),
        ({"tokenizer_class": "RoFormerTokenizer"}, "made with Jieba"),
    ],
)
def test_tokenizers_that_do_what_is_not_done_here(
    settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save(folder, "bert")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(DataError, match=message):
        checkpoint_of(folder)


@pytest.fixture
def attack(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("attack", capsys)


def test_attacks_on_its_words_and_embeddings(tmp_path: Path, attack: CommandMain) -> None:
    """The classes go by name; the clean numbers are transformers' own, also for a text that is cut."""
    folder = tmp_path / "model"
    theirs = save(folder, "bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*TEXT, LONG]
    rows = [{"text": text, "label": CLASSES[k % 3].title()} for k, text in enumerate(texts)]
    data = write_json_lines(tmp_path / "rows.jsonl", rows)
    with torch.no_grad():
        batches = [tokenizer(text, truncation=True, max_length=40, return_tensors="pt") for text in texts]
        logits = torch.cat([theirs(**batch).logits for batch in batches])
    gold = torch.arange(len(texts)) % 3
    right = float((logits.argmax(1) == gold).float().mean())
    words = ["--data", data, "--text", "text", "--label", "label", "--cpu", "--json", "--out"]
    for how in (["--words", "spaced"], ["--attack", "deepwordbug"]):
        done = attack(folder, *how, *words, tmp_path / how[1])
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        found = found["attacks"]["spaced"] if "attacks" in found else found
        assert found["clean"] == pytest.approx(100 * right)
        assert {*found["made_from"]["checkpoint"]} >= {"config.json", "model.safetensors", "tokenizer.json"}
    labels = [row["label"] for row in rows]
    where = [f"rows:{k}" for k in range(len(rows))]
    splits = [LabelledRows(split, (texts,), labels, where) for split in ("train", "valid")]
    config = PrepareConfig(tokenizer_for_encoder(folder), progress=False, allow_odd_labels=True)
    prepare_classification(splits, tmp_path / "data", config)
    found = attack_checkpoint(
        str(folder), Attack(0.5, 0.2, 3, relative=True), str(tmp_path / "data"), cpu=True
    )
    loss = torch.nn.functional.cross_entropy(logits, gold)
    assert found["loss"] == pytest.approx(float(loss), abs=1e-5) and found["accuracy"] == pytest.approx(
        100 * right
    )
    assert found["perturbed_loss"] > found["loss"] + 0.01
    done = attack(folder, "--epsilon", "0.1", "--relative", "--cpu")
    assert (
        done.returncode == 2 and f"Prepare it with --encoder {folder}, and pass it as --data" in done.stderr
    )


@pytest.mark.parametrize("several", [False, True])
def test_a_prepared_split_is_read_and_calibrates(
    several: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its answers are those to the texts, of which some are cut; the temperature, or thresholds, are stored
    beside the folder and used until its weights change."""
    folder, texts = tmp_path / "model", [*TEXT, LONG]
    save(folder, "roberta")
    if several:
        edit(folder, problem_type="multi_label_classification")
    rows = [{"text": text, "label": CLASSES[k % 3]} for k, text in enumerate(texts * 2)]
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    words = [file, "--valid", file, "--text", "text", "--label", "label", "--encoder", folder]
    words += ["--label-separator", ";"] * several
    done = CommandMain("prepare classification", capsys)(*words, tmp_path / "data", "--allow-odd-labels")
    assert done.returncode == 0, done.stderr

    def answers(name: str, *words: object) -> list[dict[str, float]]:
        done = CommandMain("predict", capsys)(folder, "--cpu", "--out", tmp_path / name, "--json", *words)
        assert done.returncode == 0, done.stderr
        lines = Path(json.loads(done.stdout)["file"]).read_text().splitlines()
        names = lines[0].split("\t")[2:]
        return [dict(zip(names, map(float, line.split("\t")[2:]))) for line in lines[1:]]

    of_split = answers("a", "--data", tmp_path / "data", "--split", "valid")
    of_texts = answers("b", "--input", file, "--text", "text")
    for one, other in zip(of_split, of_texts, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    words = ["--data", tmp_path / "data", "--split", "valid", "--cpu", "--calibrate"]
    done = CommandMain("validate", capsys)(folder, *words)
    stored = tmp_path / f"model.{'thresholds' if several else 'temperature'}.json"
    assert done.returncode == 0 and f"wrote {stored}, which" in done.stdout, done.stderr
    model = load(folder, device="cpu")
    before = model.predict(texts)
    if several:
        save_thresholds(folder, dict.fromkeys(CLASSES, 1e-6), {})
        assert {one.label for one in load(folder, device="cpu").predict(texts)} == {"|".join(sorted(CLASSES))}
    else:
        save_temperature(folder, 20.0, {})
        flat = load(folder, device="cpu").predict(texts)
        assert all(max(one.probabilities.values()) < 0.4 for one in flat)
    (folder / "README.md").write_text("Not of the model.")
    assert read_temperature(folder) == (1 if several else 20) and len(read_thresholds(folder)) == 3 * several
    edit(folder, initializer_range=0.5)  # no longer the folder that it was fitted for
    assert load(folder, device="cpu").predict(texts) != before or several
    assert read_temperature(folder) == 1 and read_thresholds(folder) == {}
    assert read_temperature(Path(".")) == 1


def test_the_temperature_of_an_export_is_used(tmp_path: Path) -> None:
    """But doesn't go into a run that starts from the folder, and so into its export."""
    folder = tmp_path / "model"
    save(folder, "bert")
    plain = load(folder, device="cpu").predict(TEXT)
    edit(folder, fairseq_adv_temperature=2.0)
    for one, other in zip(plain, load(folder, device="cpu").predict(TEXT)):
        logits = torch.tensor(list(one.probabilities.values())).log()
        expected = (logits / 2).softmax(0).tolist()
        assert list(other.probabilities.values()) == pytest.approx(expected, abs=1e-6)
    assert "fairseq_adv" not in transformers_models.read(folder)[0]
    edit(folder, fairseq_adv_temperature="2")
    with pytest.raises(DataError, match=r"config.json: fairseq_adv_temperature is not a number from 0.05 to"):
        load(folder, device="cpu")


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def lacking(folder: Path, *names: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if name not in names}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


NAMES = {str(k): name for k, name in enumerate(CLASSES)}
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "another head": (
        lambda folder: edit(folder, architectures=["BertForMaskedLM"]),
        "the folder of a BertForMaskedLM, which has no trained head for classes of texts",
    ),
    "a head that is not there": (lambda folder: lacking(folder, "classifier.bias"), "lack classifier.bias"),
    "half a pooler": (lambda folder: lacking(folder, "bert.pooler.dense.weight"), "lack bert.pooler.dense"),
    "too few names": (
        lambda folder: edit(folder, id2label={"0": "a", "1": "b"}),
        "the weights of the head are not those of 2 classes",
    ),
    "numbers": (lambda folder: edit(folder, problem_type="regression"), "the model predicts numbers"),
    "one output": (lambda folder: edit(folder, id2label={"0": "a"}), "the model predicts numbers"),
    "a name twice": (lambda folder: edit(folder, id2label={**NAMES, "2": "attack"}), "has a class twice"),
    "a name that is read elsewhere": (
        lambda folder: edit(folder, id2label={**NAMES, "2": "${env:HOME}"}),
        "fairseq can't store the class name '${env:HOME}'",
    ),
    "a label that is two": (
        lambda folder: edit(
            folder, id2label={**NAMES, "2": "a|b"}, problem_type="multi_label_classification"
        ),
        "'a|b' can't be the name of a label. Rename it",
    ),
    "other classes than the data": (
        lambda folder: edit(folder, id2label={"0": "a", "1": "b", "2": "c"}),
        "label 'attack' is not a class of the model (a, b, c). Map it with --label-map attack=a",
    ),
    "classes without names": (
        lambda folder: edit(folder, id2label={str(k): f"LABEL_{k}" for k in range(3)}),
        "Map it with --label-map attack=LABEL_0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path, attack: CommandMain) -> None:
    folder, (change, told) = tmp_path / "model", REFUSED[name]
    save(folder, "bert")
    change(folder)
    data = write_json_lines(tmp_path / "rows.jsonl", [{"text": TEXT[0], "label": "attack"}])
    words = ["--words", "spaced", "--data", data, "--text", "text", "--label", "label", "--cpu"]
    done = attack(folder, *words, "--out", tmp_path / "out")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and told in errors[0], done.stderr
    assert not (tmp_path / "out" / "spaced").exists()


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("vehicle", ["code beside the weights", "a pickle as weights"])
def test_nothing_in_it_is_run(vehicle: str, tmp_path: Path) -> None:
    folder, marker = tmp_path / "model", tmp_path / "was-run"
    save(folder, "bert")
    expected = load(folder, device="cpu").predict([TEXT[0]])
    if vehicle.startswith("a pickle"):
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"classifier.bias": Payload(marker)}))
        with pytest.raises(DataError, match="safetensors"):
            load(folder, device="cpu")
    else:
        (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\n")
        auto = {f"Auto{kind}": "own.Own" for kind in ("Config", "Model", "ModelForSequenceClassification")}
        edit(folder, auto_map=auto, trust_remote_code=True, _attn_implementation="own/kernel")
        names = json.loads((folder / "tokenizer_config.json").read_text())
        names["auto_map"] = {"AutoTokenizer": ["own.Own", "own.Own"]}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
        found = load(folder, device="cpu").predict([TEXT[0]])
        assert found == expected
    assert not marker.exists()
