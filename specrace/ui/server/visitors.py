"""Limits how much one visitor may request from the server, and stops work whose result nobody waits for."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from specrace.core.errors import InputError
from specrace.ui.visitor_limits import VisitorLimits

# The addresses of clients on the server's own machine.
THIS_MACHINE = ("127.0.0.0/8", "::1")
MINUTE_S = 60.0
LOGINS_PER_MINUTE = 10
HOUR_S = 3600.0
# How many visitors' counts are remembered, to bound the memory.
MAX_VISITORS = 10_000
# The time within which a page must claim its race, and an API client must ask for its call's answer.
CLAIM_LIMIT_S = 10.0
# The time within which a client that was disconnected must ask for the answer again.
RETURN_LIMIT_S = 1.0
# How often it is checked whether a client still waits for its answer.
POLL_PERIOD_S = 0.1
# Maximum numbers of large bodies that are on their way to the server at a time: from one visitor, and in all.
MAX_VISITOR_BODIES, MAX_BODIES = 8, 64
NOT_UPLOADED = "A file must be uploaded before it is used."

T = TypeVar("T")


class TooManyError(InputError):
    """A visitor is over a rate limit and must wait."""


class Rate:
    """At most `limit` events of a visitor within `period_s` seconds. `clock` returns seconds."""

    def __init__(self, limit: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._period_s, self._clock = limit, period_s, clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, visitor: str, count: int = 1) -> bool:
        """Count `count` more events and return True, or count none and return False if they exceed the limit."""
        now = self._clock()
        times = self._times.setdefault(visitor, deque())
        self._times.move_to_end(visitor)
        while len(self._times) > MAX_VISITORS:
            self._times.popitem(last=False)
        while times and times[0] <= now - self._period_s:
            times.popleft()
        if len(times) + count > self._limit:
            return False
        times.extend([now] * count)
        return True

    def has_room(self, visitor: str) -> bool:
        """Whether one more event is allowed."""
        # Counting no event drops those that are older than the period.
        return self.take(visitor, 0) and len(self._times[visitor]) < self._limit


class Visitors:
    """How much of the `limits` each visitor has used, and which clients wait for answers from Gradio's queue.

    Such a client is called a reader here; `guard.reader_of` gives its key.
    """

    def __init__(self, limits: VisitorLimits | None = None) -> None:
        self.limits = limits or VisitorLimits()
        self._races = Rate(self.limits.races_per_minute, MINUTE_S)
        self._retrievals = Rate(self.limits.races_per_minute, MINUTE_S)
        self._logins = Rate(LOGINS_PER_MINUTE, MINUTE_S)
        self._uploads = Rate(self.limits.uploads_per_hour, HOUR_S)
        self._upload_requests = Rate(self.limits.uploads_per_hour, HOUR_S)
        self._recordings = Rate(self.limits.uploads_per_hour, HOUR_S)
        self._bodies: Counter[str] = Counter()
        self._readers: Counter[str] = Counter()
        self._files: defaultdict[str, set[str]] = defaultdict(set)

    def count_race(self, address: str | None, new_tokens: int) -> None:
        """Count a race. Raises InputError if it asks for too many new tokens or the visitor has started too many."""
        max_tokens = self.limits.race_tokens
        if new_tokens > max_tokens:
            raise InputError(f"The answer's length is {new_tokens}; this server allows at most {max_tokens}.")
        if not self._races.take(visitor_key(address)):
            raise TooManyError(
                f"You have started {self.limits.races_per_minute} races within a minute; wait for a moment."
            )

    def count_retrieval(self, address: str | None) -> None:
        """Count a retrieval by an API client; the limit is the same as for races. Raises TooManyError."""
        if not self._retrievals.take(visitor_key(address)):
            raise TooManyError(
                f"You have started {self.limits.races_per_minute} retrievals within a minute; wait for a moment."
            )

    def count_login(self, address: str | None) -> bool:
        """Count an attempt to sign in; False if there were too many."""
        return self._logins.take(visitor_key(address))

    def count_upload(self, address: str | None, num_files: int) -> None:
        """Count uploaded files. Raises TooManyError."""
        if not self._uploads.take(visitor_key(address), num_files):
            raise self._too_many_files()

    def count_upload_request(self, address: str | None) -> None:
        """Count a request to upload files, before it is read and even if it fails later. Raises TooManyError."""
        visitor = visitor_key(address)
        if not self._uploads.has_room(visitor) or not self._upload_requests.take(visitor):
            raise self._too_many_files()

    def count_recording(self, address: str | None) -> None:
        """Count a recording that is opened; the limit is the same as for uploads. Raises TooManyError."""
        if not self._recordings.take(visitor_key(address)):
            raise self._too_many_files()

    def _too_many_files(self) -> TooManyError:
        return TooManyError(f"More than {self.limits.uploads_per_hour} files came from you within an hour; try later.")

    @contextmanager
    def sending(self, address: str | None) -> Iterator[Callable[[], None]]:
        """Count a large body as on its way inside the `with` block, or until the yielded function is called.

        Raises TooManyError.
        """
        visitor, is_counted = visitor_key(address), True
        if self._bodies[visitor] >= MAX_VISITOR_BODIES:
            raise TooManyError(f"{MAX_VISITOR_BODIES} files are on their way from you already; wait for one of them.")
        if self._bodies.total() >= MAX_BODIES:
            raise TooManyError("Many files are on their way to the server; try again in a minute.")
        self._bodies[visitor] += 1

        def end() -> None:
            nonlocal is_counted
            if is_counted:
                self._bodies[visitor] -= 1
                is_counted = False
            # A Counter has 0 for a missing key, and ignores its deletion.
            if not self._bodies[visitor]:
                del self._bodies[visitor]

        try:
            yield end
        finally:
            end()

    def remember_files(self, address: str | None, paths: Iterable[str]) -> None:
        """Note that the visitor uploaded these files, and forget earlier ones that Gradio has deleted."""
        visitor = visitor_key(address)
        self._files[visitor] = {path for path in self._files[visitor] if Path(path).exists()}.union(paths)

    def uploaded_paths(self, address: str | None, files: Any) -> list[str]:
        """The paths of `files`: Gradio's file objects, or paths that an upload returned.

        Raises InputError for a file that this visitor has not uploaded.
        """
        uploaded = self._files.get(visitor_key(address), ())
        paths = [str(file.get("path")) if isinstance(file, dict) else str(file) for file in _as_list(files)]
        if not all(path in uploaded for path in paths):
            raise InputError(NOT_UPLOADED)
        return paths

    @contextmanager
    def reading(self, reader: str) -> Iterator[None]:
        """Count `reader` as a connected client inside the `with` block."""
        self._readers[reader] += 1
        try:
            yield
        finally:
            self._readers[reader] -= 1
            if not self._readers[reader]:
                del self._readers[reader]

    async def run_while_wanted(self, reader: str, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. If `reader` leaves or does not connect in time, cancels it and raises InputError."""
        task = asyncio.ensure_future(work)
        patience_s, last_seen = CLAIM_LIMIT_S, time.monotonic()
        try:
            # `wait` returns the tasks that are done, then those that are not.
            while not (await asyncio.wait([task], timeout=POLL_PERIOD_S))[0]:
                if self._readers[reader]:
                    patience_s, last_seen = RETURN_LIMIT_S, time.monotonic()
                elif time.monotonic() - last_seen > patience_s:
                    raise InputError("Nobody waits for this result.")
            return task.result()
        finally:
            task.cancel()


def _as_list(files: Any) -> list[Any]:
    """The files in `files`, which is a list, one file or nothing."""
    if isinstance(files, list):
        return files
    return [files] if files else []


def address_of(request: Any) -> str | None:
    """The client's IP address."""
    return request.client.host if request.client else None


def visitor_key(address: str | None) -> str:
    """A visitor's key: the IPv4 address, or an IPv6 address's /64 network, which one visitor may own as a whole."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return address or ""
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else str(parsed)
