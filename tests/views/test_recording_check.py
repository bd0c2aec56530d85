"""The check of recordings: the bundled ones pass, and an inconsistent one is refused in one sentence."""

from __future__ import annotations

import json
import marshal
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import MAX_MESSAGE, InputError
from specrace.core.events import Finished, Pace, Repeated, Started, Step
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS
from specrace.drafters.base import Bounds
from specrace.drafters.lookahead import tree_size
from specrace.engine.recording import to_json
from specrace.views.recording_check import PAGE_LIMITS, TERMINAL_LIMITS, RecordingLimits, open_recording, read_recording
from specrace.views.reel import make_reel
from tests.views.recordings import Rows, replace_texts, set_result_texts

RECORDINGS = sorted((Path(__file__).resolve().parents[2] / "assets" / "recordings").glob("*.jsonl"))
# Larger recordings take seconds each; `tests/paths/test_large_recordings.py` checks them.
QUICK_BYTES = 250_000
SMALL = [path for path in RECORDINGS if path.stat().st_size < QUICK_BYTES]
LARGE = [path for path in RECORDINGS if path not in SMALL]


def rows_of(path: Path) -> Rows:
    """The rows of a recording: its events as JSON."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def text_of(rows: Rows) -> str:
    """The text of a recording with these rows."""
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def marshalled() -> bytes:
    """The rows of a recording, marshalled: each test loads a copy, which is faster than parsing JSON."""
    return marshal.dumps(rows_of(next(path for path in RECORDINGS if path.stem == "ngram-trie")))


@pytest.fixture
def rows(marshalled: bytes) -> Rows:
    """The rows of a recording with four lanes; the test may change them.

    Row 0 is 'started', row 1 the first step, row -1 'finished'. Lane 0 is vanilla, lane 1 the trigram, lane 2
    lookahead, lane 3 the trie.
    """
    copied: Rows = marshal.loads(marshalled)
    return copied


def step_of(rows: Rows, lane: str, number: int = 0) -> dict[str, Any]:
    """The row of the lane's step with this index."""
    return [row for row in rows if row["type"] == "step" and row["lane"] == lane][number]


@pytest.mark.slow
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_bundled_recordings_pass(path: Path) -> None:
    events = open_recording(path.read_bytes(), path.name)
    assert events == read_recording(path) == read_recording(path, TERMINAL_LIMITS)
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    assert {"question", "date", "model", "dtype", "device"} <= set(events[0].about)


def test_there_are_recordings_to_check() -> None:
    assert SMALL and LARGE


def test_passages_without_evidence_ranks_pass(rows: Rows) -> None:
    sentences = [sentence for passage in rows[0]["about"]["passages"] for sentence in passage["sentences"]]
    ranks = [sentence.pop("evidence") for sentence in sentences]
    assert any(ranks)
    reel = make_reel(open_recording(text_of(rows).encode(), "x"))
    assert [passage.evidence for passage in reel.head.passages] == [[]] * len(rows[0]["about"]["passages"])


def test_unicode_line_separators_in_a_text_do_not_end_the_line(rows: Rows) -> None:
    rows[0]["about"]["question"] = "one\u2028two\x85three"
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    first = open_recording(data.encode(), "x")[0]
    assert isinstance(first, Started) and first.about["question"] == "one\u2028two\x85three"


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_control_tokens_are_hidden_in_drafts_and_notes(path: Path) -> None:
    """Older versions recorded the texts of control tokens. The printed texts do not change."""
    for row, event in zip(rows_of(path), read_recording(path), strict=True):
        if isinstance(event, Step):
            rows = event.note.rows if event.note else ()
            pieces = (*event.pieces, *(piece for note_row in rows for piece in (*note_row.pieces, note_row.after_text)))
            assert not [piece for piece in pieces if "<|" in piece]
            assert list(event.texts) == row["texts"] and len(event.pieces) == len(row["pieces"])


