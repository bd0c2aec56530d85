"""The terminal: consoles, messages and exit codes of commands; and a race, shown live and as a table at its end."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from specrace.core.errors import MAX_MESSAGE, InputError, shorten
from specrace.core.events import LEFT_OUT, Event, Finished, LaneInfo, Repeated, Started, ending
from specrace.core.metrics import format_speedup
from specrace.drafters import METHODS
from specrace.views.colours import race_hues
from specrace.views.frames import ACCEPTED, RaceView, report
from specrace.views.headlines import CUT, describe_measured, final_badge, find_spread, format_range, with_medians
from specrace.views.shown import LaneFrame, LaneMeters, RaceHead, ShownLane
from specrace.views.thoughts import describe_thoughts, fold_pieces, split_thoughts

# The kind of the piece that replaces a lane's thoughts.
FOLDED = "folded"
# The styles of a lane's text by kind of piece, and that of rejected draft tokens.
STYLES = {ACCEPTED: "bold underline #56b4e9", FOLDED: "dim"}
REJECTED = "dim strike #ff9a5c"
# Enough for text that streams, and little work beside the race; a guess.
FRAMES_PER_SECOND = 15
# The width of the column with the lanes' names and meters, in characters.
HEADER_COLUMNS = 32
# The width that the table of results keeps for a lane's name, in characters.
MAX_NAME_WIDTH = 36
# The error numbers of a full disk and, on systems that have quotas, of an exceeded quota.
FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
MODEL_FACTS = ("model", "dtype", "device", "engine")
COLUMNS = ("lane", "speedup", "tokens\nper s", "tokens\nper step", "drafted\na step", "accepted", "tokens", "badge")


class CleanConsole(Console):
    """Rich's console, with "·" for control characters in the printed text."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))

    def on_broken_pipe(self) -> None:
        """Raise the error again: Rich would end the process with exit code 1."""
        raise


def console(*, stderr: bool = False) -> Console:
    """A console that interprets no markup and no emoji codes."""
    return CleanConsole(stderr=stderr, markup=False, emoji=False, highlight=False)


def clean(text: str) -> str:
    """The text with "·" for control characters: documents, models and recordings must not control the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "·" for letter in text)


def complain(message: object) -> None:
    """Print a message on standard error, if that can be written, as one line without control characters."""
    with suppress(OSError):
        print(shorten(clean(str(message)).replace("\n", " "), MAX_MESSAGE), file=sys.stderr)


def exit_code(
    error: BaseException, *, traceback: bool = False, trace_command: str = "python -m specrace --traceback COMMAND ..."
) -> int:
    """Print a sentence about the error that ended a command, and return the command's exit code.

    Nothing is printed for an interruption or a closed pipe: `... | head -1` has read all that it wanted. With
    `traceback`, an unexpected error is raised again; without it, the sentence names `trace_command`, which shows the
    traceback.
    """
    if isinstance(error, InputError):
        complain(error)
        return 2
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, BrokenPipeError) and any(map(_takes_no_text, (sys.stdout, sys.stderr))):
        return 0
    if isinstance(error, OSError) and error.errno in FULL:
        complain(f"The output cannot be written ({error.strerror}); free some space, or write it elsewhere.")
        return 2
    if traceback:
        raise error
    complain(f"specrace failed: {str(error) or type(error).__name__}; to see where, run: {trace_command}")
    return 1


def print_json(value: Any) -> None:
    """Print a JSON object; control characters, and characters that cannot be encoded, are escaped as JSON does."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value)
    # [1:-1] cuts off the quotes around an escaped character.
    print("".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text))


@contextmanager
def standard_streams() -> Iterator[None]:
    """Let standard output and standard error accept any text, and close without an error.

    A stream that the caller has closed (`>&-`) becomes the null device. Characters that a stream cannot encode are
    escaped. At the end, text that nobody reads any more (`| head -1`) or that does not fit on the disk is dropped,
    because Python would report it and exit with code 120.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):
            # Raises OSError if the stream was a file and is now a pipe.
            with suppress(OSError):
                stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if _takes_no_text(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def _takes_no_text(stream: TextIO) -> bool:
    """Flush a stream; returns whether it cannot be written, or is a pipe that nobody reads any more."""
    try:
        stream.flush()
    except OSError:
        return True
    except ValueError:
        # The stream is closed, so nothing is left to be written.
        return False
    if not hasattr(select, "poll"):
        return False
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(events & select.POLLERR for _, events in poll.poll(0))
    return False


def quiet_model_library() -> None:
    """Turn off transformers' warnings and progress bars."""
    # Imported here, because it imports torch.
    import transformers.utils.logging

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


