"""The API pages have what a user looks up in them."""

from __future__ import annotations

from documents import ROOT

from fairseq_adv.criterions import methods


def test_every_class_of_options_is_on_the_page_of_criterions() -> None:
    """A table there has a class's own options, not those that it inherits."""
    page = (ROOT / "docs" / "api" / "criterions.md").read_text(encoding="utf-8")
    found = {
        f"{base.__module__}.{base.__qualname__}"
        for method in methods().values()
        for base in getattr(method, "__dataclass").__mro__
        if base.__module__.startswith("fairseq_adv.")
    }
    assert len(found) > 15
    assert not [name for name in found if f"::: {name}\n" not in page]
