"""What the server does in other processes while it races: it reads visitors' files, scores logs, fetches a model."""

from __future__ import annotations

from specrace.ui.helper.fetcher import Fetcher
from specrace.ui.helper.pool import HelperPool
from specrace.ui.server.visitors import visitor_key

READ_FILES = "The server also read other visitors' files during this race."
SCORED = "The server also scored a log during this race."
FETCHED = "The server also fetched a model during this race."
# A log's turn with a process; longer than that of other files (`pool.TURN_S`), because a large log takes longer.
LOG_TURN_S = 60.0
MAX_LOG_PROCESSES = 2


class OtherWork:
    """A pool of helper processes for visitors' files, a second pool for their logs, and the fetcher of a model, if any.

    Logs have a pool of their own, so that other files do not wait for them.
    """

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        self.files = HelperPool()
        self.logs = HelperPool(MAX_LOG_PROCESSES, LOG_TURN_S)
        self.fetcher = fetcher

    def start(self) -> None:
        """Start fetching the model. The pools start their processes when they are needed."""
        if self.fetcher is not None:
            self.fetcher.start()

    def close(self) -> None:
        """End all processes."""
        if self.fetcher is not None:
            self.fetcher.close()
        self.files.close()
        self.logs.close()

    def read_uploads(self, files: bytes, address: str | None, visit: str) -> bytes:
        """Run `upload_reader.read_uploads` on a visitor's files. Raises InputError."""
        return self.files.run("uploads", "", files, visitor=visitor_key(address), visit=visit)

    def describe_since(self, moment: float) -> str:
        """What other work was done since `moment` on the monotonic clock, in sentences; "" if none."""
        kinds = ((READ_FILES, self.files), (SCORED, self.logs), (FETCHED, self.fetcher))
        return " ".join(sentence for sentence, work in kinds if work is not None and work.worked_since(moment))
