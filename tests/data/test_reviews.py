"""Labelled sentences from vaderSentiment's source package: the real ones, and archives that are bad."""

from __future__ import annotations

import csv
import hashlib
import tarfile
import zlib
from pathlib import Path

import pytest
from fake_index import MOVIES, expect, source_package, tar_gz

from fairseq_adv.data import reviews
from fairseq_adv.data.errors import DataError

SPLITS = ("train", "valid", "test")
INNER = "additional_resources/hutto_ICWSM_2014.tar.gz"


def rows_of(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]


def test_the_real_sentences(reviews_folder: Path) -> None:
    files = {path.stem: rows_of(path) for path in reviews_folder.glob("*.csv")}
    assert {name: len(rows) for name, rows in files.items()} == {
        "train": 4528, "valid": 1053, "test": 4489, "products": 2977, "tweets": 3372,
    }  # fmt: skip
    movies = [row for name in SPLITS for row in files[name]]
    assert len({text.lower() for text, _ in movies}) == len(movies) == 10070
    everything = [row for rows in files.values() for row in rows]
    assert {label for _, label in everything} == {"negative", "positive"}
    assert ("Effective but too tepid biopic", "negative") in movies
    assert any("Y Tu Mamá También" in text for text, _ in movies)
    for text, _ in everything:
        assert text == " ".join(text.split()) and "&amp;" not in text and "\ufffd" not in text
        text.encode("cp1252")  # UTF-8 that was read as something else would not be of these characters
        assert not set(text) & set("ÃÂ�")
    assert (reviews_folder / "LICENSE.txt").read_text().startswith("The MIT License")
    assert not reviews.fetch_reviews(reviews_folder, Path("/gone"))


def unpack(tmp_path: Path, content: bytes) -> dict[str, list[tuple[str, str]]]:
    (tmp_path / "a.tar.gz").write_bytes(content)
    (tmp_path / "out").mkdir()
    reviews.unpack_reviews(tmp_path / "a.tar.gz", tmp_path / "out")
    return {path.stem: rows_of(path) for path in (tmp_path / "out").glob("*.csv")}


def test_labels_and_doubles(tmp_path: Path) -> None:
    found = unpack(tmp_path, source_package())
    movies = [row for name in SPLITS for row in found[name]]
    assert sorted(movies) == [
        ("A fine film & more", "positive"), ("Dull.", "negative"), ("Moving!", "positive"),
    ]  # fmt: skip
    # The first of two that differ in case; none of two that contradict each other.
    assert sorted(found["products"]) == [("It broke.", "negative"), ("it works", "positive")]
    assert found["tweets"] == [("Yay <3 café", "positive")]


def test_the_split_and_the_order_are_the_hash_s(tmp_path: Path) -> None:
    texts = [f"film {number}" for number in range(500)]
    data = "\n".join(f"1\t1\t{text}" for text in texts)
    inner = {f"hutto_ICWSM_2014/{name}_GroundTruth.txt": data.encode() for name in reviews._SOURCES.values()}
    found = unpack(tmp_path, source_package(inner=tar_gz(dict(inner))))
    hashes = {text: hashlib.sha256(text.encode()).hexdigest() for text in texts}
    assert [text for text, _ in found["tweets"]] == sorted(texts, key=hashes.__getitem__)
    for name, parts in (("valid", range(2)), ("test", range(2, 11)), ("train", range(11, 20))):
        assert [text for text, _ in found[name]] == [
            text for text in sorted(texts, key=hashes.__getitem__) if int(hashes[text], 16) % 20 in parts
        ]


def link(name: str, target: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, target
    return made


def huge() -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(bytes(1 << 25)) + packer.flush()


MOVIE_FILE = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
BAD = {
    "no archive": (b"<html>sign in</html>", "not a complete archive"),
    "another package": (tar_gz({"x": b"x"}), "not a complete archive: .*filename .* not found"),
    "a bomb": (huge(), "unpacks to more than 20000000 bytes"),
    "a bomb inside": (source_package(inner=huge()), f"{INNER}: unpacks to more than 20000000 bytes"),
    "a link": (
        source_package(inner=tar_gz({MOVIE_FILE: link(MOVIE_FILE, "/etc/passwd")})),
        "movieReviewSnippets_GroundTruth.txt in it is not a plain file",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_archives(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        unpack(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MOVIES.encode() + b"\r\n5\t1", "GroundTruth.txt:5: not an id, a rating and a text"),
        (MOVIES.encode() + b"\r\n5\t1\tcaf\xe9", "GroundTruth.txt:5: not UTF-8"),
    ],
)
def test_bad_lines(tmp_path: Path, text: bytes, message: str) -> None:
    files = {f"hutto_ICWSM_2014/{name}_GroundTruth.txt": text for name in reviews._SOURCES.values()}
    with pytest.raises(DataError, match=message):
        unpack(tmp_path, source_package(inner=tar_gz(dict(files))))


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = source_package()
    expect(monkeypatch, reviews, "ARCHIVE", content)
    out, copy = tmp_path / "deep" / "out", tmp_path / "copy"
    copy.write_bytes(content)
    with pytest.raises(DataError, match=r"copy: not what was expected: LICENSE.txt has SHA-256 .*Nothing"):
        reviews.fetch_reviews(out, copy)
    assert not list(out.parent.iterdir())
    monkeypatch.setattr(reviews, "SHA256", {"LICENSE.txt": hashlib.sha256(b"The MIT License").hexdigest()})
    assert reviews.fetch_reviews(out, copy) and not reviews.fetch_reviews(out, Path("/gone"))
    (out / "LICENSE.txt").write_text("changed")
    with pytest.raises(DataError, match="out: exists but is not the complete folder made from vaderSent"):
        reviews.fetch_reviews(out, copy)
    with pytest.raises(DataError, match="copy: exists but is not"):
        reviews.fetch_reviews(copy, copy)
