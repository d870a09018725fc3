"""Runs several searches at once, so that their questions to a model share its mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

Service = Callable[[Sequence[Any]], Sequence[Any]]
"""Questions -> an answer to each, in order."""
Result = TypeVar("Result")
Search = Generator["Request", "list[Any]", Result]


@dataclass(frozen=True)
class Request:
    """The questions of a search."""

    service: Service
    questions: Sequence[Any]


def run_together(searches: Iterable[tuple[int, Search[Result]]], most: int) -> Iterator[tuple[int, Result]]:
    """Runs searches, ``most`` at once, and yields (number, result) of each as it ends.

    In each round every search gets its answers; questions to the same service are passed in one call.
    """
    waiting = iter(searches)
    asking: dict[int, tuple[Search[Result], Request]] = {}
    while True:
        for number, search in islice(waiting, most - len(asking)):
            yield from _advance(number, search, None, asking)
        if not asking:
            return
        answers = _answers({number: request for number, (_, request) in asking.items()})
        for number, (search, _) in list(asking.items()):
            yield from _advance(number, search, answers[number], asking)


def _advance(
    number: int,
    search: Search[Result],
    answer: list[Any] | None,
    asking: dict[int, tuple[Search[Result], Request]],
) -> Iterator[tuple[int, Result]]:
    try:
        asking[number] = search, search.send(answer)  # type: ignore[arg-type]
    except StopIteration as end:
        asking.pop(number, None)
        yield number, end.value


def _answers(requests: dict[int, Request]) -> dict[int, list[Any]]:
    answers: dict[int, list[Any]] = {}
    services = {id(request.service): request.service for request in requests.values()}
    for key, service in services.items():
        askers = [number for number, request in requests.items() if id(request.service) == key]
        replies = iter(service([question for number in askers for question in requests[number].questions]))
        for number in askers:
            answers[number] = list(islice(replies, len(requests[number].questions)))
    return answers