def test_printed_texts_and_parts_of_tokens_are_not_hidden(rows: Rows) -> None:
    """A text that looks like a control token stays if a token prints it, or if it is only part of a token's text."""
    (printed,) = step_of(rows, "vanilla", 1)["emitted"]
    (other,) = step_of(rows, "vanilla", 2)["emitted"]
    new = {printed: "</s>", other: "a <|x|> b"}
    replace_texts(rows, lambda token, text: new.get(token, text))
    events = open_recording(text_of(rows).encode(), "x")
    pieces = [event.pieces for event in events if isinstance(event, Step) and event.lane == "vanilla"]
    # The root of step 2 is the token that step 1 printed.
    assert pieces[2] == ("</s>",) and pieces[3] == ("a <|x|> b",)


def change(path: str, value: Any) -> Callable[[Rows], None]:
    """A function that sets the value at `path`: the row's number and the keys in it, joined by dots."""

    def apply(rows: Rows) -> None:
        *keys, last = path.split(".")
        parent: Any = rows
        for key in keys:
            parent = parent[int(key)] if isinstance(parent, list) else parent[key]
        parent[int(last) if isinstance(parent, list) else last] = value

    return apply


def change_last_token(rows: Rows) -> None:
    """Change the trie's last token wherever its last step has it, so that the step itself is consistent."""
    last = step_of(rows, "trie", -1)
    last["verdict"]["bonus"] = last["emitted"][-1] = 77
    path = last["verdict"]["path"] = last["verdict"]["path"][: len(last["emitted"])]
    last["verdict"]["scores"]["targets"][path[-1]] = 77


# The test of a draft token by rejection sampling, and a row of a drafter's note.
CHECK = {"p": 0.5, "q": 0.5, "coin": 0.1}
ROW = {"group": "", "label": "", "tokens": [1]}


def check_tree(rows: Rows, others: Sequence[int] = (), *, accepted: bool = True, num_checks: int | None = None) -> None:
    """Record that a step tested its accepted nodes, if `accepted`, and `others`; by default with a check for each."""
    step = next(row for row in rows if row["type"] == "step" and len(row["verdict"]["path"]) > 1)
    nodes = [*(step["verdict"]["path"][1:] if accepted else ()), *others]
    step |= {"checked_nodes": nodes, "checks": [CHECK] * (len(nodes) if num_checks is None else num_checks)}


