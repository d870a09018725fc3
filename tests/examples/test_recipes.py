"""The recipes' yamls: every method builds, no key is missing, the numbers are the papers'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fairseq import criterions, tasks
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf
from recipes import (
    AS_THEY_ARE,
    CLASSES,
    EXAMPLES,
    GLUE,
    PRETRAINING,
    RECIPES,
    completed,
    composed,
    methods,
    own_keys,
    recipe,
    tiny_data,
)
from support import slow

ADVERSARY = EXAMPLES / "glue" / "config" / "adversary"
ORDER = ("adv_lr", "adv_steps", "adv_init_mag", "adv_max_norm")
# alpha, ascent steps (FreeAT: replays), size of the start, epsilon; YOPO: shallow steps besides.
AUTHORS = {
    "freelb": {
        "cola": (0.025, 3, 0.4, 0.3), "mnli": (0.1, 2, 0.1, 0.3), "mrpc": (0.04, 3, 0.64, 0.4),
        "qnli": (0.1, 2, 0.2, 0.2), "qqp": (0.2, 2, 0.32, 0.7), "rte": (0.03, 3, 0.16, 0.14),
        "sst_2": (0.1, 2, 1.0, 0.6), "sts_b": (0.1, 3, 0.16, 0.28),
    },
    "freelb_paper": {  # Table 7
        "cola": (0.025, 3, 0.4, 0.2), "mnli": (0.1, 2, 0.2, 0.2), "mrpc": (0.04, 3, 0.64, 0.4),
        "qnli": (0.1, 2, 0.15, 0.15), "qqp": (0.15, 2, 0.32, 0.45), "rte": (0.03, 3, 0.16, 0.15),
        "sst_2": (0.1, 2, 1.0, 0.6), "sts_b": (0.1, 3, 0.16, 0.3),
    },
    "freeat": {
        "cola": (0.05, 3, 0.4, 0.2), "mnli": (0.1, 2, 0.01, 0.2), "mrpc": (0.04, 3, 0.64, 0.4),
        "qnli": (0.1, 2, 0.15, 0.15), "qqp": (0.15, 2, 0.32, 0.62), "rte": (0.03, 3, 0.16, 0.14),
        "sst_2": (0.1, 2, 1.0, 0.6), "sts_b": (0.1, 3, 0.16, 0.28),
    },
    "yopo": {
        "cola": (0.025, 3, 0.4, 0.3, 2), "mnli": (0.1, 2, 0.1, 0.2, 3), "mrpc": (0.0133, 3, 0.64, 0.4, 2),
        "qnli": (0.1, 2, 0.15, 0.15, 2), "qqp": (0.15, 2, 0.32, 0.62, 2), "rte": (0.03, 3, 0.16, 0.14, 3),
        "sst_2": (0.1, 2, 1.0, 0.6, 3), "sts_b": (0.1, 2, 0.16, 0.28, 2),
    },
    "tavat": {  # passes, not steps
        "cola": (0.02, 3, 0.1, 0.2), "mnli": (0.1, 2, 0.3, 0.4), "mrpc": (0.05, 2, 0.1, 0.2),
        "qnli": (0.02, 2, 0.1, 0.3), "qqp": (0.2, 2, 0.32, 0.7), "rte": (0.02, 2, 0.16, 0.14),
        "sst_2": (0.05, 2, 0.2, 0.5), "sts_b": (0.1, 2, 0.1, 0.28),
    },
}  # fmt: skip
AUTHORS["pgd"] = {**AUTHORS["freeat"], "mnli": (0.1, 2, 0.2, 0.2)}
BASELINES = {
    "freelb_plus_plus": {"_name": "freelb", "adv_steps": 5, "adv_lr": 0.03, "adv_init_mag": 0.05,
                         "adv_max_norm": 0, "no_adv_share_dropout": True},
    "noise": {"_name": "noise", "noise_kind": "uniform", "noise_size": 5},
    "r3f": {"_name": "r3f", "r3f_lambda": 0.7, "r3f_epsilon": 1e-5, "r3f_noise": "uniform",
            "r3f_share_dropout": False},
    "creat": {"_name": "creat", "adv_steps": 2, "adv_lr": 0.1, "adv_max_norm": 0.1, "creat_tau": 1,
              "creat_init_std": 0.01},
}  # fmt: skip
# learning rate, warm-up, updates of the schedule, batch size, update frequency
SCHEDULES = {
    "cola": (1e-5, 320, 5336, 8, 2), "mnli": (1e-5, 7432, 123873, 3, 11), "mrpc": (5e-6, 137, 2296, 2, 8),
    "qnli": (1e-5, 1986, 33112, 2, 16), "qqp": (1e-5, 28318, 113272, 32, 1), "rte": (1e-5, 122, 2036, 2, 8),
    "sst_2": (1e-5, 1256, 20935, 8, 4), "sts_b": (2e-5, 214, 3598, 8, 2),
}  # fmt: skip
# FreeLB's ALBERT scripts: alpha, passes, size of the start, epsilon (0: no limit), learning rate, sentences
# an update, dropout of the attention, updates, warm-up.
ALBERT = {
    "cola": (0.04, 3, 0.05, 0, 1e-5, 16, 0, 5336, 320), "mnli": (0.04, 3, 0.08, 0, 3e-5, 128, 0, 10000, 1000),
    "mrpc": (0.03, 4, 0, 0, 2e-5, 16, 0, 800, 200), "qnli": (0.05, 3, 0.1, 0, 1e-5, 32, 0, 33112, 1986),
    "qqp": (0.2, 3, 0.32, 0.7, 5e-5, 128, 0.1, 14000, 1000), "rte": (0.1, 3, 0, 0, 3e-5, 32, 0.1, 800, 200),
    "sst_2": (0.1, 2, 0.6, 0, 1e-5, 32, 0, 20935, 1256), "sts_b": (0.1, 3, 0.2, 0, 2e-5, 16, 0, 3598, 214),
}  # fmt: skip
ROWS = {"cola": 8551, "mnli": 392702, "mrpc": 3668, "qnli": 104743, "qqp": 363846, "rte": 2490,
        "sst_2": 67349, "sts_b": 5749}  # fmt: skip
METRIC, COUNTS = {"cola": "mcc", "sts_b": "pearson"}, {"mnli": 3, "sts_b": 1}
METHODS = [(name, method) for name in RECIPES for method in methods(name)]
ONCE = {name: (name, method) for name, method in METHODS}.values()  # each recipe


@pytest.mark.parametrize(("name", "method"), [pair if pair in ONCE else slow(*pair) for pair in METHODS])
def test_every_method_builds_and_each_of_its_keys_stands_in_the_yaml(
    tmp_path: Path, encoder: Callable[[str], Path], name: str, method: str
) -> None:
    """A missing key could not be set without a +, and an unknown one is refused."""
    own = [f"method={method}", f"task.data={tiny_data(tmp_path, name)}", "optimization.max_epoch=5"]
    own += ["criterion.flood_level=0.1"] if method == "flooding" else []
    own += ["checkpoint.finetune_from_model=null"]
    bare = composed(name, *own)
    if "tokenizer_dir" in set(bare.task):
        bare.task.tokenizer_dir = str(encoder(name))
    known = own_keys(CRITERION_DATACLASS_REGISTRY[bare.criterion._name])
    assert set(bare.criterion) == known | {"_name"}
    listed = own_keys(TASK_DATACLASS_REGISTRY[bare.task._name])
    assert set(bare.task) >= listed | {"_name"} or name == "glue"
    config = completed(bare)
    task = tasks.setup_task(config.task)
    assert criterions.build_criterion(config.criterion, task).objective.task is task
    assert config.ema.store_ema == (method == "smart")


def test_each_of_a_methods_own_keys_stands_in_its_yaml() -> None:
    """The same without the data, of all recipes."""
    paths = sorted(EXAMPLES.glob("*/config/**/method/*.yaml"))
    assert {"config", "albert", "finetune", "pretrain"} <= {path.parts[-3] for path in paths}
    shared = own_keys(CRITERION_DATACLASS_REGISTRY["standard"])
    for path in paths:
        criterion = OmegaConf.load(path).criterion
        known = own_keys(CRITERION_DATACLASS_REGISTRY[criterion._name]) - shared
        assert known <= set(criterion), path


def check_the_task(config: Any, task: str) -> None:
    assert config.checkpoint.best_checkpoint_metric == METRIC.get(task, "accuracy")
    assert config.task.num_classes == COUNTS.get(task, 2)
    assert config.criterion.regression_target == (task == "sts_b")
    assert config.dataset.valid_subset == ("valid,valid1" if task == "mnli" else "valid")


@pytest.mark.parametrize("task", ["cola", "mnli", "sts_b", *(slow(task) for task in GLUE[2:7])])
def test_glue_has_the_numbers_of_the_authors_and_of_the_paper(task: str) -> None:
    """FreeLB's and YOPO's passes are one more than the ascent steps; PGD and FreeAT count as the authors."""
    for method, rows in AUTHORS.items():
        found = OmegaConf.load(str(ADVERSARY / method / f"{task}.yaml"))
        alpha, steps, start, epsilon, *shallow = rows[task]
        passes = steps + (method in ("freelb", "freelb_paper", "yopo"))
        assert [found[key] for key in ORDER] == [alpha, passes, start, epsilon], method
        assert [found[key] for key in found if key == "yopo_steps"] == shallow
    config = composed("glue", f"glue={task}", "criterion.flood_level=0.05")
    assert config.criterion.adv_lr == AUTHORS["freelb"][task][0]
    lr, warmup, updates, batch, parts = SCHEDULES[task]
    assert (config.optimization.lr, config.optimization.update_freq) == ([lr], [parts])
    schedule = config.lr_scheduler
    assert (schedule.warmup_updates, schedule.total_num_update, config.dataset.batch_size) == (
        warmup, updates, batch,
    )  # fmt: skip
    assert (config.model._name, config.optimizer.adam_betas) == ("roberta_large", "(0.9, 0.999)")
    check_the_task(config, task)


@pytest.mark.parametrize("task", ["mnli", "sts_b", *(slow(task) for task in (GLUE[0], *GLUE[2:7]))])
def test_albert_has_the_numbers_of_the_authors_scripts(task: str) -> None:
    config = composed("albert", f"glue={task}")
    batch = config.dataset.batch_size * config.optimization.update_freq[0]
    schedule, (lr,) = config.lr_scheduler, config.optimization.lr
    sizes = [config.criterion[key] for key in ("adv_lr", "adv_steps", "adv_init_mag", "adv_max_norm")]
    more = (lr, batch, config.model.attention_dropout, schedule.total_num_update, schedule.warmup_updates)
    assert (*sizes, *more) == ALBERT[task]
    assert config.optimization.max_update == schedule.total_num_update and config.optimization.max_epoch == 0
    check_the_task(config, task)
    assert composed("albert", f"glue={task}", "method=standard").criterion._name == "standard"


def test_recipes_of_encoders_as_they_are() -> None:
    """With FreeLB's dropout, which is not ALBERT v2's."""
    for name in AS_THEY_ARE:
        config = composed(name)
        assert (config.model._name, config.model.hf_model) == ("hf_encoder", "ENCODER_DIR")
        assert (config.model.dropout, config.task.separator_token) == (0.1, None)


@pytest.mark.slow
def test_the_sizes_are_those_of_the_method_and_the_task_that_are_chosen() -> None:
    for method, rows in AUTHORS.items():
        found = composed("glue", "glue=mnli", f"method={method}").criterion
        sizes = rows["mnli"]
        assert (found._name, found.adv_init_mag) == (method.removesuffix("_paper"), sizes[2])
        assert (found.adv_lr, found.adv_max_norm) == (sizes[0], sizes[3])
        assert found.get("yopo_full_step", True) and found.get("freeat_schedule", "groups") == "groups"
    for method, sizes in BASELINES.items():  # the same for every task
        found = composed("glue", "glue=mnli", f"method={method}").criterion
        assert {key: found[key] for key in sizes} == sizes
    plain = composed("glue", "method=plain").criterion
    assert plain._name == "freelb" and [plain[key] for key in ORDER] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "default", "sizes", "updates", "examples"),
    [
        slow("commonsense_qa", "freelb", (0.05, 2, 0.16, 0), (0, 4000), 16),
        slow("qnli_ranking", "freelb", (0.05, 2, 0.32, 0), (10, 0), 16),
        ("wsc", "freelb", (0.005, 2, 0.01, 0.01), (0, 2000), 64),
        slow("race", "standard", (0.05, 2, 0.16, 0), (5, 0), 8),
        slow("union", "standard", (0.05, 2, 0.16, 0), (5, 0), 8),
        ("arc", "freelb", (0.05, 2, 0.16, 0), (5, 0), 8),
    ],
)
def test_reasoning_tasks(
    name: str, default: str, sizes: tuple[float, ...], updates: tuple[int, int], examples: int
) -> None:
    """Only the last of ARC's three stages is trained with FreeLB, as in the paper."""
    tokens = "task.tokenizer_dir=/encoder"
    config = composed(name, tokens)
    assert config.criterion._name == default
    for method, more in (("freelb", 1), ("pgd", 0)):  # passes; ascent steps
        found = composed(name, tokens, f"method={method}").criterion
        alpha, steps, start, epsilon = sizes
        assert [found[key] for key in ORDER] == [alpha, steps + more, start, epsilon]
    assert (config.optimization.max_epoch, config.optimization.max_update) == updates
    assert config.optimization.lr == ([2e-5] if name == "wsc" else [1e-5])
    assert config.dataset.batch_size * config.optimization.update_freq[0] == examples
    head = composed(name, tokens, "criterion.classification_head_name=another")
    assert head.criterion.classification_head_name == "another"
    assert name == "wsc" or head.task.classification_head_name == "another"


