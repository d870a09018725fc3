"""Taggers and stop words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from plain_victims import BagOfWords

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.attack_settings import ATTACKS
from fairseq_adv.evaluation.word_attacks.resources import Resources, build, check

nltk = pytest.importorskip("nltk")
TAGGER = "averaged_perceptron_tagger_eng"
# With a tag of each universal one; "run" is noun and verb.
SENTENCES = [
    [tuple(word.rsplit("/", 1)) for word in sentence.split()]
    for sentence in (
        "the/DT dogs/NNS run/VBP to/TO them/PRP ./.",
        "a/DT run/NN in/IN Rome/NNP was/VBD very/RB long/JJ",
        "where/WRB could/MD his/PRP$ two/CD cats/NNS and/CC oh/UH",
        "there/EX is/VBZ whose/WP$ up/RP 's/POS better/JJR which/WDT",
    )
]
UNIVERSAL = [
    ["DET", "NOUN", "VERB", "PRT", "PRON", "."],
    ["DET", "NOUN", "ADP", "NOUN", "VERB", "ADV", "ADJ"],
    ["ADV", "VERB", "PRON", "NUM", "NOUN", "CONJ", "X"],
    ["DET", "VERB", "PRON", "PRT", "PRT", "ADJ", "DET"],
]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a tagger that nltk has trained."""
    from nltk.tag.perceptron import PerceptronTagger

    trained = PerceptronTagger(load=False)
    trained.train(SENTENCES * 5, nr_iter=20)
    folder = tmp_path_factory.mktemp("tagger")
    for part, value in zip(("weights", "tagdict", "classes"), trained.encode_json_obj()):
        (folder / f"{TAGGER}.{part}.json").write_text(json.dumps(value))
    assert [trained.tag([word for word, _ in sentence]) for sentence in SENTENCES] == SENTENCES
    return folder


def test_nltks_tags_become_universal(tagger: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text("{}")
    resources = Resources(neighbours=table, tagger=tagger)
    parts = build(ATTACKS["textfooler"], resources, BagOfWords(), torch.device("cpu"))
    assert parts.tagger is not None
    assert [parts.tagger([word for word, _ in sentence]) for sentence in SENTENCES] == UNIVERSAL
    assert {"the", "yourselves", "couldn't"} <= parts.stop_words and len(parts.stop_words) == 266


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("weights", None, "tagger: not the folder of nltk's .*weights.json.*Download it again"),
        ("weights", '{"bias": {"NN": "x"}}', "tagger: not the folder of nltk's"),
        ("classes", "[]", "tagger: not the folder of nltk's"),
    ],
)
def test_another_folder_is_no_tagger(
    part: str, content: str | None, message: str, tagger: Path, tmp_path: Path
) -> None:
    table, folder = tmp_path / "table.json", tmp_path / "tagger"
    table.write_text("{}")
    shutil.copytree(tagger, folder)
    (folder / f"{TAGGER}.{part}.json").unlink()
    if content is not None:
        (folder / f"{TAGGER}.{part}.json").write_text(content)
    resources = Resources(neighbours=table, tagger=folder)
    with pytest.raises(DataError, match=message):
        build(ATTACKS["textfooler"], resources, BagOfWords(), torch.device("cpu"))


def test_stop_words_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stop.txt"
    path.write_text("un\ndeux\n", encoding="utf-8")
    resources = Resources(stop_words=path)
    check(ATTACKS["deepwordbug"], resources)
    parts = build(ATTACKS["deepwordbug"], resources, BagOfWords(), torch.device("cpu"))
    assert parts.stop_words == {"un", "deux"}
