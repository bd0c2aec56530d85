"""Reads transcripts from a log of requests and their outputs, in any of the formats in `formats`.

A file is read row by row (`formats.containers`), so it may have any size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.lab.logs.fields import UnknownFormat, unread_fields
from specrace.lab.logs.files.containers import Rows
from specrace.lab.logs.files.pairs import RequestIndex, find_pairs, order_pair
from specrace.lab.logs.files.sources import Source, find_sources
from specrace.lab.logs.formats import Exchange, Format, find_format, is_trace, recognise
from specrace.lab.logs.formats.agents.sessions import AgentSession
from specrace.lab.logs.formats.base import Message, Row, Tokens
from specrace.lab.logs.formats.refused import refused_title
from specrace.lab.logs.formats.responses import Batch
from specrace.lab.logs.formats.specrace import SpecraceFormat
from specrace.lab.logs.redaction import explain_redaction
from specrace.lab.logs.remarks import Remarks
from specrace.lab.logs.request_options import request_options

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
_TABLES = {"csv": "a CSV", "parquet": "a Parquet", "arrow": "an Arrow"}


@dataclass(frozen=True)
class Transcript:
    """Token ids of a prompt and its output, neither empty, all below `vocab_size`.

    `documents`, if known: (start, end, name) of each stretch of the prompt's tokens that comes from a document.
    `options`: those of the request that an engine may treat otherwise when it drafts.
    """

    id: str
    category: str
    prompt: Tokens
    output: Tokens
    vocab_size: int
    documents: tuple[tuple[int, int, str], ...] = ()
    options: tuple[str, ...] = ()


class TranscriptFile:
    """The transcripts of a file, in order.

    A bad line raises InputError that names file and line. With `skip_bad` bad lines are instead counted in `skipped`,
    and by reason in `faults`; the first few are described in `reasons`. A truncated gzip file ends where it is cut
    off, which counts as one bad line.
    `tokenize` turns a whole text into ids, special tokens included, and `chat` a conversation; without them text and
    conversations are bad lines. `format`: a name in `formats.FORMATS`, "" to recognise it. `columns`: our name -> the
    table's column, or a line's field by its dotted name. `requests`: the other file of a batch; the two may come in
    either order. `seen`: the keys of the answers that were read, shared by files that may repeat one another.
    `remarks`: what is to be said about the transcripts so far.
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
        seen: set[str] | None = None,
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
        self._insisted = self.format
        self._reader: Format | None = None
        self._formats: dict[str, str] = {}
        self._holds_rows = False
        self.rows = Rows(Source(path), columns, self._bad)
        self._bytes_before = 0
        self.reasons: list[str] = []
        self.faults: Counter[str] = Counter()
        self.seen = set[str]() if seen is None else seen
        self.remarks = Remarks()

    def __iter__(self) -> Iterator[Transcript]:
        self._bytes_before = self.rows.bytes_read = 0
        self._holds_rows = False
        logs, self.remarks.other_files = self._logs()
        for source, requests in logs:
            self.format, self._reader = self._insisted, None
            self._bytes_before += self.rows.bytes_read
            self.rows = Rows(source, self.columns, self._miss, is_row=self._is_row)
            try:
                if len(logs) > 1 and not self._holds_log(source):
                    self.remarks.other_files.append(str(source.name))
                else:
                    yield from self._transcripts(iter(self.rows), requests or source)
            except InputError as error:
                # One of many files that is no log of requests, or cannot be read, is like a bad line.
                if len(logs) == 1 or not self.skip_bad:
                    raise
                self._leave_out("a file that cannot be read", str(error))
        if not self.faults:
            self._check_read()

    def _check_read(self) -> None:
        """Count a log without a row, or without one of the format, as a bad line. Raises InputError unless skip_bad."""
        told = self.remarks.requests or self.remarks.repeated or self.remarks.left_out
        if not self._holds_rows:
            reason = "it is empty; give a log with requests and outputs"
        elif self._insisted is not None and not told:
            reason = f"it holds nothing of the format {self._insisted.name}; leave --format out, and it is recognised"
        else:
            return
        if not self.skip_bad:
            raise InputError(f"{shorten(self.path)} cannot be scored: {reason}.")
        self._leave_out(reason, f"{shorten(self.path)}: {reason}.")

    def _logs(self) -> tuple[list[tuple[Source, Source | None]], list[str]]:
        """Each file of the log with the file of its requests, and the names of other files beside them."""
        given = [self.path] if self.requests is None else [self.path, self.requests]
        places = [find_sources(path) for path in given]
        sources = [source for sources_of_one, _ in places for source in sources_of_one]
        skipped = [name for _, names in places for name in names]
        if self.requests is not None and len(sources) == 2:
            return [order_pair(*sources)], skipped
        return (find_pairs(sources) if len(sources) > 1 else [(sources[0], None)]), skipped

    def _is_row(self, row: Row) -> bool:
        if self.columns:
            return any(column in row or column.split(".")[0] in row for column in self.columns.values())
        return recognise(row) is not None if self._insisted is None else self._insisted.looks_like(row)

    def _holds_log(self, source: Source) -> bool:
        """Whether a file among others begins with rows of a log, or with some that cannot be read."""
        if self.columns or self._insisted is not None:
            return True
        faults: list[str] = []
        rows = Rows(source, None, lambda _, reason: faults.append(reason), is_row=self._is_row)
        return any(recognise(row) for _, row in islice(rows, MAX_HEAD_ROWS)) or bool(faults)

    @property
    def bytes_read(self) -> int:
        """Bytes read so far of the files on disk, which may be packed."""
        return self._bytes_before + self.rows.bytes_read

    @property
    def skipped(self) -> int:
        """The number of bad lines so far."""
        return self.faults.total()

    def describe(self) -> tuple[str, str]:
        """(name, title) of the format, once the first transcript is read."""
        if not self._formats:
            self._note_format()
        return "+".join(self._formats), " and ".join(self._formats.values())

    def _note_format(self) -> None:
        """Add the format of the file that is read to those of the log."""
        format = self.format or SpecraceFormat
        if self.rows.table and format is SpecraceFormat:
            self._formats[self.rows.table] = f"{_TABLES[self.rows.table]} table"
        else:
            self._formats[format.name] = format.title

    def _transcripts(self, rows: Iterator[tuple[int, Row]], requests: Source) -> Iterator[Transcript]:
        if self.format is None:
            rows = self._recognised(rows)
        reader = self._reader = (self.format or UnknownFormat)()
        index: RequestIndex | None = None
        if isinstance(reader, Batch):

            def find(name: str) -> Row | None:
                nonlocal index
                index = index or RequestIndex(requests)
                return index(name)

            reader.find_request = find
        number = 0
        try:
            for number, row in rows:
                self._holds_rows = True
                self._note_format()
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
            if title := refused_title(row):
                raise InputError(
                    f"{shorten(self.rows.source)} is {title}: it does not keep the requests as the model got them, so "
                    "nothing can be scored; give the log of the server or of a proxy, such as LiteLLM's."
                )
            self.format = recognise(row)
            if self.format is None and is_trace(row):
                raise InputError(
                    f"{shorten(self.rows.source)} is a trace of lengths and block hashes, like Mooncake's: without "
                    "tokens or text nothing can be drafted or compared; give a log that keeps the requests and outputs."
                )
            if self.format is not None or len(head) == MAX_HEAD_ROWS:
                break
        return chain(head, rows)

    def _read(self, number: int, read: Callable[[Row], Iterable[Exchange]], row: Row) -> Iterator[Transcript]:
        """The transcripts of a row, up to the first that cannot be used, which makes the row a bad line."""
        exchanges: list[Exchange] = []
        in_parts = issubclass(self.format or SpecraceFormat, AgentSession)
        try:
            for exchange in self._new(read(row), exchanges):
                try:
                    transcript = self._transcript(exchange)
                except ValueError as error:
                    # A session's line may complete several answers, which do not depend on one another.
                    if not in_parts:
                        raise
                    self._bad(number, str(error))
                else:
                    yield transcript
        except ValueError as error:
            self._bad(number, str(error))
        except (AttributeError, IndexError, KeyError, TypeError):
            # Logs hold anything in any field, and a reader checks only the fields that its format is sure to have.
            self._bad(number, f"this line does not have the fields of {self.describe()[1]}")
        # A session's line has a part of a request only.
        if not in_parts:
            self.remarks.unread.update(unread_fields(row, exchanges))

    def _new(self, exchanges: Iterable[Exchange], read: list[Exchange]) -> Iterator[Exchange]:
        """The exchanges whose answers were not read before, here or in another file; all are appended to `read`."""
        for exchange in exchanges:
            read.append(exchange)
            if exchange.key and exchange.key in self.seen and not exchange.repeatable:
                self.remarks.repeated += 1
                continue
            if exchange.left_out:
                # A copy of the answer may have what this one lacks, so it does not count as read.
                self.remarks.left_out[exchange.left_out] += 1
                continue
            if exchange.key:
                self.seen.add(exchange.key)
            yield exchange

    def _transcript(self, exchange: Exchange) -> Transcript:
        """The transcript of an exchange. Raises ValueError if it cannot be used."""
        reason = explain_redaction(exchange, own_record=isinstance(self._reader, AgentSession))
        if reason:
            raise ValueError(reason)
        prompt, output = exchange.prompt, exchange.output
        warnings: tuple[str, ...] = ()
        if isinstance(prompt, tuple) and isinstance(output, tuple):
            _check_range("prompt_ids", prompt, self.vocab_size)
            _check_range("output_ids", output, self.vocab_size)
        else:
            prompt, output, warnings = self._tokenized(exchange)
            _check_range("the text", (*prompt, *output), self.vocab_size)
        self.remarks.add(exchange, warnings, len(prompt), len(output))
        size = self.vocab_size or max(max(prompt), max(output)) + 1
        options = request_options(exchange.parameters)
        return Transcript(exchange.id, exchange.category or "none", prompt, output, size, options=options)

    def _tokenized(self, exchange: Exchange) -> tuple[Tokens, Tokens, tuple[str, ...]]:
        """(prompt, output, warnings) of an exchange of texts or messages. Raises ValueError."""
        if isinstance(exchange.prompt, str) and isinstance(exchange.output, str):
            if self.tokenize is None:
                raise ValueError("this has text and no ids; give --tokenizer, the one of the model that wrote it")
            return *split_tokens(exchange.prompt, exchange.output, self.tokenize), ()
        if not isinstance(exchange.prompt, list) or not isinstance(exchange.output, dict):
            raise ValueError("the prompt and the output are of different kinds")
        if self.chat is None:
            raise ValueError("this has messages and no ids; give --tokenizer, the one of the model that wrote it")
        if not any(exchange.output.get(key) for key in ("content", "tool_calls", "reasoning_content")):
            raise ValueError("the answer is empty; every transcript needs a prompt and an output")
        prompt, output, warnings = _render(exchange, exchange.prompt, exchange.output, self.chat)
        for name, ids in (("prompt", prompt), ("output", output)):
            if not ids:
                raise ValueError(f"the {name} has no tokens; every transcript needs some")
        return tuple(prompt), tuple(output), warnings

    def _miss(self, number: int, reason: str) -> None:
        """Count a line that could not be parsed. Raises InputError unless bad lines are skipped."""
        self._bad(number, reason)
        if self._reader is not None:
            self._reader.missed()

    def _bad(self, number: int, reason: str) -> None:
        """Count a bad line. Raises InputError unless bad lines are skipped."""
        message = f"{shorten(self.rows.source)}, line {number}: {reason}"
        if not self.skip_bad:
            raise InputError(f"{message} (--skip-bad leaves such lines out).")
        self._leave_out(reason, f"{message}.")

    def _leave_out(self, reason: str, sentence: str) -> None:
        """Count what is left out by its reason; the first few are told in a sentence."""
        counted_alone = reason in self.faults or len(self.faults) < MAX_FAULTS
        self.faults[reason if counted_alone else OTHER_FAULTS] += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(sentence)