@pytest.mark.parametrize("name", ["finetune", *PRETRAINING])
def test_alum_has_the_constants_of_the_paper(name: str) -> None:
    for path in (recipe(name).parent / "method").glob("*.yaml"):
        found = OmegaConf.load(str(path)).criterion
        if found._name not in ("standard", "sift"):  # sift's sizes are of normalised embeddings
            keys = [f"vat_{key}" for key in ("alpha", "steps", "step_size", "epsilon", "init_std")]
            alpha = 1 if name == "finetune" else 10
            assert [found[key] for key in keys] == [alpha, 1, 1e-3, 1e-5, 1e-5], path
            assert found.vat_start_update == (500000 if path.stem == "alum_vat_second_half" else 0)
    config = composed(name)
    rows = config.dataset.batch_size * config.optimization.update_freq[0]
    rows *= config.distributed_training.distributed_world_size
    assert rows == (32 if name == "finetune" else 256)
    if name in PRETRAINING:
        updates = 1_000_000 if name == "bert_base" else 100_000
        assert config.optimization.max_update == config.lr_scheduler.total_num_update == updates
        assert config.optimization.lr == ([1e-4] if name == "bert_base" else [4e-5])
        assert config.criterion.vat_start_update == (500000 if name == "bert_base" else 0)


