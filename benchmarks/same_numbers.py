"""Runs the same work with two checkouts and compares hashes of what comes out: weights, and the verbs' files.

  .venv/bin/python benchmarks/same_numbers.py OLD NEW OUT --jobs 2 --workers

For every method and objective of tests/gpu/updates.py a tiny random model makes two updates in fp32: plainly,
with --update-freq 2, and with --workers on two processes too. Then the verbs run on files of ../shared/data.
The hashes of OLD stay in OUT and are used again.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
BPE = " --encoder-json D/gpt2_bpe/encoder.json --vocab-bpe D/gpt2_bpe/vocab.bpe --srcdict D/gpt2_bpe/dict.txt"
TINY = """ --arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32
    --encoder-attention-heads 2 --max-update 3 --batch-size 4 --max-positions 514 --precision fp32 --cpu"""
ROWS = " --text text --label label --encoding latin-1"
VERBS = {  # in this order: later ones read what earlier ones wrote. The text before "." is the verb
    "prepare classification.": "D/sentence/TREC.train.all rt" + ROWS + BPE,
    "prepare glue.": "D/glue RTE glue" + BPE,
    "prepare nli.": "nli-files nli" + BPE,
    "prepare choices.": "train=D/multiple_choice/hellaswag_1000.jsonl choices",
    "prepare wsc.": "D/wsc wsc --candidates spans",
    "prepare qnli-ranking.": "D/glue/QNLI qnli",
    "corpus.": "D/text/train.txt corpus --shards 2 --valid D/text/valid.txt" + BPE,
    "train.": "rt --save-dir run" + TINY,
    "train.dry": "qnli --dry-run --tokenizer-dir D/gpt2_bpe" + TINY,
    "validate.": "run/checkpoint_last.pt --cpu",
    "predict.folder": "run/checkpoint_last.pt --data rt --split valid --out answers --cpu",
    "predict.file": "run/checkpoint_last.pt --input D/sentence/TREC.test.all --text text --cpu "
    "--encoding latin-1",
    "export.": "run/checkpoint_last.pt hf",
    "attack.embeddings": "run/checkpoint_last.pt --epsilon 0.1 --batches 2 --steps 3 --cpu --json",
    "attack.words": "run/checkpoint_last.pt --attack deepwordbug --examples 8 --out words --cpu "
    "--data D/sentence/TREC.test.all" + ROWS,
}  # fmt: skip
CHANGING = re.compile(  # a checkpoint's file has times, too, and so another hash
    r"[\d.]+ (MB/s|MB|s)\b|0\.\d+\.\d+|\b[0-9a-f]{64}\b|\"\w*(wall|seconds|time)\w*\": [\d.]+"
)


def training_cases(out, two_workers):
    """Name, words of ``fairseq-train`` and number of processes."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]
    from support import train_args
    from updates import OBJECTIVES, UPDATES

    gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    ways = {"plain": ([], 1), "update-freq 2": (["--update-freq", "2"], 1), "two workers": (gloo, 2)}
    for objective, kind in OBJECTIVES.items():
        data = out / "data" / objective
        if not data.is_dir():
            kind.write(data)
        for method, (criterion, options, _) in UPDATES.items():
            flooded = ["--flood-level", "5"] if "0.5" in options and "--flood-level" in options else []
            for way, (words, workers) in list(ways.items())[: 3 if two_workers else 2]:
                words = [*options, *flooded, "--max-update", "2", "--dropout", "0.1", *words]
                args = train_args(data, Path("SAVE"), criterion, *words,
                                  task=kind.task or objective, classes=kind.classes)  # fmt: skip
                yield f"{objective}; {method}; {way}", args, workers


