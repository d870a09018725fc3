"""Small real fairseq set-ups for tests: a binarised data set, a trainer in this process, a command line."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import IO, Any, Callable, Iterator, Sequence

import composition
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary, indexed_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from forked import run_forked
from omegaconf import DictConfig
from torch import distributed, multiprocessing

import fairseq_adv.cli
import fairseq_adv.plugin
from fairseq_adv.data.text.labelled_folder import SEVERAL
from fairseq_adv.data.workspace import MANIFEST
from fairseq_adv.fairseq_patches.checkpoint_files import inference_copies
from fairseq_adv.training.trainer import Trainer

composition.remember()
F_SETPIPE_SZ = 1031  # Linux; fcntl has the name from Python 3.10 on
PLUGIN = str(Path(fairseq_adv.__file__).parent)
VOCABULARY = [f"w{i}" for i in range(40)]
# Sizes of a perturbation that a tiny encoder feels.
ADVERSARIAL = ["--adv-steps", "3", "--adv-lr", "0.3", "--adv-max-norm", "0.5", "--adv-init-mag", "0.4"]
CREAT_ARGS = [
    "--adv-steps", "3", "--adv-lr", "0.3", "--adv-max-norm", "0.5",
    "--creat-tau", "2", "--creat-init-std", "0.1",
]  # fmt: skip
SEVERAL_WORKERS = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
NOISY = ["--noise-size", "0.5"]
NOISED = ["--r3f-lambda", "2", "--r3f-epsilon", "0.2", "--r3f-share-dropout"]
VIRTUAL = [
    "--vat-alpha", "2", "--vat-steps", "2", "--vat-step-size", "0.3", "--vat-epsilon", "0.2",
    "--vat-init-std", "0.1",
]  # fmt: skip


def write_task(folder: Path, *, train: int = 16, valid: int = 8, classes: int = 2, seed: int = 0) -> Path:
    """A sentence_prediction data folder; the label depends on the words. classes=1: a regression."""
    rng = np.random.default_rng(seed)
    words = Dictionary()
    for word in VOCABULARY:
        words.add_symbol(word)
    words.finalize(padding_factor=1)
    labels = Dictionary()
    for k in range(classes):
        # The most frequent label comes first, as fairseq-preprocess orders them.
        labels.add_symbol(str(classes - 1 - k), n=classes - k)
    labels.finalize(padding_factor=8)
    for name, dictionary in (("input0", words), ("label", labels)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        dictionary.save(str(folder / name / "dict.txt"))
    for split, count in (("train", train), ("valid", valid)):
        sentences = [rng.integers(0, len(VOCABULARY), size=rng.integers(3, 9)) for _ in range(count)]
        values = [float(np.mean(s)) / len(VOCABULARY) for s in sentences]
        ids = [[words.index(VOCABULARY[w]) for w in s] + [words.eos()] for s in sentences]
        _write(folder / "input0" / split, ids, len(words))
        if classes == 1:
            (folder / "label" / f"{split}.label").write_text("".join(f"{v:.6f}\n" for v in values))
        else:
            names = [str(min(int(v * classes * 1.0), classes - 1)) for v in values]
            _write(folder / "label" / split, [[labels.index(n), labels.eos()] for n in names], len(labels))
    return folder


def write_label_sets(folder: Path, *, train: int = 16, valid: int = 8, labels: int = 2) -> Path:
    """A multi_label data folder: label k holds where a text has word 2k or 2k + 1."""
    write_task(folder, train=train, valid=valid)
    words, names = Dictionary.load(str(folder / "input0" / "dict.txt")), Dictionary()
    for k in range(labels):
        names.add_symbol(f"label {k}", n=labels - k)
    names.save(str(folder / "label" / "dict.txt"))
    for split in ("train", "valid"):
        texts = indexed_dataset.MMapIndexedDataset(str(folder / "input0" / split))
        held = [{words[int(word)] for word in texts[row]} for row in range(len(texts))]
        ids = [
            [names.nspecial + k for k in range(labels) if row & {*VOCABULARY[2 * k : 2 * k + 2]}]
            for row in held
        ]
        _write(folder / "label" / split, [[*row, names.eos()] for row in ids], len(names))
    (folder / MANIFEST).write_text(json.dumps({"made_from": {"kind": SEVERAL}}))
    return folder


def _write(prefix: Path, rows: list[list[int]], vocabulary: int) -> None:
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=vocabulary)
    for row in rows:
        builder.add_item(torch.tensor(row))
    builder.finalize(f"{prefix}.idx")


ENCODER_WORDS = (*VOCABULARY, *"qa:_?.", "he", "it")


def write_encoder(folder: Path, words: Sequence[str] = ENCODER_WORDS) -> Path:
    """The files of a BERT's tokenizer of these words, as they are kept beside data.

    A word's id in fairseq's dictionary is 4 + its place among ``words``.
    """
    from tokenizers import BertWordPieceTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *words]
    folder.mkdir(parents=True, exist_ok=True)
    engine = BertWordPieceTokenizer({token: number for number, token in enumerate(tokens)})
    engine.save(str(folder / "tokenizer.json"))
    about = {
        "words": len(tokens), "separators": 1,
        "special": {"<s>": 2, "<pad>": 0, "</s>": 3, "<unk>": 1, "<mask>": 4},
    }  # fmt: skip
    (folder / "hf_vocabulary.json").write_text(json.dumps(about))
    return folder


def word_of(dictionary: Dictionary, number: int) -> str:
    """The word of an id, in the dictionary of a tokenizer that :func:`write_encoder` wrote."""
    symbol = str(dictionary[number])  # the encoder's row
    return ENCODER_WORDS[int(symbol) - 5] if symbol.isdigit() else symbol


def _words(rng: np.random.Generator, least: int, most: int) -> list[str]:
    return [VOCABULARY[w] for w in rng.integers(0, len(VOCABULARY), size=rng.integers(least, most + 1))]


def question(rng: np.random.Generator, name: str, choices: int, para: bool = False) -> dict[str, Any]:
    """A question as ARC writes it; the right choice repeats a word of the stem."""
    stem, answer = _words(rng, 2, 5), int(rng.integers(choices))
    options = []
    for k in range(choices):
        words = _words(rng, 1, 3) + ([stem[0]] if k == answer else [])
        options.append({"label": "ABCDEFGH"[k], "text": " ".join(words)})
        if para:
            options[-1]["para"] = " ".join(_words(rng, 0, 30))
    body = {"stem": " ".join(stem), "choices": options}
    return {"id": name, "question": body, "answerKey": "ABCDEFGH"[answer]}


def write_questions(
    folder: Path, *, train: int = 16, valid: int = 8, choices: tuple[int, ...] = (3, 5, 4), seed: int = 0,
    para: bool = False,
) -> Path:  # fmt: skip
    """A multiple-choice data folder with its tokenizer; the numbers of choices take turns."""
    rng = np.random.default_rng(seed)
    write_encoder(folder)
    for split, count in (("train", train), ("valid", valid), ("test", 5)):
        rows = [question(rng, f"{split}-{i}", choices[i % len(choices)], para) for i in range(count)]
        if split == "test":
            for row in rows:
                del row["answerKey"]
        write_json_lines(folder / f"{split}.jsonl", rows)
    return folder


def write_json_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """One json object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def wsc_line(
    rng: np.random.Generator, idx: int, label: bool | None, candidates: Sequence[str] | None = None
) -> dict[str, Any]:
    """A sentence as SuperGLUE writes it, with its candidates beside it."""
    words = _words(rng, 2, 4)
    text = [*words, "he", *_words(rng, 1, 4)]
    others = [" ".join(_words(rng, 1, 2)) for _ in range(int(rng.integers(1, 4)))]
    target = {"span1_text": words[0], "span1_index": 0, "span2_text": "he", "span2_index": len(words)}
    line: dict[str, Any] = {"text": " ".join(text), "target": target, "idx": idx}
    line["candidates"] = others if candidates is None else list(candidates)
    return line if label is None else {**line, "label": label}


