"""Races on the worker's thread, and their messages to the page.

A race's reel is the JSON that the page plays. A message has some of its parts, all of one kind: head, step, end, or
again (the end once more, after a repeated run).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.applications import Starlette

from specrace.core.errors import InputError
from specrace.core.events import (
    Event,
    Finished,
    LaneInfo,
    LaneResult,
    LaneSpread,
    Pace,
    Repeated,
    Started,
    Step,
    Timing,
)
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.ui.helper.other_work import FETCHED, READ_FILES, SCORED
from specrace.ui.helper.process import OUR_FAULT
from specrace.ui.races import stream as streaming
from specrace.ui.races.job import RACE_LIMIT_S, Job, RunRace
from specrace.ui.races.stream import HOLD_S, PERIOD_S, describe_wait, messages, race_report, watch_route
from specrace.ui.races.worker import Worker
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.visitor_limits import VisitorLimits
from specrace.views.reel import reel_json
from specrace.workbench import Workbench
from tests.ui.waiting import LONG_S, wait_until

# The races of these tests do not use their workbench.
WORKBENCH = cast(Workbench, object())
Stop = Callable[[], bool]


def first_event() -> Started:
    """The first event of a race with one lane, after a prompt of 3 tokens that was read in 1 ms."""
    return Started((LaneInfo("vanilla", "Vanilla", num_draft=0),), prompt_tokens=3, prefill_ms=1.0)


def last_event(stopped: bool = False) -> Finished:
    """The last event of a race with one lane, which printed one token, "a", in one step."""
    lane = LaneResult(
        "vanilla",
        tokens=1,
        steps=1,
        tau=1.0,
        drafted_per_step=0.0,
        acceptance_rate=0.0,
        decode_ms=1.0,
        tokens_per_s=1.0,
        speedup=1.0,
        identical=True,
        first_difference=None,
        end="eos",
        loop_tokens=0,
        text="a",
    )
    return Finished((lane,), stopped)


def one_step(index: int) -> Step:
    """A step without a draft: the root is token 1, and so is the bonus token, whose text is "a"."""
    verdict = Verdict(path=(0,), bonus=1, scores=Scores(targets=(1,)))
    timing = Timing(draft_ms=0, target_ms=1, keep_ms=0)
    tree = TokenTree.chain(root=1)
    return Step("vanilla", index, float(index), tree, verdict, emitted=(1,), timing=timing, texts=("a",))


def short_race(_workbench: Workbench, _stop: Stop) -> Iterator[Event]:
    """A race of one step."""
    yield from (first_event(), one_step(0), last_event())


def endless_race(_workbench: Workbench, stop: Stop) -> Iterator[Event]:
    """A race that runs until it is stopped."""
    yield first_event()
    for index in range(10**9):
        if stop():
            break
        time.sleep(0.002)
        yield one_step(index)
    yield last_event(stopped=True)


def ready_worker(limits: VisitorLimits | None = None) -> Worker:
    """Start a worker, and wait until it has loaded its workbench."""
    worker = Worker(lambda _report: WORKBENCH, limits)
    worker.start()
    wait_until(lambda: worker.loading.settled)
    return worker


async def collect(
    worker: Worker, job: Job, limit: int = 10**6, react: Callable[[dict[str, Any]], object] | None = None
) -> list[dict[str, Any]]:
    """Return the job's messages, at most `limit`; calls `react` with each message when it arrives."""
    received: list[dict[str, Any]] = []
    stream = messages(worker, job)
    async for message in stream:
        received.append(json.loads(message))
        if react is not None:
            react(received[-1])
        if len(received) == limit:
            break
    await cast(Any, stream).aclose()
    return received


def parts_of(received: list[dict[str, Any]], kind: str) -> list[Any]:
    """Return the parts in all messages of one kind."""
    return [part for message in received if message["kind"] == kind for part in message["parts"]]


