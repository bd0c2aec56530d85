"""Runs parsers in a child process, so that a file that takes too much time or memory ends only that process.

The child is started as a program of its own, because multiprocessing would run the main script of a program that uses
this package a second time. The two processes exchange only JSON.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.files import read_bytes
from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.archives import MemberResult, read_content
from specrace.retrieval.readers.reading import Mark, Reading

# How many seconds the child may take to start, which is long on a busy machine. A file's time limit starts afterwards.
START_S = 120.0
HINT = "give a smaller file that you may read"
TOO_MUCH_MEMORY = "takes too much memory to read: give a smaller file."


class Sandbox:
    """Reads files in a child process, which is started for the first file, and again whenever it has ended."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._seconds_left = limits.total_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, file: Path, limits: ReadingLimits) -> Iterator[MemberResult]:
        """Yield what `read_content` yields for a file; if it takes too much time or memory, the last result says so.

        Raises InputError if the child process does not start.
        """
        if self._seconds_left <= 0:
            yield "", f"is left out: all files together take more than {self._limits.total_seconds:g} seconds to read."
            return
        try:
            process = self._child()
            request = {"path": os.fspath(file), "limits": asdict(limits)}
            _send(process.stdin, request)
            began = time.monotonic()
            deadline = began + min(limits.seconds, self._seconds_left)
            while (answer := self._next(deadline)) is not None:
                yield _to_result(answer)
            self._seconds_left -= time.monotonic() - began
        except queue.Empty:
            self._seconds_left -= time.monotonic() - began
            self.close()
            yield "", f"takes more than {deadline - began:.3g} seconds to read: give a smaller file."
        except (OSError, ValueError):
            # The child has ended, most likely at its memory limit.
            self.close()
            yield "", TOO_MUCH_MEMORY

    def close(self) -> None:
        """End the child process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self._process = None

    def _child(self) -> subprocess.Popen[bytes]:
        """The child process, started if it is not running. Raises InputError."""
        if self._process is None:
            code = f"from {__name__} import serve; serve({self._limits.memory_bytes})"
            # An empty entry of sys.path means the current folder; an empty entry of PYTHONPATH would be lost.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
            # The stacks of idle threads would count towards the memory limit.
            environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._lines = queue.SimpleQueue()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            threading.Thread(target=_pump, args=[self._process.stdout, self._lines], daemon=True).start()
            try:
                self._next(time.monotonic() + START_S)
            except (queue.Empty, ValueError) as error:
                self.close()
                raise InputError(
                    f"The process for parsers does not start: check that {sys.executable} runs."
                ) from error
        return self._process

    def _next(self, deadline: float) -> Any:
        """The next answer; None after the last. Raises queue.Empty after `deadline`, ValueError if the child ended."""
        # A timeout of 0 still returns an answer that has arrived.
        return json.loads(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))


def _pump(stream: Any, lines: queue.SimpleQueue[bytes]) -> None:
    """Put each line of the stream into the queue, and an empty line at the end of the stream."""
    with contextlib.suppress(OSError, ValueError):
        while line := stream.readline():
            lines.put(line)
    lines.put(b"")


def _to_result(answer: dict[str, Any]) -> MemberResult:
    """Convert an answer of `_answers` into a result of `read_content`."""
    if "problem" in answer:
        return answer["member"], answer["problem"]
    marks = tuple(Mark(*fields) for fields in answer["marks"])
    code = tuple((start, end) for start, end in answer["code"])
    return answer["member"], Reading(answer["title"], answer["text"], marks, code=code)


def serve(memory_bytes: int) -> None:
    """Run in the child process: read the files that standard input names, until it is closed."""
    # Parsers may print, so their standard output is redirected to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _bound_memory(memory_bytes)
    # Tells the parent that this process is ready. After each file, None says that there are no more results.
    _send(answers, None)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        limits = ReadingLimits(**request["limits"])
        # Later than the parent's deadline, because the parent reports the timeout.
        _set_alarm(math.ceil(limits.seconds) + 1)
        for answer in _answers(Path(request["path"]), limits):
            _send(answers, answer)
        _set_alarm(0)
        _send(answers, None)


def _answers(file: Path, limits: ReadingLimits) -> Iterator[dict[str, Any]]:
    """The results of `read_content` as JSON objects; any error becomes a problem of the file."""
    try:
        content = read_bytes(file, limits.file_bytes, HINT)
        for member, reading in read_content(file.name, content, limits):
            if isinstance(reading, str):
                yield {"member": member, "problem": reading}
            else:
                fields = {"title": reading.title, "text": reading.text, "marks": reading.marks, "code": reading.code}
                yield {"member": member, **fields}
    except MemoryError:
        yield {"member": "", "problem": TOO_MUCH_MEMORY}
    except InputError as error:
        yield {"member": "", "problem": f"cannot be read ({error})"}
    except Exception as error:  # one file must not end the process that reads the next one
        yield {"member": "", "problem": f"cannot be read ({type(error).__name__}): save it again."}


def _send(stream: Any, value: object) -> None:
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def _set_alarm(seconds: int) -> None:
    """End this process after `seconds`, even if a parser hangs and the parent is gone; 0 cancels the alarm."""
    with contextlib.suppress(ImportError, AttributeError):
        import signal

        signal.alarm(seconds)


def _bound_memory(memory_bytes: int) -> None:
    """Limit this process's memory, on systems that support it."""
    with contextlib.suppress(ImportError, OSError, ValueError, AttributeError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
