"""Which fields of a log's line hold text that was not read, and which fields --columns might name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.files.tables import RenamedRow
from specrace.lab.logs.formats import recognise
from specrace.lab.logs.formats.apis.streams import parse_events
from specrace.lab.logs.formats.base import Exchange, Format, Row
from specrace.lab.logs.formats.incomplete import explain_row
from specrace.lab.logs.formats.paths import MAX_DEPTH, leaves

# A text with fewer words is a name, a date or a status, not what a model read or wrote.
MIN_WORDS = 4
# A system prompt may be shorter; one word is the name of a system.
MIN_SYSTEM_WORDS = 2
_SYSTEM = {
    "system",
    "system_prompt",
    "systemprompt",
    "system_message",
    "system_instruction",
    "instructions",
    "preamble",
}
# The only descriptions that a model reads are those of tools.
_IN_TOOLS = re.compile(r"(?:tools|functions|definitions|declarations)\.", re.IGNORECASE)
# How many field names a message lists.
MAX_NAMED = 8
# A column name with more words is the text of a cell: the table has no header.
MAX_NAME_WORDS = 8
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", re.IGNORECASE)
# Fields with text that no model reads.
_NOT_READ = {
    "error",
    "error_str",
    "error_information",
    "headers",
    "metadata",
    "user_agent",
    "useragent",
    "url",
    "title",
    "summary",
    "description",
    "stacktrace",
    "traceback",
    "log",
    "tags",
    "response_format",
    "guided_json",
    "guided_grammar",
    "guided_regex",
    "structured_outputs",
    "text_format",
    "stop",
    "logprobs",
    "safetyratings",
    "rejected",
    "non_preferred_output",
    "best_of_sequences",
    "streamed_data",
    "target",
    "doc",
    "filtered_resps",
    "resource",
    "scope",
    "moderation",
    "openai_moderation",
    "detoxify_moderation",
}
# Parts of the names of fields that hold a prompt, and of those that hold an output, the likeliest first.
_PROMPT_NAMES = ("messages", "prompt", "question", "query", "instruction", "user", "input", "request", "context")
_OUTPUT_NAMES = ("output", "answer", "completion", "response", "reply", "assistant", "generated", "message", "text")


def unread_fields(row: Row, exchanges: Iterable[Exchange]) -> list[str]:
    """The names of the row's fields with text that is in no exchange; none for exchanges of token ids."""
    known = list(exchanges)
    if not known or any(isinstance(exchange.prompt, tuple) for exchange in known):
        return []
    read = dict.fromkeys(text for exchange in known for text in _texts(exchange))
    # A column that --columns does not name may hold a part of the prompt.
    texts = [*leaves(row), *leaves(row.others if isinstance(row, RenamedRow) else {})]
    # Text -> the name of its field.
    candidates = {text: name for name, text in texts if text not in read and _has_words(name, text)}
    # A stream that was logged as text is read as a whole, so it does not count as unread.
    candidates = {text: name for text, name in candidates.items() if parse_events(text) is None}
    if not candidates:
        return []
    parts = [_single_spaced(text) for text in read]
    # \0 stands between the texts here, and below in place of texts that were read: no text has it.
    all_read = "\0".join(parts)
    others = [(name, _single_spaced(text)) for text, name in candidates.items() if _single_spaced(text) not in all_read]
    return list(dict.fromkeys(name for name, text in others if _holds_more(name, text, parts)))


@lru_cache(maxsize=1024)
def _min_words(name: str) -> int:
    """The fewest words for which a field may be text that a model read or wrote; 0 if it never is."""
    names = name.lower().split(".")
    ignored = _NOT_READ.intersection(names)
    if ignored and not (ignored == {"description"} and _IN_TOOLS.search(name)):
        return 0
    return MIN_SYSTEM_WORDS if names[-1] in _SYSTEM else MIN_WORDS


def _has_words(name: str, text: str) -> bool:
    """Whether a field may hold text that a model reads, by its name and the number of words."""
    min_words = _min_words(name)
    return min_words > 0 and len(text.split(None, min_words)) >= min_words


def _holds_more(name: str, text: str, read: list[str]) -> bool:
    """Whether a text has more than the texts that were read; an echo, or a conversation as one text, does not."""
    for part in sorted(read, key=len, reverse=True):
        if len(part.split(None, MIN_WORDS)) >= MIN_WORDS:
            text = text.replace(part, "\0")
    return any(_has_words(name, stretch) for stretch in text.split("\0"))


def _texts(exchange: Exchange) -> Iterator[str]:
    parts = (exchange.prompt, exchange.output, exchange.tools, exchange.documents, exchange.prefill)
    for part in parts:
        yield from (text for _, text in leaves(part))


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def describe_row(row: Row) -> str:
    """The reason why a row is a bad line: what it is or lacks, and how to name its fields."""
    if reason := explain_row(row):
        return reason
    if any(len(str(name).split()) > MAX_NAME_WORDS for name in row):
        return "the names of the fields are sentences; write the columns' names into the first row, as prompt,output"
    texts = [(name, text) for name, text in leaves(row) if not _is_number(text)]
    prompt, output = _guess(row, _PROMPT_NAMES, ()), _guess(row, _OUTPUT_NAMES, _PROMPT_NAMES)
    if not (prompt or output or any(len(text.split(None, MIN_WORDS)) >= MIN_WORDS for _, text in texts)):
        held = f"it has only {shorten(', '.join(map(str, row)), 80)}" if row else "it is empty"
        return f"this line has neither a request nor an output: {held}; give a log that keeps both"
    names = list(dict.fromkeys(name for name, _ in texts))
    shown = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
    held = f"text in {shorten(shown, 200)}" if names else f"no text, but {shorten(', '.join(map(str, row)), 80)}"
    columns = f"prompt={prompt or 'FIELD'},output={output or 'FIELD'}"
    return f"this line is of no known format: it has {held}; name its fields by --columns {shorten(columns, 120)}"


def _is_number(value: object) -> bool:
    """Whether a text is a number, such as a count of tokens in a CSV file, and so hardly a request or an output."""
    return isinstance(value, str) and _NUMBER.fullmatch(value.strip()) is not None


def _guess(row: Row, names: tuple[str, ...], not_names: tuple[str, ...]) -> str:
    """The dotted name of a field whose last part contains one of `names` and none of `not_names`; "" for none."""
    paths = list(_paths(row))
    for wanted in names:
        for path in paths:
            last = path.rsplit(".", 1)[-1].lower()
            if wanted in last and not any(other in last for other in not_names):
                return path
    return ""


def _paths(value: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    """The dotted names of all texts and lists that `value_at` would find, outer ones first."""
    if not isinstance(value, dict) or depth >= MAX_DEPTH:
        return
    for key, inner in value.items():
        path = f"{name}.{key}" if name else str(key)
        if isinstance(inner, str | list) and inner and not _is_number(inner):
            yield path
    for key, inner in value.items():
        path = f"{name}.{key}" if name else str(key)
        if isinstance(inner, dict):
            yield from _paths(inner, path, depth + 1)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from _paths(inner[0], f"{path}.0", depth + 1)


class UnknownFormat(Format):
    """Stands in for the format of a file whose first rows look like no format; every row is a bad line."""

    name = "unknown"
    title = "no known format"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return recognise(row) is None

    def read(self, row: Row) -> Iterable[Exchange]:
        known = recognise(row)
        if known is not None:
            raise ValueError(f"this line looks like {known.title}, unlike the first ones; give --format {known.name}")
        raise ValueError(describe_row(row))
