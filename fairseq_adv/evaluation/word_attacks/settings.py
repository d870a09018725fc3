"""The attacks by their names, and everything that decides what one does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

IMPORTANCE = ("delete", "unknown", "weighted-saliency")
METRICS = ("angular", "cosine")
AGAINST = ("original", "current")


@dataclass(frozen=True)
class Settings:
    """What an attack tries, and what it may not do. Numbers of two papers compare only where all are equal.

    Attributes:
        attack: its name.
        sources: what candidates come from: names in ``resources.SOURCES``.
        importance: how words are ordered: by what the right answer's probability loses without the word
            (delete), with ``unknown_word`` in its place (unknown), or PWWS's product of that and of the best
            candidate's effect (weighted-saliency).
        candidates: most candidates of a word from a table, WordNet or a masked LM; 0: all.
        unknown_word: what hides a word.
        similarity: least similarity of the sentence's vectors; used where there is an encoder.
        similarity_metric: angular: 1 - angle / pi; or the cosine.
        similarity_against: the original text, or the current one, before the word is changed.
        similarity_window: words around the change that are compared; 0: the whole text.
        check_short_texts: compare texts with fewer words than the window, too. TextFooler's recipe does not.
        part_of_speech: a candidate must be of the word's part of speech, noun and verb being one; used where
            there is a tagger.
        max_changed_share: of a text's words, rounded up; 1: no limit.
        max_edits: most letters that may be inserted, deleted or replaced in all texts; 0: no limit.
        query_budget: most queries an example; 0: no limit.
        queries_per_word: as many an example for each of its words, as TextDefender has it; 0: no limit.
        seed: of misspellings.
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
        """The same with other values where ``options`` has one that is not ``None``."""
        known = {field.name for field in fields(self)}
        given = {name: value for name, value in options.items() if name in known and value is not None}
        return Settings(**{**{f.name: getattr(self, f.name) for f in fields(self)}, **given})

    def as_json(self) -> dict[str, Any]:
        """As json holds it."""
        return {**asdict(self), "sources": list(self.sources)}


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

# "TextFooler" and the others are the papers' with their own vectors, encoder and tagger.
TITLES = {
    "textfooler": "TextFooler-style", "textbugger": "TextBugger-style", "bert-attack": "BERT-Attack-style",
    "pwws": "PWWS", "deepwordbug": "DeepWordBug",
}  # fmt: skip
