"""Tasks read data sets and make mini-batches. Importing this package registers every task with fairseq."""

from importlib import import_module

# The last one is asked first whether a folder has its data (task_record.py).
TASKS = (
    "tagging",
    "span_qa",
    "arc_retrieval",
    "commonsense_qa",
    "wsc",
    "qnli_ranking",
    "scheduled_masked_lm",
    "text_classification",
    "multi_label",
)
for _name in TASKS:
    import_module(f"{__name__}.{_name}")
