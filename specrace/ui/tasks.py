"""What the worker does for a visitor: a race or a retrieval, on the server's documents or the visitor's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specrace.core.events import Event, Repeated
from specrace.ui import race_request, uploads
from specrace.ui.model_choices import ModelChoices
from specrace.ui.worker import RunRace

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit
    from specrace.workbench import Workbench


def racing(
    asked: race_request.RaceRequest,
    benches: uploads.VisitWorkbenches,
    models: ModelChoices,
    session: str,
    upload: uploads.Upload | None = None,
    again: Callable[[Repeated], bool] = lambda _: False,
) -> RunRace:
    """A race."""

    def run(workbench: Workbench, stop: Callable[[], bool]) -> Iterator[Event | str]:
        own = yield from benches.open(session, workbench, upload)
        if asked.model:
            yield f"Loading {asked.model} …"
        own = models.workbench(workbench, own, asked.model, asked.dtype)
        yield from own.ask(asked.question, asked.spec, top=asked.passages, stop=stop, again=again)

    return run


def retrieving(
    question: str,
    passages: int | None,
    benches: uploads.VisitWorkbenches,
    session: str,
    upload: uploads.Upload | None,
    found: list[Hit],
) -> RunRace:
    """A retrieval, whose hits are `found` when it is done."""

    def run(workbench: Workbench, _: Callable[[], bool]) -> Iterator[Event | str]:
        own = yield from benches.open(session, workbench, upload)
        found.extend(own.retrieve(question, passages))

    return run
