"""Log formats that `score` reads: one module a family, recognised by the look of a file's first rows."""

from __future__ import annotations

from specrace.core.errors import InputError, shorten
from specrace.lab.formats.base import Exchange, Format, Row
from specrace.lab.formats.chats import OpenAIChat, ShareGPT
from specrace.lab.formats.observed import AIPerf, Langfuse, LiteLLM
from specrace.lab.formats.responses import Batch, Response
from specrace.lab.formats.sessions import ClaudeCode, Codex
from specrace.lab.formats.specrace import Own

__all__ = ["FORMATS", "Exchange", "Format", "find_format", "is_trace", "recognise"]

# In this order: the first that a row looks like counts.
_IN_ORDER: tuple[type[Format], ...] = (
    Batch,
    LiteLLM,
    AIPerf,
    Langfuse,
    ClaudeCode,
    Codex,
    Response,
    OpenAIChat,
    ShareGPT,
    Own,
)
FORMATS = {each.name: each for each in _IN_ORDER}


def find_format(name: str) -> type[Format]:
    """The format of this name. Raises InputError."""
    if name not in FORMATS:
        raise InputError(f"There is no format {shorten(name)!r}; known are {', '.join(FORMATS)}.")
    return FORMATS[name]


def recognise(row: Row) -> type[Format] | None:
    """The format of a file with this row; None where it looks like none."""
    return next((each for each in _IN_ORDER if each.looks_like(row)), None)


def is_trace(row: Row) -> bool:
    """Whether a row has lengths and hashes in place of tokens (kvcache-ai/Mooncake: input_length, hash_ids, ...)."""
    return {"input_length", "output_length"} <= row.keys()
