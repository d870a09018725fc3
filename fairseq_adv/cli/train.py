"""Trains on a data folder: one fairseq-train command, with defaults filled in from the data and the encoder.

Other options are passed on to fairseq-train, its tasks and its criterions, and override the defaults.
--dry-run prints the full command, which you can copy, change and run yourself. What fairseq logs, with its
configuration and the model, goes to SAVE_DIR/train.log; its numbers go to SAVE_DIR/metrics.jsonl.

Examples:
  fairseq-adv train RTE-bin --encoder minilm --save-dir out/rte
  fairseq-adv train RTE-bin --encoder minilm --save-dir out/standard --criterion standard --lr 1e-4 --seed 2
  fairseq-adv train ARC-Easy:ARC-Challenge --encoder roberta.base --save-dir out/arc --update-freq 4
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from functools import partial
from pathlib import Path

from fairseq_adv.data.processes import python_module
from fairseq_adv.data.train_options import TrainOptions

from .check_options import checked
from .script import RESUMABLE, VerbParser, count
from .train_command import ON_CPUS, OTHER_STARTS, filled_in
from .train_run import ShownRun, errors_told_once, launch, run

_FILLED_IN = """
filled in unless you pass them:
  --user-dir, --arch and sizes, --finetune-from-model, --tokenizer-dir: from the installation and the encoder
  --task: the one whose data DATA has; the first that recognises it, those of --user-dir before ours
  --num-classes or --regression-target, --init-token 0 --separator-token 2 --valid-subset: from DATA
  --tokens-per-sample, up to 512, and --skip-invalid-size-inputs-valid-test: for a corpus; --num-workers too,
    a process that loads rows for each core that a GPU has beside its own, 1 to 4
  --disable-validation: without a split to validate on
  --criterion freelb; sizes of the perturbation as shares of the embeddings, with --adv-relative,
    --vat-relative, --noise-relative or --r3f-relative. If you pass a size without it, sizes are lengths, and
    none is filled in, nor with --adv-norm-type. For rdrop --rdrop-alpha 1, for flooding --flood-level 0.05;
    sizes of awp, sam and sift; for smart also --store-ema --ema-decay 0.99
  --precision auto, for our criterions (not with --fp16, --bf16, --amp and the like): bf16 autocast on a CPU
    with bf16 instructions (see fairseq-adv doctor), --bf16 on a GPU that has it, else fp32; docs/start.md
    lists which runs stay in fp32 on every GPU. --precision fp32 turns bf16 off. A run that resumes keeps its
    precision; a CPU's bf16 autocast is fp16 autocast on a GPU
  --optimizer torch_adamw --adam-betas '(0.9, 0.98)' --adam-eps 1e-06 --weight-decay 0.01 --clip-norm 1.0
  --lr 5e-05, or with an encoder narrower than 768 the method's own, up to 2e-04
  --lr-scheduler polynomial_decay, with warm-up over the first 6 % of the updates
  --batch-size 16 (multiple choice: 8) --required-batch-size-multiple 1 --shorten-method truncate
  --max-epoch 3 (not with --max-update; freeat, which makes several updates of each mini-batch: as many
    updates as three epochs of another method have) --distributed-world-size 1
  --find-unused-parameters: for several workers in torch's DDP, which GPUs have unless you pass --ddp-backend
  --best-checkpoint-metric accuracy (CoLA: mcc, regression: pearson, tags and spans: f1, a corpus: loss)
  --save-dir checkpoints --no-epoch-checkpoints (not with --save-interval or --keep-last-epochs)
  --log-file SAVE_DIR/train.log --log-format json --log-interval 20 (freeat: a multiple of its steps)

The head of a fine-tuned classifier or tagger, in the encoder's folder or a checkpoint, is taken over if its
classes have the data's names (case apart), whatever their order; otherwise it begins anew. A line tells it.