def test_a_races_messages_add_up_to_its_reel() -> None:
    worker = ready_worker()
    job = worker.queue.submit("a", short_race)
    received = asyncio.run(collect(worker, job))
    assert [message["kind"] for message in received if message["kind"] != "note"] == ["head", "step", "end"]
    reel = {
        "race": job.number,
        "steps": parts_of(received, "step"),
        **parts_of(received, "head")[0],
        **parts_of(received, "end")[0],
    }
    assert reel == json.loads(reel_json(job.events, job.number))


def test_messages_are_sent_at_a_steady_rate_however_fast_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that stalls for a second gets no burst. Each sleep advances the clock, and seven steps arrive in it."""
    worker = Worker(lambda _report: WORKBENCH)
    worker.loading.workbench = WORKBENCH
    job = worker.queue.submit("a", short_race)
    job.parts.append(("head", "{}"))
    now, times = 50.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        job.parts.extend([("step", "{}")] * 7)

    def read(_: Any) -> None:
        nonlocal now
        times.append(now)
        # The page stalls for a second after the tenth message.
        now += len(times) == 10

    monkeypatch.setattr(streaming, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(streaming, "asyncio", SimpleNamespace(sleep=sleep))
    received = asyncio.run(collect(worker, job, limit=20, react=read))
    head, first, *later_gaps = [end_of_gap - before for before, end_of_gap in itertools.pairwise([50.0, *times])]
    assert (head, first) == (0.0, pytest.approx(HOLD_S, abs=PERIOD_S)), "a race that ends soon is sent in one piece"
    assert later_gaps == pytest.approx([*[PERIOD_S] * 8, 1.0, *[PERIOD_S] * 9]) and 10 < 1 / PERIOD_S < 22
    sizes = [len(message["parts"]) for message in received[2:]]
    assert sizes == [7] * len(sizes) and len(received[1]["parts"]) > 7


def test_closing_the_stream_stops_the_race() -> None:
    worker = ready_worker()
    job = worker.queue.submit("a", endless_race)
    asyncio.run(collect(worker, job, limit=3))
    assert job.wait(LONG_S)


async def watch(worker: Worker, key: str, *, leaves: bool = False) -> tuple[int, bytes]:
    """Watch a race; returns the status and body that a page gets. If `leaves`, it disconnects after the first frame."""
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if leaves and message.get("body"):
            gone.set()

    path = f"/gradio_api/race/{key}"
    scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": [], "query_string": b""}
    await Starlette(routes=[watch_route(worker)])(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_race_can_be_watched_once_with_its_key() -> None:
    worker = ready_worker()
    job = worker.queue.submit("a", short_race)
    worker.queue.offer(job)
    assert asyncio.run(watch(worker, "x" * 22))[0] == 404
    status, body = asyncio.run(watch(worker, job.key))
    *events, last, remainder = body.decode().split("\n\n")
    assert (status, last, remainder) == (200, "event: end\ndata:", "")
    kinds = [json.loads(event.removeprefix("data: "))["kind"] for event in events]
    assert kinds[-3:] == ["head", "step", "end"]
    assert asyncio.run(watch(worker, job.key))[0] == 404


def test_a_race_stops_when_its_page_disconnects() -> None:
    worker = ready_worker()
    job = worker.queue.submit("a", endless_race)
    worker.queue.offer(job)
    assert asyncio.run(watch(worker, job.key, leaves=True))[0] == 200
    assert job.wait(LONG_S)


def test_a_race_that_nobody_watches_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrace.ui.races.job_queue.CLAIM_LIMIT_S", 0.1)
    worker = ready_worker()
    job = worker.queue.submit("a", endless_race)
    worker.queue.offer(job)
    assert job.wait(LONG_S) and worker.queue.claim(job.key) is None


def test_a_stopped_race_still_returns_results() -> None:
    worker = ready_worker()
    job = worker.queue.submit("a", endless_race)
    received = asyncio.run(
        collect(worker, job, react=lambda message: message["kind"] == "note" or worker.queue.stop("a"))
    )
    assert parts_of(received, "end")[0]["phase"] == "stopped" and parts_of(received, "end")[0]["results"]


def test_races_run_one_at_a_time_and_waiting_ones_show_their_position() -> None:
    worker = ready_worker()
    first, second = worker.queue.submit("a", endless_race), worker.queue.submit("b", short_race)
    received = asyncio.run(collect(worker, second, react=lambda _: first.stop()))
    assert first.done
    assert (received[0]["phase"], received[0]["message"]) == ("waiting", "You're next.")
    assert parts_of(received, "end")[0]["phase"] == "finished"


def test_a_visits_new_race_stops_its_old_one() -> None:
    worker = ready_worker()
    old = worker.queue.submit("a", endless_race)
    new = worker.queue.submit("a", short_race)
    assert new.wait(LONG_S) and old.done
    assert new.number > old.number


def test_a_race_stopped_in_the_queue_never_starts() -> None:
    worker = ready_worker()
    first, second = worker.queue.submit("a", endless_race), worker.queue.submit("b", short_race)
    worker.queue.stop("b")
    first.stop()
    received = asyncio.run(collect(worker, second))
    assert not second.events
    assert [message["phase"] for message in received][-1] == "stopped"


def test_one_pages_races_occupy_one_slot_in_the_queue() -> None:
    """Replaced races leave the queue immediately, so nobody is refused or waits because of them."""
    worker = ready_worker()
    first = worker.queue.submit("a", endless_race)
    clicks = [worker.queue.submit("b", short_race) for _ in range(2 * VisitorLimits.queue)]
    assert all(job.done and not job.events for job in clicks[:-1])
    next_job = worker.queue.submit("c", short_race)
    assert worker.queue.num_ahead(next_job) == 2
    first.stop()
    assert next_job.wait(LONG_S) and clicks[-1].events


def test_a_stopped_or_unwatched_race_leaves_the_queue_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ready_worker()
    first, second, third, last = (worker.queue.submit(name, endless_race) for name in "abcd")
    worker.queue.stop("b")
    assert second.done and worker.queue.num_ahead(last) == 2
    monkeypatch.setattr("specrace.ui.races.job_queue.CLAIM_LIMIT_S", -1.0)
    worker.queue.offer(third)
    assert worker.queue.num_ahead(last) == 1 and third.done and worker.queue.claim(third.key) is None
    last.stop()
    first.stop()
    assert first.wait(LONG_S)


def test_an_api_clients_queued_races_are_limited() -> None:
    worker = ready_worker()
    jobs = [worker.queue.submit("api", endless_race, for_page=False) for _ in range(VisitorLimits.races_at_once)]
    with pytest.raises(InputError, match="in line already"):
        worker.queue.submit("api", short_race, for_page=False)
    next_job = worker.queue.submit("b", short_race)
    worker.queue.stop("api")
    assert next_job.wait(LONG_S) and next_job.parts and not any(job.parts for job in jobs)


def race_after_preparation(released: threading.Event) -> RunRace:
    """Return a race whose preparation lasts until `released` is set."""

    def run(workbench: Workbench, stop: Stop) -> Iterator[Event | str]:
        while not released.is_set():
            yield "Indexing your documents …"
        yield from short_race(workbench, stop)

    return run


def test_repeated_runs_stop_when_another_race_waits() -> None:
    def repeating(_workbench: Workbench, stop: Stop) -> Iterator[Event]:
        yield from short_race(_workbench, stop)
        for runs in itertools.count(2):
            if stop():
                return
            time.sleep(0.002)
            spread = LaneSpread("vanilla", speedup=1.0, low=1.0, high=1.0, tokens_per_s=1.0)
            yield Repeated(runs, (spread,), disturbed=False, note="Medians.")

    worker = ready_worker()
    first = worker.queue.submit("a", repeating)
    wait_until(lambda: len(first.events) >= 5)
    assert first.finished and not first.done
    assert worker.queue.submit("b", short_race).wait(LONG_S) and first.done
    kinds = [kind for kind, _ in first.parts]
    assert kinds[:3] == ["head", "step", "end"] and set(kinds[3:]) == {"again"}
    # Besides head, step and end there is a part for each run but the first.
    assert json.loads(first.parts[-1][1])["repeated"]["runs"] == len(kinds) - 2


def test_other_races_run_while_one_is_being_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrace.ui.races.job.TURN_S", 0.0)
    worker, released = ready_worker(), threading.Event()
    slow = worker.queue.submit("a", race_after_preparation(released))
    for name in "bcd":
        assert worker.queue.submit(name, short_race).wait(LONG_S)
    assert not slow.done and describe_wait(worker, slow) == "Indexing your documents …"
    released.set()
    assert slow.wait(LONG_S) and len(slow.events) == 3


def test_waiting_does_not_count_toward_a_races_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race reaches its time limit in its second turn; a wait longer than the limit lies between the two turns."""
    now, stops = [50.0], list[bool]()

    def describe_nothing(_moment: float) -> str:
        return ""

    monkeypatch.setattr("specrace.ui.races.job.time", SimpleNamespace(monotonic=lambda: now[0]))

    def run(_workbench: Workbench, stop: Stop) -> Iterator[Event | str]:
        now[0] += RACE_LIMIT_S / 2
        yield "Indexing your documents …"
        for _ in range(2):
            stops.append(stop())
            now[0] += RACE_LIMIT_S / 3
        stops.append(stop())
        yield from short_race(_workbench, stop)

    job = Job(1, "a", run, Telemetry())
    job.work(WORKBENCH, lambda: True, describe_nothing)
    assert not job.done and job.message
    now[0] += 2 * RACE_LIMIT_S
    job.work(WORKBENCH, lambda: True, describe_nothing)
    assert job.done and stops == [False, False, True]