@pytest.mark.parametrize("name", [slow("finetune"), "flooding"])
def test_schedules_are_as_long_as_ten_epochs(name: str) -> None:
    for task in GLUE if name == "finetune" else ["mrpc", "qnli", "sst_2"]:
        config = composed(name, f"glue={task}", "method=standard")
        update = config.dataset.batch_size * config.optimization.update_freq[0]
        assert update == (16 if (name, task) == ("flooding", "qnli") else 32)
        epoch = -(-ROWS[task] // update)
        schedule = config.lr_scheduler
        assert (config.optimization.max_epoch, schedule.total_num_update) == (10, 10 * epoch)
        share = 0.06 if name == "finetune" else 0.1
        assert abs(schedule.warmup_updates - share * 10 * epoch) < 1
    if name == "finetune":
        models = [composed(name, f"glue={task}").model for task in ("cola", "mnli", "rte")]
        assert [(one.pooler_dropout, one.dropout) for one in models] == [(0.05, 0.1), (0.3, 0.1), (0.1, 0.1)]


@pytest.mark.parametrize("name", [name if name in CLASSES[:3] else slow(name) for name in RECIPES])
def test_half_precision_as_the_authors_have_it_and_one_kernel_for_adam(name: str) -> None:
    """apex's O1 for ALBERT is fairseq's amp; Flooding-X prints no precision."""
    config = composed(name)
    half = {key for key in ("fp16", "amp", "bf16") if config.common.get(key)}
    assert half == {"albert": {"amp"}, "flooding": set()}.get(name, {"fp16"})
    assert config.optimizer._name == "torch_adamw"
    theirs = completed(composed(name, "optimizer._name=adam"))
    assert theirs.optimizer.keys() == completed(config).optimizer.keys()
