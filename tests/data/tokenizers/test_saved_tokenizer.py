"""A tokenizer kept beside data and checkpoints gives the ids of the one that was kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from glue_samples import AWKWARD, small_bpe, small_spiece, small_wordpiece, sst2

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.prepare_glue import prepare
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.tokenizers import saved_tokenizer as saved_tokenizer_module
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer, saved_tokenizer, tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

pytestmark = pytest.mark.fast

KINDS = ["gpt2", "lower case", "cased", "as its config says", "albert"]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> TokenToIds:
    folder = tmp_path / "encoder"
    if request.param == "gpt2":
        return tokenizer_for_encoder(small_bpe(folder))
    if request.param == "albert":
        small_spiece(folder)
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "keep_accents": true}')
        return tokenizer_for_encoder(folder)
    small_wordpiece(folder)
    if request.param == "as its config says":
        config = '{"do_lower_case": false, "strip_accents": true, "tokenize_chinese_chars": false}'
        (folder / "tokenizer_config.json").write_text(config)
    return tokenizer_for_encoder(folder, True if request.param == "cased" else None)


def ids(tokenizer: TokenToIds) -> list[int]:
    found: list[int] = tokenizer.encode([*AWKWARD, "Naïve CAFÉ in ÉCOLE 你好"])[0].tolist()
    return found


def test_the_same_ids_and_options(tokenizer: TokenToIds, tmp_path: Path) -> None:
    out = tmp_path / FOLDER
    out.mkdir()
    save_tokenizer(out, tokenizer)
    kept = tokenizer_for_encoder(out)
    assert ids(kept) == ids(tokenizer) and len(set(ids(kept))) > 20
    assert (kept.kind, kept.options) == (tokenizer.kind, tokenizer.options)


def test_the_options_matter(tmp_path: Path) -> None:
    """What the test above would not see if they did not."""
    folder = small_wordpiece(tmp_path / "encoder")
    assert ids(tokenizer_for_encoder(folder, True)) != ids(tokenizer_for_encoder(folder, None))


def test_it_was_found_elsewhere_in_0_2() -> None:
    with pytest.warns(DeprecationWarning, match=r"load_tokenizer is in .*saved_tokenizer now"):
        from fairseq_adv.data.tokenizers.text_to_ids import load_tokenizer
    assert load_tokenizer is saved_tokenizer_module.load_tokenizer


def test_prepared_data_has_one(tokenizer: TokenToIds, tmp_path: Path) -> None:
    sst2(tmp_path / "SST-2")
    prepare(tmp_path, "SST-2", tmp_path / "out", tokenizer, progress=False)
    found = saved_tokenizer(tmp_path / "run" / "checkpoint_best.pt", str(tmp_path / "out"))
    assert ids(found) == ids(tokenizer)


def test_data_that_were_made_before_tokenizers_were_kept_are_used_as_they_are(tmp_path: Path) -> None:
    tokenizer = tokenizer_for_encoder(small_wordpiece(tmp_path / "encoder"))
    sst2(tmp_path / "SST-2")
    out = tmp_path / "out"
    prepare(tmp_path, "SST-2", out, tokenizer, progress=False)
    manifest = out / "manifest.json"
    kept = [line for line in manifest.read_text().split("\n") if '"tokenizer/' not in line]
    manifest.write_text("\n".join(kept).replace(",\n }", "\n }"))
    for path in (out / FOLDER).iterdir():
        path.unlink()
    (out / FOLDER).rmdir()
    result = prepare(tmp_path, "SST-2", out, tokenizer, progress=False)
    assert result.reused and result.notes == [
        "made before tokenizer/ was stored with the data; --overwrite adds it"
    ]
    prepare(tmp_path, "SST-2", out, tokenizer, progress=False, overwrite=True)
    assert (out / FOLDER / "vocab.txt").is_file()


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    places = {}
    for place in ("named", "run", "data"):
        folder = (
            small_bpe(tmp_path / place) if place == "named" else small_wordpiece(tmp_path / place / FOLDER)
        )
        places[place] = folder / "dict.txt"
    checkpoint, data = tmp_path / "run" / "checkpoint_best.pt", f"{tmp_path}/data:{tmp_path}/other"
    assert saved_tokenizer(checkpoint, data, tmp_path / "named").files["dictionary"] == places["named"]
    assert saved_tokenizer(checkpoint, data).files["dictionary"] == places["run"]
    moved = tmp_path / "moved" / "checkpoint_best.pt"
    assert saved_tokenizer(moved, data).files["dictionary"] == places["data"]
    told = small_bpe(tmp_path / "told")  # by the task
    for known in (None, data):  # rather than one of data that were prepared for another encoder
        assert saved_tokenizer(moved, known, None, str(told)).files["dictionary"] == told / "dict.txt"
    assert saved_tokenizer(moved, str(told)).files["dictionary"] == told / "dict.txt"
    assert saved_tokenizer(told / "model.pt", str(tmp_path)).files["dictionary"] == told / "dict.txt"
    for lost in (str(tmp_path / "other"), None):
        with pytest.raises(DataError, match=r"no tokenizer next to it or its data .*--tokenizer-dir"):
            saved_tokenizer(moved, lost)
