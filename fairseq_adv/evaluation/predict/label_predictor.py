"""Several labels, or none, for texts and pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fairseq_adv.data.class_rows import class_of_model
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.several_labels import LabelColumns, joined_labels, labels_in
from fairseq_adv.evaluation.predict.predictors import InputFile
from fairseq_adv.evaluation.predict.text_predictor import WRONG_LABEL, TextPredictor


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
            names = [class_of_model(name, self.labels, where, WRONG_LABEL) for name in labels_in(text)]
            found.append(joined_labels(names))
        return found

    @staticmethod
    def named(target: Tensor, labels: Sequence[str]) -> str:
        return joined_labels(name for name, holds in zip(labels, target.tolist()) if holds)
