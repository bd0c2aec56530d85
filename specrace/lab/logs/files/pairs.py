"""Pairs the files of requests and responses of an API's batches, and looks up requests by custom_id on the disk.

Different batches may use the same ids: many begin with request-1, as the examples in OpenAI's documentation do.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import BinaryIO

import numpy as np

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.files.containers import MAX_ON_DISK, Rows, first_row, is_lines
from specrace.lab.logs.files.kinds import unpacked_name
from specrace.lab.logs.files.sources import OpenFile, Source, count_files
from specrace.lab.logs.formats.base import MAX_LINE_BYTES, Row, parse_line

# The fields of a line that hold a request, and those that hold a response.
_REQUEST = ("body", "params", "request")
_RESPONSE = ("response", "result", "error")
# Letters and digits.
_WORD = re.compile(r"[^\W_]+")
# Words in a file's name that tell a batch's requests from its responses.
_ROLE_WORDS = {
    *("in", "input", "inputs", "request", "requests", "req", "prompt", "prompts"),
    *("out", "output", "outputs", "response", "responses", "resp", "result", "results", "error", "errors"),
}


class RequestIndex:
    """Finds requests in a file by their custom_id; memory holds 16 bytes per request, a hash of the id and the offset.

    A file that is not plain JSON lines, such as a compressed one, is first written to a temporary file as JSON lines.
    Raises InputError for a file that cannot be read.
    """

    def __init__(self, source: Source) -> None:
        # A separate file handle, because the responses may be read from the same file meanwhile.
        self._kept = OpenFile()
        self.source = replace(source, kept=self._kept)
        hashes = array("Q")
        offsets = array("Q")
        self._file = self._open()
        offset = 0
        while line := self._file.readline(MAX_LINE_BYTES):
            name = _id_of_request_line(line)
            if name is not None:
                hashes.append(_hash(name))
                offsets.append(offset)
            offset += len(line)
        order = np.argsort(np.frombuffer(hashes, np.uint64), kind="stable") if hashes else np.zeros(0, np.int64)
        self._hashes = np.frombuffer(hashes, np.uint64)[order] if hashes else np.zeros(0, np.uint64)
        self._offsets = np.frombuffer(offsets, np.uint64)[order] if hashes else np.zeros(0, np.uint64)

    def __call__(self, name: str) -> Row | None:
        """The request with this custom_id; None if there is none. Raises ValueError if different requests have it."""
        wanted = np.uint64(_hash(name))
        first = np.searchsorted(self._hashes, wanted, "left")
        last = np.searchsorted(self._hashes, wanted, "right")
        request: Row | None = None
        for offset in self._offsets[first:last]:
            self._file.seek(int(offset))
            row = parse_line(self._file.readline(MAX_LINE_BYTES))
            if _shared_id(row) != name:
                continue
            if request is not None and row != request:
                raise ValueError(
                    f"several requests have the id {shorten(name, 60)}; give the requests of one batch only"
                )
            request = row
        return request

    def holds(self, hashes: Sequence[int]) -> bool:
        """Whether there is a request for each of these ids, given as their hashes; also after `close`."""
        return bool(np.isin(np.asarray(hashes, np.uint64), self._hashes).all())

    def close(self) -> None:
        """Close the file of requests."""
        self._file.close()
        self._kept.close()

    def _open(self) -> BinaryIO:
        """The file of requests, as plain lines of JSON, at its beginning."""
        try:
            return self._kept.open(self.source.path) if is_lines(self.source) else self._as_lines()
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{shorten(self.source)} cannot be read ({reason}); give the file of requests.") from error

    def _as_lines(self) -> BinaryIO:
        """A temporary file with the rows that are requests."""
        file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it.
        try:
            for _, row in Rows(self.source, None, lambda *_: None, pipes=False, is_row=lambda row: bool(role(row))):
                file.write(json.dumps(row).encode() + b"\n" if _id_of_request_row(row) is not None else b"")
                if file.tell() > MAX_ON_DISK:
                    raise InputError(f"{shorten(self.source)} unpacks to more than {MAX_ON_DISK >> 30} GB; unpack it.")
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


def role(row: Row) -> str:
    """What a row is in a batch's two files, "request" or "response"; "" if it is neither, or both."""
    if _shared_id(row) is None:
        return ""
    has_request, has_response = (any(name in row for name in names) for names in (_REQUEST, _RESPONSE))
    if has_request == has_response:
        return ""
    return "request" if has_request else "response"


