"""Every command of the documents is one that its program takes: options, choices, words, files, recipes.

Nothing is run: the words go through the parsers of fairseq-adv, fairseq and the project's scripts, and
recipes are composed. A page that is added to docs/ is checked without a change here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_checks import faults
from documents import ROOT, commands, pages, snippets
from shell_words import Unreadable, calls

RUN = "examples/run.py examples/glue/config/glue.yaml RTE-bin roberta.large out/rte"
SLURM = "examples/slurm.sbatch examples/wsc/config/wsc.yaml wsc-data roberta.large out/wsc"
FAIRSEQ = "fairseq-train DATA --task sentence_prediction --arch roberta_base"
HYDRA = "fairseq-hydra-train --config-dir examples/wsc/config --config-name wsc"
USER_DIR = '--user-dir "$(fairseq-adv user-dir)"'


def page(*blocks: str, language: str = "bash") -> str:
    return "".join(f"Text.\n\n```{language}\n{block}\n```\n" for block in blocks)


@pytest.mark.parametrize("name", pages())
def test_a_page(name: str) -> None:
    found = faults((ROOT / name).read_text(encoding="utf-8"), name)
    assert not found, "\n".join(found)


def test_the_pages_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/attacks.md", "examples/glue/README.md"} <= set(pages())
    found = [
        command.words[0]
        for name in pages()
        for snippet in snippets((ROOT / name).read_text(encoding="utf-8"), name)
        if snippet.language in ("bash", "inline")
        for command in commands(snippet)
    ]
    assert len(found) > 200
    assert {"fairseq-adv", "fairseq-train", "examples/run.py", "sbatch", "pip"} <= set(found)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in ROOT.glob("examples/*/config")))
def test_the_page_of_a_recipe_runs_it(name: str) -> None:
    """On this machine and under SLURM, or in two ways."""
    path = ROOT / "examples" / name / "README.md"
    blocks = [one for one in snippets(path.read_text(encoding="utf-8"), name) if one.language == "bash"]
    words = [" ".join(command.words) for block in blocks for command in commands(block)]
    assert len([text for text in words if f"examples/{name}/config" in text]) >= 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fairseq-adv attacks run.pt", "fairseq-adv attacks: argument COMMAND: invalid choice: 'attacks'"),
        ("fairseq-adv attack run.pt --epsilon 0.1 --foo",
         "fairseq-adv attack: unrecognized arguments: --foo"),
        ("fairseq-adv attack run.pt", "the following arguments are required: --epsilon"),
        ("fairseq-adv attack run.pt --epsilon 0", "argument --epsilon"),
        ("fairseq-adv attack run.pt --attack textfool --data a --out b", "invalid choice: 'textfool'"),
        ("fairseq-adv prepare classes a b", "invalid choice: 'classes'"),
        ("fairseq-adv prepare glue glue_data RTX out --encoder minilm", "RTX: "),
        ("fairseq-adv prepare nli a b --round R9", "invalid choice: 'R9'"),
        ("fairseq-adv predict a.pt --task RTF --data a --out b", "--task RTF: "),
        ("fairseq-adv predict a.pt --data a", "--out is missing"),
        ("fairseq-adv predict a.pt --stdin --task RTE", "--task is for --data"),
        ("fairseq-adv options freelbb", "freelbb: "),
        ("examples/flooding/figures.py noise a.pt out", "the following arguments are required: --stds"),
        ("fairseq-adv doctor --all", "unrecognized arguments: --all"),
        ("fairseq-adv export --label a,b --tokenizer --help", "unrecognized arguments: --label"),
        ("fairseq-adv train", "the following arguments are required: DATA"),
        ("fairseq-adv train DATA", "--encoder is missing"),
        ("fairseq-adv train --encoder minilm DATA", "DATA"),
        ("fairseq-adv train DATA --encoder minilm --criterion freelbb", "choice: 'freelbb'"),
        ("fairseq-adv train DATA --encoder minilm --adv-stepz 3", "unrecognized arguments: --adv-stepz 3"),
        ("fairseq-adv train DATA --encoder minilm --criterion pgd --vat-alpha 3", "unrecognized arguments"),
        ("fairseq-adv train DATA --encoder minilm --task masked_lm --num-classes 2",
         "unrecognized arguments"),
        ("fairseq-adv train DATA --encoder minilm … --adv-stepz 3", "unrecognized arguments: --adv-stepz 3"),
        (f"{FAIRSEQ} {USER_DIR} --criterion pgd --vat-alpha 3",
         "fairseq-train: unrecognized arguments: --vat-alpha 3"),
        (f"{FAIRSEQ} --criterion freelb", "--criterion freelb needs --user-dir"),
        (f"fairseq-train DATA {USER_DIR} --task tagging --criterion freelb", "--arch is missing"),
        (f'{FAIRSEQ} {USER_DIR.replace("user-dir)", "user-dirs)")}',
         "fairseq-adv user-dirs: argument COMMAND"),
        (f"{HYDRA} task.dat=a", "task.dat: no such key"),
        ("torchrun benchmarks/update_cost.py --row 8 --rowed 8", "unrecognized arguments: --rowed"),
        ("torchrun --nproc_per_nod1 2 $(which fairseq-train) …", "--nproc_per_nod1"),
        ("torchrun --nproc_per_node 2 $(which fairseq-train) … --cpus",
         "torchrun: unrecognized arguments: --cpus"),
        (RUN.replace("glue.yaml", "glu.yaml"), "glue/config/glu.yaml is not there"),
        ("examples/run.py examples/alum/config/pretrain/bert_base.yaml DATA - out/bert",
         "max_epoch has no default"),
        (f"{RUN} glue=rtx", "rtx"),
        (f"{RUN} glue=rte criterion.adv_lrr=0.1", "criterion.adv_lrr: no such key"),
        (f"{RUN} glue=rte --gpu 4 --nodes 2", "unrecognized arguments: --nodes"),
        (f"{RUN} glue=rte --gpus 7", "can't be divided evenly"),
        (f"{RUN.replace('roberta.large', '-')} glue=rte", "starts from a pre-trained encoder"),
        (f"for m in freelb pdg; do {RUN} glue=rte method=$m; done", "pdg"),
        (f"sbatch --array=0-4 {SLURM} method=pgdd", "pgdd"),
        ("sbatch examples/alum/prepare_corpus.sbatch corpus.txt out --shard 2 --sharded",
         "arguments: --sharded"),
        ("sbatch --wrap 'examples/evidence/run.sh DATA out --job 2'", "unrecognized arguments: --job"),
        ("sbatch examples/glue/train.sbatch", "examples/glue/train.sbatch is not there"),
        (SLURM, "submit it with sbatch"),
        ("scripts/quickstart.sh --epoch 3", "scripts/quickstart.sh: unrecognized arguments: --epoch"),
        ("./scripts/nothing.sh", "./scripts/nothing.sh is not there"),
        ("scripts/predict.py a.pt --data a", "scripts/predict.py is not there"),
        ("scripts/test.sh tests/nothing", "tests/nothing is not there"),
        ("nice -n 19 examples/evidence/run.sh DATA out --job 2", "unrecognized arguments: --job"),
        ("benchmarks/update_cost.py --model huge", "invalid choice: 'huge'"),
        ("benchmarks/peers_sides.py --fork a", "benchmarks/peers_sides.py is not executable"),
        ("python benchmarks/retrieval.py", "the following arguments are required: TEXT, --questions"),
        ("python -m fairseq_advs", "-m fairseq_advs: an unknown module"),
        ("pip install -c constraints.txt '.[plot]'", "setup.py has no extra plot"),
        ("pip install -c constraint.txt .", "-c constraint.txt: no such file"),
        ("VENV/bin/pip get .", "get: an unknown command of pip"),
        ("true && frobnicate --all", "frobnicate: an unknown program"),
        ("echo $(fairseq-adv doctors)", "fairseq-adv doctors: argument COMMAND: invalid choice"),
        ("echo 'a", "No closing quotation"),
    ],
)  # fmt: skip
def test_a_wrong_command(text: str, message: str) -> None:
    (fault,) = faults(page("cd out", text), "docs/page.md")
    assert fault.startswith("docs/page.md:9: ") and message in fault


@pytest.mark.parametrize(
    "text",
    [
        "fairseq-adv attack CHECKPOINT --attack NAME --data FILE --out DIR --examples N",
        "fairseq-adv prepare glue DIR TASK OUT --encoder DIR",
        "fairseq-adv train DATA --encoder DIR --criterion CRITERION --workers N --lr 1e-5 --no-save",
        "fairseq-adv train DATA --encoder DIR --tokens-per-sample 128 --criterion alum_vat --vat-alpha 2",
        "fairseq-adv train DATA --encoder DIR … --adv-steps 3",
        f"{FAIRSEQ} {USER_DIR} --criterion freelb --adv-steps K $(cat out/minilm/model_args.txt)",
        f"torchrun --nproc_per_node 2 $(which fairseq-train) DATA {USER_DIR} --arch roberta_base",
        f"{HYDRA} -m task.data=a criterion.adv_lr=1,2 common.user_dir=$(fairseq-adv user-dir) "
        "task.tokenizer_dir=b checkpoint.save_dir=c",
        "fairseq-hydra-train --config-dir DIR --config-name NAME task.data=DATA optimization.lr=[0.1]",
        f"{RUN} glue=rte --gpus 8 optimization.max_epoch=N",
        "examples/run.py RECIPE DATA ENCODER_DIR SAVE_DIR [--gpus N] [key=value ...]",
        "w=(corpus.txt out --encoder minilm)\nsbatch examples/alum/prepare_corpus.sbatch \"${w[@]}\" --check",
        "X=1 nice -n 19 taskset -c 0 scripts/test.sh --fast >out/log 2>&1 </dev/null || echo failed",
        "cat <<'EOF' >a.txt\nfrobnicate 'this\nEOF\nls",
        "examples/flooding/figures.py levels <(ls out) out/figure  # frobnicate 'this",
        "if [ -d a ]; then ls; fi",
        "examples/run.py --help && fairseq-adv --version && fairseq-adv prepare --help && fairseq-train -h",
        "fairseq-adv attack --attack pwws --help && benchmarks/retrieval.py --help && torchrun --help",
        "pip install 'fairseq_adv[attacks,plots]' 'torch>=2.0' -U && .venv/bin/python -m pytest",
    ],
)  # fmt: skip
def test_a_right_command(text: str) -> None:
    assert faults(page(text), "page.md") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`fairseq-adv predicts`", "invalid choice"),
        ("`fairseq-adv predict`, `fairseq-adv retrieve documents --top`, `torchrun --no-python`", ""),
        ("`fairseq-adv retrieve documents --tops`", "unrecognized arguments: --tops"),
        ("`fairseq-adv predict a.pt\n--data b`", "--out is missing"),
        ("`benchmarks/mode_cells.py`, `fairseq-train`, `frobnicate --all`, `examples/roberta/a.py`", ""),
        ("`benchmarks/nothing.py`", "benchmarks/nothing.py is not there"),
        ("| ``scripts/test.sh --fast\\|--slows`` |", "unknown program"),
        ("`pip install '.[plot]'`", "no extra plot"),
    ],
)
def test_code_in_a_sentence(text: str, message: str) -> None:
    found = faults(f"First line.\n\n- Then {text}.\n", "page.md")
    assert (found == []) if not message else found[0].startswith("page.md:3: ") and message in found[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import fairseq_adv\nfrom fairseq_adv.objectives import Objective, register_objective", ""),
        ("import fairseq_adv\nfrom fairseq_adv.objectives import Objectiv",
         "page.md:5: python: cannot import Objectiv"),
        ("import torch, fairseq_adv.nothing", "page.md:4: python: cannot import fairseq_adv.nothing"),
        ("from fairseq.models.roberta import RobertaModel\nfrom elsewhere import Nothing", ""),
        ("from fairseq.models.roberta import Roberta2", "cannot import Roberta2 from fairseq.models.roberta"),
        ("for x in range(3)\n    pass", "page.md:4: python: "),
    ],
)  # fmt: skip
def test_a_block_of_python(text: str, message: str) -> None:
    found = faults(page(text, language="python"), "page.md")
    assert (found == []) if not message else message in found[0]


def test_the_language_of_a_block() -> None:
    """No command hides in a block that is not checked."""
    (fault,) = faults(page("ls", language="sh"), "page.md")
    assert fault.startswith("page.md:4: ```sh: write ```bash")
    (fault,) = faults(page("fairseq-adv predict a.pt", language=""), "page.md")
    assert fault == "page.md:4: a block of commands: write ```bash"
    assert faults(page("run  criterion", language=""), "page.md") == []
    assert faults("Text.\n\n```bash\nfrobnicate\n", "page.md") == ["page.md:3: this block of code has no end"]
    indented = "- A list:\n\n    ```bash\n    frobnicate \\\n        --all\n    ```\n"
    (fault,) = faults(indented, "page.md")
    assert fault.startswith("page.md:4: frobnicate: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b $c' \"d $e\" f\\ g # h", [["a", "b $c", "d $e", "f g"]]),
        ("a |b&& c;d & e", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a \\\n  b\nc", [["a", "b"], ["c"]]),
        ("x=1 y=2 a $x ${y}z $w", [["a", "1", "2z", "$w"]]),
        ("for x in 1 2; do\n  a $x\ndone", [["a", "1"], ["a", "2"]]),
        ("w=(b 'c d'\n e)\na \"${w[@]}\" $((${#w[@]} - 1))", [["a", "b", "c d", "e", "1"]]),
        ("a $(b \"$(c)\") >d 2>>e", [["c"], ["b", "VALUE"], ["a", "VALUE"]]),
        ("a [b] [--c d|e|f] … g=… \"[h]\"", [["a", "b", "--c", "d", "[h]"]]),
        ("if ! a; then b; else c; fi", [["a"], ["b"], ["c"]]),
    ],
)  # fmt: skip
def test_words_of_bash(text: str, words: list[list[str]]) -> None:
    assert [list(call.words) for call in calls(text)] == words


@pytest.mark.parametrize("text", ['a "b', "a 'b", "a $(b", "a >"])
def test_invalid_bash(text: str) -> None:
    with pytest.raises(Unreadable, match="line 1: "):
        calls(text)


def test_the_lines_of_commands() -> None:
    found = calls("a \\\n  b\n# c\n\nd '\n' && e\ncat <<E\nf\nE\ng", line=10)
    assert [(call.line, call.words[0]) for call in found] == [
        (10, "a"),
        (14, "d"),
        (14, "e"),
        (16, "cat"),
        (19, "g"),
    ]


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    verbs = "fairseq-adv fetch minilm out\nfairseq-adv prepare wsc a out"
    text = f"touch-nothing > made\n{verbs}\nmkdir out\nexamples/evidence/run.sh a out"
    assert len(faults(page(text), "page.md")) == 1  # touch-nothing is unknown
    assert list(tmp_path.iterdir()) == []
