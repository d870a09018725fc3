"""Names of files and folders, in archives and checkpoints of others, that reach out of their folder."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from fairseq import file_utils
from fairseq.data import Dictionary, data_utils
from fairseq.models.roberta import RobertaModel


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            content = b"x" * 4
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


OUTSIDE = {
    "parent": lambda out: [
        tarfile.TarInfo("model/ok"),
        tarfile.TarInfo(f"model/../../../../../../../../..{out}"),
    ],
    "absolute": lambda out: [tarfile.TarInfo("model/ok"), tarfile.TarInfo(str(out))],
    # fairseq moves the common prefix of the names out of a temporary folder.
    "all absolute": lambda out: [tarfile.TarInfo(f"{out.parent}/home/{name}") for name in ("key", "ok")],
    "prefix of two names": lambda out: [tarfile.TarInfo("..a"), tarfile.TarInfo("..b")],
    "symbolic link": lambda out: [
        link("model", str(out.parent), tarfile.SYMTYPE),
        tarfile.TarInfo("model/canary"),
    ],
    "hard link": lambda out: [link("model/x", f"../../..{out.parent / 'secret'}", tarfile.LNKTYPE)],
    "device": lambda out: [link("model/null", "", tarfile.CHRTYPE)],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_archive_stays_in_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in ("secret", "home/key", "tmp/of another program"):
        (tmp_path / one).parent.mkdir(exist_ok=True)
        (tmp_path / one).write_text("secret")
    bad = archive(tmp_path / "model.tar.gz", *OUTSIDE[name](tmp_path / "canary"))
    monkeypatch.setattr(
        file_utils.tempfile, "mkdtemp", lambda: os.mkdir(tmp_path / "tmp/t") or str(tmp_path / "tmp/t")
    )
    with pytest.raises(tarfile.TarError, match="lies outside, or is a link"):
        RobertaModel.from_pretrained(str(bad), "model.pt", bpe=None)
    assert not (tmp_path / "canary").exists() and (tmp_path / "secret").stat().st_nlink == 1
    assert (tmp_path / "home/key").exists() and (tmp_path / "tmp/of another program").exists()


def test_an_honest_archive_is_unpacked(tmp_path: Path) -> None:
    made = archive(tmp_path / "model.tar.gz", tarfile.TarInfo("model/a"), tarfile.TarInfo("model/b/c"))
    folder = Path(file_utils.load_archive_file(str(made)))
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["a", "c"]


def test_a_data_folder_is_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = Dictionary()
    for name in ("$(touch canary)", "plain"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.fasta").write_text(">a\nACGT\n")
    with pytest.raises(ValueError, match=r"fairseq passes this path to a shell\. Use only letters"):
        data_utils.load_indexed_dataset(str(tmp_path / "$(touch canary)" / "train"), words)
    assert not (tmp_path / "canary").exists()
    assert len(data_utils.load_indexed_dataset(str(tmp_path / "plain" / "train"), words)) == 1