def write_wsc(folder: Path, *, train: int = 16, valid: int = 8, seed: int = 0) -> Path:
    """A WSC data folder with its tokenizer: true and false queries, and a sentence without candidates."""
    rng = np.random.default_rng(seed)
    write_encoder(folder)
    for split, count in (("train", train), ("valid", valid), ("test", 4)):
        rows = [
            wsc_line(rng, i, None if split == "test" else i % 3 != 1, candidates=[] if i == 3 else None)
            for i in range(count)
        ]
        write_json_lines(folder / f"{split}.jsonl", rows)
    return folder


def write_corpus(folder: Path, *, train: int = 16, valid: int = 8, length: int = 12, seed: int = 0) -> Path:
    """A masked_lm data folder: rows of ``length`` words, so that a block of length + 1 tokens is a row."""
    rng = np.random.default_rng(seed)
    words = Dictionary()
    for word in VOCABULARY:
        words.add_symbol(word)
    words.finalize(padding_factor=1)
    folder.mkdir(parents=True, exist_ok=True)
    words.save(str(folder / "dict.txt"))
    for split, count in (("train", train), ("valid", valid)):
        # Each word follows the one before it in the vocabulary, mostly: there is something to learn.
        rows = []
        for _ in range(count):
            first = int(rng.integers(len(VOCABULARY)))
            rows.append([words.index(VOCABULARY[(first + k) % len(VOCABULARY)]) for k in range(length)])
        _write(folder / split, [[*row, words.eos()] for row in rows], len(words))
    return folder


