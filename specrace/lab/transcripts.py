"""Reads transcripts from a log of requests and their outputs, in any of the formats in `formats`.

A file is read row by row (`formats.containers`), so it may have any size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.lab.formats import Exchange, Format, find_format, is_trace, recognise
from specrace.lab.formats.base import Message, Row, Tokens
from specrace.lab.formats.containers import Rows, first_row
from specrace.lab.formats.pairs import RequestIndex
from specrace.lab.formats.responses import Batch
from specrace.lab.formats.specrace import SpecraceFormat

Tokenize = Callable[[str], Sequence[int]]
# (messages, answer, offered tools, documents, the request's template arguments)
# -> (ids of the conversation up to the answer, ids of the answer, warnings).
Chat = Callable[
    [list[Message], Message, list[Any] | None, list[Any] | None, Mapping[str, Any] | None],
    tuple[Sequence[int], Sequence[int], tuple[str, ...]],
]

MAX_TOKEN = 2**31 - 1
MAX_REASONS = 5
# How many reasons of bad lines are counted separately.
MAX_FAULTS = 50
OTHER_FAULTS = "other reasons"
# Rows at the start of a file by which its format is recognised.
MAX_HEAD_ROWS = 20


@dataclass(frozen=True)
class Transcript:
    """Token ids of a prompt and its output, neither empty, all below `vocab_size`.

    `documents`, if known: (start, end, name) of each stretch of the prompt's tokens that comes from a document.
    """

    id: str
    category: str
    prompt: Tokens
    output: Tokens
    vocab_size: int
    documents: tuple[tuple[int, int, str], ...] = ()


class TranscriptFile:
    """The transcripts of a file, in order.

    A bad line raises InputError that names file and line. With `skip_bad` bad lines are instead counted in `skipped`,
    and by reason in `faults`; the first few are described in `reasons`. A truncated gzip file ends where it is cut
    off, which counts as one bad line.
    `tokenize` turns a whole text into ids, special tokens included, and `chat` a conversation; without them text and
    conversations are bad lines. `format`: a name in `formats.FORMATS`, "" to recognise it. `columns`: our name -> the
    table's column. `requests`: the other file of a batch; the two may come in either order.
    """

    def __init__(
        self,
        path: Path,
        *,
        tokenize: Tokenize | None = None,
        chat: Chat | None = None,
        vocab_size: int | None = None,
        skip_bad: bool = False,
        format: str = "",
        columns: dict[str, str] | None = None,
        requests: Path | None = None,
    ) -> None:
        self.path = path
        self.tokenize = tokenize
        self.chat = chat
        self.vocab_size = vocab_size
        self.skip_bad = skip_bad
        self.columns = columns
        self.requests = requests
        # None until a row is recognised.
        self.format: type[Format] | None = find_format(format) if format else None
        self.rows = Rows(path, columns, self._bad)
        self.reasons: list[str] = []
        self.faults: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Transcript]:
        if self.requests is not None:
            self._order_pair(self.requests)
        self.rows = Rows(self.path, self.columns, self._bad)
        yield from self._transcripts(iter(self.rows))

    @property
    def bytes_read(self) -> int:
        """Bytes read so far of the file on disk, which may be compressed."""
        return self.rows.bytes_read

    @property
    def skipped(self) -> int:
        """The number of bad lines so far."""
        return self.faults.total()

    def describe(self) -> tuple[str, str]:
        """(name, title) of the format, once the first transcript is read."""
        format = self.format or SpecraceFormat
        if self.rows.table and format is SpecraceFormat:
            return self.rows.table, f"a {'Parquet' if self.rows.table == 'parquet' else 'CSV'} table"
        return format.name, format.title

    def _order_pair(self, other: Path) -> None:
        """Make `path` the file of responses and `requests` that of requests. Raises InputError if they do not match."""
        rows = [first_row(path) for path in (self.path, other)]
        responses = ["response" in row for row in rows]
        if sorted(responses) != [False, True] or not all("custom_id" in row for row in rows):
            raise InputError(
                f"{shorten(self.path)} and {shorten(other)} are not the requests and the responses of one batch; "
                "give two files whose lines have a custom_id, or score each file by itself."
            )
        self.path, self.requests = (self.path, other) if responses[0] else (other, self.path)

    def _transcripts(self, rows: Iterator[tuple[int, Row]]) -> Iterator[Transcript]:
        if self.format is None:
            rows = self._recognised(rows)
        reader = (self.format or SpecraceFormat)()
        index: RequestIndex | None = None
        if isinstance(reader, Batch):

            def find(name: str) -> Row | None:
                nonlocal index
                index = index or RequestIndex(self.requests or self.path)
                return index(name)

            reader.find_request = find
        number = 0
        try:
            for number, row in rows:
                yield from self._read(number, reader.read, row)
            yield from self._read(number, lambda _: reader.end(), {})
        finally:
            if index is not None:
                index.close()

    def _recognised(self, rows: Iterator[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
        """Set the format by the first few rows, and return all rows. Raises InputError for a trace of lengths."""
        head = []
        for number, row in rows:
            head.append((number, row))
            self.format = recognise(row)
            if self.format is None and is_trace(row):
                raise InputError(
                    f"{shorten(self.path)} is a trace of lengths and block hashes, like Mooncake's: without tokens or "
                    "text nothing can be drafted or compared; give a log that keeps the requests and their outputs."
                )
            if self.format is not None or len(head) == MAX_HEAD_ROWS:
                break
        return chain(head, rows)

    def _read(self, number: int, read: Callable[[Row], Iterable[Exchange]], row: Row) -> Iterator[Transcript]:
        """The transcripts of a row, up to the first that cannot be used, which makes the row a bad line."""
        try:
            for exchange in read(row):
                yield self._transcript(exchange)
        except ValueError as error:
            self._bad(number, str(error))

    def _transcript(self, exchange: Exchange) -> Transcript:
        """The transcript of an exchange. Raises ValueError if it cannot be used."""
        prompt, output = exchange.prompt, exchange.output
        if isinstance(prompt, tuple) and isinstance(output, tuple):
            _check_range("prompt_ids", prompt, self.vocab_size)
            _check_range("output_ids", output, self.vocab_size)
        else:
            prompt, output = self._tokenized(exchange)
            _check_range("the text", (*prompt, *output), self.vocab_size)
        size = self.vocab_size or max(max(prompt), max(output)) + 1
        return Transcript(exchange.id, exchange.category or "none", prompt, output, size)

    def _tokenized(self, exchange: Exchange) -> tuple[Tokens, Tokens]:
        if isinstance(exchange.prompt, str) and isinstance(exchange.output, str):
            if self.tokenize is None:
                raise ValueError("this has text and no ids; give --tokenizer, the one of the model that wrote it")
            return split_tokens(exchange.prompt, exchange.output, self.tokenize)
        if not isinstance(exchange.prompt, list) or not isinstance(exchange.output, dict):
            raise ValueError("the prompt and the output are of different kinds")
        if self.chat is None:
            raise ValueError("this has messages and no ids; give --tokenizer, the one of the model that wrote it")
        if not any(exchange.output.get(key) for key in ("content", "tool_calls", "reasoning_content")):
            raise ValueError("the answer is empty; every transcript needs a prompt and an output")
        prompt, output, _ = self.chat(
            exchange.prompt, exchange.output, exchange.tools, exchange.documents, exchange.template_options
        )
        for name, ids in (("prompt", prompt), ("output", output)):
            if not ids:
                raise ValueError(f"the {name} has no tokens; every transcript needs some")
        return tuple(prompt), tuple(output)

    def _bad(self, number: int, reason: str) -> None:
        """Count a bad line. Raises InputError unless bad lines are skipped."""
        message = f"{shorten(self.path)}, line {number}: {reason}"
        if not self.skip_bad:
            raise InputError(f"{message} (--skip-bad leaves such lines out).")
        counted_alone = reason in self.faults or len(self.faults) < MAX_FAULTS
        self.faults[reason if counted_alone else OTHER_FAULTS] += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(f"{message}.")


def write_transcripts(path: Path, rows: Iterable[tuple[str, Tokens, Tokens]], category: str) -> None:
    """Write a line for each (id, prompt, output). Raises InputError if the file cannot be written."""
    with as_input_error(path), path.open("w", encoding="utf-8") as file:
        for name, prompt, output in rows:
            line = {"id": name, "category": category, "prompt_ids": prompt, "output_ids": output}
            file.write(json.dumps(line) + "\n")


def split_tokens(prompt: str, output: str, tokenize: Tokenize) -> tuple[Tokens, Tokens]:
    """The ids of a prompt and its output, tokenised as one text, as the model saw them.

    The prompt's ids are the common prefix of its own tokenisation and that of the whole text. So a token that
    spans the boundary belongs to the output, and tokens that a tokenizer puts at the end of every text do not belong to
    the prompt. Raises ValueError if the prompt or the output has no ids.
    """
    alone = tokenize(prompt)
    whole = tokenize(prompt + output)
    shared = 0
    while shared < min(len(alone), len(whole)) and alone[shared] == whole[shared]:
        shared += 1
    for name, size in (("prompt", shared), ("output", len(whole) - shared)):
        if not size:
            raise ValueError(f"the {name} has no tokens; every transcript needs some")
    return tuple(whole[:shared]), tuple(whole[shared:])


def _check_range(name: str, ids: Sequence[int], vocab_size: int | None) -> None:
    if min(ids) < 0:
        raise ValueError(f"{name} has the negative id {shorten(min(ids), 20)}; ids begin at 0")
    if max(ids) >= (vocab_size or MAX_TOKEN):
        bound = f"--vocab-size is {vocab_size}" if vocab_size else f"no vocabulary reaches {MAX_TOKEN}"
        raise ValueError(f"{name} has the id {shorten(max(ids), 20)}, but {bound}; check the file and its tokenizer")