To resume from SAVE_DIR/checkpoint_last.pt, run the same command again; with a larger --max-epoch or
--max-update a finished run is trained further. A checkpoint made with other options or data is refused,
unless you pass --allow-changed-options; docs/cluster.md lists what may change. fairseq-adv options CRITERION
lists a criterion's options.
"""


def train_options(parser: VerbParser) -> None:
    parser.reads(stopped=RESUMABLE, passes_on=True)
    parser.allow_abbrev = False
    parser.usage = "fairseq-adv train DATA --encoder DIR [--workers N] [--dry-run] [fairseq-train's options]"
    parser.epilog = _FILLED_IN
    add = parser.add_argument
    add("data", metavar="DATA", help="folder made by prepare or corpus; of multiple choice, and of a "
        "corpus's shards, also several joined by colons")  # fmt: skip
    add(
        "--encoder",
        type=Path,
        metavar="DIR",
        help="a Hugging Face folder, or one that convert wrote",
    )
    add("--workers", type=count, metavar="N", help="train on N GPUs, or with --cpu in N processes; each "
        "update sees N times as many examples")  # fmt: skip
    add("--keep-head", action="store_true", help="start with the head of an encoder or checkpoint whose "
        "classes have no names (LABEL_0, ...): its rows have the order of the data's classes")  # fmt: skip
    add("--dry-run", action="store_true", help="print the command without running it")
    first = parser.words[0] if parser.words else ""
    if first.startswith("-") and first not in ("-h", "--help"):
        parser.error("DATA must come first, before the options")


@errors_told_once()
def train(args: argparse.Namespace) -> None:
    from fairseq_adv.data.tokenizers import FOLDER
    from fairseq_adv.data.tokenizers.saved_tokenizer import files_of_saved_tokenizer

    launcher, more = _workers(TrainOptions(args.own), args.workers)
    more += ["--keep-head"] if args.keep_head else []
    environment = dict(os.environ)
    if launcher:  # what torchrun will set
        environment.update(MASTER_ADDR="", MASTER_PORT="", RANK="", WORLD_SIZE=launcher[-1])
    options = filled_in(args.data, args.encoder, [*args.own, *more], environment)
    parsed, data = checked(args.data, options), Path(args.data.split(":")[0])
    is_first = os.environ.get("RANK", "0") == "0"
    if is_first:
        files_of_saved_tokenizer(data / FOLDER)
    command = ["fairseq-train", args.data, *options.words()]
    if args.dry_run:
        if launcher:
            command[0] = str(Path(sys.executable).with_name(command[0]))
        if is_first:
            print(shlex.join([*launcher, *command]))
        return
    if launcher:
        encoder = [] if args.encoder is None else ["--encoder", str(args.encoder)]
        words = python_module("fairseq_adv", "train", args.data, *encoder, *args.own, *more)
        launch(args.workers, [*launcher[1:], "--no-python", *words])
        return
    shown = partial(
        ShownRun, log=options.value("--log-file"), encoder=str(args.encoder or options.value("--arch")),
        when_loaded=partial(_save_tokenizer, data, options),
    )  # fmt: skip
    run(command, parsed, shown)


def _workers(options: TrainOptions, workers: int | None) -> tuple[list[str], list[str]]:
    """The arguments before ``fairseq-train``, and after the user's, that start this many workers.

    Args:
        options: the user's.
    """
    if workers is None:
        return [], []
    if workers == 1 or not options.has("--cpu"):  # on GPUs fairseq starts the workers itself
        return [], ["--distributed-world-size", str(workers)]
    launcher = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc_per_node"]
    return [*launcher, str(workers)], [word for pair in ON_CPUS.items() for word in pair]


def _save_tokenizer(data: Path, options: TrainOptions) -> None:
    """Copies the data's tokenizer next to the checkpoints, atomically, unless the run resumes.

    Called when the folder is this run's: another one may be training there.
    """
    from fairseq_adv.data.io import atomic_folder, copy_own
    from fairseq_adv.data.tokenizers import FOLDER
    from fairseq_adv.data.tokenizers.saved_tokenizer import (
        files_of_saved_tokenizer,
        remove_saved_tokenizer,
        save_tokenizer,
        tokenizer_for_encoder,
    )

    if options.has("--no-save"):
        return
    save = Path(os.path.abspath(options.value("--save-dir")))
    target, source = save / FOLDER, data / FOLDER
    is_new = options.has("--allow-changed-options", *OTHER_STARTS)
    if not is_new and target.is_dir() and (save / "checkpoint_last.pt").is_file():
        return  # the run resumes with it, or is refused
    files = files_of_saved_tokenizer(source)
    encoder = options.value("--tokenizer-dir")
    if not files and not encoder:
        remove_saved_tokenizer(target)  # of other data
        return
    with atomic_folder(target) as beside:
        for path in files:
            copy_own(path, beside / path.name)
        if not files:
            save_tokenizer(beside, tokenizer_for_encoder(Path(encoder)))
        remove_saved_tokenizer(target)  # from an earlier run
