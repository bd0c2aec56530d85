"""How much one visitor may ask of the server, and whether the answer is still wanted."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from specrace.core.errors import InputError

THIS_MACHINE = ("127.0.0.0/8", "::1")
MINUTE_S = 60.0
LOGINS_PER_MINUTE = 10
HOUR_S = 3600.0
VISITORS_KEPT = 10_000
# An API client may take so long to come for its result, and so long to come back for it.
CLAIM_LIMIT_S = 10.0
RETURN_LIMIT_S = 1.0
LOOK_S = 0.1
NOT_UPLOADED = "A file must be uploaded before it is used."

T = TypeVar("T")


class TooManyError(InputError):
    """A visitor has asked for so much that a part of it must wait."""


@dataclass(frozen=True)
class VisitorLimits:
    """The server's settings: races that wait, tokens a race, and what one visitor may do.

    `races_at_once`: of one program's address, in line. Without `uploads` nobody uploads documents or opens recordings.
    """

    queue: int = 20
    race_tokens: int = 512
    uploads_per_hour: int = 60
    races_per_minute: int = 12
    races_at_once: int = 4
    uploads: bool = True


class Rate:
    """At most `limit` events of a visitor within `period_s` seconds. `clock` returns seconds."""

    def __init__(self, limit: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._period_s, self._clock = limit, period_s, clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, visitor: str, count: int = 1) -> bool:
        """Count `count` more events, or none of them where they would be too many."""
        now = self._clock()
        times = self._times.setdefault(visitor, deque())
        self._times.move_to_end(visitor)
        while len(self._times) > VISITORS_KEPT:
            self._times.popitem(last=False)
        while times and times[0] <= now - self._period_s:
            times.popleft()
        if len(times) + count > self._limit:
            return False
        times.extend([now] * count)
        return True


class Visitors:
    """What each visitor has left of the `limits`, and who reads the answers of Gradio's queue.

    These belong to a session or, of a plain API call, to the event.
    """

    def __init__(self, limits: VisitorLimits | None = None) -> None:
        self.limits = limits or VisitorLimits()
        self._races = Rate(self.limits.races_per_minute, MINUTE_S)
        self._retrievals = Rate(self.limits.races_per_minute, MINUTE_S)
        self._logins = Rate(LOGINS_PER_MINUTE, MINUTE_S)
        self._uploads = Rate(self.limits.uploads_per_hour, HOUR_S)
        self._readers: Counter[str] = Counter()
        self._files: defaultdict[str, set[str]] = defaultdict(set)

    def race(self, address: str | None, new_tokens: int) -> None:
        """Count a race. Raises InputError when its answers are too long or the visitor has started too many."""
        longest, races = self.limits.race_tokens, self.limits.races_per_minute
        if new_tokens > longest:
            raise InputError(f"The answer's length is {new_tokens}; this server allows at most {longest}.")
        if not self._races.take(visitor_of(address)):
            raise TooManyError(f"You have started {races} races within a minute; wait for a moment.")

    def retrieval(self, address: str | None) -> None:
        """Count a retrieval by a program. Raises TooManyError; there may be as many as races."""
        if not self._retrievals.take(visitor_of(address)):
            most = self.limits.races_per_minute
            raise TooManyError(f"You have started {most} retrievals within a minute; wait for a moment.")

    def login(self, address: str | None) -> bool:
        """Count an attempt to sign in; False where they are too many."""
        return self._logins.take(visitor_of(address))

    def upload(self, address: str | None, files: int) -> None:
        """Count uploaded files. Raises TooManyError when they are too many."""
        if not self._uploads.take(visitor_of(address), files):
            raise TooManyError(
                f"More than {self.limits.uploads_per_hour} files came from you within an hour; try later."
            )

    def keep(self, address: str | None, paths: Iterable[str]) -> None:
        """These files are the visitor's, beside the earlier ones that Gradio has not deleted yet."""
        visitor = visitor_of(address)
        self._files[visitor] = {each for each in self._files[visitor] if Path(each).exists()}.union(paths)

    def own_files(self, address: str | None, files: Any) -> list[str]:
        """The paths of Gradio's `files`, or of paths that an upload was answered with.

        Raises InputError for one that this visitor has not uploaded.
        """
        own = self._files.get(visitor_of(address), ())
        paths = [str(file.get("path")) if isinstance(file, dict) else str(file) for file in _listed(files)]
        if not all(path in own for path in paths):
            raise InputError(NOT_UPLOADED)
        return paths

    @contextmanager
    def reading(self, session: str) -> Iterator[None]:
        """While somebody reads the answers of a session."""
        self._readers[session] += 1
        try:
            yield
        finally:
            self._readers[session] -= 1
            # Drops the zeros.
            self._readers += Counter()

    async def wanted(self, session: str, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns. Raises InputError, and cancels it, when nobody comes to read it or its reader leaves."""
        task = asyncio.ensure_future(work)
        patience_s, last = CLAIM_LIMIT_S, time.monotonic()
        try:
            while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
                if self._readers[session]:
                    patience_s, last = RETURN_LIMIT_S, time.monotonic()
                elif time.monotonic() - last > patience_s:
                    raise InputError("Nobody waits for this result.")
            return task.result()
        finally:
            task.cancel()


def _listed(files: Any) -> list[Any]:
    return files if isinstance(files, list) else [files] if files else []


def address_of(request: Any) -> str | None:
    """Where a request comes from."""
    return request.client.host if request.client else None


def visitor_of(address: str | None) -> str:
    """What identifies a visitor: the IP address, of IPv6 only the network, for one visitor has all of its addresses."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return address or ""
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else str(parsed)
