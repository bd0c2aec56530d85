"""The journal of a comparison: each finished request is a line on the disk, so that a killed run can be resumed.

In a comparison's folder, `comparison.json` has the settings and is written first, as a whole. `requests.jsonl` grows
by one line for each finished request, which is flushed to the disk. If a kill cuts a line off, the line is dropped and
its request is sent again; a request with a line is never sent again.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, read_text, write_atomically
from specrace.lab.compare.samples import Block, Sample

SETTINGS, REQUESTS = "comparison.json", "requests.jsonl"
# Larger files are refused, because a file is read into memory as a whole.
_MAX_BYTES = 4_000_000_000
_HINT = "give a folder that compare wrote, or another --out"
_FLAG = "--out"


class Journal:
    """A comparison on disk; use it as a context manager, which keeps other processes out.

    `settings`: everything that decides what is measured; a folder with other settings is refused. `session`: how often
    this comparison has been started before. `samples`: the finished requests, in the order in which they finished.
    `about`: server -> what it is.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self.settings = json.loads(json.dumps(settings))
        self.samples: list[Sample] = []
        self.about: dict[str, dict[str, str]] = {}
        self.failed: dict[tuple[Block, int], str] = {}
        self.session = 0
        self._resume = resume
        self._stream: io.BufferedWriter | None = None

    def __enter__(self) -> Self:
        file = self.folder / SETTINGS
        exists = file.exists() or (self.folder / REQUESTS).exists()
        if exists and not self._resume:
            raise InputError(f"{shorten(self.folder)} holds a comparison; add --resume, or give another --out.")
        with as_input_error(self.folder, _FLAG):
            self.folder.mkdir(exist_ok=True)
            self._stream = (self.folder / REQUESTS).open("ab")
        try:
            self._lock(self._stream)
            if exists:
                self._check_settings(file)
                self._read()
            else:
                with as_input_error(file, _FLAG):
                    write_atomically(file, (json.dumps(self.settings, ensure_ascii=False, indent=1) + "\n").encode())
            self._append({"session": self.session})
        except BaseException:
            self._stream.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def finished(self, block: Block) -> set[int]:
        """The numbers of a block's questions that are answered."""
        return {sample.number for sample in self.samples if sample.block == block}

    def add(self, sample: Sample) -> Sample:
        """Append a finished request, and return it as it was written. Once this returns, a kill cannot lose it."""
        row = sample.as_json()
        self._append(row)
        # Read from JSON, so that a resumed comparison has the figures of one that was not interrupted.
        written = Sample.from_json(json.loads(json.dumps(row)))
        self.samples.append(written)
        self.failed.pop((sample.block, sample.number), None)
        return written

    def add_failure(self, block: Block, number: int, sentence: str) -> None:
        """Append a request that failed; a resumed run sends it again."""
        self._append({"failed": [list(block), number, sentence]})
        self.failed[block, number] = sentence

    def check_server(self, name: str, about: Mapping[str, str]) -> None:
        """Note what a server is. Raises InputError if it was another one before."""
        before = self.about.get(name)
        if before is None:
            self._append({"server": name, "about": dict(about)})
            self.about[name] = dict(about)
        elif before != about:
            words = "; now it is ".join(", ".join(facts.values()) for facts in (before, dict(about)))
            raise InputError(
                f"The server {name} was {words}: figures of both must not be mixed; give another --out, or start the "
                "same server."
            )

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self._stream is not None, "the journal is not open"
        with as_input_error(self.folder / REQUESTS, _FLAG):
            self._stream.write((json.dumps(row, separators=(",", ":")) + "\n").encode())
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def _lock(self, stream: io.BufferedWriter) -> None:
        """Lock the file, where the system can. Raises InputError if another process measures into this folder."""
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"Another process writes to {shorten(self.folder)}; wait until it ends.") from error

    def _check_settings(self, file: Path) -> None:
        """Raise InputError unless the folder's settings are these."""
        try:
            before = json.loads(read_text(file, _MAX_BYTES, _HINT))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{shorten(file)} has no settings of a comparison; {_HINT}.") from error
        if before == self.settings:
            return
        before = before if isinstance(before, dict) else {}
        names = [name for name in self.settings if before.get(name) != self.settings[name]]
        raise InputError(
            f"{shorten(self.folder)} holds a comparison with other settings ({', '.join(names) or 'another version'}); "
            "figures of both must not be mixed; give another --out."
        )

    def _read(self) -> None:
        """Read the finished requests, and cut off a last line that is incomplete. Raises InputError."""
        file = self.folder / REQUESTS
        text = read_text(file, _MAX_BYTES, _HINT)
        complete_lines = text[: text.rfind("\n") + 1]
        seen = set[tuple[Block, int]]()
        for number, line in enumerate(complete_lines.splitlines(), 1):
            try:
                self._read_row(json.loads(line), seen)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise InputError(
                    f"{shorten(file)}, line {number}: this is not a request of a comparison; {_HINT}."
                ) from error
        if complete_lines != text:
            with as_input_error(file, _FLAG):
                os.truncate(file, len(complete_lines.encode()))

    def _read_row(self, row: Mapping[str, Any], seen: set[tuple[Block, int]]) -> None:
        """Read a line: the start of a session, what a server is, or a request that failed or was answered."""
        if row.keys() == {"session"}:
            self.session = int(row["session"]) + 1
        elif "server" in row:
            self.about[str(row["server"])] = {str(key): str(value) for key, value in row["about"].items()}
        elif "failed" in row:
            (server, concurrency, repetition), number, sentence = row["failed"]
            self.failed[Block(server, concurrency, repetition), number] = str(sentence)
        else:
            sample = Sample.from_json(row)
            key = sample.block, sample.number
            # Warm-ups, whose number is negative, are sent again in every session.
            if key in seen and sample.number >= 0:
                raise ValueError("a question was answered twice")
            seen.add(key)
            self.samples.append(sample)
            self.failed.pop(key, None)