@pytest.mark.parametrize("turn", [0.0, LONG_S])
def test_a_race_can_be_stopped_during_preparation(monkeypatch: pytest.MonkeyPatch, turn: float) -> None:
    """The race can be stopped during its turn and between two turns."""
    monkeypatch.setattr("specrace.ui.races.job.TURN_S", turn)
    worker = ready_worker()
    slow = worker.queue.submit("a", race_after_preparation(threading.Event()))
    wait_until(lambda: slow.message)
    next_job = worker.queue.submit("b", endless_race)
    worker.queue.stop("a")
    assert slow.wait(LONG_S) and not slow.events
    wait_until(lambda: next_job.events)
    worker.queue.stop("b")
    assert next_job.wait(LONG_S)


def test_a_race_that_is_never_ready_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrace.ui.races.job.RACE_LIMIT_S", 0.0)
    worker = ready_worker()
    with pytest.raises(InputError, match="takes more than 0 s;"):
        asyncio.run(race_report(worker.queue.submit("a", race_after_preparation(threading.Event()))))


def test_a_race_that_cannot_be_replayed_says_so() -> None:
    unplayable = replace(first_event(), about={"roofline": float("nan")})

    def run(_workbench: Workbench, _stop: Stop) -> Iterator[Event]:
        yield from (unplayable, one_step(0), last_event())

    worker = ready_worker()
    received = asyncio.run(collect(worker, worker.queue.submit("a", run)))
    assert received[-1]["phase"] == "failed" and "finite" in received[-1]["message"]


