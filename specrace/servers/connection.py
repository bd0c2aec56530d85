"""HTTP to one server: JSON, and streams of events, within limits; every fault is one sentence that names the server.

No redirect is followed: it could lead a request, with its prompt and key, to another host.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from specrace.core.errors import InputError, shorten
from specrace.servers.address import KEY_VARIABLE, ServerAddress

# Limits in bytes, against a server that sends without end; guesses far above what real servers send.
MAX_BODY = 4_000_000
# A line holds one event; the last event of a long answer has lists with a number for each step.
MAX_LINE = 2_000_000
MAX_STREAM = 200_000_000
# An engine that is starting, or has a full queue, answers with one of these HTTP statuses.
BUSY = {429, 502, 503, 504}
# How many times a request is sent to a busy server at most, and how long the client waits before it tries again;
# guesses.
TRIES, PAUSE_S = 3, 1.0
# The maximum length of a server's words in a message, in characters.
_QUOTED = 160


@dataclass(frozen=True)
class Waits:
    """Seconds to wait for a connection, for an answer's next bytes, for a whole answer, and until another try.

    The defaults are guesses: a large model behind a full queue may need minutes for its first token.
    """

    connect_s: float = 5.0
    read_s: float = 120.0
    total_s: float = 1800.0
    pause_s: float = PAUSE_S


class Connection:
    """Requests to one server. Use it as a context manager, which closes its HTTP connections at the end.

    Once `stop` returns True, an answer is not read any further, and InputError is raised.
    """

    def __init__(
        self, address: ServerAddress, waits: Waits = Waits(), stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.name = address.name
        self.waits = waits
        self.stop = stop
        # Ask for uncompressed answers: nothing small can then unpack to something huge, and chunks arrive as sent.
        headers = {"Accept-Encoding": "identity"}
        if address.key:
            headers["Authorization"] = f"Bearer {address.key}"
        timeout = httpx.Timeout(waits.read_s, connect=waits.connect_s)
        self._client = httpx.Client(base_url=address.url, headers=headers, timeout=timeout, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def fault(self, words: str) -> InputError:
        """An error whose sentence begins with the server's name."""
        return InputError(f"The server {self.name} {words}{'' if words.endswith('?') else '.'}")

    def find_json(self, path: str) -> Any:
        """The JSON that the server has at `path`; None if it has none there. Raises InputError if nothing answers."""
        text = self.find_text(path)
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return None

    def find_text(self, path: str) -> str | None:
        """The text that the server has at `path`; None if it has none there. Raises InputError if nothing answers."""
        with self._faults(), self._client.stream("GET", path) as response:
            if response.status_code in (401, 403, *BUSY):
                raise self._refusal(response)
            if response.status_code != 200:
                return None
            return self._body(response)

    def stream(self, path: str, request: Mapping[str, Any]) -> Iterator[tuple[float, Any]]:
        """Yield (arrival in ms since the request was sent, JSON) for each event that the server streams.

        The stream ends with the event "[DONE]", which is not returned, or with the answer. A busy server is asked
        again, but only before it has begun to answer. Raises InputError.
        """
        for tries_left in reversed(range(TRIES)):
            sent_s = time.perf_counter()
            with self._faults(), self._client.stream("POST", path, json=dict(request)) as response:
                if response.status_code in BUSY and tries_left:
                    time.sleep(self.waits.pause_s)
                    continue
                if response.status_code != 200:
                    raise self._refusal(response)
                self._check_kind(response)
                yield from self._events(response, sent_s)
                return

    def _events(self, response: httpx.Response, sent_s: float) -> Iterator[tuple[float, Any]]:
        """The events of an answer in the format of server-sent events, as `stream` yields them."""
        for line in self._lines(response, sent_s):
            at_ms = 1000.0 * (time.perf_counter() - sent_s)
            if not line.startswith(b"data:"):
                # Comments, names of events and blank lines between events.
                continue
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return
            try:
                yield at_ms, json.loads(data)
            except (ValueError, RecursionError) as error:
                raise self.fault(f"streamed an event that is not JSON: {_quote(data)}") from error

    def _lines(self, response: httpx.Response, sent_s: float) -> Iterator[bytes]:
        """The lines of an answer. Raises InputError if it is too long or too slow, or the race was stopped."""
        unfinished, total = b"", 0
        for block in response.iter_bytes():
            total += len(block)
            *lines, unfinished = (unfinished + block).split(b"\n")
            if total > MAX_STREAM or len(unfinished) > MAX_LINE or any(len(line) > MAX_LINE for line in lines):
                raise self.fault("streamed more than an answer can need, so it was stopped")
            if self.stop():
                raise self.fault("was not heard to its end, because the race was stopped")
            if time.perf_counter() - sent_s > self.waits.total_s:
                raise self.fault(f"did not finish its answer within {self.waits.total_s:.0f} s")
            yield from lines
        yield unfinished

    def _check_kind(self, response: httpx.Response) -> None:
        """Raise InputError unless the answer is a stream of server-sent events."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            body = self._body(response)
            words = _message(body) or f"{kind or 'an answer without a type'}: {_quote(body)}"
            raise self.fault(f"did not stream its answer, but sent {words}")

    def _refusal(self, response: httpx.Response) -> InputError:
        """The sentence for a status other than 200."""
        status = response.status_code
        if 300 <= status < 400:
            address = _quote(response.headers.get("location", "another address"))
            return self.fault(f"sends requests on to {address}; give that address if you trust it")
        if status in (401, 403):
            return self.fault(f"wants another key (status {status}); set {KEY_VARIABLE}")
        body = self._body(response)
        return self.fault(f"answers with status {status}: {_message(body) or _quote(body) or 'nothing else'}")

    def _body(self, response: httpx.Response) -> str:
        """The text of an answer. Raises InputError if it is too long."""
        body = b""
        for block in response.iter_bytes():
            body += block
            if len(body) > MAX_BODY:
                raise self.fault(f"sends more than {MAX_BODY // 1_000_000} MB where a short answer belongs")
        return body.decode("utf-8", "replace")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn what httpx raises into a sentence."""
        try:
            yield
        except httpx.ConnectTimeout as error:
            raise self.fault(f"did not accept a connection within {self.waits.connect_s:g} s") from error
        except httpx.ConnectError as error:
            raise self.fault(f"cannot be reached ({_quote(error)}); is it running at this address?") from error
        except httpx.ReadTimeout as error:
            raise self.fault(f"sent nothing for {self.waits.read_s:g} s") from error
        except httpx.RemoteProtocolError as error:
            raise self.fault(f"broke off its answer ({_quote(error)})") from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise self.fault(f"cannot be talked to ({_quote(error) or type(error).__name__})") from error


def _message(body: str) -> str:
    """The message in the JSON of an error, in any of the forms that servers use; "" if there is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    while isinstance(value, dict):
        value = value.get("error") or value.get("message") or value.get("detail") or ""
    return _quote(value) if isinstance(value, str) else ""


def _quote(value: object) -> str:
    """A server's words on one line, shortened, without a final full stop."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return shorten(" ".join(text.split()), _QUOTED).rstrip(".")
