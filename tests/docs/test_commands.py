"""Every command of the documents is one that its program takes: options, choices, words, files, recipes.

Nothing is run: the words go through the parsers of fairseq-adv, fairseq and the project's scripts, and
recipes are composed. A page that is added to docs/ is checked without a change here.
"""

from __future__ import annotations

import pytest
from command_checks import faults
from documents import ROOT, commands, pages, snippets

RUN = "examples/run.py examples/glue/config/glue.yaml RTE-bin roberta.large out/rte"
FAIRSEQ = "fairseq-train DATA --task sentence_prediction --arch roberta_base"
HYDRA = "fairseq-hydra-train --config-dir examples/wsc/config --config-name wsc"
USER_DIR = '--user-dir "$(fairseq-adv user-dir)"'
TRAIN = "fairseq-adv train DATA --encoder minilm"


@pytest.mark.parametrize("name", pages())
def test_a_page(name: str) -> None:
    found = faults((ROOT / name).read_text(encoding="utf-8"), name)
    assert not found, "\n".join(found)


def test_the_pages_are_found_and_that_of_a_recipe_runs_it() -> None:
    """On this machine and under SLURM, or in two ways."""
    found = {
        name: [
            command.words
            for line, language, text in snippets((ROOT / name).read_text(encoding="utf-8"))
            if language in ("bash", "inline")
            for command in commands(text, name, line, language == "bash")
        ]
        for name in pages()
    }
    assert {"README.md", "CONTRIBUTING.md", "docs/attacks.md", "examples/glue/README.md"} <= set(found)
    programs = [words[0] for page in found.values() for words in page]
    assert len(programs) > 200
    assert {"fairseq-adv", "fairseq-train", "examples/run.py", "sbatch", "pip"} <= set(programs)
    for folder in ROOT.glob("examples/*/config"):
        name = folder.parent.relative_to(ROOT).as_posix()
        runs = [words for words in found[f"{name}/README.md"] if f"{name}/config" in " ".join(words)]
        assert len(runs) >= 2, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fairseq-adv attacks run.pt", "fairseq-adv attacks: argument COMMAND: invalid choice: 'attacks'"),
        ("fairseq-adv attack run.pt --epsilon 0.1 --foo", "unrecognized arguments: --foo"),
        ("fairseq-adv prepare glue glue_data RTX out --encoder minilm", "RTX: "),
        ("fairseq-adv predict a.pt --stdin --task RTE", "--task is for --data"),
        ("fairseq-adv train DATA", "--encoder is missing"),
        (f"{TRAIN} … --adv-stepz 3", "unrecognized arguments: --adv-stepz 3"),
        (f"{TRAIN} --criterion pgd --vat-alpha 3", "unrecognized arguments"),
        (f"{FAIRSEQ} --criterion freelb", "--criterion freelb needs --user-dir"),
        ("torchrun --nproc_per_node 2 $(which fairseq-train) … --cpus", "unrecognized arguments: --cpus"),
        (RUN.replace("glue.yaml", "glu.yaml"), "glue/config/glu.yaml is not there"),
        (f"for m in freelb pdg; do {RUN} glue=rte method=$m; done", "pdg"),
        (f"sbatch --array=0-4 {RUN.replace('run.py', 'slurm.sbatch')} method=pgdd", "pgdd"),
        ("scripts/test.sh tests/nothing", "tests/nothing is not there"),
        ("pip install -c constraints.txt '.[plot]'", "setup.py has no extra plot"),
        ("true && frobnicate --all", "frobnicate: an unknown program"),
        ("echo $(fairseq-adv doctors)", "fairseq-adv doctors: argument COMMAND: invalid choice"),
        ("echo 'a", "No closing quotation"),
    ],
)
def test_a_wrong_command(text: str, message: str) -> None:
    page = f"Text.\n\n```bash\ncd out\n```\n\n```bash\n\n{text}\n```\n"
    (fault,) = faults(page, "docs/page.md")
    assert fault.startswith("docs/page.md:9: ") and message in fault


@pytest.mark.parametrize(
    "text",
    [
        "fairseq-adv attack CHECKPOINT --attack NAME --data FILE --out DIR --examples N",
        f"{TRAIN} --criterion CRITERION --workers N --lr 1e-5 --no-save",
        f"{FAIRSEQ} {USER_DIR} --criterion freelb --adv-steps K $(cat out/minilm/model_args.txt)",
        f"{HYDRA} -m task.data=a criterion.adv_lr=1,2 common.user_dir=$(fairseq-adv user-dir) "
        "task.tokenizer_dir=b checkpoint.save_dir=c",
        "examples/run.py RECIPE DATA ENCODER_DIR SAVE_DIR [--gpus N] [key=value ...]",
        'w=(corpus.txt out --encoder minilm)\nsbatch examples/alum/prepare_corpus.sbatch "${w[@]}" --check',
        "examples/run.py --help && fairseq-adv --version && fairseq-adv prepare --help && fairseq-train -h",
    ],
)
def test_a_right_command(text: str) -> None:
    assert faults(f"```bash\n{text}\n```\n", "page.md") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`fairseq-adv predicts`", "page.md:1: fairseq-adv predicts: argument COMMAND: invalid choice"),
        ("`fairseq-adv predict`, `torchrun --no-python`, `fairseq-train`, `frobnicate --all`", ""),
        ("| ``scripts/test.sh --fast\\|--slows`` |", "unknown program"),
        ("```python\nimport fairseq_adv\nfrom fairseq_adv.objectives import Objective\n```", ""),
        ("```python\nfrom fairseq.models.roberta import A\n```", "cannot import A from fairseq.models.rob"),
        ("```python\n\nfor x in range(3)\n    pass\n```", "page.md:3: python: "),
        ("```\nfairseq-adv predict a.pt\n```", "page.md:2: a block of commands: write ```bash"),
        ("Text.\n\n```bash\nfrobnicate\n", "page.md:3: this block of code has no end"),
    ],
)
def test_code_elsewhere(text: str, message: str) -> None:
    found = faults(text, "page.md")
    assert message in found[0] if message else found == []


def test_the_words_and_lines_of_bash() -> None:
    text = "a 'b $c' \\\n  d\\ e | f && X=1 g >h 2>>i\n# j\n\nfor x in 1 2; do\n  k $x\ndone; l \"$(m)\""
    found = [(int(one.where[1:]), *one.words) for one in commands(text, "", 10)]
    assert found == [
        (10, "a", "b $c", "d e"), (10, "f"), (10, "g"), (15, "k", "1"), (15, "k", "2"), (16, "m"),
        (16, "l", "VALUE"),
    ]  # fmt: skip