def order_pair(first: Source, second: Source) -> tuple[Source, Source]:
    """(responses, requests) of two files. Raises InputError if they are not the two files of a batch."""
    rows = [first_row(source) for source in (first, second)]
    roles = [role(row) for row in rows]
    if sorted(roles) != ["request", "response"] or _api(rows[0]) != _api(rows[1]):
        raise InputError(
            f"{shorten(first)} and {shorten(second)} are not the requests and the responses of one batch; "
            "give two files whose lines have a custom_id, or score each file by itself."
        )
    return (first, second) if roles[0] == "response" else (second, first)


def find_pairs(sources: Sequence[Source]) -> list[tuple[Source, Source | None]]:
    """Each file with the file of its requests, None for one that has no such file; in the files' order.

    A file of requests and a file of responses are a pair if they are of the same API and the request of the first
    response is in the file of requests. Raises InputError if it is not clear which of several files of requests it is.
    """
    rows = {source: _first_row_or_empty(source) for source in sources}
    requests = [source for source, row in rows.items() if role(row) == "request"]
    responses = [source for source, row in rows.items() if role(row) == "response"]
    indexes = {}
    for source in requests if responses else ():
        indexes[source] = RequestIndex(source)
        indexes[source].close()
    requests_of: dict[Source, Source] = {}
    for source in responses:
        first_id = [_hash(_shared_id(rows[source]) or "")]
        candidates = [
            file for file in indexes if _api(rows[file]) == _api(rows[source]) and indexes[file].holds(first_id)
        ]
        if candidates:
            requests_of[source] = _choose(source, {file: indexes[file] for file in candidates})
    return [(source, requests_of.get(source)) for source in sources if source not in requests_of.values()]


def _choose(responses: Source, candidates: dict[Source, RequestIndex]) -> Source:
    """The candidate that has all requests of the responses; of several, the one with the same name or folder.

    Raises InputError if that is not one file.
    """
    if len(candidates) == 1:
        return next(iter(candidates))
    names = (_shared_id(row) for _, row in Rows(responses, None, lambda *_: None, pipes=False))
    hashes = array("Q", (_hash(name) for name in names if name is not None))
    matching = [source for source, index in candidates.items() if index.holds(hashes)]
    for label_of in (_batch_name, _folder):
        same_label = [source for source in matching if label_of(source) == label_of(responses)]
        matching = same_label if len(same_label) == 1 else matching
    if len(matching) != 1:
        files = count_files([source.name.name for source in candidates])
        raise InputError(
            f"{shorten(responses)} may answer the requests of {files}, which have the same ids; put the two files of "
            "each batch into a folder of its own."
        )
    return matching[0]


def _batch_name(source: Source) -> list[str]:
    """The words of a file's path, without those that tell requests from responses."""
    path = str(unpacked_name(source.path / source.member).with_suffix(""))
    return [word for word in _WORD.findall(path.lower()) if word not in _ROLE_WORDS]


def _folder(source: Source) -> PurePath:
    return (source.path / source.member).parent


def pair_files(paths: Sequence[Path]) -> list[tuple[Path, Path | None]]:
    """Each log with the file of its requests, None for one that has no such file. Folders and zips are not opened."""
    if len(paths) < 2:
        return [(path, None) for path in paths]
    pairs = find_pairs([Source(path) for path in paths])
    return [(source.path, None if requests is None else requests.path) for source, requests in pairs]


def _first_row_or_empty(source: Source) -> Row:
    """The first row; empty for a file without rows, a pipe, or a file that cannot be read, which is reported later."""
    try:
        return first_row(source) if source.path.is_file() else {}
    except InputError:
        return {}


def _api(row: Row) -> str:
    """Which API's batch a request or a response belongs to."""
    if row.keys() & {"params", "result"}:
        return "Anthropic"
    return "OpenAI" if "custom_id" in row else "Gemini"


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _shared_id(row: Row) -> str | None:
    """The id that a request shares with its response: `custom_id`, or Gemini's `key`."""
    name = row.get("custom_id", row.get("key"))
    return name if isinstance(name, str) else None


def _id_of_request_row(row: Row) -> str | None:
    """The custom_id of a row with a request; None for any other row."""
    return _shared_id(row) if any(name in row for name in _REQUEST) else None


def _id_of_request_line(line: bytes) -> str | None:
    """The custom_id of a line with a request; None for any other line."""
    try:
        return _id_of_request_row(parse_line(line)) if line.strip() else None
    except ValueError:
        return None
