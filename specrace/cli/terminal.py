"""A race in a terminal: lanes as rows, drafts coloured, meters, and a table at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specrace.core.events import Event, Finished, LaneResult, Started, Step
from specrace.core.metrics import LaneMetrics, difference_words
from specrace.views.frames import report

ACCEPTED, REJECTED, PLAIN = "bold underline #56b4e9", "dim strike #ff9a5c", ""
HUES = ("#999999", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2")
FRAMES_PER_SECOND = 15
REJECTED_SHOWN = 6


def console(*, stderr: bool = False) -> Console:
    """Where to print: no markup or emoji codes are read in text, for it is not ours."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def clean(text: str) -> str:
    """Text without control characters: documents and models must not steer the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "·" for letter in text)


def quiet_model_library() -> None:
    """No warnings or progress bars of transformers between our lines. Importing it here brings torch."""
    import transformers.utils.logging

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


class Row:
    """One lane as it stands."""

    def __init__(self, title: str, hue: str, build_ms: float) -> None:
        self.title, self.hue = title, hue
        self.metrics = LaneMetrics(draft_ms=build_ms)
        self.words = Text(overflow="fold")
        self.rejected = ""
        self.end = ""

    def add(self, step: Step) -> None:
        """Append what a step emitted: accepted draft tokens marked, the bonus plain, what was rejected behind it."""
        self.metrics.add(step)
        self.words.append(clean("".join(step.texts[: step.accepted])), ACCEPTED)
        self.words.append(clean("".join(step.texts[step.accepted :])), PLAIN)
        rejected = step.rejected_branch[: 0 if step.end else REJECTED_SHOWN]
        self.rejected = clean("".join((step.pieces or list(map(str, step.tree.tokens)))[node] for node in rejected))
        self.end = step.end

    def cells(self, width: int, lines: int, base: LaneMetrics) -> tuple[Text, Text]:
        """(name and meters, tail of the text) for a column of `width` characters and so many lines."""
        m = self.metrics
        head = Text(f"{self.title}\n", style=f"bold {self.hue}")
        head.append(f"{m.speedup(base):5.2f}x  {m.tokens_per_s:5.0f} tokens/s\n", style="bold")
        head.append(f"{m.tau:5.2f} tokens/step  {m.accepted}/{m.drafted}", style="dim")
        tail = self.words.copy()
        tail.append(self.rejected, REJECTED)
        wrapped = tail.wrap(console(), max(10, width))
        return head, Text("\n").join(wrapped[-lines:])


class Terminal:
    """Plays events: live rows on a terminal, only the results elsewhere."""

    def __init__(self, out: Console) -> None:
        self.console = out
        self.rows: dict[str, Row] = {}
        self.about: Mapping[str, Any] = {}
        self.at_ms = 0.0

    def play(self, events: Iterable[Event]) -> None:
        """Show every event as it comes."""
        if not self.console.is_terminal:
            for event in events:
                self.add(event)
            return
        with Live(
            console=self.console, refresh_per_second=FRAMES_PER_SECOND, get_renderable=self.render, transient=True
        ):
            finished = list(self._all_but_last(events))
        for event in finished:
            self.add(event)

    def _all_but_last(self, events: Iterable[Event]) -> Iterator[Event]:
        """Take in what belongs to the live picture, and yield what is printed after it."""
        for event in events:
            if isinstance(event, Finished):
                yield event
            else:
                self.add(event)

    def add(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, Started):
            self.about = event.about
            for number, lane in enumerate(event.lanes):
                self.rows[lane.lane] = Row(lane.title, HUES[number % len(HUES)], lane.build_ms)
            self._print_passages(event)
        elif isinstance(event, Step):
            self.rows[event.lane].add(event)
            self.at_ms = max(self.at_ms, event.at_ms)
        else:
            self._print_result(event)

    def render(self) -> Group:
        """The live picture."""
        if not self.rows:
            return Group()
        base = next(iter(self.rows.values())).metrics
        lines = max(3, (self.console.height - 3) // len(self.rows) - 1)
        width = self.console.width - 34
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=32)
        table.add_column(ratio=1)
        for row in self.rows.values():
            head, tail = row.cells(width, lines, base)
            table.add_row(head, tail)
            table.add_row("", "")
        clock = Text(
            f"race time {self.at_ms / 1000:6.2f} s; each lane is timed as if it had the device to itself", style="dim"
        )
        return Group(table, clock)

    def _print_passages(self, event: Started) -> None:
        about = event.about
        if "question" in about:
            self.console.print(Text(clean(about["question"]), style="bold"))
        for number, passage in enumerate(about.get("passages", ()), 1):
            line = f"[{number}] {passage['score']:.2f}  {clean(passage['title'])}  ({clean(passage['document'])})"
            self.console.print(Text(line, style="dim"))
        names = ("model", "dtype", "device", "engine")
        model = clean(", ".join(str(about.get(name, "?")) for name in names if name != "engine" or name in about))
        drafting = "".join(f", {lane.lane} {lane.prefill_ms:.0f} ms" for lane in event.lanes if lane.prefill_ms)
        prompt = f"{event.prompt_tokens} prompt tokens, prefill {event.prefill_ms:.0f} ms{drafting}"
        self.console.print(Text(f"{prompt}; {model}", style="dim"))

    def _print_result(self, event: Finished) -> None:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in (
            "lane",
            "speedup",
            "tokens\nper s",
            "tokens\nper step",
            "drafted\na step",
            "accepted",
            "tokens",
            "badge",
        ):
            table.add_column(name, justify="left" if name in ("lane", "badge") else "right")
        for lane in event.lanes:
            table.add_row(
                lane.lane,
                f"{lane.speedup:.2f}x",
                f"{lane.tokens_per_s:.0f}",
                f"{lane.tau:.2f}",
                f"{lane.drafted_per_step:.1f}",
                f"{lane.acceptance_rate:.0%}",
                str(lane.tokens),
                badge(lane, str(self.about.get("dtype", ""))),
            )
        if event.lanes:
            self.console.print()
            self.console.print(Text(clean(event.lanes[0].text)))
        self.console.print()
        self.console.print(table)
        if event.pace is not None:
            self.console.print(Text(clean(event.pace.note), style="bold" if event.pace.disturbed else "dim"))
        if event.stopped:
            self.console.print(Text("The race was stopped before every lane had ended.", style="dim"))
        sys.stdout.flush()


def badge(lane: LaneResult, dtype: str) -> str:
    """The badge's words."""
    if lane.first_difference is not None:
        words = difference_words(lane.first_difference, dtype)
    elif lane.note:
        words = lane.note
    else:
        words = "identical" if lane.lane != "vanilla" else "baseline"
    return f"{words}; repeats itself" if lane.loop_tokens else words


def show(events: Iterable[Event], *, as_json: bool) -> list[Event]:
    """Show a race as it happens; returns its events."""
    seen: list[Event] = []

    def watched() -> Iterator[Event]:
        for event in events:
            seen.append(event)
            yield event

    if as_json:
        for _ in watched():
            pass
        started, finished = seen[0], seen[-1]
        assert isinstance(started, Started) and isinstance(finished, Finished)
        print(json.dumps(report(started, finished), ensure_ascii=False))
    else:
        Terminal(console()).play(watched())
    return seen