@pytest.mark.parametrize(
    ("disturbed", "note"), [(True, f"Steady. {READ_FILES} {SCORED} {FETCHED}"), (False, "Steady.")]
)
def test_a_race_reports_other_work_on_the_server(disturbed: bool, note: str) -> None:
    # Only the note matters here: the sentences about other work follow it.
    pace = Pace(9, 1.0, 1.0, 1.0, 0.0, 0.0, 1, disturbed=False, note="Steady.")

    def measured(_workbench: Workbench, _stop: Stop) -> Iterator[Event]:
        yield from (first_event(), one_step(0), replace(last_event(), pace=pace))

    worker = ready_worker()
    since: list[float] = []
    helper: Any = SimpleNamespace(worked_since=lambda moment: since.append(moment) or disturbed)
    worker.other_work.files = worker.other_work.logs = worker.other_work.fetcher = helper
    before = time.monotonic()
    reported = asyncio.run(race_report(worker.queue.submit("a", measured)))["pace"]
    assert reported["note"] == note and not reported["disturbed"]
    assert len(since) == 3 and before <= min(since) <= time.monotonic(), "each process is asked about the race's time"


def test_the_queue_is_bounded() -> None:
    worker = ready_worker()
    # One race runs, and the other races fill the queue.
    jobs = [worker.queue.submit(str(number), endless_race) for number in range(VisitorLimits.queue + 1)]
    with pytest.raises(InputError, match="20 races are waiting already"):
        worker.queue.submit("one more", short_race)
    for job in jobs:
        job.stop()
    assert jobs[-1].wait(LONG_S)