def train_args(
    data: Path, save: Path | None, criterion: str = "freelb", *extra: str, classes: int = 2,
    task: str = "sentence_prediction",
) -> list[str]:  # fmt: skip
    """A tiny RoBERTa without dropout on the CPU; later options in ``extra`` win."""
    # fairseq makes the folder even when it saves nothing.
    saving = ["--no-save", "--save-dir", str(data / "unused")] if save is None else ["--save-dir", str(save)]
    regression = ["--regression-target", "--best-checkpoint-metric", "loss"] if classes == 1 else []
    sentences = [
        "--num-classes", str(classes), "--init-token", "0", "--separator-token", "2", "--max-positions", "16",
    ]  # fmt: skip
    layout = {
        "sentence_prediction": sentences, "text_classification": sentences, "multi_label": sentences,
        "masked_lm": ["--tokens-per-sample", "14", "--mask-prob", "0.25", "--sample-break-mode", "eos",
                      "--max-positions", "16"],
        # So that most contexts of token_data.write_spans have several windows.
        "span_qa": ["--max-positions", "24", "--window-tokens", "12", "--window-overlap", "2",
                    "--max-answer-tokens", "4"],
    }.get(task, ["--max-positions", "24"])  # fmt: skip
    return [
        str(data), "--user-dir", PLUGIN, "--task", task, "--criterion", criterion,
        *layout,
        "--arch", "roberta_base", "--encoder-layers", "2", "--encoder-embed-dim", "16",
        "--encoder-ffn-embed-dim", "32", "--encoder-attention-heads", "2",
        "--dropout", "0", "--attention-dropout", "0", "--optimizer", "adam",
        "--lr", "0.01", "--batch-size", "4", "--required-batch-size-multiple", "1", "--max-epoch", "2",
        "--cpu", "--seed", "7", "--log-format", "json", "--log-interval", "1", "--num-workers", "0",
        "--valid-subset", "valid", *regression, *saving, *extra,
    ]  # fmt: skip


def as_task(objective: str) -> tuple[str, int, list[str]]:
    """The task of an objective of ``criterions/restated.py``, the number of its classes, and its options."""
    if objective == "windows":
        words = ["--long-texts", "windows", "--shorten-method", "truncate", "--max-positions", "5"]
        return "text_classification", 3, words
    task = "sentence_prediction" if objective in ("classes", "regression") else objective
    return task, {"classes": 3, "regression": 1, "multi_label": 3}.get(objective, 2), []


def build(args: list[str]) -> SimpleNamespace:
    """What ``fairseq-train`` builds from ``args``, in this process: cfg, task, model, criterion, trainer."""
    parser = options.get_training_parser()
    return assembled(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=args)))


