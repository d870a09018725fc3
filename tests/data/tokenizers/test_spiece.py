"""ALBERT's tokenizer: equal to transformers', with control tokens as text, and refused where it is none."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import hf_models
import pytest
from fairseq.data import encoders
from glue_samples import AWKWARD, small_spiece
from support import slow

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.registered_bpe import AlbertBPE
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.spiece import (
    MODEL,
    AlbertTokenizer,
    load_spiece,
    spiece_engine,
    spiece_settings,
)

pytestmark = pytest.mark.fast

# Of ALBERT's own vocabulary, each a piece of its own.
USER_DEFINED = ["(", ")", '"', "-", ".", "–", "£", "€"]
ROWS = [
    *AWKWARD, *hf_models.SENTENCES, "``Quoted'' (and so on) – it cost €9,000 or £1.50.",
    "ÉCOLE Ünïcödé ﬁne ½ ①",
    "Ωμέγα ΑΒΓ ﷺ", "9, 10,000,", "a▁b ▁ c", "Ǆ ß ŉ İ ı",
]  # fmt: skip
SETTINGS = [{"do_lower_case": low, "keep_accents": keep} for low in (True, False) for keep in (True, False)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_spiece(tmp_path_factory.mktemp("albert"))


def transformers_5() -> Any:
    reason = "transformers 4 has SentencePiece's own tokenizer, which also splits at control characters"
    return pytest.importorskip("transformers", minversion="5", reason=reason)


def theirs(folder: Path, **settings: Any) -> Any:
    return transformers_5().AlbertTokenizer.from_pretrained(folder, **settings)


def equal_rows(engine: Any, reference: Any, rows: list[str]) -> int:
    """Asserts that the ids are the same; returns the number of tokens."""
    count = 0
    for row, encoding in zip(rows, engine.encode_batch(rows, add_special_tokens=False)):
        expected = reference(row, add_special_tokens=False)["input_ids"]
        assert encoding.ids == expected, (row, encoding.tokens, reference.convert_ids_to_tokens(expected))
        count += len(expected)
    return count


def without_control_tokens(rows: list[str]) -> list[str]:
    """transformers takes their names in a text for the tokens."""
    return [row for row in rows if not any(name in row for name in ("[CLS]", "<unk>"))]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equal_to_transformers(folder: Path, settings: dict[str, bool]) -> None:
    rows = without_control_tokens(ROWS)
    assert len(rows) == len(ROWS) - 2
    assert equal_rows(spiece_engine(folder / MODEL, settings), theirs(folder, **settings), rows) > 700


def test_the_settings_matter(folder: Path) -> None:
    """What the test above would not see if they did not."""
    tokens = {tuple(spiece_engine(folder / MODEL, one).encode("É é E e").tokens) for one in SETTINGS}
    assert len(tokens) == 4


def test_equal_to_transformers_with_albert_s_symbols(tmp_path: Path) -> None:
    """Built from pieces and scores, as transformers builds it from the tokenizer.json that ALBERT comes with.
    From a spiece.model alone, version 5 takes such symbols out of the text before all else.
    """
    transformers = transformers_5()
    small_spiece(tmp_path, user_defined_symbols=USER_DEFINED)
    loaded = load_spiece(tmp_path / MODEL)
    pieces = [(loaded.id_to_piece(n), loaded.get_score(n)) for n in range(loaded.get_piece_size())]
    reference = transformers.AlbertTokenizer(vocab=pieces)
    reference.backend_tokenizer.normalizer = theirs(tmp_path).backend_tokenizer.normalizer
    engine = spiece_engine(tmp_path / MODEL, spiece_settings(tmp_path))
    assert "(" in engine.encode("word(s)").tokens
    assert equal_rows(engine, reference, without_control_tokens(ROWS)) > 700


def test_a_model_that_makes_no_characters_one(tmp_path: Path) -> None:
    small_spiece(tmp_path, normalization_rule_name="identity")
    engine = spiece_engine(tmp_path / MODEL, spiece_settings(tmp_path))
    assert equal_rows(engine, theirs(tmp_path), without_control_tokens(ROWS)) > 700


@pytest.mark.parametrize(
    "name",
    [slow("sentence/ag_news_5000.csv"), "sentence/subj.all", slow("science_text/sentences.txt")],
)
def test_equal_to_transformers_on_real_sentences(name: str, shared_data: Path, tmp_path: Path) -> None:
    """A vocabulary of 2000 pieces learned from other lines than those compared."""
    lines = (shared_data / name).read_text(encoding="utf-8", errors="replace").split("\n")
    lines = [line for line in lines if line.strip()]
    learned, compared = lines[1::2][:4000], without_control_tokens(lines[::2][:2000])
    small_spiece(tmp_path, learned, words=2000)
    engine = spiece_engine(tmp_path / MODEL, spiece_settings(tmp_path))
    assert equal_rows(engine, theirs(tmp_path), compared) > 20_000


def test_control_tokens_in_a_text_are_text(folder: Path) -> None:
    """Their ids come from no text, whatever the case; what stands around the names stays as it is."""
    for settings in SETTINGS:
        engine = spiece_engine(folder / MODEL, settings)
        found = engine.encode("a [CLS] x[SEP]y <pad> [MASK]. <unk> <PAD>", add_special_tokens=False)
        assert not {0, 2, 3, 4} & set(found.ids)
        assert "".join(found.tokens).count("▁") == 7


def test_ids_are_those_of_the_dictionary(folder: Path) -> None:
    tokenizer = tokenizer_for_encoder(folder)
    assert isinstance(tokenizer, AlbertTokenizer) and tokenizer.kind == "albert"
    engine = spiece_engine(folder / MODEL, spiece_settings(folder))
    ids, lengths = tokenizer.encode([*ROWS, "\u0e01\u0e02"])
    expected = []
    for row in [*ROWS, "\u0e01\u0e02"]:
        tokens = engine.encode(row.strip(), add_special_tokens=False).tokens
        names = [engine.id_to_token(engine.token_to_id(token) or 1) for token in tokens]
        expected.append([tokenizer.dictionary.index(name) for name in names] + [2])
    assert ids.tolist() == [i for row in expected for i in row]
    assert lengths.tolist() == [len(row) for row in expected]
    assert tokenizer.dictionary.unk() in ids.tolist() and not {0, 1} & set(ids.tolist())


def test_a_word_has_the_same_tokens_wherever_it_stands(folder: Path) -> None:
    """What ``splits_at_spaces`` promises to fairseq-adv corpus."""
    tokenizer = tokenizer_for_encoder(folder)
    words = [word for row in ROWS for word in row.split()]
    whole = tokenizer.encode([" ".join(words)])[0][:-1].tolist()
    parts = [i for word in words for i in tokenizer.encode([word])[0][:-1].tolist()]
    assert whole == parts


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    settings, model = spiece_settings(tmp_path), tmp_path / MODEL
    with pytest.raises(DataError, match=r"spiece.model: no such file"):
        spiece_engine(model, settings)
    for content in (b"", b"no model", (folder / MODEL).read_bytes()[:-3000], b"\n\x04\n\x02ab\xff\xff"):
        model.write_bytes(content)
        with pytest.raises(DataError, match=r"spiece.model: .*Download it again"):
            spiece_engine(model, settings)
    small_spiece(tmp_path, words=200, model_type="bpe")
    with pytest.raises(DataError, match=r"spiece.model: not a unigram model"):
        spiece_engine(model, settings)
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": "no"}')
    with pytest.raises(
        DataError, match=r"tokenizer_config.json: keep_accents must be true or false, not 'no'"
    ):
        tokenizer_for_encoder(tmp_path)
    with pytest.raises(DataError, match=r"--cased is for WordPiece.*Leave --cased out"):
        tokenizer_for_encoder(folder, cased=True)


def test_the_bpe_can_be_built_as_fairseq_does(folder: Path) -> None:
    bpe: Any = encoders.build_bpe(Namespace(bpe="albert", bpe_albert_model=str(folder / MODEL)))
    assert isinstance(bpe, AlbertBPE)
    text = "The committee, which had met twice before, agreed."
    pieces = bpe.encode(text)
    assert " " in pieces and bpe.decode(pieces) == text.lower()
    assert [bpe.is_beginning_of_word(piece) for piece in ("▁the", "s", "<mask>")] == [True, False, False]
    with pytest.raises(DataError, match="needs --bpe-albert-model"):
        encoders.build_bpe(Namespace(bpe="albert"))
