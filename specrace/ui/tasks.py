"""What the worker runs for a visitor: a race or a retrieval, on the server's documents or the visitor's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specrace.core.events import Event, Repeated
from specrace.ui import race_request, uploads
from specrace.ui.job import RunRace
from specrace.ui.model_choices import ModelChoices

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit
    from specrace.workbench import Workbench


def race_task(
    request: race_request.RaceRequest,
    workbenches: uploads.VisitWorkbenches,
    models: ModelChoices,
    visit: str,
    upload: uploads.Upload | None = None,
    again: Callable[[Repeated], bool] = lambda _: False,
) -> RunRace:
    """A task that races as requested; `again` decides after each run whether another one follows."""

    def run(workbench: Workbench, stop: Callable[[], bool]) -> Iterator[Event | str]:
        visit_workbench = yield from workbenches.open(visit, workbench, upload)
        if request.model:
            yield f"Loading {request.model} …"
        racing = models.choose(workbench, visit_workbench, request.model, request.dtype)
        yield from racing.ask(request.question, request.spec, top=request.passages, stop=stop, again=again)

    return run


def retrieval_task(
    question: str,
    passages: int | None,
    workbenches: uploads.VisitWorkbenches,
    visit: str,
    upload: uploads.Upload | None,
    hits: list[Hit],
) -> RunRace:
    """A task that retrieves, and appends what it retrieved to `hits`."""

    def run(workbench: Workbench, _: Callable[[], bool]) -> Iterator[Event | str]:
        visit_workbench = yield from workbenches.open(visit, workbench, upload)
        hits.extend(visit_workbench.retrieve(question, passages))

    return run