def assembled(cfg: DictConfig) -> SimpleNamespace:
    """As :func:`build`, from a configuration."""
    metrics.reset()
    torch.manual_seed(cfg.common.seed)
    np.random.seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    criterion = task.build_criterion(cfg.criterion)
    task.load_dataset("train")
    task.load_dataset("valid")
    trainer = Trainer(cfg, task, model, criterion)
    return SimpleNamespace(
        cfg=cfg, task=task, model=trainer.get_model(), criterion=trainer.get_criterion(), trainer=trainer
    )


def batch(run: SimpleNamespace, rows: list[int], split: str = "train") -> dict[str, Any]:
    """The rows of a split as one mini-batch."""
    data = run.task.dataset(split)
    return data.collater([data[i] for i in rows])  # type: ignore[no-any-return]


def validate(
    run: SimpleNamespace, split: str, size: int, rows: Sequence[int] | None = None
) -> dict[str, float]:
    """What fairseq logs of a split, in mini-batches of ``size``; ``rows`` gives another order."""
    rows = range(len(run.task.dataset(split))) if rows is None else rows
    with metrics.aggregate(new_root=True) as agg:
        for i in range(0, len(rows), size):
            run.trainer.valid_step(batch(run, list(rows[i : i + size]), split))
    return agg.get_smoothed_values()  # type: ignore[no-any-return]


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of every gradient."""
    return {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}


def flat_gradient(model: torch.nn.Module) -> torch.Tensor:
    """All gradients in one fp64 vector."""
    return torch.cat([g.double().flatten() for g in gradients(model).values()])


def frozen(model: torch.nn.Module) -> list[str]:
    """Names of the weights that are not trained, without the copies that never are."""
    copies = {id(copy) for copy in inference_copies(model)}
    return [n for n, p in model.named_parameters() if not p.requires_grad and id(p) not in copies]


def command(name: str) -> str:
    """The console script of the running Python's environment."""
    return str(Path(sys.executable).parent / name)


def environment(**changed: str) -> dict[str, str]:
    """This process's, for a command of the running Python's environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **changed}


def run_command(*words: str, cwd: Path | None = None, **changed: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line to its end; the caller looks at the return code."""
    env = environment(**changed)
    return subprocess.run(list(words), capture_output=True, text=True, env=env, cwd=cwd, timeout=600)


