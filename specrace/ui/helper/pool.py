"""A pool of a few helper processes, shared fairly: one visitor's files do not keep the others waiting."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path

from specrace.core.errors import InputError
from specrace.ui.helper.process import LIMIT_S, HelperProcess, OnProgress
from specrace.ui.server.visitors import MAX_VISITORS

# Three processes may take 3 GiB (`process.MEMORY_BYTES`) and, at their low priority, little of the processors.
MAX_PROCESSES = 3
# After this time a task may be ended: if its visitor has more processes than another visitor who waits for one. Not
# tuned.
TURN_S = 15.0
# Maximum numbers of tasks that run or wait: of one visit, of one visitor, and in all; guesses.
MAX_VISIT_TASKS, MAX_VISITOR_TASKS, MAX_TASKS = 4, 12, 24
# How often a waiting task checks whether it was stopped, or another task has had its turn.
POLL_PERIOD_S = 0.05
CLOSING = "The server is shutting down."
TOO_SLOW = "This takes more than {:g} seconds to read, and other visitors wait; give smaller files, or try again later."


@dataclass(eq=False)
class _Turn:
    """A task's turn with a helper process: the task waits for the turn, or has it since `began` (monotonic clock).

    `is_over`: the task has to end.
    """

    visitor: str
    visit: str
    process: HelperProcess = field(default_factory=HelperProcess)
    began: float = inf
    is_over: bool = False


class HelperPool:
    """Runs tasks in helper processes; visitors take turns, and so do a visitor's visits.

    A visitor is a network address (`visitor_key`), which many people may share; a visit is one page or API call. A
    visitor never has all the processes, and a visit has one at a time. Processes start when they are needed. `run`
    blocks, so callers on an event loop use the pool's `threads`.
    """

    def __init__(self, max_processes: int = MAX_PROCESSES, turn_s: float = TURN_S) -> None:
        self._max_processes, self._turn_s = max_processes, turn_s
        self._closing = False
        self._change = threading.Condition()
        self._waiting: list[_Turn] = []
        self._running: list[_Turn] = []
        self._idle: list[HelperProcess] = []
        # (visitor,) or (visitor, visit) -> the number of its latest turn; the latest comes last.
        self._served: OrderedDict[tuple[str, ...], int] = OrderedDict()
        self._numbers = count(1)
        # When a task ended last, on the monotonic clock.
        self._ended_at = -inf
        # There are more threads than tasks, so that a task beyond MAX_TASKS is refused, and does not wait for a thread.
        self.threads = ThreadPoolExecutor(2 * MAX_TASKS, thread_name_prefix="helper")

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return bool(self._running)

    def worked_since(self, moment: float) -> bool:
        """Whether a task is running, or ended after `moment` on the monotonic clock."""
        return self.busy or self._ended_at > moment

    def run(
        self,
        task: str,
        name: str,
        content: bytes | Path,
        *,
        visitor: str = "",
        visit: str = "",
        limit_s: float = LIMIT_S,
        stop: Callable[[], bool] = lambda: False,
        on_progress: OnProgress | None = None,
    ) -> bytes:
        """Run a task, and return its result.

        Raises InputError if the task raises one, takes too much time or memory or is stopped, or if too many tasks
        run or wait.
        """
        with self._turn(_Turn(visitor, visit), stop) as turn:
            try:
                return turn.process.run(
                    task, name, content, limit_s=limit_s, stop=lambda: stop() or turn.is_over, on_progress=on_progress
                )
            except InputError:
                if turn.is_over and not stop():
                    raise InputError(CLOSING if self._closing else TOO_SLOW.format(self._turn_s)) from None
                raise

    def close(self) -> None:
        """End all tasks and processes, and accept no more."""
        with self._change:
            self._closing = True
            for turn in self._running:
                turn.is_over = True
            while self._idle:
                self._idle.pop().close()
            self._change.notify_all()

    @contextmanager
    def _turn(self, turn: _Turn, stop: Callable[[], bool]) -> Iterator[_Turn]:
        """Wait for a turn, which lasts as long as the `with` block. Raises InputError if it will not come."""
        with self._change:
            self._check_waiting(turn)
            self._waiting.append(turn)
            try:
                while True:
                    if self._closing or stop():
                        raise InputError(CLOSING if self._closing else "Stopped.")
                    if self._next() is turn:
                        break
                    self._end_longest(turn)
                    self._change.wait(POLL_PERIOD_S)
                self._begin(turn)
            finally:
                self._waiting.remove(turn)
                self._change.notify_all()
        try:
            yield turn
        finally:
            with self._change:
                self._running.remove(turn)
                self._ended_at = time.monotonic()
                # One process is kept for the next task, because starting one takes a second.
                if self._idle or self._closing:
                    turn.process.close()
                else:
                    self._idle.append(turn.process)
                self._change.notify_all()

    def _check_waiting(self, turn: _Turn) -> None:
        """Raise InputError if too many tasks run or wait."""
        turns = [*self._running, *self._waiting]
        num_visitor = sum(other.visitor == turn.visitor for other in turns)
        num_visit = sum(other.visitor == turn.visitor and other.visit == turn.visit for other in turns)
        if num_visit >= MAX_VISIT_TASKS or num_visitor >= MAX_VISITOR_TASKS:
            raise InputError("The server is still reading your other files; try again in a minute.")
        if len(turns) >= MAX_TASKS:
            raise InputError("The server is reading other visitors' files; try again in a minute.")

    def _next(self) -> _Turn | None:
        """The turn that may begin now, if any.

        The visitor with the fewest processes comes first and, on a tie, the one whose latest turn began longest ago. Of
        that visitor's visits, the one whose latest turn began longest ago; of that visit's turns, the one that came
        first.
        """
        if self._closing or len(self._running) >= self._max_processes:
            return None
        processes = self._count_processes()
        visits = {(turn.visitor, turn.visit) for turn in self._running}
        eligible = [
            turn
            for turn in self._waiting
            if processes[turn.visitor] < self._max_processes - 1 and (turn.visitor, turn.visit) not in visits
        ]

        def rank(turn: _Turn) -> tuple[int, int, int]:
            last_of_visitor = self._served.get((turn.visitor,), 0)
            last_of_visit = self._served.get((turn.visitor, turn.visit), 0)
            return processes[turn.visitor], last_of_visitor, last_of_visit

        return min(eligible, key=rank, default=None)

    def _begin(self, turn: _Turn) -> None:
        """Give a turn its process."""
        if self._idle:
            turn.process = self._idle.pop()
        turn.began = time.monotonic()
        self._running.append(turn)
        number = next(self._numbers)
        for key in ((turn.visitor,), (turn.visitor, turn.visit)):
            self._served[key] = number
            self._served.move_to_end(key)
        while len(self._served) > MAX_VISITORS:
            self._served.popitem(last=False)

    def _end_longest(self, waiting: _Turn) -> None:
        """If all processes are taken, end a task of a visitor who has more of them than the visitor of `waiting`.

        Of such tasks the one that has run longest is ended, and only after `turn_s`; one task at a time.
        """
        if len(self._running) < self._max_processes or any(turn.is_over for turn in self._running):
            return
        processes = self._count_processes()
        latest_beginning = time.monotonic() - self._turn_s
        fair_share = processes[waiting.visitor]
        too_long = [
            turn for turn in self._running if turn.began <= latest_beginning and processes[turn.visitor] > fair_share
        ]
        if too_long:
            min(too_long, key=lambda turn: turn.began).is_over = True

    def _count_processes(self) -> Counter[str]:
        """How many processes each visitor has."""
        return Counter(turn.visitor for turn in self._running)
