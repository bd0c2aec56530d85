"""The log formats that `score` reads, one module for each family; a format is recognised by a file's first rows."""

from __future__ import annotations

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.formats.agents.claude_code import ClaudeCode
from specrace.lab.logs.formats.agents.codex import Codex
from specrace.lab.logs.formats.base import Exchange, Format, Row
from specrace.lab.logs.formats.chats import Alpaca, Completions, LMEval, OpenAIChat, ShareGPT
from specrace.lab.logs.formats.lines import RequestResponse
from specrace.lab.logs.formats.observed import AIPerf, Braintrust, Datadog, Langfuse, LangSmith, LiteLLM, PostHog, Weave
from specrace.lab.logs.formats.responses import AnthropicBatch, Batch, GeminiBatch, Response
from specrace.lab.logs.formats.servers import BedrockLog, SGLangLog
from specrace.lab.logs.formats.spans import Spans
from specrace.lab.logs.formats.specrace import SpecraceFormat

__all__ = ["FORMATS", "Exchange", "Format", "find_format", "is_trace", "recognise"]

# In the order in which they are tried: a row may look like several formats, and the first one wins.
_IN_ORDER: tuple[type[Format], ...] = (
    Batch,
    AnthropicBatch,
    GeminiBatch,
    LiteLLM,
    AIPerf,
    Langfuse,
    LangSmith,
    PostHog,
    Braintrust,
    Datadog,
    Weave,
    SGLangLog,
    BedrockLog,
    Spans,
    Response,
    ClaudeCode,
    Codex,
    LMEval,
    Alpaca,
    Completions,
    SpecraceFormat,
    RequestResponse,
    OpenAIChat,
    ShareGPT,
)
FORMATS = {format.name: format for format in _IN_ORDER}


def find_format(name: str) -> type[Format]:
    """The format with this name. Raises InputError if there is none."""
    if name not in FORMATS:
        raise InputError(f"There is no format {shorten(name)!r}; the formats are {', '.join(FORMATS)}.")
    return FORMATS[name]


def recognise(row: Row) -> type[Format] | None:
    """The format of a file that has this row; None if the row looks like no format."""
    return next((format for format in _IN_ORDER if format.looks_like(row)), None)


def is_trace(row: Row) -> bool:
    """Whether a row has lengths and hashes instead of tokens (kvcache-ai/Mooncake: input_length, hash_ids, ...)."""
    return {"input_length", "output_length"} <= row.keys()
