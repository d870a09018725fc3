"""Converts GLUE's files to the data folders that fairseq's ``sentence_prediction`` task reads.

The output is byte-identical to that of fairseq's three steps (``examples/roberta/preprocess_GLUE_tasks.sh``):
cutting columns, ``multiprocessing_bpe_encoder --keep-empty``, and ``fairseq-preprocess --only-source``.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import TASKS, TaskLayout, read_split, task_layout
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.tables.labelled_rows import check_classes
from fairseq_adv.data.text.labelled_folder import label_dictionary, write_folder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import Prepared, finished, workspace

FORMAT_VERSION = 1


def find_task_folder(glue_dir: Path, task: TaskLayout) -> Path:
    """``glue_dir/TASK``, or ``glue_dir`` itself if it has the task's files."""
    for folder in (*(glue_dir / name for name in task.folders), glue_dir):
        if all(split.path(folder).is_file() for split in task.splits if split.required):
            return folder
    looked = [glue_dir / task.name / split.file for split in task.splits if split.required]
    if glue_dir.name == task.name or (glue_dir / task.splits[0].file).is_file():
        looked = [glue_dir / split.file for split in task.splits if split.required] + looked
    absent = "\n  ".join(f"{path}{'' if path.is_file() else ' (missing)'}" for path in looked)
    raise DataError(f"{glue_dir}: some files of {task.name} are missing. Looked for:\n  {absent}")


def tasks_in(glue_dir: Path) -> Tuple[List[str], List[str]]:
    """The tasks that have a folder in ``glue_dir``, and those that don't."""
    present = [task.name for task in TASKS if any((glue_dir / name).is_dir() for name in task.folders)]
    absent = [task.name for task in TASKS if task.name not in present]
    if not present:
        raise DataError(f"{glue_dir}: has none of the folders {', '.join(absent)}. Pass GLUE's folder.")
    return present, absent


def prepare(
    glue_dir: Path,
    task: str,
    out: Path,
    tokenizer: TokenToIds,
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Prepared:
    """Tokenises and binarises one GLUE task into ``out/{input0,input1,label,tokenizer}``.

    Every file is checked before anything is written. ``out`` is written atomically: an interrupted run
    leaves none. An ``out`` made from the same files is kept.

    Args:
        glue_dir: the folder of all GLUE tasks, or that of this one.
    """
    layout = task_layout(task)
    folder = find_task_folder(glue_dir, layout)
    present = [split for split in layout.splits if split.path(folder).is_file()]
    absent = [split.file for split in layout.splits if split not in present]
    result = Prepared(layout.name, out, notes=[f"no {name}, so that split is missing" for name in absent])
    labels = _labels_of_other_task(layout, folder, result)
    made_from = {
        "format": FORMAT_VERSION,
        "task": layout.name,
        "tokenizer": tokenizer.fingerprint(),
        "input files (sha256)": {split.file: sha256_of(split.path(folder)) for split in present},
    }
    if layout.labels_of:
        made_from["labels"] = list(label_dictionary(labels).symbols)
    if finished(out, made_from, overwrite):
        result.reused = True
        return result
    splits = [read_split(split.path(folder), layout, split) for split in present]
    if layout.classes and not layout.labels_of:
        check_classes(splits[0], splits[1:])
    for split, read in zip(present, splits):
        if read.dropped:
            result.notes.append(
                f"{split.file}: left out {read.dropped} row(s) without 6 columns, as in the recipe"
            )
    classes = label_dictionary(labels or splits[0].labels) if layout.classes else None
    with workspace(out, made_from) as space:
        write_folder(space, splits, classes, tokenizer, result, progress)
    return result


def _labels_of_other_task(layout: TaskLayout, folder: Path, result: Prepared) -> List[str]:
    """Labels that define the dictionary if ``layout`` is predicted by another task's model; else empty.

    A dictionary is ordered by frequency, so the labels come from that task's training file if it is
    available.
    """
    if not layout.labels_of:
        return []
    other = task_layout(layout.labels_of)
    for train in (place / other.name / other.splits[0].file for place in (folder, folder.parent)):
        if train.is_file():
            return read_split(train, other, other.splits[0]).labels
    result.notes.append(
        f"no {other.name}/{other.splits[0].file} next to it: the labels are in the order of GLUE's own "
        f"{other.name}, {', '.join(layout.classes)}. It must match the order in the model's label/dict.txt."
    )
    return [name for count, name in enumerate(reversed(layout.classes), start=1) for _ in range(count)]
