"""Several labels, or none, for texts and pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fairseq_adv.data.class_rows import same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.several_labels import LabelColumns, joined_labels, labels_in
from fairseq_adv.evaluation.predict.predictors import InputFile
from fairseq_adv.evaluation.predict.text_predictor import TextPredictor


class LabelPredictor(TextPredictor):
    """The right answers of a file are columns of 0 and 1 with the labels' names, or one with a separator."""

    kind = "labels"
    several = True

    def gold(self, file: InputFile) -> list[str]:
        """The labels of each row, as :func:`joined_labels`; a label without a column holds for no row."""
        columns = LabelColumns((str(file.label), *file.more_labels), file.label_separator or "")
        read = read_texts("the labels", self.table(file), Columns((), columns.columns[0], read=columns))
        found = []
        for text, where in zip(read.labels, read.where):
            names = [(name, same_class(name, self.labels)) for name in labels_in(text)]
            if odd := [name for name, known in names if known is None]:
                raise DataError(
                    f"{where}: {odd[0]!r:.40} is not a label of the model ({', '.join(self.labels):.200}). "
                    "Correct it, or leave --label out."
                )
            found.append(joined_labels(str(known) for _, known in names))
        return found

    @staticmethod
    def named(target: Tensor, labels: Sequence[str]) -> str:
        return joined_labels(name for name, holds in zip(labels, target.tolist()) if holds)
