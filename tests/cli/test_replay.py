"""`replay` and the terminal: hostile and truncated recordings, repeated runs, and the live picture."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrace.cli.shared.terminal import CleanConsole, Terminal
from specrace.core.events import Event, Finished, Started
from specrace.core.metrics import format_speedup
from specrace.drafters import METHODS
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui.page.settings_panel import PRESETS
from specrace.ui.stage import parts
from specrace.views.colours import HUES, lane_hues, race_hues
from specrace.views.frames import RaceView
from specrace.views.recording_check import read_recording
from tests.views.recordings import Rows, replace_texts

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "assets" / "recordings" / "six-lanes.jsonl"
# Sets the window's title, clears the screen, begins a control sequence with the single character U+009B, rings the
# bell, and reverses the direction of text.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x07\u202e"


@pytest.fixture
def rows() -> Rows:
    """The events of a race of six lanes, as JSON: 'started', the steps, 'finished'. Lane 1 is the bigram."""
    return [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").split("\n") if line]


def write(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def add_escapes(rows: Rows) -> Rows:
    """Add ESCAPES to every text of a race, so that it still passes every check."""
    about = rows[0]["about"]
    for name in ("question", "date", "model", "dtype", "device", "engine"):
        about[name] = ESCAPES + str(about.get(name))
    for passage in about["passages"]:
        passage |= {"title": ESCAPES, "document": ESCAPES}
    for lane in rows[0]["lanes"]:
        lane["title"] += ESCAPES
    rows[0]["lanes"][1]["lane"] = rows[-1]["lanes"][1]["lane"] = f"bi{ESCAPES}"
    for row in rows[1:-1]:
        if row["lane"] == "bigram":
            row["lane"] = f"bi{ESCAPES}"
    replace_texts(rows, lambda _, text: text + ESCAPES)
    pace = {"probes": 1, "probe_ms": 1.0, "low": 1.0, "high": 1.0, "jumps": 0.0, "waited_ms": 0.0, "threads": 1}
    rows[-1]["pace"] = pace | {"disturbed": False, "note": ESCAPES}
    return rows


def test_replay_prints_no_control_characters_of_a_recording(call_main, tmp_path: Path, rows: Rows) -> None:
    file = write(tmp_path / "hostile.jsonl", add_escapes(rows))
    for arguments in (("--speed", "1000"), ("--json",)):
        done = call_main("replay", file, *arguments)
        assert done.returncode == 0, done.stderr
        assert not set("\x1b\x07\x9b\u202e") & set(done.stdout)
    assert json.loads(done.stdout)["lanes"][1]["lane"] == f"bi{ESCAPES}"


def add_repeated_runs(rows: Rows, note: str) -> Rows:
    """`rows` followed by an event of repeated runs: the first run's speedups, but lane 1's highest is 0.4 above it."""
    lanes = [
        {"lane": lane["lane"], "tokens_per_s": lane["tokens_per_s"]}
        | dict.fromkeys(("speedup", "low", "high"), lane["speedup"])
        for lane in rows[-1]["lanes"]
    ]
    lanes[1]["high"] += 0.4
    return [*rows, {"type": "repeated", "runs": 5, "lanes": lanes, "disturbed": False, "note": note}]


def test_repeated_runs_are_replayed(call_main, tmp_path: Path, rows: Rows) -> None:
    file = write(tmp_path / "again.jsonl", add_repeated_runs(add_escapes(rows), f"Medians of 5 runs. {ESCAPES}"))
    done = call_main("replay", file, "--speed", "1000")
    assert done.returncode == 0, done.stderr
    speedup = rows[-1]["lanes"][1]["speedup"]
    low, high = format_speedup(speedup), format_speedup(speedup + 0.4)
    # In the range, the speedups have no "x" at their end.
    assert f"{low} ({low[:-1]} to {high[:-1]})" in done.stdout and "runs: 5" in done.stdout
    other = format_speedup(rows[-1]["lanes"][2]["speedup"])
    assert f"{other} (" not in done.stdout, "a range whose ends read alike says nothing"
    assert "Medians of 5 runs." in done.stdout and not set("\x1b\x07\x9b\u202e") & set(done.stdout)
    result = json.loads(call_main("replay", file, "--json").stdout)
    assert result["runs"] == 5 and result["lanes"][1]["speedup_high"] == result["lanes"][1]["speedup"] + 0.4


def test_the_live_picture_shows_the_number_of_runs(tmp_path: Path, rows: Rows) -> None:
    screen, out = terminal()
    screen.play(read_recording(write(tmp_path / "again.jsonl", add_repeated_runs(rows, "Medians of 5 runs."))))
    assert "repeated: Medians of 5 runs." in out.getvalue() and "runs: 5" in out.getvalue()


def test_the_result_is_printed_if_repeated_runs_are_interrupted() -> None:
    def events() -> Iterator[Event]:
        yield from read_recording(RECORDING)
        raise KeyboardInterrupt

    screen, out = terminal()
    with pytest.raises(KeyboardInterrupt):
        screen.play(events())
    assert out.getvalue().count("identical") >= 5, "the table must have every lane's badge"


def terminal() -> tuple[Terminal, io.StringIO]:
    """A terminal of 110 x 40 characters without colours, and the stream that it prints to."""
    out = io.StringIO()
    return Terminal(CleanConsole(file=out, width=110, height=40, force_terminal=True, color_system=None)), out


def test_the_live_picture_has_no_control_characters_of_a_recording(tmp_path: Path, rows: Rows) -> None:
    screen, out = terminal()
    for event in read_recording(write(tmp_path / "hostile.jsonl", add_escapes(rows))):
        screen.add(event)
    screen.console.print(screen.render())
    assert "·]0;owned" in out.getvalue()
    assert not set("\x1b\x07\x9b\u202e") & set(out.getvalue())


def test_the_live_picture_shows_the_frame_that_the_page_shows() -> None:
    screen, out = terminal()
    view = RaceView()
    for event in read_recording(RECORDING)[:200]:
        screen.add(event)
        view.add(event)
    out.truncate(0)
    screen.console.print(screen.render())
    picture, frame = out.getvalue(), view.keyframe()
    assert frame.head is not None
    for info, lane in zip(frame.head.lanes, frame.lanes, strict=True):
        meters = lane.meters
        assert info.title in picture
        assert f"{format_speedup(meters.speedup):>5}  {meters.tokens_per_s:5.0f} tokens/s" in picture
        assert f"{meters.accepted}/{meters.drafted}" in picture
        # The last word may be incomplete.
        assert "".join(run[1] for run in lane.runs).split()[-2] in picture


def test_thoughts_are_folded_into_a_line() -> None:
    events = read_recording(RECORDING)
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    text = finished.lanes[0].text
    words = text.split()
    # A word that occurs once, in the second half, serves as the mark that ends the thoughts.
    mark = next(word for word in words[len(words) // 2 :] if text.count(word) == 1)
    folded, beginning = f"Thoughts: {words.index(mark) + 1} words", " ".join(words[:4])
    # Without marks, or with the marks that begin and end the thoughts.
    for marks in (None, ("", mark)):
        screen, out = terminal()
        for event in (replace(started, about={**started.about, "thoughts": marks}), *events[1:]):
            screen.add(event)
        out.truncate(0)
        screen.console.print(screen.render())
        live = out.getvalue()
        out.truncate(0)
        screen.play([])
        for printed in (live, out.getvalue()):
            shown = " ".join(printed.split())
            assert (folded in shown, beginning in shown) == ((False, True) if marks is None else (True, False))


def test_a_lane_has_the_same_colour_on_the_page_and_in_the_terminal() -> None:
    style, hues = parts.stage_style(), lane_hues(METHODS)
    for method in parts.describe_methods():
        assert f'[data-hue="{method.hue}"] {{ --hue: {hues[method.lane]}; }}' in style
    assert hues["an unknown lane"] == HUES[-1] and style.count("--hue: #") == len(HUES)


def test_the_lanes_of_a_race_have_different_colours() -> None:
    # The registry gives the trie and Medusa the same colour; servers have no method.
    lanes = ["vanilla", "trie", "trie:n=3", "fusion", "trie:n=5", "medusa", "a server", "another server"]
    hues, by_method = race_hues(lanes, list(METHODS)), lane_hues(METHODS)
    assert by_method["trie"] == by_method["medusa"]
    assert [hues[lane] for lane in ("vanilla", "trie", "fusion")] == [
        by_method[method] for method in ("vanilla", "trie", "fusion")
    ]
    assert len({hues[lane] for lane in lanes}) == len(lanes)
    many = race_hues([f"trie:n={n}" for n in range(2, 20)], list(METHODS))
    assert many["trie:n=19"] == by_method["trie"], "a lane must get its method's colour when no other colour is free"


def test_the_lanes_of_the_presets_have_the_same_colour_in_every_race() -> None:
    by_method = lane_hues(METHODS)
    lanes = {lane for preset in PRESETS for lane in preset.common.get("lanes", DEFAULT_LANES)}
    assert len({by_method[lane] for lane in lanes}) == len(lanes) >= 7
    # This holds beside any other lane, with the lanes in the registry's order, as on the page.
    order = [name for name, method in METHODS.items() if not method.twin_of]
    for lane, other in itertools.product(lanes, order):
        hues = race_hues(sorted({lane, other}, key=order.index), list(METHODS))
        assert hues[lane] == by_method[lane], (lane, other)


def test_a_truncated_recording_plays_to_its_end_and_says_so(call_main, tmp_path: Path) -> None:
    data = RECORDING.read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(data[: len(data) // 2])
    done = call_main("replay", tmp_path / "cut.jsonl", "--speed", "1000")
    assert done.returncode == 0 and "The recording is cut off here" in done.stdout
    done = call_main("replay", tmp_path / "cut.jsonl", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["stopped"] is True


def set_value(path: str, value: Any) -> Callable[[Rows], None]:
    """A function that sets the value at `path` in the rows: the row's index and keys, "ROW.KEY.KEY"."""

    def apply(rows: Rows) -> None:
        *parents, last = path.split(".")
        node: Any = rows
        for key in parents:
            node = node[int(key) if isinstance(node, list) else key]
        node[int(last) if isinstance(node, list) else last] = value

    return apply


