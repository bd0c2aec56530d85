"""Recognises the format of a log by the first rows of its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from specrace.core.errors import shorten
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.formats import Format, is_trace, recognise
from specrace.lab.logs.formats.base import Row
from specrace.lab.logs.formats.refused import refused_title

# What Python raises if a value in a row has an unexpected type, or values are nested too deeply. Any field of a log may
# hold anything, and a format's reader checks only some of the fields.
UNEXPECTED = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
# How many of a file's first rows are tried to recognise its format; a guess.
MAX_FIRST_ROWS = 20


@dataclass(frozen=True)
class RecognisedRows:
    """All rows of a file, with their numbers, and what its first rows say about it.

    `format`: None if the rows look like no format. `refusal`: why the file cannot be scored, if it is of a kind that is
    refused; else "".
    """

    rows: Iterator[tuple[int, Row]]
    format: type[Format] | None
    refusal: str = ""


@dataclass(frozen=True)
class Recogniser:
    """Tells a log's rows from other JSON, and recognises the format of a file.

    `chosen`: the format that the user named, if any. `columns`: if the user named the fields, our name -> the row's.
    """

    chosen: type[Format] | None
    columns: Mapping[str, str] | None

    @property
    def follows_user(self) -> bool:
        """Whether every file is read as the user says, whatever its rows look like."""
        return self.chosen is not None or bool(self.columns)

    def is_row(self, row: Row) -> bool:
        """Whether an object in a larger JSON document is a row of a log."""
        if self.columns:
            return any(column in row or column.split(".")[0] in row for column in self.columns.values())
        return _recognise(row) is not None if self.chosen is None else _looks_like(self.chosen, row)

    def read_first_rows(self, rows: Iterator[tuple[int, Row]], source: Source, *, one_of_many: bool) -> RecognisedRows:
        """Recognise a file by its first rows.

        `one_of_many`: the file may not be a log at all, so a row that has to be refused does not end the search.
        """
        if self.chosen is not None:
            return RecognisedRows(rows, self.chosen)
        first_rows = []
        format = None
        refusal = ""
        for number, row in rows:
            first_rows.append((number, row))
            format = _recognise(row)
            refusal = refusal or _refusal(row, format, source)
            if format is not None or len(first_rows) == MAX_FIRST_ROWS:
                break
            if refusal and (self.follows_user or not one_of_many):
                break
        return RecognisedRows(chain(first_rows, rows), format, refusal)


def _recognise(row: Row) -> type[Format] | None:
    """The format of a file that has this row; None if there is none, or if the row's values raise an error."""
    with suppress(*UNEXPECTED):
        return recognise(row)
    return None


def _looks_like(format: type[Format], row: Row) -> bool:
    with suppress(*UNEXPECTED):
        return format.looks_like(row)
    return False


def _refusal(row: Row, format: type[Format] | None, source: Source) -> str:
    """Why a file with this row cannot be scored; "" if the row gives no reason."""
    if title := refused_title(row):
        return (
            f"{shorten(source)} is {title}: it does not keep the requests as the model got them, so nothing can be "
            "scored; give the log of the server or of a proxy, such as LiteLLM's."
        )
    if format is None and is_trace(row):
        return (
            f"{shorten(source)} is a trace of lengths and block hashes, like Mooncake's: without tokens or text "
            "nothing can be drafted or compared; give a log that keeps the requests and outputs."
        )
    return ""
