"""Several labels a text: read from columns of 0 and 1, or from one column with a separator.

As text they are joined by ``|``, sorted by name; ``-`` stands for none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import LabelledRows, check_class_name, refuse_odd_labels
from fairseq_adv.data.tables.table_files import no_column

_JOIN, _NONE = "|", "-"
_VALUES = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


def joined_labels(names: Iterable[str]) -> str:
    """Labels as one text."""
    return _JOIN.join(sorted(names)) or _NONE


def labels_in(text: str) -> list[str]:
    """The labels in a text of :func:`joined_labels`."""
    return [] if text == _NONE else text.split(_JOIN)


@dataclass(frozen=True)
class LabelColumns:
    """Where a row has its labels, for :class:`fairseq_adv.data.tables.labelled_rows.Columns`.

    Attributes:
        columns: one for each label, with 0 and 1; with a separator only one.
        separator: between the labels of a cell; "": there is none.
    """

    columns: tuple[str, ...]
    separator: str = ""

    def __call__(self, row: dict[str, Any], where: str) -> Optional[str]:
        """A row's labels, as :func:`joined_labels`; ``None`` if it has none of the columns, or only empty
        cells of 0 and 1."""
        if self.separator:
            value = row.get(self.columns[0])
            if self.columns[0] not in row:
                return None
            names = self._names(value, where)
            return joined_labels({check_label_name(name.strip(), where) for name in names})
        cells = [row.get(column) for column in self.columns]
        filled = [cell not in (None, "") for cell in cells]
        if not any(filled):
            return None
        if not all(filled):
            column = self.columns[filled.index(False)]
            if column not in row:
                raise no_column(row, column, where)
            raise DataError(f"{where}: no 0 or 1 in column {column!r}. Fill it in, or remove the row.")
        held = []
        for column, cell in zip(self.columns, cells):
            holds = _VALUES.get(str(cell).strip().lower())
            if holds is None:
                raise DataError(f"{where}: {cell!r:.40} in column {column!r} is neither 0 nor 1. Correct it.")
            held += [column] * holds
        return joined_labels(held)

    def _names(self, value: Any, where: str) -> list[str]:
        """The labels in a cell; a .jsonl may have a list of them."""
        if value in (None, "", _NONE):
            return []
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, (str, int)) and not isinstance(name, bool) for name in names):
            raise DataError(
                f"{where}: {value!r:.40} in column {self.columns[0]!r} is neither a text nor a list of "
                "texts. Correct it."
            )
        if not isinstance(value, str):
            return list(map(str, names))
        found = f"{value} ".split(self.separator)
        while found and not found[-1].strip():  # forms end a cell in a separator
            found.pop()
        return found

    def check_all_named(self, labels: Collection[str], held: Collection[Optional[str]]) -> None:
        """Raises DataError if columns of 0 and 1 leave out a label of the model, whose answers would count as
        wrong.

        Args:
            labels: of the model.
            held: the columns, by the names that the model has for them; ``None``: it has none.
        """
        missing = [name for name in labels if name not in held]
        if missing and not self.separator:
            raise DataError(
                f"--label: no column for {', '.join(missing):.200}, which the model predicts too. Pass the "
                "columns of all its labels"
            )


def check_label_name(name: str, where: str) -> str:
    """Returns the name. Raises DataError if it is none that data and answers can have."""
    if not name or _JOIN in name or name == _NONE:
        raise DataError(f"{where}: {name!r:.40} can't be the name of a label. Rename it.")
    return check_class_name(name, where)


def check_label_sets(splits: list[LabelledRows], given: Collection[str], allow_odd: bool) -> list[str]:
    """Checks the labels of splits, the training split first; returns notes.

    Args:
        given: the names of the labels; empty: those that occur in the training rows.

    Raises:
        DataError: there are less than two, one of another split is not in training, or they look like those
            of a wrong column.
    """
    train = splits[0]
    each = [[(name, where) for name in labels_in(text)] for text, where in zip(train.labels, train.where)]
    flat = list(chain(*each))
    if not given and not allow_odd and flat:
        refuse_odd_labels(LabelledRows(train.name, (), [n for n, _ in flat], [where for _, where in flat]))
    known = given or {name for name, _ in flat}
    if len(known) < 2:
        raise DataError(
            f"{train.where[0]} and the rows after it: {len(known)} different labels, but at least two are "
            "needed. Is it the right column, and the right --label-separator?"
        )
    for split in splits[1:]:
        for text, where in zip(split.labels, split.where):
            for name in labels_in(text):
                if name not in known:
                    raise DataError(f"{where}: label {name!r:.40} is not in the training rows. Correct it.")
    counts = dict.fromkeys(known, 0)
    for name, _ in flat:
        counts[name] += 1
    odd = {"no": 0, "only": len(train.labels)}
    odd_names = {what: [name for name, n in counts.items() if n == count] for what, count in odd.items()}
    return [
        f"labels with {what} positive training rows, which can't be learned: {', '.join(names)}"
        for what, names in odd_names.items()
        if names
    ]
