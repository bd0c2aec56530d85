"""What the worker does for a visitor: a race or a retrieval, on the server's documents or the visitor's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specrace.core.events import Event, Repeated
from specrace.ui import asking, uploads
from specrace.ui.models import Models
from specrace.ui.worker import Run

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit
    from specrace.workbench import Workbench


def racing(
    asked: asking.Asking,
    benches: uploads.SessionBenches,
    models: Models,
    session: str,
    upload: uploads.Upload | None = None,
    again: Callable[[Repeated], bool] = lambda _: False,
) -> Run:
    """A race."""

    def run(bench: Workbench, stop: Callable[[], bool]) -> Iterator[Event | str]:
        own = yield from benches.open(session, bench, upload)
        if asked.model:
            yield f"Loading {asked.model} …"
        own = models.bench(bench, own, asked.model, asked.dtype)
        yield from own.ask(asked.question, asked.spec, top=asked.passages, stop=stop, again=again)

    return run


def retrieving(
    question: str,
    passages: int | None,
    benches: uploads.SessionBenches,
    session: str,
    upload: uploads.Upload | None,
    found: list[Hit],
) -> Run:
    """A retrieval, whose hits are `found` when it is done."""

    def run(bench: Workbench, _: Callable[[], bool]) -> Iterator[Event | str]:
        own = yield from benches.open(session, bench, upload)
        found.extend(own.retrieve(question, passages))

    return run
