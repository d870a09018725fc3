"""Runs fairseq's own GLUE recipe, the shell script itself, so that its output can be compared byte for byte.

``examples/roberta/preprocess_GLUE_tasks.sh`` runs unchanged but for two edits: fewer worker processes, and
WNLI, which it leaves out, takes RTE's branch (their files look alike). Its calls of Python are answered by
this process, which has fairseq imported already: the same functions with the same arguments, without 4
seconds of start-up each.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import subprocess
import sys
import threading
from functools import lru_cache
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Iterator

import fairseq
import pytest

_SHIM = """#!/bin/sh
printf '%s\\n' "$(basename "$0")" "$@" > "$RECIPE_REQUEST"
read -r status < "$RECIPE_REPLY"
exit "$status"
"""


def run_recipe(glue_dir: Path, task: str, bpe_files: Path, work: Path) -> Path:
    """Returns the folder that the recipe writes. ``glue_dir`` is copied first: the recipe writes into it.

    ``bpe_files`` holds encoder.json, vocab.bpe and dict.txt.
    """
    script = Path(fairseq.__file__).parent / "examples" / "roberta" / "preprocess_GLUE_tasks.sh"
    if not script.is_file():
        pytest.skip(f"this fairseq comes without {script.name}")
    text = script.read_text(encoding="utf-8").replace("--workers 60", "--workers 1")
    text = text.replace('[ "$TASK" = "RTE" ]', '[ "$TASK" = "RTE" ] || [ "$TASK" = "WNLI" ]')
    assert "--workers 1" in text and "WNLI" in text, "the recipe changed"
    commands = work / "commands"
    commands.mkdir(parents=True)
    for name in ("python", "fairseq-preprocess", "wget"):
        (commands / name).write_text("#!/bin/sh\nexit 0\n" if name == "wget" else _SHIM)
        (commands / name).chmod(0o755)
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        shutil.copy(bpe_files / name, work / name)
    shutil.copytree(glue_dir / task, work / "glue" / task, copy_function=shutil.copyfile)
    (work / "glue" / task).chmod(0o755)
    (work / "recipe.sh").write_text("set -eu\n" + text)
    with contextlib.chdir(work) if sys.version_info >= (3, 11) else _chdir(work):
        _serve(["bash", "recipe.sh", str(work / "glue"), task], commands, work)
    return work / f"{task}-bin"


def written(folder: Path) -> dict[str, bytes]:
    """Path inside the folder -> content, for every file that holds data."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("preprocess.log", "manifest.json")
    }


@contextlib.contextmanager
def _chdir(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _serve(command: list[str], commands: Path, work: Path) -> None:
    """Runs the script and answers its calls until it ends."""
    request, reply = work / "request", work / "reply"
    os.mkfifo(request)
    os.mkfifo(reply)
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "RECIPE_REQUEST": str(request),
        "RECIPE_REPLY": str(reply),
    }
    script = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output: list[str] = []

    def wait() -> None:
        output.append(script.communicate()[0])
        request.write_text("")  # wakes the loop below; an empty request means that the script ended

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    failure: BaseException | None = None
    while True:
        name, *arguments = request.read_text(encoding="utf-8").split("\n")
        if not name:
            break
        try:
            _answer(name, arguments[:-1])
        except Exception as error:
            failure = error
        reply.write_text("1\n" if failure else "0\n")
    waiter.join()
    if failure:
        raise failure
    assert script.returncode == 0, output[0]


def _answer(name: str, arguments: list[str]) -> None:
    if name == "fairseq-preprocess":
        from fairseq import options
        from fairseq_cli import preprocess

        handlers = list(preprocess.logger.handlers)
        preprocess.logger.setLevel(logging.WARNING)
        preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
        preprocess.logger.handlers[:] = handlers
        return
    assert name == "python" and arguments[0] == "-m", (name, arguments)
    module = importlib.import_module("fairseq." + arguments[1])
    before = sys.argv
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Pool", ThreadPool)
        patch.setattr(module, "get_encoder", _encoder)
        sys.argv = ["multiprocessing_bpe_encoder", *arguments[2:]]
        try:
            module.main()
        finally:
            sys.argv = before


def _encoder(encoder_json: str, vocab_bpe: str) -> object:
    # One reading for all calls on the same files: it takes half a second for GPT-2's.
    return _read_encoder(
        Path(encoder_json).read_bytes(), Path(vocab_bpe).read_bytes(), encoder_json, vocab_bpe
    )


@lru_cache(maxsize=2)
def _read_encoder(_json: bytes, _bpe: bytes, encoder_json: str, vocab_bpe: str) -> object:
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    return get_encoder(encoder_json, vocab_bpe)