# For each fault, a change after which the recording must be refused. A note may have 8 facts and 24 rows.
FAULTS: dict[str, Callable[[Rows], None]] = {
    "a speedup that the steps do not give": change("-1.lanes.3.speedup", 9.9),
    "tokens that were not emitted": change("-1.lanes.3.tokens", 4000),
    "a text that differs and is called identical": change_last_token,
    "a lane that hides that it is identical": change("-1.lanes.3.identical", None),
    "a difference where the texts are equal": change(
        "-1.lanes.3.first_difference", {"position": 3, "best": ["a", "b"], "gap": 1.0}
    ),
    "emitted tokens that were not accepted": lambda rows: step_of(rows, "trie").__setitem__("emitted", [1, 2, 3]),
    "no token at all": lambda rows: step_of(rows, "trie").__setitem__("emitted", []),
    "a clock that goes back": lambda rows: step_of(rows, "vanilla", 5).__setitem__("at_ms", 0.0),
    "a time that is NaN": lambda rows: step_of(rows, "vanilla", 5).__setitem__("at_ms", math.nan),
    "an infinite time": lambda rows: step_of(rows, "vanilla", 5).__setitem__("at_ms", math.inf),
    "a negative duration": lambda rows: step_of(rows, "vanilla")["timing"].__setitem__("draft_ms", -1.0),
    "a step of an unknown lane": lambda rows: step_of(rows, "trie").__setitem__("lane", "ghost"),
    "a step twice": lambda rows: rows.insert(2, rows[1]),
    "a lane twice": lambda rows: rows[0]["lanes"].append(rows[0]["lanes"][1]),
    "no vanilla": lambda rows: rows[0]["lanes"].pop(0),
    "a second 'started' event": lambda rows: rows.insert(1, rows[0]),
    "an origin outside the passages": change("0.about.origins", [[99, 0, 1]]),
    "an origin outside a passage's text": change("0.about.origins", [[0, 0, 10**9]]),
    "an origin that is a text": change("0.about.origins", ["x"]),
    "a passage that is a text": change("0.about.passages", ["x"]),
    "a score that is not a number": change("0.about.passages.0.score", "high"),
    "a question that is not a text": change("0.about.question", {"x": [1]}),
    "a number of parameters that is a text": change("0.about.parameters", "many"),
    "settings that are a list": change("0.about.settings", [1]),
    "a token id that is too large": lambda rows: step_of(rows, "trie")["tree"]["tokens"].__setitem__(0, 10**30),
    "more texts than tokens": lambda rows: step_of(rows, "trie").__setitem__("texts", ["a"] * 50),
    "a text of 200,000 characters": lambda rows: step_of(rows, "trie")["texts"].__setitem__(0, "x" * 200_000),
    "a time too small to draw": change("1.at_ms", 1e-320),
    "a duration too small to draw": change("1.timing.draft_ms", 1e-320),
    "a race of a month": change("-2.at_ms", 3e9),
    "a prompt of -1 tokens": change("0.prompt_tokens", -1),
    "a million draft tokens": change("0.lanes.3.num_draft", 10**6),
    "a path outside the tree": change("1.verdict.path", [0, 99]),
    "an empty path": change("1.verdict.path", []),
    "a path without its root": change("1.verdict.path", [1]),
    "scores of another tree": change("1.verdict.scores.targets", [1, 2, 3, 4]),
    "a check without a draft token": lambda rows: step_of(rows, "vanilla").__setitem__("checks", [CHECK]),
    "tested nodes without checks": lambda rows: step_of(rows, "trie").__setitem__("checked_nodes", []),
    "more checks than tested nodes": lambda rows: check_tree(rows, num_checks=60),
    "a tested node that is not in the tree": lambda rows: check_tree(rows, [99]),
    "the root as a tested node": lambda rows: check_tree(rows, [0]),
    "an accepted node that was not tested": lambda rows: check_tree(rows, accepted=False),
    "a note of another tree": lambda rows: step_of(rows, "trie")["note"].__setitem__("counts", [1] * 99),
    "a note of many facts": lambda rows: step_of(rows, "trie")["note"].update(facts=dict.fromkeys("abcdefghi", 1)),
    "a note of many rows": lambda rows: step_of(rows, "trie")["note"].__setitem__("rows", [ROW] * 25),
    "a text that no step printed": change("-1.lanes.3.text", "Buy now."),
    "a note that hides a difference": change("-1.lanes.3.note", "identical, trust me"),
    "a verifier that hides a difference": change("0.lanes.3.verifier", "rejection"),
    "an unknown verifier": change("0.lanes.3.verifier", "none"),
    "an end that no step has": change("-1.lanes.3.end", "stopped"),
    "a whole race that claims to be stopped": change("-1.stopped", True),
    "an engine that is not a text": change("0.about.engine", {"x": 1}),
    "a lane's name of 100,000 characters": change("0.lanes.3.lane", "x" * 100_000),
    "a title of 600,000 characters": change("0.lanes.3.title", "x" * 600_000),
    "a speedup of 400 digits": change("-1.lanes.3.speedup", 10**400),
    "tokens of 400 digits": change("-1.lanes.3.tokens", 10**400),
    "a score of 400 digits": change("0.about.passages.0.score", 10**400),
    "a setting of 400 digits": change("0.about.settings.seed", 10**400),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_an_inconsistent_recording_is_refused_in_one_sentence(rows: Rows, fault: str) -> None:
    FAULTS[fault](rows)
    with pytest.raises(InputError, match=r"^odd\.jsonl.*\.$") as error:
        open_recording(text_of(rows).encode(), "odd.jsonl")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def print_other_text(rows: Rows) -> None:
    """Let the trie print another text for the same tokens."""
    for row in rows[1:-1]:
        if row["lane"] == "trie":
            row["texts"] = [text.replace("e", "X") for text in row["texts"]]
    set_result_texts(rows)


def leave_out_texts(rows: Rows) -> None:
    """Let the trie print nothing."""
    for row in rows[1:-1]:
        if row["lane"] == "trie":
            row["texts"] = []
    set_result_texts(rows)


def let_vanilla_draft(rows: Rows) -> None:
    """Give the steps of the trie to vanilla, and those of vanilla to the trie."""
    other = {"vanilla": "trie", "trie": "vanilla"}
    for row in [*rows[1:-1], *rows[-1]["lanes"]]:
        row["lane"] = other.get(row["lane"], row["lane"])
    vanilla = rows[-1]["lanes"].pop()
    rows[-1]["lanes"] = [vanilla, *rows[-1]["lanes"][1:], rows[-1]["lanes"][0]]
    for lane in rows[-1]["lanes"]:
        lane["speedup"] = lane["tokens_per_s"] / vanilla["tokens_per_s"]


def accept_against_the_model(rows: Rows) -> None:
    """Change the model's token at the root of a step that accepted a draft token."""
    step = next(row for row in rows[1:-1] if len(row["verdict"]["path"]) > 1)
    step["verdict"]["scores"]["targets"][0] = 7


def set_probs(prob: float) -> Callable[[Rows], None]:
    """A function that sets all probabilities of a draft."""
    return lambda rows: step_of(rows, "trie")["tree"].update(probs=[prob] * len(step_of(rows, "trie")["pieces"]))


# For each fault, a change after which the results still follow from the steps, and a part of the error message.
CONTRADICTIONS: dict[str, tuple[Callable[[Rows], None], str]] = {
    "other texts of the same tokens": (print_other_text, "trie prints another text than a lane with the same tokens"),
    "no texts of the same tokens": (leave_out_texts, "trie prints another text than a lane with the same tokens"),
    "another text of a draft token": (
        lambda rows: step_of(rows, "trie").update(pieces=["LIE"] * len(step_of(rows, "trie")["pieces"])),
        "trie has another text of token",
    ),
    "a draft of vanilla": (let_vanilla_draft, "of vanilla has a draft, but vanilla is the model alone"),
    "a size of vanilla's drafts": (change("0.lanes.0.num_draft", 4), "vanilla drafts"),
    "the title of another method": (change("0.lanes.0.title", "N-gram trie (n=5)"), "title of another method"),
    "a token that the model did not choose": (accept_against_the_model, "verdict that contradicts the model's tokens"),
    "a probability above 1": (set_probs(5.0), "not between 0 and 1"),
    "a probability below 0": (set_probs(-1e9), "not between 0 and 1"),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_a_recording_that_contradicts_itself_is_refused(rows: Rows, kind: str) -> None:
    apply, fault = CONTRADICTIONS[kind]
    apply(rows)
    with pytest.raises(InputError, match=rf"^odd\.jsonl cannot be shown: .*{re.escape(fault)}.*\.$"):
        open_recording(text_of(rows).encode(), "odd.jsonl")


@pytest.mark.parametrize("title", ["Our N-gram trie", "The old name (n=5)"])
def test_a_lane_may_have_a_title_of_its_own(rows: Rows, title: str) -> None:
    rows[0]["lanes"][3]["title"] = title
    started = open_recording(text_of(rows).encode(), "own.jsonl")[0]
    assert isinstance(started, Started) and started.lanes[3].title == title


def test_a_stopped_lane_may_hold_back_a_text_that_an_ended_one_prints(rows: Rows) -> None:
    """The last token of an ended lane also prints what was held back of an incomplete character."""
    emitted = step_of(rows, "vanilla", -1)["emitted"]
    step_of(rows, "vanilla", -1)["texts"] = ["\ufffd"]
    last = step_of(rows, "trie", -1)
    assert last["emitted"][-1:] == emitted
    last |= {"end": "", "texts": [*last["texts"][:-1], ""]}
    steps = [row for row in rows[1:-1] if row["lane"] in ("vanilla", "trie")]
    finished = open_recording(text_of([rows[0], *steps]).encode(), "stopped.jsonl")[-1]
    assert isinstance(finished, Finished)
    results = [(lane.end, lane.identical) for lane in finished.lanes if lane.lane in ("vanilla", "trie")]
    assert results == [("eos", True), ("stopped", True)]


@pytest.mark.parametrize(
    "data",
    ["", "\n\n", "not json", "[]", "{}", '{"type": "started"}', "[" * 100_000, "\x00\x01\ufffd", "null", "1e999"],
)
def test_data_that_is_not_a_recording_is_refused(data: str) -> None:
    with pytest.raises(InputError, match=r"odd\.jsonl"):
        open_recording(data.encode(), "odd.jsonl")


def test_a_recording_that_is_cut_off_gets_the_results_of_its_steps(rows: Rows) -> None:
    full_text = text_of(rows)
    text = full_text[: len(full_text) // 2]
    *events, finished = open_recording(text.encode(), "cut.jsonl")
    assert isinstance(finished, Finished) and finished.cut and finished.stopped
    assert len(events) == text.count("\n")
    for result in finished.lanes:
        steps = [step for step in events if isinstance(step, Step) and step.lane == result.lane]
        assert (result.steps, result.tokens) == (len(steps), sum(len(step.emitted) for step in steps))
        assert result.identical and result.end == "stopped"
    saved = [to_json(event) for event in [*events, finished]]
    assert open_recording(text_of(saved).encode(), "again.jsonl") == [*events, finished]
    # A recording that is cut off cannot pass as a whole race.
    saved[-1]["stopped"] = False
    with pytest.raises(InputError, match="'stopped' contradicts its steps"):
        open_recording(text_of(saved).encode(), "whole.jsonl")


def test_a_recording_without_its_last_line_still_reports_differences(rows: Rows) -> None:
    change_last_token(rows)
    finished = open_recording(text_of(rows[:-1]).encode(), "cut.jsonl")[-1]
    assert isinstance(finished, Finished)
    assert [lane.lane for lane in finished.lanes if lane.identical is False] == ["trie"]


PACE = {
    "probes": 9, "probe_ms": 1.0, "low": 1.0, "high": 1.0, "jumps": 0.0, "waited_ms": 0.0, "threads": 2,
    "disturbed": False, "note": "Steady.",
}  # fmt: skip


def repeat(rows: Rows, **changes: Any) -> None:
    """Append a 'repeated' row with ranges of 5% on either side of the recorded speedups, and with these changes."""
    rows[-1]["pace"] = PACE
    lanes = [
        {"lane": lane["lane"], "speedup": lane["speedup"], "tokens_per_s": lane["tokens_per_s"],
         "low": 0.95 * lane["speedup"], "high": 1.05 * lane["speedup"]}
        for lane in rows[-1]["lanes"]
    ]  # fmt: skip
    lanes[0] |= {"low": 1.0, "high": 1.0}
    row = {"type": "repeated", "runs": 5, "lanes": lanes, "disturbed": False, "note": "Speedups are medians of 5 runs."}
    rows.append(row | changes)


def test_repeated_runs_are_read_with_the_race(rows: Rows) -> None:
    repeat(rows)
    *_, finished, repeated = open_recording(text_of(rows).encode(), "again.jsonl")
    assert isinstance(finished, Finished) and isinstance(repeated, Repeated)
    assert (repeated.runs, [lane.lane for lane in repeated.lanes]) == (5, [lane.lane for lane in finished.lanes])
    assert json.loads(json.dumps(to_json(repeated))) == rows[-1]


def too_fast(rows: Rows) -> None:
    """Claim that the trie was 1.2 times as fast as its tokens per step allow."""
    tau = rows[-2]["lanes"][3]["tau"]
    rows[-1]["lanes"][3] |= {"high": 1.2 * tau}


def leave_out_first_run(rows: Rows) -> None:
    """Claim a range of speedups that does not include the recorded run's."""
    speedup = rows[-1]["lanes"][3]["speedup"]
    rows[-1]["lanes"][3] |= {"low": 1.02 * speedup, "speedup": 1.03 * speedup, "high": 1.04 * speedup}


REPEATED_FAULTS: dict[str, Callable[[Rows], None]] = {
    "no other rows": lambda rows: rows.__delitem__(slice(0, -1)),
    "before 'finished'": lambda rows: rows.append(rows.pop(-2)),
    "twice": lambda rows: rows.append(rows[-1]),
    "without 'finished'": lambda rows: rows.__delitem__(-2),
    "between the steps": lambda rows: rows.insert(5, rows.pop()),
    "another lane": change("-1.lanes.3.lane", "fusion"),
    "a missing lane": lambda rows: rows[-1]["lanes"].pop(),
    "no runs": change("-1.runs", 0),
    "a billion runs": change("-1.runs", 10**9),
    "a number of runs that is a text": change("-1.runs", "5"),
    "a median below the range": change("-1.lanes.3.low", 10.0),
    "a median above the range": change("-1.lanes.3.high", 0.1),
    "a negative range": change("-1.lanes.3.low", -0.1),
    "an infinite range": change("-1.lanes.3.high", math.inf),
    "a speedup that is NaN": change("-1.lanes.3.speedup", math.nan),
    "a negative rate": change("-1.lanes.3.tokens_per_s", -1.0),
    "a lane faster than its tokens per step allow": too_fast,
    "a range without the recorded run": leave_out_first_run,
    "vanilla faster than itself": change("-1.lanes.0.high", 1.2),
    "a note of 5000 characters": change("-1.note", "x" * 5000),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", REPEATED_FAULTS)
def test_inconsistent_repeated_runs_are_refused_in_one_sentence(rows: Rows, fault: str) -> None:
    repeat(rows)
    REPEATED_FAULTS[fault](rows)
    with pytest.raises(InputError, match=r"^odd\.jsonl.*\.$") as error:
        open_recording(text_of(rows).encode(), "odd.jsonl")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("fault", [too_fast, leave_out_first_run])
def test_speedups_of_disturbed_runs_are_not_checked(rows: Rows, fault: Callable[[Rows], None]) -> None:
    repeat(rows, disturbed=True, note="The machine was busy in 3 of 5 runs: these figures do not count.")
    fault(rows)
    assert isinstance(open_recording(text_of(rows).encode(), "busy.jsonl")[-1], Repeated)


def delay_vanilla(rows: Rows, delay_ms: float) -> None:
    """Make each of vanilla's steps `delay_ms` longer, and change all times and speedups that follow from this."""
    vanilla_rows = [row for row in rows[1:-1] if row["lane"] == "vanilla"]
    for number, row in enumerate(vanilla_rows, 1):
        row["timing"]["target_ms"] += delay_ms
        row["at_ms"] += number * delay_ms
    rows[1:-1] = sorted(rows[1:-1], key=lambda row: row["at_ms"])
    vanilla = rows[-1]["lanes"][0]
    decode_ms = vanilla["decode_ms"]
    vanilla["decode_ms"] += delay_ms * len(vanilla_rows)
    vanilla["tokens_per_s"] *= decode_ms / vanilla["decode_ms"]
    for lane in rows[-1]["lanes"]:
        lane["speedup"] = lane["tokens_per_s"] / vanilla["tokens_per_s"]


@pytest.mark.parametrize("pace", [PACE, None], ids=["with a pace", "without a pace"])
def test_a_race_with_a_lane_faster_than_its_tokens_per_step_is_disturbed(
    rows: Rows, pace: dict[str, Any] | None
) -> None:
    rows[-1]["pace"] = pace
    delay_vanilla(rows, 20.0)
    finished = open_recording(text_of(rows).encode(), "odd.jsonl")[-1]
    assert isinstance(finished, Finished) and isinstance(finished.pace, Pace)
    assert max(lane.speedup / lane.tau for lane in finished.lanes) > 1.1
    assert finished.pace.disturbed and "tokens per step" in finished.pace.note


def test_the_number_of_looping_tokens_is_computed_again(rows: Rows) -> None:
    rows[-1]["lanes"][1]["loop_tokens"] = 77
    finished = open_recording(text_of(rows).encode(), "old.jsonl")[-1]
    assert isinstance(finished, Finished) and [lane.loop_tokens for lane in finished.lanes] == [0] * 4


def test_a_recording_beyond_the_limits_is_refused(rows: Rows) -> None:
    # The limits on bytes, lanes and steps.
    for limits, message in ((RecordingLimits(10**6, 3, 9999), "4 lanes"), (RecordingLimits(10**6, 6, 3), "3 steps")):
        with pytest.raises(InputError, match=message):
            open_recording(text_of(rows).encode(), "odd.jsonl", limits)
    with pytest.raises(InputError, match="larger than"):
        open_recording(b" " * (PAGE_LIMITS.size + 1), "odd.jsonl")


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 * PAGE_LIMITS.size)


def make_nothing(path: Path) -> None:
    """Leave the path without a file."""


# For each kind of file, how it is made, and a part of the error message.
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (make_nothing, "cannot be read"),
    "a folder": (Path.mkdir, "cannot be read"),
    "a pipe without a writer": (os.mkfifo, "not a regular file"),
    "an endless device": (link_to_zeros, "not a regular file"),
    "a large file": (make_large_file, "larger than"),
    "a picture": (lambda path: path.write_bytes(b"\x89PNG\r\n\xff\xfe\x00"), "not text"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_not_a_recording_is_refused_in_one_sentence(tmp_path: Path, kind: str) -> None:
    make, message = FILES[kind]
    path = tmp_path / "odd.jsonl"
    make(path)
    with pytest.raises(InputError, match=message) as error:
        read_recording(path)
    assert "\n" not in str(error.value) and len(str(error.value)) <= MAX_MESSAGE + 1


def test_a_path_that_is_too_long_is_refused_in_a_short_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read") as error:
        read_recording(tmp_path / ("x" * 5000))
    assert "\n" not in str(error.value) and len(str(error.value)) <= MAX_MESSAGE + 1


def test_a_file_is_read_up_to_the_limit_whatever_its_stated_size(tmp_path: Path, rows: Rows) -> None:
    """Files in /proc have a stated size of 0."""
    path = tmp_path / "race.jsonl"
    path.write_text(text_of(rows))
    with pytest.raises(InputError, match="larger than"):
        read_recording(path, RecordingLimits(1000, 6, 9999))
    assert Path("/proc/kallsyms").stat().st_size == 0
    with pytest.raises(InputError, match="larger than"):
        read_recording(Path("/proc/kallsyms"), RecordingLimits(1000, 6, 9999))


def test_a_file_that_is_cut_off_inside_a_character_is_read(tmp_path: Path, rows: Rows) -> None:
    rows[-1]["lanes"][0]["text"] = "é"
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path = tmp_path / "race.jsonl"
    # The é of the last row has two bytes, and the file ends between them.
    path.write_bytes(data[: data.index("é".encode(), len(data) - 9000) + 1])
    finished = read_recording(path)[-1]
    assert isinstance(finished, Finished) and finished.cut


def test_recordings_with_the_largest_settings_pass(rows: Rows) -> None:
    assert TERMINAL_LIMITS.lanes >= len(METHODS)
    # No method makes larger trees than lookahead.
    bounds = {option.name: option.bounds for option in METHODS["lookahead"].options}
    max_nodes = tree_size({name: round(bound.high) for name, bound in bounds.items() if isinstance(bound, Bounds)})
    rows[0]["lanes"][2]["num_draft"] = max_nodes
    rows[0]["about"]["settings"]["seed"] = SETTINGS["seed"].high
    # A server adds sentences about its other work to this note.
    repeat(
        rows, note="Speedups are medians of 7 runs; 2 more were disturbed and do not count. " + 3 * ("x" * 80 + ". ")
    )
    started = open_recording(text_of(rows).encode(), "large.jsonl")[0]
    assert isinstance(started, Started) and started.lanes[2].num_draft == max_nodes