HOSTILE: dict[str, Callable[[Rows], None]] = {
    "a question that is not text": set_value("0.about.question", 5),
    "no question": set_value("0.about.question", []),
    "passages that are a number": set_value("0.about.passages", 7),
    "a passage without a score": set_value("0.about.passages", [{"title": "t", "document": "d", "text": "x"}]),
    "a score that is text": set_value("0.about.passages.0.score", "high"),
    "a step of an unknown lane": set_value("1.lane", "ghost"),
    "an infinite time": set_value("1.at_ms", float("inf")),
    "a time that is not a number": set_value("1.at_ms", float("nan")),
    "a time of a month": set_value("-2.at_ms", 3e9),
    "a time of 400 digits": set_value("1.at_ms", 10**400),
    "tokens of 400 digits": set_value("-1.lanes.0.tokens", 10**400),
    "a speedup of 400 digits": set_value("-1.lanes.0.speedup", 10**400),
    "a name of 100 kB": set_value("1.lane", "x" * 100_000),
    "900 levels of nesting": set_value("0.about.x", json.loads("[" * 900 + "]" * 900)),
    "no lane": set_value("0.lanes", []),
    "an origin that is a number": set_value("0.about.origins", [5]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_prints_one_short_sentence_and_exits_with_2(
    call_main, tmp_path: Path, rows: Rows, kind: str
) -> None:
    HOSTILE[kind](rows)
    done = call_main("replay", write(tmp_path / "hostile.jsonl", rows), "--speed", "1000")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and len(done.stderr) < 400


@pytest.mark.parametrize("file", ["/dev/zero", "/dev/tty", "{tmp}", "{tmp}/pipe"])
def test_a_path_that_is_not_a_regular_file_is_refused(call_main, tmp_path: Path, file: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = call_main("replay", file.format(tmp=tmp_path))
    assert (done.returncode, done.stdout) == (2, "") and "cannot be read" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_closed_standard_output_is_not_an_error(flags: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "specrace", "replay", str(RECORDING), "--speed", "1000", *flags]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_replay_without_msgspec_prints_one_sentence(call_main, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("msgspec", "specrace.views.recording_check"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "specrace.engine.recording")
    monkeypatch.setitem(sys.modules, "msgspec", None)
    done = call_main("replay", RECORDING)
    assert done.returncode == 2 and "msgspec" in done.stderr and done.stderr.count("\n") == 1


def test_the_console_replaces_control_characters() -> None:
    out = io.StringIO()
    CleanConsole(file=out, width=200).print(ESCAPES, "é 日本 🦉\nnext")
    assert not set("\x1b\x07\x9b\u202e") & set(out.getvalue()) and "é 日本 🦉\nnext" in out.getvalue()
