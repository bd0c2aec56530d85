"""Looks up a batch's requests by custom_id, without keeping them in memory."""

from __future__ import annotations

import hashlib
import io
from array import array
from pathlib import Path

import numpy as np

from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular
from specrace.lab.formats.base import MAX_LINE_BYTES, Row, parse_line


class RequestIndex:
    """Where each request of a file begins: 16 bytes each, for a hash of its custom_id and its offset.

    Raises InputError for a file that cannot be read, or that is compressed, and so cannot be read at an offset.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        hashes = array("Q")
        offsets = array("Q")
        with self._open() as file:
            if file.peek(2)[:2] == b"\x1f\x8b":
                raise InputError(f"{shorten(path)} is packed; unpack the file of requests, which is read at offsets.")
            offset = 0
            while line := file.readline(MAX_LINE_BYTES):
                name = _request_name(line)
                if name is not None:
                    hashes.append(_hash(name))
                    offsets.append(offset)
                offset += len(line)
        order = np.argsort(np.frombuffer(hashes, np.uint64), kind="stable") if hashes else np.zeros(0, np.int64)
        self._hashes = np.frombuffer(hashes, np.uint64)[order] if hashes else np.zeros(0, np.uint64)
        self._offsets = np.frombuffer(offsets, np.uint64)[order] if hashes else np.zeros(0, np.uint64)
        self._file = self._open()

    def __call__(self, name: str) -> Row | None:
        """The first request with this custom_id; None if there is none."""
        wanted = np.uint64(_hash(name))
        first = np.searchsorted(self._hashes, wanted, "left")
        last = np.searchsorted(self._hashes, wanted, "right")
        for offset in self._offsets[first:last]:
            self._file.seek(int(offset))
            row = parse_line(self._file.readline(MAX_LINE_BYTES))
            if _name(row) == name:
                return row
        return None

    def close(self) -> None:
        """Close the file of requests."""
        self._file.close()

    def _open(self) -> io.BufferedReader:
        try:
            return open_regular(self.path)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{shorten(self.path)} cannot be read ({reason}); give the file of requests.") from error


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _request_name(line: bytes) -> str | None:
    """The name of a line with a request; None for any other line."""
    try:
        row = parse_line(line) if line.strip() else {}
    except ValueError:
        return None
    name = _name(row)
    return name if isinstance(name, str) and row.keys() & {"body", "params", "request"} else None


def _name(row: Row) -> object:
    """What a request shares with its response: OpenAI and Anthropic call it custom_id, Gemini key."""
    return row.get("custom_id", row.get("key"))