def start_command(words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As :func:`run_command`, for a test that stops it or reads along; ``options`` are Popen's."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **options}
    return subprocess.Popen(list(words), **options)


def load_script(path: Path) -> ModuleType:
    """A file that is in no package, such as a command of examples/, as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def verb(name: str) -> list[str]:
    """The command line of a verb of fairseq-adv, such as ``"prepare glue"``."""
    return [sys.executable, "-m", "fairseq_adv", *name.split()]


def all_verbs() -> list[str]:
    """The verbs of fairseq-adv, those of groups with two words."""
    return list(fairseq_adv.cli.VERBS)


class MainOf:
    """A command's main in this process; called with words, it returns what a process would."""

    def __init__(self, main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
        self.main, self.capsys = main, capsys

    def __call__(self, *words: object) -> SimpleNamespace:
        """returncode, stdout and stderr."""
        self.capsys.readouterr()
        code = self.main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)


class ScriptMain(MainOf):
    """The main of a file that is in no package."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.module = load_script(path)
        super().__init__(self.module.main, capsys)


class CommandMain(MainOf):
    """A verb of fairseq-adv, such as ``"prepare glue"``."""

    def __init__(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(lambda words: fairseq_adv.cli.main([*name.split(), *words]), capsys)


def slow(*values: object) -> Any:
    """Parameters of a case for the slow lane: the default lane has its parts in other cases."""
    return pytest.param(*values, marks=pytest.mark.slow)


def handle_interrupts() -> None:
    """For ``preexec_fn``: a shell starts what it runs in the background with SIGINT ignored, and so do its
    children.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def launched(words: Sequence[str], workers: int) -> list[str]:
    """A training's command line, with several workers under torchrun."""
    if workers == 1:
        return list(words)
    launcher = [command("torchrun"), "--standalone", "--nproc_per_node", str(workers)]
    return [*launcher, *words, *SEVERAL_WORKERS]


MAINS = {"fairseq-train": "fairseq_cli.train:cli_main", "fairseq-adv": "fairseq_adv.cli:main"}


def fork_command(*words: str, workers: int = 1, **changed: str) -> subprocess.CompletedProcess[str]:
    """As :func:`run_command`, for a command that begins in ``MAINS`` and uses the plug-in; several workers as
    under torchrun.
    """
    more = SEVERAL_WORKERS if workers > 1 else []
    return run_forked(MAINS[Path(words[0]).name], [*words, *more], environment(**changed), workers)


def fairseq_train(*args: str, workers: int = 1, **changed: str) -> subprocess.CompletedProcess[str]:
    """``fairseq-train`` to its end; fails the test if it fails."""
    words = [command("fairseq-train"), *args]
    if "--user-dir" in args and not any(name.startswith(("PYTHON", "LC_")) for name in changed):
        done = fork_command(*words, workers=workers, **changed)
    else:  # without the plug-in, or in another Python
        done = run_command(*launched(words, workers), **changed)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


def killed_training(args: Sequence[str], workers: int, when: Callable[[str], bool]) -> str:
    """What ``fairseq-train`` wrote before SIGKILL, which all its processes get after such a line."""
    process = start_command(
        launched([command("fairseq-train"), *args], workers), stderr=subprocess.STDOUT, text=True,
        env=environment(PYTHONUNBUFFERED="1"),
    )  # fmt: skip
    assert process.stdout is not None
    narrow(process.stdout)
    text, deadline = "", time.monotonic() + 400  # of a busy machine
    for line in process.stdout:
        text += line
        if when(line) or time.monotonic() > deadline:
            break
    # Before more is read: what is in the way of a process that has filled the pipe must stay there.
    while pids := writers(process.stdout):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    text += process.stdout.read()
    process.wait()
    return text


def narrow(pipe: IO[Any]) -> None:
    """Makes it a page: on a busy machine a run would otherwise be over before a test has read a line."""
    fcntl.fcntl(pipe, F_SETPIPE_SZ, 4096)


def writers(pipe: IO[Any]) -> list[int]:
    """The processes whose standard output a pipe is: a command's and its workers'."""
    target, own = f"pipe:[{os.fstat(pipe.fileno()).st_ino}]", os.getpid()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != own and os.readlink(process / "fd" / "1") == target:
                found.append(int(process.name))
    return found


def logged(done: subprocess.CompletedProcess[str], tag: str) -> list[dict[str, float]]:
    """The json lines that fairseq logged with ``tag`` (train_inner, train, valid)."""
    return list(_logged(done.stdout + done.stderr, tag))


def _logged(text: str, tag: str) -> Iterator[dict[str, float]]:
    for line in text.splitlines():
        if f"| {tag} | {{" in line:
            values = json.loads(line[line.index("{") :])
            yield {k: float(v) for k, v in values.items()}


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The model's weights in a checkpoint."""
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]  # type: ignore[no-any-return]


def tensors(path: Path) -> dict[str, tuple[torch.dtype, torch.Size, bytes]]:
    """Every tensor of a checkpoint by its place, except the log's and the clock's."""
    found = {}

    def collect(value: Any, place: str) -> None:
        if isinstance(value, torch.Tensor):
            content = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            found[place] = (value.dtype, value.shape, content)
        elif isinstance(value, (dict, list, tuple)):
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                collect(part, f"{place}/{key}")

    state = torch.load(path)
    for key in ("metrics", "previous_training_time"):
        del state["extra_state"][key]
    collect(state, "")
    return found


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file may be larger, in bytes: what a full disk looks like where nothing can be mounted."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def one_worker() -> Iterator[None]:
    """torch.distributed in this process, with no other. It leaves an excepthook, which goes with it."""
    hook = sys.excepthook
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        sys.excepthook = hook


def on_two_workers(work: Callable[..., None], *args: Any) -> None:
    """Runs ``work(rank, *args)`` in two forks of this process, which gloo joins."""
    with TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        multiprocessing.start_processes(_joined, (store, work, args), nprocs=2, start_method="fork")


def _joined(rank: int, store: str, work: Callable[..., None], args: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    work(rank, *args)
    distributed.barrier()  # neither leaves while the other still talks to it
    distributed.destroy_process_group()