def write_transcripts(path: Path, rows: Iterable[tuple[str, Tokens, Tokens]], category: str) -> None:
    """Write a line for each (id, prompt, output). Raises InputError if the file cannot be written."""
    with as_input_error(path), path.open("w", encoding="utf-8") as file:
        for name, prompt, output in rows:
            line = {"id": name, "category": category, "prompt_ids": prompt, "output_ids": output}
            file.write(json.dumps(line) + "\n")


def _render(
    exchange: Exchange, messages: list[Message], answer: Message, chat: Chat
) -> tuple[Sequence[int], Sequence[int], tuple[str, ...]]:
    """What `chat` returns for an exchange of messages. The beginning that the request wrote is of the prompt."""

    def render(answer: Message) -> tuple[Sequence[int], Sequence[int], tuple[str, ...]]:
        return chat(messages, answer, exchange.tools, exchange.documents, exchange.template_options)

    if not exchange.prefill:
        return render(answer)
    prompt, output, warnings = render(answer | {"content": exchange.prefill + answer["content"]})
    _, beginning, _ = render({"role": "assistant", "content": exchange.prefill})
    written = _num_shared(output, beginning)
    return [*prompt, *output[:written]], output[written:], warnings


def split_tokens(prompt: str, output: str, tokenize: Tokenize) -> tuple[Tokens, Tokens]:
    """The ids of a prompt and its output, tokenised as one text, as the model saw them.

    The prompt's ids are the common prefix of its own tokenisation and that of the whole text. So a token that
    spans the boundary belongs to the output, and tokens that a tokenizer puts at the end of every text do not belong to
    the prompt. Raises ValueError if the prompt or the output has no ids.
    """
    alone = tokenize(prompt)
    whole = tokenize(prompt + output)
    shared = _num_shared(alone, whole)
    for name, size in (("prompt", shared), ("output", len(whole) - shared)):
        if not size:
            raise ValueError(f"the {name} has no tokens; every transcript needs some")
    return tuple(whole[:shared]), tuple(whole[shared:])


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the common prefix."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    return shared


def _check_range(name: str, ids: Sequence[int], vocab_size: int | None) -> None:
    if min(ids) < 0:
        raise ValueError(f"{name} has the negative id {shorten(min(ids), 20)}; ids begin at 0")
    if max(ids) >= (vocab_size or MAX_TOKEN):
        bound = f"--vocab-size is {vocab_size}" if vocab_size else f"no vocabulary reaches {MAX_TOKEN}"
        raise ValueError(f"{name} has the id {shorten(max(ids), 20)}, but {bound}; check the file and its tokenizer")
