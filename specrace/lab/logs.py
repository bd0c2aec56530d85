"""Transcripts on disk: a prompt and the output some model gave, one JSON object a line, plain or gzip.

A line is {"prompt_ids": [...], "output_ids": [...]} or {"prompt": "...", "output": "..."}, with "id" and "category"
if there are any. A file is read line by line, so its size does not matter.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import explained, open_regular

Tokens = tuple[int, ...]
Tokenize = Callable[[str], Sequence[int]]

GZIP_MAGIC = b"\x1f\x8b"
# Far above any real transcript: a longer line is another kind of file, and must not fill the memory.
MAX_LINE_BYTES = 16_000_000
MAX_TOKEN = 2**31 - 1
REASONS_KEPT = 5


@dataclass(frozen=True)
class Transcript:
    """Token ids of a prompt and its output, neither empty, all below `vocab_size`."""

    id: str
    category: str
    prompt: Tokens
    output: Tokens
    vocab_size: int


class TranscriptFile:
    """The transcripts of a file, in order.

    Iterating raises InputError that names file and line, unless `skip_bad`: then bad lines are counted in `skipped`
    and the first few reasons are kept. A gzip that breaks off ends the file, and counts as one bad line.
    `tokenize` turns a whole text into ids, special tokens included; without it text transcripts are bad lines.
    """

    def __init__(
        self, path: Path, *, tokenize: Tokenize | None = None, vocab_size: int | None = None, skip_bad: bool = False
    ) -> None:
        self.path = path
        self.tokenize = tokenize
        self.vocab_size = vocab_size
        self.skip_bad = skip_bad
        self.skipped = 0
        self.reasons: list[str] = []
        # Bytes of the file, compressed or not, read so far.
        self.bytes_read = 0

    def __iter__(self) -> Iterator[Transcript]:
        try:
            with open_regular(self.path, pipes=True) as raw:
                for number, line in self._lines(raw):
                    transcript = self._read_line(number, line)
                    if transcript is not None:
                        yield transcript
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{shorten(self.path)} cannot be read ({reason}); give a JSONL file.") from error

    def _lines(self, raw: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        """(number, line) of every line that is not blank, without its end."""
        lines = self._unpacked(raw)
        number = 0
        while True:
            number += 1
            try:
                line = rest = lines.readline(MAX_LINE_BYTES + 1)
                if len(line) > MAX_LINE_BYTES:
                    # Before the rest of the line is skipped, which may never end.
                    self._bad(number, f"longer than {MAX_LINE_BYTES // 1_000_000} MB; give one transcript a line")
                    while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                        rest = lines.readline(MAX_LINE_BYTES + 1)
                    continue
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                kind = "breaks off" if isinstance(error, EOFError) else "is damaged"
                self._bad(number, f"the gzip file {kind} here; copy or write it again")
                return
            if not line:
                return
            if raw.seekable():
                self.bytes_read = raw.tell()
            if line.strip():
                yield number, line

    def _unpacked(self, raw: io.BufferedReader) -> io.BufferedIOBase:
        """The file's own bytes. Raises InputError for a name in .gz without gzip content."""
        if raw.peek(2)[:2] == GZIP_MAGIC:
            return gzip.GzipFile(fileobj=raw)
        if self.path.suffix == ".gz" and raw.peek(1):
            raise InputError(
                f"{shorten(self.path)}, line 1: this is not gzip, though the name ends in .gz; rename or pack it."
            )
        return raw

    def _read_line(self, number: int, line: bytes) -> Transcript | None:
        """The line's transcript, None for a bad line that is skipped."""
        try:
            return parse(_object(line), self.tokenize, self.vocab_size)
        except ValueError as error:
            self._bad(number, str(error))
            return None

    def _bad(self, number: int, reason: str) -> None:
        message = f"{shorten(self.path)}, line {number}: {reason}"
        if not self.skip_bad:
            raise InputError(f"{message} (--skip-bad leaves such lines out).")
        self.skipped += 1
        if len(self.reasons) < REASONS_KEPT:
            self.reasons.append(f"{message}.")


def write_transcripts(path: Path, rows: Iterable[tuple[str, Tokens, Tokens]], category: str) -> None:
    """A line for each (id, prompt, output), neither empty. Raises InputError if the file cannot be written."""
    with explained(path), path.open("w", encoding="utf-8") as file:
        for name, prompt, output in rows:
            line = {"id": name, "category": category, "prompt_ids": prompt, "output_ids": output}
            file.write(json.dumps(line) + "\n")


