"""Races that visitors shared by short links. The server keeps each for some hours, and bounds their number and size."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specrace.ui.server.stored_body import visitors_folder

# Maximum numbers: of races that a server keeps, and of their bytes in all.
MAX_SHARES, MAX_SHARED_BYTES = 1000, 200_000_000
# Random bytes of a code: too many to be guessed. In hex they have no character at which chat programs cut off a link.
CODE_BYTES = 10
HOUR_S = 3600.0


@dataclass(frozen=True)
class _Share:
    """A kept race: who shared it, its file, its size in bytes, and when its time is over (on `Shares`' clock)."""

    visitor: str
    file: Path
    size: int
    end_s: float


class Shares:
    """The races that a server keeps for `hours`. `clock` returns seconds.

    Each is a file with a compressed reel, which is the JSON that the page plays (`specrace.views.reel`).

    If there is no room, the visitor whose races take the most room loses the oldest of them, so nobody can push out
    everybody else's. The files are in the server's folder for visitors' files, which is removed when the server ends.
    """

    def __init__(self, hours: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.hours = hours
        self._clock = clock
        # The oldest come first.
        self._shares: dict[str, _Share] = {}
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def keep(self, visitor: str, reel: bytes) -> str:
        """Keep a reel, compressed by gzip. Returns the code of its link. Raises OSError if it cannot be stored."""
        code = secrets.token_hex(CODE_BYTES)
        with self._lock:
            self._forget_ended()
            while self._shares and not self._have_room(len(reel)):
                self._forget(self._choose_victim())
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="shares-", dir=visitors_folder()))
            file = self._folder / code
            file.write_bytes(reel)
            self._shares[code] = _Share(visitor, file, len(reel), self._clock() + self.hours * HOUR_S)
        return code

    def find(self, code: str) -> bytes | None:
        """The reel with this code, compressed by gzip; None if none is kept."""
        with self._lock:
            self._forget_ended()
            share = self._shares.get(code)
            return None if share is None else share.file.read_bytes()

    def forget_ended(self) -> None:
        """Delete the races whose time is over."""
        with self._lock:
            self._forget_ended()

    def _forget_ended(self) -> None:
        now = self._clock()
        for code in [code for code, share in self._shares.items() if share.end_s <= now]:
            self._forget(code)

    def _have_room(self, size: int) -> bool:
        """Whether another reel of `size` bytes can be kept."""
        total = sum(share.size for share in self._shares.values())
        return len(self._shares) < MAX_SHARES and total + size <= MAX_SHARED_BYTES

    def _choose_victim(self) -> str:
        """The code of the oldest race of the visitor whose races take the most room."""
        # The number of races is bounded too, so even the smallest race takes a MAX_SHARES-th of the room.
        min_size = MAX_SHARED_BYTES // MAX_SHARES
        room: Counter[str] = Counter()
        for share in self._shares.values():
            room[share.visitor] += max(share.size, min_size)
        largest = max(room, key=room.__getitem__)
        return next(code for code, share in self._shares.items() if share.visitor == largest)

    def _forget(self, code: str) -> None:
        self._shares.pop(code).file.unlink(missing_ok=True)
