"""What a job runs for a visitor: a race or a retrieval, on the server's documents or the visitor's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specrace.core.events import Event, Repeated
from specrace.ui.helper import upload_reader
from specrace.ui.races import race_request
from specrace.ui.races.backend import Backend
from specrace.ui.races.job import RunRace

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit
    from specrace.workbench import Workbench


def race_task(
    request: race_request.VisitorRequest,
    backend: Backend,
    visit: str,
    upload: upload_reader.Upload | None = None,
    again: Callable[[Repeated], bool] = lambda _: False,
) -> RunRace:
    """A function that runs the requested race; `again` decides after each run whether another run follows."""

    def run(workbench: Workbench, stop: Callable[[], bool]) -> Iterator[Event | str]:
        visit_workbench = yield from backend.workbenches.open(visit, workbench, upload)
        if request.model:
            yield f"Loading {request.model} …"
        chosen = backend.models.choose(workbench, visit_workbench, request.model, request.dtype)
        beside = backend.servers.beside(request.servers, request.reference)
        yield from chosen.ask(request.race, stop=stop, again=again, beside=beside)

    return run


def retrieval_task(
    question: str,
    passages: int | None,
    backend: Backend,
    visit: str,
    upload: upload_reader.Upload | None,
    hits: list[Hit],
) -> RunRace:
    """A function that retrieves passages for a question, and appends them to `hits`; it yields no events.

    `passages`: their number; None for the automatic number.
    """

    def run(workbench: Workbench, _: Callable[[], bool]) -> Iterator[Event | str]:
        visit_workbench = yield from backend.workbenches.open(visit, workbench, upload)
        hits.extend(visit_workbench.retrieve(question, passages))

    return run