def run_cases(cases, checkout, out):
    """In a process of one checkout: a fork for each worker of each case. Prints the hashes."""
    import fairseq_cli.train
    import torch

    torch.set_num_threads(1)
    for name, words, workers in cases:
        save = out / name.replace("; ", "-").replace(" ", "-")
        words = [str(save) if word == "SAVE" else word for word in words]
        words[words.index("--user-dir") + 1] = str(checkout / "fairseq_adv")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        pids = []
        for rank in range(workers):
            pids.append(os.fork())
            if pids[-1] == 0:
                if workers > 1:  # what torchrun sets
                    os.environ.update(rendezvous, RANK=str(rank), WORLD_SIZE=str(workers))
                log = os.open(f"{save}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                sys.argv = ["fairseq-train", *words]
                try:
                    fairseq_cli.train.cli_main()
                    os._exit(0)
                except BaseException as error:
                    print(repr(error), flush=True)
                    os._exit(1)
        if sum(os.waitpid(pid, 0)[1] for pid in pids):
            last = Path(f"{save}.log").read_text().splitlines()[-1]  # as in OLD, where an option doesn't fit
            found = "failed: " + last.replace(str(out), "").replace(str(checkout), "")
        else:
            state = torch.load(save / "checkpoint_last.pt", map_location="cpu")
            found = digest_of([state[key] for key in ("model", "criterion", "last_optimizer_state")])
            shutil.rmtree(save)
        print("RESULT", json.dumps([name, found]), flush=True)


def digest_of(state):
    """SHA-256 of all tensors in nested dicts and lists, with their names."""
    digest = hashlib.sha256()

    def add(name, value):
        if isinstance(value, (dict, list, tuple)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in sorted(items, key=lambda item: str(item[0])):
                add(f"{name}.{key}", inner)
        elif hasattr(value, "numpy"):
            digest.update(name.encode() + value.detach().contiguous().numpy().tobytes())

    add("", state)
    return digest.hexdigest()


def run_verbs(checkout, out, env):
    """The hash of what each verb printed and wrote, without times, versions and paths."""
    import torch

    module = "fairseq_adv_cli" if (checkout / "fairseq_adv_cli" / "__main__.py").exists() else "fairseq_adv"
    (out / "nli-files").mkdir(parents=True)
    for name in ("mnli_train_8999.json", "mnli_dev_1000.json"):
        shutil.copy(DATA / "nli" / name, out / "nli-files" / name)
    seen = set(out.rglob("*"))

    def plain(data):
        text = data.decode("utf-8", "replace").replace(str(checkout), "").replace(str(out), "")
        return CHANGING.sub("", text)

    for name, words in VERBS.items():
        line = [sys.executable, "-m", module, *name.partition(".")[0].split()]
        line += [re.sub("^D|(?<==)D(?=/)", str(DATA), word) for word in words.split()]
        done = subprocess.run(line, cwd=out, env=env, capture_output=True)
        new = sorted(path for path in out.rglob("*") if path.is_file() and path not in seen)
        seen.update(new)
        digest = hashlib.sha256(b"" if name == "train." else plain(done.stdout).encode())
        for path in new:
            if path.suffix == ".pt":
                digest.update(digest_of(torch.load(path, map_location="cpu")["model"]).encode())
            elif not path.name.endswith((".log", ".lock", ".running", ".npz")):
                digest.update(str(path.relative_to(out)).encode())
                data = path.read_bytes()
                digest.update(data if b"\0" in data else plain(data).encode())
        yield name, f"failed: {done.stderr.splitlines()[-1]!r}" if done.returncode else digest.hexdigest()


def measure(checkout, out, args):
    """All hashes of a checkout, by name; those that OUT has are not made again."""
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "hashes.json"
    if kept.is_file():
        return json.loads(kept.read_text())
    cases = [case for case in training_cases(args.out, args.workers) if args.only in case[0]]
    env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    def share(number):
        words = [sys.executable, __file__, str(checkout), str(out), "--cases"]
        text = json.dumps(cases[number :: args.jobs])
        done = subprocess.run(words, env=env, input=text, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]

    with ThreadPoolExecutor(args.jobs) as pool:
        known = dict(result for results in pool.map(share, range(args.jobs)) for result in results)
    if args.only in ("", "verbs"):
        known.update(run_verbs(checkout, out / "verbs", env))
    kept.write_text(json.dumps(known, indent=1))
    return known


def parser():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("old", "new", "out"):
        parser.add_argument(name, type=lambda text: Path(text).resolve())
    parser.add_argument("--jobs", type=jobs, default=2)
    parser.add_argument("--workers", action="store_true", help="train on two processes too")
    parser.add_argument("--only", default="", help="the trainings with this text in their names, or: verbs")
    return parser


def jobs(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(text)


def main():
    args = parser().parse_args()
    shutil.rmtree(args.out / "new", ignore_errors=True)
    old, new = (measure(getattr(args, side), args.out / side, args) for side in ("old", "new"))
    different = [name for name in old if old[name] != new.get(name)]
    for name in old:
        told = f"{old[name]:.90}" if name not in different else f"{old[name]:.400} | {new.get(name):.400}"
        print(f"{'DIFFERS' if name in different else 'same':8}{name:55} {told}")
    print(f"{len(different)} of {len(old)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    if sys.argv[-1] == "--cases":
        run_cases(json.load(sys.stdin), Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