def _object(line: bytes) -> dict[str, Any]:
    """The line as a JSON object. Raises ValueError."""
    try:
        # Some editors begin a file with a byte order mark. Without the newline, an error is reported in this line.
        found = json.loads(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError("this is not UTF-8 text; write the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON ({error.msg} at column {error.colno}); write one object a line") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("this JSON has a number too long or is nested too deeply; write a plain object") from error
    if not isinstance(found, dict):
        raise ValueError("this is JSON but not an object; write {...} with prompt_ids and output_ids")
    return found


def parse(line: dict[str, Any], tokenize: Tokenize | None = None, vocab_size: int | None = None) -> Transcript:
    """The transcript of a line. Where it has ids, they count; text is what is tokenised. Raises ValueError."""
    if "prompt_ids" in line or "output_ids" in line:
        prompt, output = (_ids(line, name, vocab_size) for name in ("prompt_ids", "output_ids"))
    else:
        texts = (_text(line, "prompt"), _text(line, "output"))
        if tokenize is None:
            raise ValueError("this has text and no ids; give --tokenizer, the one of the model that wrote it")
        prompt, output = split_tokens(texts[0], texts[1], tokenize)
        _check_range("the text", (*prompt, *output), vocab_size)
    size = vocab_size or max(max(prompt), max(output)) + 1
    return Transcript(_label(line, "id"), _label(line, "category") or "none", prompt, output, size)


def split_tokens(prompt: str, output: str, tokenize: Tokenize) -> tuple[Tokens, Tokens]:
    """Ids of a prompt and its output, tokenised as the one text that the model saw.

    A token that spans the boundary belongs to the output, and what a tokenizer puts at the end of every text is not
    part of the prompt: the prompt's ids are those that both tokenisations begin with. Raises ValueError where
    nothing is left of one of the two.
    """
    alone, whole = tokenize(prompt), tokenize(prompt + output)
    shared = 0
    while shared < min(len(alone), len(whole)) and alone[shared] == whole[shared]:
        shared += 1
    for name, size in (("prompt", shared), ("output", len(whole) - shared)):
        if not size:
            raise ValueError(f"the {name} has no tokens; every transcript needs some")
    return tuple(whole[:shared]), tuple(whole[shared:])


def _ids(line: dict[str, Any], name: str, vocab_size: int | None) -> Tokens:
    ids = line.get(name)
    if ids is None:
        raise ValueError(f"there is no {name}; write both prompt_ids and output_ids")
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise ValueError(f"{name} is not a list of whole numbers; write token ids")
    if not ids:
        raise ValueError(f"{name} is empty; every transcript needs a prompt and an output")
    _check_range(name, ids, vocab_size)
    return tuple(ids)


def _check_range(name: str, ids: Sequence[int], vocab_size: int | None) -> None:
    if min(ids) < 0:
        raise ValueError(f"{name} has the negative id {shorten(min(ids), 20)}; ids begin at 0")
    if max(ids) >= (vocab_size or MAX_TOKEN):
        bound = f"--vocab-size is {vocab_size}" if vocab_size else f"no vocabulary reaches {MAX_TOKEN}"
        raise ValueError(f"{name} has the id {shorten(max(ids), 20)}, but {bound}; check the file and its tokenizer")


def _text(line: dict[str, Any], name: str) -> str:
    text = line.get(name)
    if text is None:
        raise ValueError(f"there is no {name}; write prompt_ids and output_ids, or prompt and output")
    if not isinstance(text, str):
        raise ValueError(f"{name} is not text; write it in quotes")
    if not text:
        raise ValueError(f"{name} is empty; every transcript needs a prompt and an output")
    return _whole(name, text)


def _label(line: dict[str, Any], name: str) -> str:
    """An id or category as text; "" where there is none."""
    label = line.get(name)
    if label is None:
        return ""
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        raise ValueError(f"{name} is neither text nor a number; write it in quotes")
    return _whole(name, str(label))


def _whole(name: str, text: str) -> str:
    """The text itself. Raises ValueError for a lone surrogate, which JSON can escape and UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} has half a character at {error.start}; write it as UTF-8") from error
    return text