def test_while_the_model_loads_all_races_wait() -> None:
    worker = Worker(lambda _report: WORKBENCH, VisitorLimits(queue=2))
    for name in "ab":
        worker.queue.submit(name, short_race)
    with pytest.raises(InputError, match="2 races are waiting already"):
        worker.queue.submit("c", short_race)


def test_in_a_full_queue_a_pages_new_race_replaces_its_old_one() -> None:
    worker = ready_worker(VisitorLimits(queue=1, races_at_once=1))
    first = worker.queue.submit("a", endless_race)
    replacement = worker.queue.submit("a", endless_race)
    assert first.wait(LONG_S) and not replacement.done
    second = worker.queue.submit("b", endless_race)
    with pytest.raises(InputError, match=r"^1 race is waiting already; try again in a minute\.$"):
        worker.queue.submit("c", short_race)
    assert not replacement.stopped and not second.stopped
    last = worker.queue.submit("a", short_race)
    worker.queue.stop("b")
    assert last.wait(LONG_S) and last.finished and replacement.done


def test_an_abandoned_api_race_no_longer_counts_toward_the_limit() -> None:
    worker = ready_worker(VisitorLimits(races_at_once=1))
    first = worker.queue.submit("api", endless_race, for_page=False)
    with pytest.raises(InputError, match=r"^1 race of yours is in line already; wait for it\.$"):
        worker.queue.submit("api", short_race, for_page=False)
    assert not first.stopped
    first.unwatch()
    assert worker.queue.submit("api", short_race, for_page=False).wait(LONG_S)


def test_a_race_requested_while_the_model_loads_waits_with_a_message() -> None:
    loaded = threading.Event()

    def load(report: Callable[[str], None]) -> Workbench:
        report("Loading the model")
        loaded.wait(LONG_S)
        return WORKBENCH

    worker = Worker(load)
    worker.start()
    received = asyncio.run(collect(worker, worker.queue.submit("a", short_race), react=lambda _: loaded.set()))
    assert received[0]["phase"] == "waiting" and "model" in received[0]["message"]
    assert parts_of(received, "end")[0]["phase"] == "finished"


def test_a_model_that_fails_to_load_is_reported_to_every_race() -> None:
    def load(_report: Callable[[str], None]) -> Workbench:
        raise InputError("There is no such model.")

    worker = Worker(load)
    worker.start()
    with pytest.raises(InputError, match="no such model"):
        asyncio.run(race_report(worker.queue.submit("a", short_race)))
    assert worker.loading.settled and worker.loading.failure == worker.loading.status == "There is no such model."


def test_input_errors_are_shown_and_other_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_workbench: Workbench, _stop: Stop) -> Iterator[Event]:
        raise InputError("Too long.")
        yield  # makes this function a generator

    def crash(_workbench: Workbench, _stop: Stop) -> Iterator[Event]:
        yield first_event()
        raise RuntimeError("secret")

    worker = ready_worker()
    for run, words in ((refuse, "Too long."), (crash, OUR_FAULT)):
        received = asyncio.run(collect(worker, worker.queue.submit("a", run)))
        assert (received[-1]["phase"], received[-1]["message"]) == ("failed", words)
    assert "secret" in caplog.text
    assert asyncio.run(race_report(worker.queue.submit("a", short_race)))["lanes"][0]["text"] == "a"
