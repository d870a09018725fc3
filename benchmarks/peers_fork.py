"""FreeLB in its authors' fork of fairseq. peers.py runs this in a process of its own, since the fork needs
an old Python and torch.

    PYTHON benchmarks/peers_fork.py FORK WORDS...

FORK is their folder fairseq-RoBERTa; WORDS are the options of its train.py. Each line of standard input is a
mini-batch, a JSON list of rows of the training split. After an update with it, the process prints the CPU
seconds that it has used so far.
"""

import json
import sys
import time


def main() -> None:
    fork, *words = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr  # the fork prints to standard output
    sys.path.insert(0, fork)
    from fairseq import options, tasks  # type: ignore[attr-defined]
    from fairseq.trainer import Trainer

    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, input_args=[*words, "--cpu"])
    task = tasks.setup_task(args)
    task.load_dataset("train")
    trainer = Trainer(args, task, task.build_model(args), task.build_criterion(args))
    data = task.dataset("train")
    for line in sys.stdin:
        rows = json.loads(line)
        trainer.train_step([data.collater([data[i] for i in rows])])
        print(time.process_time(), file=answers, flush=True)


if __name__ == "__main__":
    main()
