"""What determines an attack, on the embeddings or on words, and what a model must keep under attacks on words
before it is released. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

LOSSES = ("cross-entropy", "margin")
"""The loss of training, and the highest score of a wrong class minus that of the right one."""
IMPORTANCE = ("delete", "unknown", "weighted-saliency")
METRICS = ("angular", "cosine")
AGAINST = ("original", "current")
SIDES = ("first", "second", "both", "question", "documents", "choices")  # the texts that may change


@dataclass
class Attack:
    """An attack's radius and schedule, per example, in the units of the embeddings or relative to them.

    Attributes:
        epsilon: radius of the L2 ball.
        start: m of the random start; 0: start at the clean embeddings.
        relative: the sizes are fractions of the L2 norm of the example's embeddings.
        loss: what the steps raise, one of :data:`LOSSES`. The gradient of cross-entropy vanishes where the
            softmax is saturated, so that an over-confident model looks robust; that of the margin does not.
    """

    epsilon: float
    step_size: float
    steps: int = 20
    start: float = 0.0
    seed: int = 1
    relative: bool = False
    loss: str = "cross-entropy"

    @property
    def radius(self) -> str:
        """The radius with its unit, for tables."""
        unit = "a length in the space of the embeddings"
        if self.relative:
            unit = f"{100 * self.epsilon:g} % of the norm of an example's embeddings"
        return f"epsilon {self.epsilon:g} ({unit})"


@dataclass(frozen=True)
class Settings:
    """What an attack tries, and its constraints. Results are comparable only if all of these are equal.

    Attributes:
        attack: its name.
        sources: where candidates come from: names in ``resources.LETTERS``, neighbours, wordnet or masked_lm.
        importance: how words are ranked: by how much the right answer's probability drops without the word
            (delete), with ``unknown_word`` in its place (unknown), or PWWS's product of that and the best
            candidate's effect (weighted-saliency).
        candidates: most candidates for a word from a table, WordNet or a masked LM; 0: all.
        unknown_word: replaces a word while its importance is measured.
        similarity: least similarity of the sentence vectors; used if there is an encoder.
        similarity_metric: angular: 1 - angle / pi; or the cosine.
        similarity_against: the original text, or the current one, before the word is changed.
        similarity_window: number of words around the change to compare; 0: the whole text.
        check_short_texts: also compare texts with fewer words than the window. TextFooler's recipe does not.
        part_of_speech: a candidate must have the word's part of speech, with noun and verb treated as one;
            used if there is a tagger.
        max_changed_share: of a text's words, rounded up; 1: no limit.
        max_edits: most letters inserted, deleted or replaced per example; 0: no limit.
        query_budget: most queries per example; 0: no limit.
        queries_per_word: most queries per word of an example, as in TextDefender; 0: no limit.
        seed: for misspellings.
    """

    attack: str
    sources: tuple[str, ...]
    importance: str = "delete"
    candidates: int = 50
    unknown_word: str = "[UNK]"
    similarity: float = 0.8
    similarity_metric: str = "cosine"
    similarity_against: str = "original"
    similarity_window: int = 0
    check_short_texts: bool = False
    part_of_speech: bool = False
    max_changed_share: float = 1.0
    max_edits: int = 0
    query_budget: int = 0
    queries_per_word: int = 0
    seed: int = 1

    def with_options(self, options: Mapping[str, Any]) -> Settings:
        """A copy with the values of ``options`` that are not ``None``."""
        known = {field.name for field in fields(self)}
        given = {name: value for name, value in options.items() if name in known and value is not None}
        return replace(self, **given)

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return {**asdict(self), "sources": list(self.sources)}


@dataclass(frozen=True)
class Variants:
    """An attack that tries variants of a text, in each of which more words differ; no model chooses them.

    Attributes:
        attack: one of ``fairseq_adv.data.text.word_text.KINDS``.
        variants: texts to try per example; of N, the k-th has k / N of the changes.
        max_changed_share: of a text's words, changed in the last variant; not for appended words.
        max_appended: words appended in the last variant.
        seed: for choosing words.
    """

    attack: str
    variants: int = 10
    max_changed_share: float = 1.0
    max_appended: int = 10
    seed: int = 1

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = asdict(self)
        del values["max_changed_share" if self.attack == "appended" else "max_appended"]
        return values


ATTACKS = {
    settings.attack: settings
    for settings in (
        # Jin et al., AAAI 2020, with TextAttack's constants: an angle of 0.5 rad is 0.840845 here.
        Settings(
            "textfooler", ("neighbours",), similarity=0.840845057, similarity_metric="angular",
            similarity_against="current", similarity_window=15, part_of_speech=True,
        ),
        # Li et al., NDSS 2019.
        Settings(
            "textbugger",
            ("inserted_blank", "deleted_inside", "swapped_inside", "lookalikes", "neighbours"),
            candidates=5,
        ),
        # Li et al., EMNLP 2020; 48 candidates are the authors', 8 TextAttack's since 0.3.11.
        Settings(
            "bert-attack", ("masked_lm",), importance="unknown", candidates=48, unknown_word="[MASK]",
            similarity=0.2, max_changed_share=0.4,
        ),
        # Ren et al., ACL 2019, without its named entities, as in TextAttack.
        Settings("pwws", ("wordnet",), importance="weighted-saliency", candidates=0),
        # Gao et al., IEEE SPW 2018.
        Settings(
            "deepwordbug", ("swapped", "substituted", "deleted", "inserted"), importance="unknown",
            candidates=0, max_edits=30,
        ),
    )
}  # fmt: skip

# Without "-style" these names would mean the papers' attacks, with their own vectors, encoder and tagger.
TITLES = {
    "textfooler": "TextFooler-style", "textbugger": "TextBugger-style", "bert-attack": "BERT-Attack-style",
    "pwws": "PWWS", "deepwordbug": "DeepWordBug", "spaced": "Spaced letters",
    "homoglyphs": "Look-alike letters", "appended": "Appended words",
}  # fmt: skip


MISSED = 3
"""The exit status of a command whose attacks a model did not withstand; 1 and 2 are errors."""


@dataclass(frozen=True)
class Gate:
    """Limits, each a share from 0 to 1; ``None``: there is none.

    Attributes:
        min_accuracy: least accuracy under each attack, over all attacked rows.
        max_flip_rate: largest share of changed answers under each attack, among those that were right.
    """

    min_accuracy: float | None = None
    max_flip_rate: float | None = None

    def misses(self, summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What is missed, by attack. A model that was never right misses every flip rate.

        Args:
            summaries: see :func:`fairseq_adv.evaluation.word_attacks.report.summary`.
        """
        missed = []
        for one in summaries:
            accuracy = one["aua"] / 100
            flipped = None if one["suc"] is None else one["suc"] / 100
            # Rounded, since 7.2 / 100 is .07200000000000001.
            if self.min_accuracy is not None and round(accuracy, 12) < self.min_accuracy:
                missed.append({"attack": one["attack"], "limit": "min_accuracy", "value": accuracy})
            if self.max_flip_rate is not None and (
                flipped is None or round(flipped, 12) > self.max_flip_rate
            ):
                missed.append({"attack": one["attack"], "limit": "max_flip_rate", "value": flipped})
        return missed

    def as_json(self, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The limits and what is missed; empty if there are no limits."""
        limits = {"min_accuracy": self.min_accuracy, "max_flip_rate": self.max_flip_rate}
        if set(limits.values()) == {None}:
            return {}
        return {"gate": {**limits, "missed": self.misses(summaries)}}

    def lines(self, summaries: Sequence[Mapping[str, Any]]) -> list[str]:
        """The same for a reader."""
        lines = []
        missed = {(one["limit"], one["attack"]): one["value"] for one in self.misses(summaries)}
        for name, words in (
            ("min_accuracy", "accuracy under attack of at least"), ("max_flip_rate", "flip rate of at most")
        ):  # fmt: skip
            limit = getattr(self, name)
            if limit is None:
                continue
            below = [
                f"{attack} ({'no answer was right' if value is None else f'{100 * value:.4g} %'})"
                for (missed_limit, attack), value in missed.items()
                if missed_limit == name
            ]
            verdict = f"missed under {', '.join(below)}" if below else "kept"
            lines.append(f"gate: {words} {100 * limit:g} %: {verdict}")
        return lines
