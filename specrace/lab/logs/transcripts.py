"""Reads transcripts from a log of requests and their outputs, in any of the formats in `formats`.

A file is read row by row (`files.containers`), so it may have any size. Its format is recognised by its first rows
(`recognition`). The reader of the format turns rows into exchanges, and `tokenizing` turns exchanges into token ids.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.lab.logs.bad_lines import BadLines
from specrace.lab.logs.copies import Copies
from specrace.lab.logs.fields import UnknownFormat, unread_fields
from specrace.lab.logs.files.containers import Rows
from specrace.lab.logs.files.pairs import RequestIndex, find_pairs, order_pair
from specrace.lab.logs.files.sources import OpenFile, Source, find_sources
from specrace.lab.logs.formats import Exchange, Format, find_format
from specrace.lab.logs.formats.agents.sessions import AgentSession
from specrace.lab.logs.formats.base import Row, Tokens
from specrace.lab.logs.formats.measured import Measured, read_measured
from specrace.lab.logs.formats.responses import Batch
from specrace.lab.logs.formats.specrace import SpecraceFormat
from specrace.lab.logs.missing_history import Conversations
from specrace.lab.logs.recognition import UNEXPECTED, Recogniser
from specrace.lab.logs.redaction import explain_redaction
from specrace.lab.logs.remarks import Remarks
from specrace.lab.logs.request_options import request_options
from specrace.lab.logs.tokenizing import Chat, LogTokens, Tokenize

# (id, prompt, output, a server's counts of its draft tokens or None)
TranscriptRow = tuple[str, Tokens, Tokens, Mapping[str, Any] | None]
# Kind of table -> how a title names it.
_TABLES = {"csv": "a CSV", "parquet": "a Parquet", "arrow": "an Arrow"}


@dataclass(frozen=True)
class Transcript:
    """Token ids of a prompt and its output, both non-empty, all below `vocab_size`.

    `documents`, if known: (start, end, name) of each stretch of the prompt's tokens that comes from a document.
    `options`: the request's options that may change how an engine drafts. `measured`: the engine's counts of its draft
    tokens, if the log has them.
    """

    id: str
    category: str
    prompt: Tokens
    output: Tokens
    vocab_size: int
    documents: tuple[tuple[int, int, str], ...] = ()
    options: tuple[str, ...] = ()
    measured: Measured | None = None


class TranscriptFile:
    """The transcripts of a log, in order: of a file, or of all files in a zip or a folder.

    A bad line raises InputError that names file and line. With `skip_bad` bad lines are instead counted in `skipped`,
    and by reason in `faults`; the first few are described in `reasons`. A truncated compressed file is read as far as
    it goes, and counts as one bad line.
    `tokenize` turns a whole text into ids, special tokens included, and `chat` a conversation; without them, texts and
    conversations are bad lines. `format`: a name in `formats.FORMATS`, "" to recognise it. `columns`: our name -> the
    table's column, or the dotted name of a line's field. `requests`: the other file of a batch, whose requests and
    responses an API keeps in two files; either of the two may be `path`. `seen`: keys of the answers read so far; files
    that may repeat one another's answers share it. `remarks`: what a user should know about the transcripts read so
    far.
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
        self.requests = requests
        self.columns = columns
        self.seen = set[str]() if seen is None else seen
        self.remarks = Remarks()
        self._conversations = Conversations()
        # None for a log of one file.
        self._copies: Copies | None = None
        self._tokens = LogTokens(tokenize, chat, vocab_size)
        self._recogniser = Recogniser(find_format(format) if format else None, columns)
        self._bad_lines = BadLines(skip=skip_bad)
        # The formats recognised so far: name -> title.
        self._formats: dict[str, str] = {}
        self._holds_rows = False
        # The file that is being read, and its format's reader, which is None until the format is recognised.
        self._rows = Rows(Source(path), columns, self._miss)
        self._reader: Format | None = None
        # The bytes read of the files before this one.
        self._bytes_before = 0

    def __iter__(self) -> Iterator[Transcript]:
        self._bytes_before = self._rows.bytes_read = 0
        self._holds_rows = False
        with ExitStack() as stack:
            logs, self.remarks.other_files = self._logs(stack)
            self._copies = Copies() if len(logs) > 1 else None
            for source, requests in logs:
                self._reader = None
                if self._copies is not None:
                    self._copies.begin_file()
                self._bytes_before += self._rows.bytes_read
                self._rows = Rows(source, self.columns, self._miss, is_row=self._recogniser.is_row)
                try:
                    yield from self._transcripts(requests or source, one_of_many=len(logs) > 1)
                except InputError as error:
                    # Among many files, one that is not a log of requests, or cannot be read, is like a bad line.
                    if len(logs) == 1 or not self._bad_lines.skip:
                        raise
                    self._bad_lines.count("a file that cannot be read", str(error))
        if not self.faults:
            self._check_read()

    def _logs(self, stack: ExitStack) -> tuple[list[tuple[Source, Source | None]], list[str]]:
        """Each file of the log with the file of its requests or None, and the names of files that are not read.

        Files that stay open are closed with the `stack`.
        """
        sources: list[Source] = []
        other_files: list[str] = []
        for path in (self.path,) if self.requests is None else (self.path, self.requests):
            open_file = OpenFile()
            stack.callback(open_file.close)
            files, others = find_sources(path, open_file)
            sources += files
            other_files += others
        if self.requests is not None and len(sources) == 2:
            return [order_pair(*sources)], other_files
        return (find_pairs(sources) if len(sources) > 1 else [(sources[0], None)]), other_files

    def _check_read(self) -> None:
        """Count a log as a bad line if it has no rows, or no answers in the chosen format.

        Raises InputError unless bad lines are skipped.
        """
        format = self._recogniser.chosen
        holds_answers = self.remarks.requests or self.remarks.repeated or self.remarks.left_out
        if not self._holds_rows:
            reason = "it is empty; give a log with requests and outputs"
        elif format is not None and not holds_answers:
            reason = f"it holds nothing of the format {format.name}; leave --format out, and the format is recognised"
        else:
            return
        if not self._bad_lines.skip:
            raise InputError(f"{shorten(self.path)} cannot be scored: {reason}.")
        self._bad_lines.count(reason, f"{shorten(self.path)}: {reason}.")

    @property
    def bytes_read(self) -> int:
        """Bytes read so far of the files on disk, before they are unpacked."""
        return self._bytes_before + self._rows.bytes_read

    @property
    def skipped(self) -> int:
        """The number of bad lines so far."""
        return self.faults.total()

    @property
    def faults(self) -> Counter[str]:
        """Bad lines by reason."""
        return self._bad_lines.counts

    @property
    def reasons(self) -> list[str]:
        """Sentences about the first few bad lines."""
        return self._bad_lines.sentences

    def describe(self) -> tuple[str, str]:
        """(name, title) of the log's formats, once the first transcript is read."""
        if not self._formats:
            self._note_format()
        return "+".join(self._formats), " and ".join(self._formats.values())

    def _note_format(self) -> None:
        """Add the format of the file that is being read to those of the log; our own, if it has none or no rows."""
        format = SpecraceFormat if self._reader is None else type(self._reader)
        if format is UnknownFormat:
            format = SpecraceFormat
        if self._rows.table and format is SpecraceFormat:
            self._formats[self._rows.table] = f"{_TABLES[self._rows.table]} table"
        else:
            self._formats[format.name] = format.title

    def _transcripts(self, requests: Source, *, one_of_many: bool) -> Iterator[Transcript]:
        """The transcripts of the file that `_rows` reads; of a batch, `requests` has the requests."""
        num_faults = self.skipped
        recognised = self._recogniser.read_first_rows(iter(self._rows), self._rows.source, one_of_many=one_of_many)
        # Among many files, one without rows of any format is not a log.
        if one_of_many and not (self._recogniser.follows_user or recognised.format or self.skipped > num_faults):
            self.remarks.other_files.append(str(self._rows.source.name))
            return
        if recognised.refusal:
            raise InputError(recognised.refusal)
        reader = self._reader = (recognised.format or UnknownFormat)()
        with ExitStack() as stack:
            if isinstance(reader, Batch):
                reader.find_request = _look_up(requests, stack)
            number = 0
            for number, row in recognised.rows:
                self._holds_rows = True
                self._note_format()
                yield from self._read(number, reader, reader.read, row)
            # The exchanges that the end of the file completes, for which there is no row.
            yield from self._read(number, reader, lambda _: reader.end(), {})

    def _read(
        self, number: int, reader: Format, read: Callable[[Row], Iterable[Exchange]], row: Row
    ) -> Iterator[Transcript]:
        """The transcripts of a row, up to the first that cannot be used, which makes the row a bad line."""
        source = self._rows.source
        exchanges: list[Exchange] = []
        is_session = isinstance(reader, AgentSession)
        try:
            for exchange in self._new_exchanges(read(row), exchanges):
                try:
                    transcript = self._transcript(exchange, reader, self._conversations.explain(row, exchange))
                except ValueError as error:
                    # A session's line may complete several answers, which do not depend on one another.
                    if not is_session:
                        raise
                    self._bad_lines.add(source, number, str(error))
                else:
                    yield transcript
        except ValueError as error:
            self._bad_lines.add(source, number, str(error))
        except RecursionError:
            self._bad_lines.add(source, number, "the fields of this line are nested too deeply; write a plain object")
        except UNEXPECTED:
            self._bad_lines.add(source, number, f"this line does not have the fields of {self.describe()[1]}")
        # Not for a session, whose line holds only a part of a request: no single exchange has all of the line's texts.
        if not is_session:
            read_exchanges = [exchange for exchange in exchanges if not exchange.left_out]
            self.remarks.unread.update(unread_fields(row, read_exchanges))

    def _new_exchanges(self, exchanges: Iterable[Exchange], collected: list[Exchange]) -> Iterator[Exchange]:
        """The exchanges whose answers were read neither here nor in other files; all go to `collected`."""
        # Exchanges have keys of their own where a log may repeat the history with each request. Equal answers in one
        # row are not copies: a request may ask for several answers.
        keys_of_row: set[str] = set()
        for exchange in exchanges:
            collected.append(exchange)
            key = exchange.key or self._key_of_copies(exchange)
            if key and key in self.seen and not exchange.repeatable:
                self.remarks.repeated += 1
                continue
            if exchange.left_out:
                # Its key is not noted, because a copy of the answer elsewhere may be complete.
                self.remarks.left_out[exchange.left_out] += 1
                continue
            # An answer with a key of its own was compared by that key above.
            is_new_by_key = bool(exchange.key) and not exchange.repeatable
            if self._copies is not None and not is_new_by_key and self._copies.repeats(exchange):
                self.remarks.repeated += 1
                continue
            if exchange.key:
                self.seen.add(key)
            elif key:
                keys_of_row.add(key)
            yield exchange
        self.seen |= keys_of_row

    def _key_of_copies(self, exchange: Exchange) -> str:
        """A key that only copies of an exchange share, which have its id, prompt and output; "" if it has no id.

        specrace's own transcripts get no key: their id may name a question that was asked several times.
        """
        if not exchange.id or isinstance(self._reader, SpecraceFormat):
            return ""
        parts = (exchange.id, exchange.category, exchange.prompt, exchange.output)
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()

    def _transcript(self, exchange: Exchange, reader: Format, doubt: str) -> Transcript:
        """The transcript of an exchange. Raises ValueError if it cannot be used. `doubt`: a remark on it, or ""."""
        reason = explain_redaction(exchange, own_record=isinstance(reader, AgentSession))
        if reason:
            raise ValueError(reason)
        prompt, output, warnings = self._tokens.split(exchange)
        measured = None
        try:
            # The server's count includes an end-of-text token, which a text does not show.
            measured = read_measured(exchange.draft_counts, exchange.usage.output or len(output))
        except ValueError as error:
            warnings = (*warnings, str(error))
        warnings = (*warnings, doubt) if doubt else warnings
        self.remarks.add(exchange, warnings, len(prompt), len(output))
        size = self._tokens.vocab_size or max(max(prompt), max(output)) + 1
        options = request_options(exchange.parameters)
        return Transcript(
            id=exchange.id,
            category=exchange.category or "none",
            prompt=prompt,
            output=output,
            vocab_size=size,
            options=options,
            measured=measured,
        )

    def _miss(self, number: int, reason: str) -> None:
        """Count a line that could not be parsed. Raises InputError unless bad lines are skipped."""
        self._bad_lines.add(self._rows.source, number, reason)
        if self._reader is not None:
            self._reader.missed()


def _look_up(requests: Source, stack: ExitStack) -> Callable[[str], Row | None]:
    """A function that finds a request by its custom_id; the file is read at the first call, and closed with `stack`."""
    index: RequestIndex | None = None

    def find(name: str) -> Row | None:
        nonlocal index
        if index is None:
            index = RequestIndex(requests)
            stack.callback(index.close)
        return index(name)

    return find


def write_transcripts(path: Path, rows: Iterable[TranscriptRow], category: str) -> None:
    """Write a line for each (id, prompt, output, measured counts). Raises InputError if the file cannot be written."""
    with as_input_error(path), path.open("w", encoding="utf-8") as file:
        for name, prompt, output, counts in rows:
            line = {"id": name, "category": category, "prompt_ids": prompt, "output_ids": output}
            file.write(json.dumps(line | ({} if counts is None else {"measured": counts})) + "\n")