class Terminal:
    """Shows a race's events live on a terminal; in a file or a pipe, prints only the results."""

    def __init__(self, out: Console) -> None:
        self.console = out
        self.view = RaceView()
        self.hues: Mapping[str, str] = {}

    def play(self, events: Iterable[Event]) -> None:
        """Show the events as they arrive, then the results, even if repeated runs are interrupted."""
        try:
            if self.console.is_terminal:
                self._play_live(events)
            else:
                for event in events:
                    self.add(event)
        finally:
            if self.view.finished is not None:
                self._print_result(self.view.finished, self.view.repeated)

    def _play_live(self, events: Iterable[Event]) -> None:
        """Redraw the race at most FRAMES_PER_SECOND times a second, and when a run ends."""
        next_frame_s = 0.0
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            for event in events:
                self.add(event)
                if time.monotonic() >= next_frame_s or isinstance(event, Finished | Repeated):
                    live.update(self.render(), refresh=True)
                    next_frame_s = time.monotonic() + 1 / FRAMES_PER_SECOND

    def add(self, event: Event) -> None:
        """Add an event; the first event of a race prints its header."""
        self.view.add(event)
        if isinstance(event, Started):
            self.hues = race_hues([info.lane for info in event.lanes], list(METHODS))
            self._print_header(event)

    def render(self) -> Group:
        """The live picture of the race, made from the frame that the page also draws."""
        frame = self.view.keyframe()
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=HEADER_COLUMNS)
        table.add_column(ratio=1)
        # Lanes share the screen equally, less three lines kept for the clock. A lane has at least the three lines of
        # its header, and a blank line below it.
        lines = max(3, (self.console.height - 3) // max(1, len(frame.lanes)) - 1)
        for info, lane in zip(frame.head.lanes if frame.head else (), frame.lanes, strict=True):
            table.add_row(self._lane_header(info, lane.meters), self._lane_text(lane, lines, frame.head))
            table.add_row("", "")
        clock = f"race time {frame.clock / 1000:6.2f} s; each lane is timed as if it had the device to itself"
        repeats = self.view.repeated.note if self.view.repeated else ""
        return Group(table, Text(f"{clock}; repeated: {repeats}" if repeats else clock, style="dim"))

    def _lane_header(self, info: ShownLane, meters: LaneMeters) -> Text:
        """A lane's name and meters."""
        header = Text(f"{info.title[:HEADER_COLUMNS]}\n", style=f"bold {self.hues[info.lane]}")
        speedup = "–" if info.served else format_speedup(meters.speedup)
        tau = f"{meters.tau:5.2f}" if meters.tau else "    –"
        drafts = f"{meters.accepted}/{meters.drafted}" if meters.drafted or not info.served else ""
        rate = f"{meters.tokens_per_s:5.0f}" if meters.tokens_per_s or not info.served else "    –"
        header.append(f"{speedup:>5}  {rate} tokens/s\n", style="bold")
        header.append(f"{tau} tokens/step  {drafts}", style="dim")
        return header

    def _lane_text(self, lane: LaneFrame, lines: int, head: RaceHead | None) -> Text:
        """The last `lines` lines of a lane's answer and its rejected draft tokens; accepted draft tokens are marked.

        Thoughts are folded into a line.
        """
        thoughts, pieces = fold_pieces(lane.runs, head.thoughts if head else None)
        if thoughts:
            pieces.insert(0, [FOLDED, f"{describe_thoughts(thoughts)}\n", 0])
        width = max(10, self.console.width - HEADER_COLUMNS - 2)
        styled: list[tuple[str, str]] = []
        columns_left = lines * width
        for kind, text, *_ in reversed(pieces):
            if columns_left <= 0:
                break
            # Each character takes at least one column, so this many are enough.
            styled.append((clean(text[-columns_left:]), STYLES.get(kind, "")))
            columns_left -= len(text)
        words = Text.assemble(*reversed(styled), overflow="fold")
        if lane.draft and not lane.end:
            words.append(clean("".join(lane.draft.rejected)), REJECTED)
        return Text("\n").join(words.wrap(self.console, width)[-lines:])

    def _print_header(self, event: Started) -> None:
        """Print the question, its passages, the prompt's size and the model."""
        about = event.about
        if about.get("question") is not None:
            self.console.print(Text(about["question"], style="bold"))
        for number, passage in enumerate(about.get("passages") or (), 1):
            source = ", ".join(filter(None, (passage["document"], passage.get("place"))))
            line = f"[{number}] {passage['score']:.2f}  {passage['title']}  ({source})"
            self.console.print(Text(line, style="dim"))
        # Some recordings do not name the engine.
        model = ", ".join(str(about.get(name, "?")) for name in MODEL_FACTS if name != "engine" or name in about)
        lanes = "".join(f", {lane.lane} {lane.prefill_ms:.0f} ms" for lane in event.lanes if lane.prefill_ms)
        prompt = f"{event.prompt_tokens} prompt tokens, prefill {event.prefill_ms:.0f} ms{lanes}"
        self.console.print(Text(f"{prompt}; {model}", style="dim"))
        shared = ", ".join(f"{lane.lane} {lane.shared_ms:.1f} ms" for lane in event.lanes if lane.shared_ms)
        if shared:
            self.console.print(Text(f"Built once for all requests, on no clock: {shared}", style="dim"))

    def _print_result(self, event: Finished, repeated: Repeated | None) -> None:
        """Print the answer, the table of results, and notes on disturbed or stopped runs."""
        if event.lanes:
            self.console.print()
            marks = self.view.started.about.get("thoughts") if self.view.started else None
            thoughts, answer = split_thoughts(event.lanes[0].text, marks)
            if thoughts:
                self.console.print(Text(describe_thoughts(thoughts), style="dim"))
            self.console.print(Text(answer))
        self.console.print()
        self.console.print(self._result_table(event, repeated))
        if repeated is not None:
            self.console.print(Text(repeated.note, style="bold" if repeated.disturbed else "dim"))
        elif event.pace is not None:
            self.console.print(Text(event.pace.note, style="bold" if event.pace.disturbed else "dim"))
        self._print_servers(event, repeated)
        if event.stopped:
            words = CUT if event.cut else "The race was stopped before every lane had ended."
            self.console.print(Text(words, style="bold" if event.cut else "dim"))
        sys.stdout.flush()

    @property
    def _served(self) -> dict[str, LaneInfo]:
        """The lanes that servers decoded, by name."""
        started = self.view.started
        return {} if started is None else {info.lane: info for info in started.lanes if info.served is not None}

    def _print_servers(self, event: Finished, repeated: Repeated | None) -> None:
        """Print how each server was measured, and which servers were left out."""
        assert self.view.started is not None, "a race that has finished has started"
        results = {result.lane: with_medians(result, repeated) for result in event.lanes}
        for name, info in self._served.items():
            sentence = describe_measured(info, results[name], find_spread(name, repeated))
            self.console.print(Text(sentence, style="dim"))
        for sentence in self.view.started.about.get(LEFT_OUT) or ():
            self.console.print(Text(f"Left out: {sentence}", style="bold"))

    def _result_table(self, event: Finished, repeated: Repeated | None) -> Table:
        """The table of results, with a row for each lane."""
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
        for name in COLUMNS:
            is_speedup = name == "speedup"
            title = f"{name}\nruns: {repeated.runs}" if is_speedup and repeated is not None else name
            # A lane's name is shown whole, on several lines if it is very long.
            width = min(MAX_NAME_WIDTH, max(len(lane.lane) for lane in event.lanes)) if name == "lane" else None
            justify: JustifyMethod = "left" if name in ("lane", "badge") else "right"
            table.add_column(title, justify=justify, no_wrap=is_speedup, min_width=width, overflow="fold")
        dtype = str(self.view.started.about.get("dtype", "")) if self.view.started else ""
        for result in event.lanes:
            lane = with_medians(result, repeated)
            served = self._served.get(lane.lane)
            _, words = final_badge(lane, event.stopped, "" if served else dtype, served)
            table.add_row(
                lane.lane,
                "–" if served else format_speedup(lane.speedup) + format_range(lane.lane, repeated),
                f"{lane.tokens_per_s:.0f}" if lane.tokens_per_s or not served else "–",
                f"{lane.tau:.2f}" if lane.tau else "–",
                f"{lane.drafted_per_step:.1f}" if lane.drafted_per_step or not served else "–",
                f"{lane.acceptance_rate:.0%}" if lane.drafted_per_step or not served else "–",
                f"{lane.tokens or '–'} (limit)" if lane.end == "length" else str(lane.tokens or "–"),
                f"{words}; repeats itself" if lane.loop_tokens else words,
            )
        return table


def show(events: Iterable[Event], *, as_json: bool) -> list[Event]:
    """Show a race as it happens, or print its result as JSON; return its events."""
    recorded: list[Event] = []

    def collect() -> Iterator[Event]:
        for event in events:
            recorded.append(event)
            yield event

    if not as_json:
        Terminal(console()).play(collect())
        return recorded
    recorded += events
    started = recorded[0]
    assert isinstance(started, Started)
    print_json(report(started, *ending(recorded)))
    return recorded
