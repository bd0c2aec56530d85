"""Races in notebooks and scripts: from a question or a file, as an object that shows, tabulates and saves itself."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.core.errors import InputError
from specrace.core.events import Event, Started, Step, ending
from specrace.core.files import as_input_error, check_destination, write_atomically
from specrace.engine.race import race as race_events
from specrace.engine.repeats import repeat_times
from specrace.engine.request import RaceRequest
from specrace.engine.setup import RaceTarget
from specrace.engine.spec import DEFAULT_LANES, RaceSpec
from specrace.views.frames import report
from specrace.views.headlines import headline

if TYPE_CHECKING:
    import pandas as pd

    from specrace.workbench import Workbench

# The columns of a race's table, in order; they are explained in docs/measuring.md.
COLUMNS = ("speedup", "tokens_per_s", "tau", "acceptance_rate", "steps", "tokens", "decode_ms", "identical")
# The height of a race in a notebook, in pixels.
FRAME_HEIGHT = 720


@dataclass(frozen=True, repr=False)
class RecordedRace:
    """A whole race, which plays as on the page if it is the last value of a notebook cell."""

    events: tuple[Event, ...]

    @property
    def started(self) -> Started:
        """The first event: the lanes, the question, the model and the passages."""
        started = self.events[0]
        assert isinstance(started, Started), "a race begins with Started"
        return started

    @property
    def headline(self) -> str:
        """The race in a sentence or two."""
        return headline(self.started, *ending(self.events))

    @property
    def texts(self) -> dict[str, str]:
        """Each lane's answer."""
        finished, _ = ending(self.events)
        return {lane.lane: lane.text for lane in finished.lanes}

    @property
    def table(self) -> pd.DataFrame:
        """One row per lane. Speedups and tokens per second are medians if there were several runs."""
        import pandas as pd

        rows = report(self.started, *ending(self.events))["lanes"]
        return pd.DataFrame(rows).set_index("lane")[list(COLUMNS)]

    def save(self, path: str | Path) -> None:
        """Write the recording (JSONL), which the page and `specrace.show` open. Raises InputError."""
        from specrace.engine.recording import save

        save(self.events, Path(path))

    def export(self, path: str | Path, *, tour: bool = False) -> None:
        """Write an HTML file that plays the race without a server; `tour` adds the guided tour. Raises InputError."""
        from specrace.ui.stage.html_file import PUBLIC

        file = Path(path)
        check_destination(file)
        with as_input_error(file):
            write_atomically(file, self.to_html(tour=tour).encode(), PUBLIC)

    def to_html(self, *, tour: bool = False) -> str:
        """The file that `export` writes."""
        from specrace.ui.stage.html_file import Recording, write_html

        return write_html([Recording("race", self.events)], tour=tour)

    def _repr_html_(self) -> str:
        page = html.escape(self.to_html())
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0" title="A race of decoders"></iframe>'
        )

    def __repr__(self) -> str:
        return f"RecordedRace: {self.headline}"


def show(path: str | Path) -> RecordedRace:
    """Open a recording that the page, `race --save` or `RecordedRace.save` wrote. Raises InputError."""
    from specrace.views.recording_check import TERMINAL_LIMITS, read_recording

    return RecordedRace(tuple(read_recording(Path(path), TERMINAL_LIMITS)))


@overload
def race(
    target: str,
    /,
    *,
    documents: str | Path | Sequence[str | Path] | None = ...,
    model: str | Path = ...,
    lanes: Sequence[str] = ...,
    passages: int | None = ...,
    thinking: str = ...,
    device: str = ...,
    dtype: str | None = ...,
    runs: int = ...,
    progress: bool = ...,
    **settings: Any,
) -> RecordedRace: ...


@overload
def race(target: RaceTarget, prompt: Sequence[int], spec: RaceSpec, /, **how: Any) -> Iterator[Event]: ...


def race(target: Any, /, *prompt: Any, **how: Any) -> Any:
    """Race the lanes: on a question, returning the whole race; or on token ids, yielding its events.

    `race("What causes the tides?", documents="notes/")` retrieves passages for the question from the `documents` (files
    or folders; by default those that ship with specrace) and races on `model`, a folder, a hub id or a short name. The
    model and the documents of the last call stay loaded. `passages`: how many are retrieved; None for what suits the
    model. `thinking`: "on" lets a model think before it answers. `runs`: how many times every lane runs; if several,
    the table shows medians. Other keyword arguments are fields of `RaceSpec`, such as `max_new_tokens`. Raises
    InputError.

    `race(target, prompt, spec)`, in which `prompt` is token ids, calls `specrace.engine.race.race`.
    """
    if isinstance(target, str):
        return _race_question(target, *prompt, **how)
    return race_events(target, *prompt, **how)


def _race_question(
    question: str,
    *,
    documents: str | Path | Sequence[str | Path] | None = None,
    model: str | Path = BUNDLED_MODEL,
    lanes: Sequence[str] = DEFAULT_LANES,
    passages: int | None = None,
    thinking: str = "off",
    device: str = "cpu",
    dtype: str | None = None,
    runs: int = 1,
    progress: bool = True,
    **settings: Any,
) -> RecordedRace:
    if runs < 1:
        raise InputError(f"runs is {runs}; give 1 or more.")
    request = RaceRequest(question, RaceSpec(lanes=tuple(lanes), **settings), passages, thinking=thinking)
    if documents is None:
        documents = CORPUS
    paths = (documents,) if isinstance(documents, str | Path) else documents
    workbench = _open_workbench(tuple(Path(path).resolve() for path in paths), str(model), device, dtype)
    events = workbench.ask(request, again=repeat_times(runs))
    return RecordedRace(tuple(_with_progress(events) if progress else events))


@lru_cache(maxsize=1)
def _open_workbench(documents: tuple[Path, ...], model: str, device: str, dtype: str | None) -> Workbench:
    """The workbench for these documents and this model; the cache keeps the one of the last call."""
    from specrace.model.weights.source import choose_model
    from specrace.workbench import Workbench

    return Workbench.open(choose_model(model, device=device, dtype=dtype), documents=documents)


def _with_progress(events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events, and show a progress bar for each lane until the race ends."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks = {}
        for event in events:
            if isinstance(event, Started):
                total = event.about["settings"]["max_new_tokens"]
                tasks = {info.lane: bars.add_task(info.title, total=total) for info in event.lanes}
            elif isinstance(event, Step):
                bars.advance(tasks[event.lane], len(event.emitted))
            yield event
