"""The pool of helper processes: one visitor's files do not keep other visitors waiting."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.ui.helper.pool import MAX_VISIT_TASKS, HelperPool
from specrace.ui.helper.process import HelperProcess
from tests.ui.waiting import wait_until


class Callers:
    """Threads that run tasks in a pool. A task is named VISITOR.VISIT.NUMBER; it ends when the test calls `finish`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.answers: dict[str, str] = {}
        self._finished: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._over = False
        monkeypatch.setattr(HelperProcess, "_exchange", self._exchange)

    def _exchange(
        self, task_and_name: bytes, _content: bytes, _limit_s: float, stop: Callable[[], bool], _on_progress: Any
    ) -> tuple[bytes, bytes]:
        name = json.loads(task_and_name)[1]
        self.begun.append(name)
        while name not in self._finished and not self._over:
            if stop():
                raise InputError("Stopped.")
            time.sleep(0.001)
        # (kind of the answer, content).
        return b"done", b"read"

    def ask(self, pool: HelperPool, name: str, stop: Callable[[], bool] = lambda: False) -> None:
        """Run a task in a thread; return once it runs, waits or is refused."""
        visitor, visit, _ = name.split(".")

        def run() -> None:
            try:
                self.answers[name] = pool.run("uploads", name, b"", visitor=visitor, visit=visit, stop=stop).decode()
            except InputError as error:
                self.answers[name] = str(error)

        self._threads.append(threading.Thread(target=run))
        before = len(pool._running) + len(pool._waiting)
        self._threads[-1].start()
        wait_until(lambda: name in self.answers or len(pool._running) + len(pool._waiting) > before)

    def finish(self, name: str) -> None:
        """Let a task end, and wait for its answer."""
        self._finished.add(name)
        wait_until(lambda: name in self.answers)

    def join(self) -> None:
        """End all tasks, and wait until their threads have ended."""
        self._over = True
        for thread in self._threads:
            thread.join()


@pytest.fixture
def callers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callers]:
    callers = Callers(monkeypatch)
    yield callers
    callers.join()


def wait_for_begun(callers: Callers, *names: str) -> None:
    """Wait until these tasks have begun, and check that no other task has begun."""
    wait_until(lambda: len(callers.begun) >= len(names))
    assert sorted(callers.begun) == sorted(names)


def test_another_visitors_file_is_read_while_slow_files_are_pending(callers: Callers) -> None:
    pool = HelperPool()
    slow = [f"slow.{number}.1" for number in range(5)]
    for name in slow:
        callers.ask(pool, name)
    # A visitor gets all processes but one: two of three.
    wait_for_begun(callers, *slow[:2])
    callers.ask(pool, "other.1.1")
    callers.finish("other.1.1")
    assert callers.answers == {"other.1.1": "read"} and callers.begun[2] == "other.1.1"
    pool.close()


def test_another_visit_from_the_same_address_is_served_too(callers: Callers) -> None:
    pool = HelperPool()
    for number in range(MAX_VISIT_TASKS):
        callers.ask(pool, f"shared.slow.{number}")
    # A visit gets one process at a time.
    wait_for_begun(callers, "shared.slow.0")
    callers.ask(pool, "shared.other.1")
    callers.finish("shared.other.1")
    assert callers.answers == {"shared.other.1": "read"}
    pool.close()


def test_visitors_and_their_visits_take_turns(callers: Callers) -> None:
    pool = HelperPool(max_processes=2)
    for name in ("x.1.1", "y.1.1", "a.1.1", "a.1.2", "a.2.1", "b.1.1", "c.1.1"):
        callers.ask(pool, name)
    wait_for_begun(callers, "x.1.1", "y.1.1")
    # Task that ends -> task that begins then.
    turns = {"x.1.1": "a.1.1", "y.1.1": "b.1.1", "a.1.1": "c.1.1", "b.1.1": "a.2.1", "c.1.1": "", "a.2.1": "a.1.2"}
    for finished, next_name in turns.items():
        callers.finish(finished)
        # After c.1.1 nothing begins: only a's tasks wait, and a already has its share, one of the two processes.
        wait_until(lambda next_name=next_name: not next_name or callers.begun[-1] == next_name)
    callers.finish("a.1.2")
    assert callers.begun == ["x.1.1", "y.1.1", *filter(None, turns.values())]


def test_a_task_that_takes_long_is_ended_only_if_others_would_wait_for_it(callers: Callers) -> None:
    pool = HelperPool(max_processes=2, turn_s=0.0)
    callers.ask(pool, "a.1.1")
    callers.ask(pool, "a.2.1")
    callers.ask(pool, "b.1.1")
    # Of two processes, a visitor gets one, so a.2.1 waits.
    wait_for_begun(callers, "a.1.1", "b.1.1")
    # The waiting visitor b has one process already, and so has a: nobody has more than a fair share.
    callers.ask(pool, "b.2.1")
    assert callers.answers == {}
    callers.ask(pool, "c.1.1")
    wait_until(lambda: "c.1.1" in callers.begun)
    assert callers.answers["a.1.1"].startswith("This takes more than 0 seconds to read, and other visitors wait;")
    pool.close()


def test_waiting_tasks_are_bounded_for_each_visit_and_can_be_stopped(callers: Callers) -> None:
    pool, stopped = HelperPool(), threading.Event()
    # The first task runs, and cannot be stopped; the last one is refused.
    for number in range(MAX_VISIT_TASKS + 1):
        callers.ask(pool, f"a.1.{number}", stopped.is_set if number else lambda: False)
    assert callers.answers == {
        f"a.1.{MAX_VISIT_TASKS}": "The server is still reading your other files; try again in a minute."
    }
    stopped.set()
    wait_until(lambda: len(callers.answers) == MAX_VISIT_TASKS)
    assert list(callers.answers.values())[1:] == ["Stopped."] * (MAX_VISIT_TASKS - 1)
    moment = time.monotonic()
    assert pool.busy and pool.worked_since(moment)
    callers.finish("a.1.0")
    assert not pool.busy and pool.worked_since(moment) and not pool.worked_since(time.monotonic())


def test_many_visitors_tasks_are_bounded(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrace.ui.helper.pool.MAX_TASKS", 2)
    pool = HelperPool()
    for visitor in "abc":
        callers.ask(pool, f"{visitor}.1.1")
    assert callers.answers == {"c.1.1": "The server is reading other visitors' files; try again in a minute."}
    pool.close()


def test_closing_ends_what_runs_and_what_waits(callers: Callers) -> None:
    pool = HelperPool(max_processes=2)
    for name in ("a.1.1", "a.2.1"):
        callers.ask(pool, name)
    pool.close()
    wait_until(lambda: len(callers.answers) == 2)
    callers.ask(pool, "a.3.1")
    assert set(callers.answers.values()) == {"The server is shutting down."} and not pool.busy
