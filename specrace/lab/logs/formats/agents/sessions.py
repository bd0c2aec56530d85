"""What the sessions of coding agents share: one conversation is spread over many lines, with the tool results.

The files have neither the tools that the model was offered nor, in Claude Code, the system prompt, so prompts are
shorter here than the model's were. Where a file shows that a part of the conversation is missing, the answers after it
cannot be scored: they are left out, and counted with the reason.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.base import (
    Exchange,
    Format,
    Message,
    Row,
    require_list,
    require_object,
    require_unicode,
)

# The maximum size of a history, in characters of JSON: no model reads a longer one, and memory must not grow with the
# file.
MAX_HISTORY = 16_000_000

# Why an answer is left out; "it" is the answer.
MEDIA = "its prompt has an image, a document or a sound"
UNREADABLE = "a line of it or of its prompt could not be read"
LOST = "its prompt begins in another file, or a line of it is missing"
ENCRYPTED = "its prompt has a part that the log has encrypted"
TOO_LONG = "its session is too long"
OWN_MEDIA = "the model answered with an image"
# Warnings about an answer that is scored.
HIDDEN_RESULTS = "the results of its search are not in the log"
INTERRUPTED = "the user interrupted it"

_TEXT_PARTS = ("text", "input_text", "output_text", "reasoning_text")
_MEDIA_PARTS = ("image", "input_image", "image_url", "local_image", "document", "input_file", "input_audio", "audio")


class AgentSession(Format):
    """Reads the lines of sessions; answers whose prompt has a line that cannot be read are left out."""

    def __init__(self) -> None:
        # The exchanges that the line being read completes.
        self._completed: list[Exchange] = []

    def read(self, row: Row) -> Iterable[Exchange]:
        # Read the whole row before the first yield: a caller may stop at an exchange that it cannot use.
        failure = None
        try:
            self._read(row)
        except ValueError as error:
            failure = error
            if not isinstance(error, TooLong):
                self._lose(row)
        yield from self._take()
        if failure is not None:
            raise failure

    def end(self) -> Iterable[Exchange]:
        self._end()
        return self._take()

    @abstractmethod
    def _read(self, row: Row) -> None:
        """Read a line, and append the exchanges that it completes. Raises ValueError if it cannot be used."""

    @abstractmethod
    def _lose(self, row: Row) -> None:
        """Put an empty turn, with a fault, in place of a line that could not be read."""

    @abstractmethod
    def _end(self) -> None:
        """Append the exchanges that the end of the file completes."""

    def _take(self) -> list[Exchange]:
        """The completed exchanges, each of which is returned once."""
        completed, self._completed = self._completed, []
        return completed


def left_out(name: str, reason: str, key: str = "") -> Exchange:
    """An answer that is not scored."""
    return Exchange([], {}, name, left_out=reason, key=key)


class TooLong(ValueError):
    """A session is longer than `MAX_HISTORY`; its history was dropped."""

    def __init__(self) -> None:
        super().__init__(
            f"the session is longer than {MAX_HISTORY // 1_000_000} MB of text; answers to such prompts are left out"
        )


def size_of(messages: Iterable[Message]) -> int:
    """The size of messages, in characters of JSON."""
    return sum(len(json.dumps(message)) for message in messages)


def digest_of(value: Any) -> bytes:
    """A hash that identifies a JSON value."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=12).digest()


def read_content(content: object) -> tuple[str, str]:
    """(text of a message's content, why no prompt with it can be scored or ""). Raises ValueError."""
    if content is None:
        return "", ""
    if isinstance(content, str):
        return require_unicode("a message", content), ""
    texts, fault = [], ""
    for part in require_list(content, "the content of a message"):
        text, reason = read_part(require_object(part, "a part of a message"))
        texts.append(text)
        fault = fault or reason
    return "".join(texts), fault


def read_part(part: Row) -> tuple[str, str]:
    """(text of one part of a message's content, why no prompt with it can be scored or ""). Raises ValueError."""
    kind = part.get("type")
    if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return require_unicode("a message", part["text"]), ""
    if kind in _MEDIA_PARTS:
        source = part.get("source")
        is_plain_text = (
            isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str)
        )
        return (require_unicode("a document", source["data"]), "") if is_plain_text else ("", MEDIA)  # type: ignore[index]
    if kind == "encrypted_content":
        return "", ENCRYPTED
    # Such a part names a tool whose description the model read; the log lacks all tool descriptions anyway.
    if kind == "tool_reference":
        return "", ""
    raise ValueError(f"a message has a part of type {shorten(kind, 40)}; only text can be scored")


def tool_result(identifier: object, text: str) -> Message:
    """A tool's result as a message."""
    message: Message = {"role": "tool", "content": text}
    return message | {"tool_call_id": identifier} if isinstance(identifier, str) and identifier else message


def extend(answer: Message, part: Message) -> None:
    """Append a part to the assistant's message."""
    answer["content"] += part["content"]
    for key in ("reasoning_content", "tool_calls"):
        if part.get(key):
            answer[key] = answer[key] + part[key] if key in answer else part[key]


def read_count(usage: Row, *names: str) -> int | None:
    """The sum of a usage's counts under these names; None if it has none of them."""
    counts = [usage[name] for name in names if type(usage.get(name)) is int]
    return sum(counts) if counts else None
