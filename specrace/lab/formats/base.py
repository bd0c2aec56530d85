"""What every log format reads into: requests with their outputs, and the checks that all share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from specrace.core.errors import shorten

Row = dict[str, Any]
Message = dict[str, Any]
Tokens = tuple[int, ...]

# Far above any real line: a longer one is another kind of file, and must not fill the memory.
MAX_LINE_BYTES = 16_000_000
_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class Exchange:
    """A request and its output: both ids, both text, or the messages before the output and the model's own message.

    `tools` are the functions that the request offered, as OpenAI's API has them.
    """

    prompt: Tokens | str | list[Message]
    output: Tokens | str | Message
    id: str = ""
    category: str = ""
    tools: list[Any] | None = None


class Format:
    """A log format; a new object reads each file.

    `read` and `end` raise ValueError with the reason why a row cannot be used. A row without a request (metadata, a
    tool's result) gives nothing.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @staticmethod
    def looks_like(row: Row) -> bool:
        """Whether a file with this row is of this format."""
        raise NotImplementedError

    def read(self, row: Row) -> Iterable[Exchange]:
        """The requests that end with this row."""
        raise NotImplementedError

    def end(self) -> Iterable[Exchange]:
        """The requests that the end of the file ends."""
        return ()


def parse_line(line: bytes) -> Row:
    """A line of JSON as an object. Raises ValueError."""
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
        raise ValueError("this is JSON but not an object; write one {...} a line (jq -c '.[]' does it for a list)")
    return found


def read_ids(value: object, name: str) -> Tokens:
    """Token ids. Raises ValueError."""
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ValueError(f"{name} is not a list of whole numbers; write token ids")
    if not value:
        raise ValueError(f"{name} is empty; every transcript needs a prompt and an output")
    return tuple(value)


def read_text(value: object, name: str) -> str:
    """A text that is not empty. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text; write it in quotes")
    if not value:
        raise ValueError(f"{name} is empty; every transcript needs a prompt and an output")
    return whole(name, value)


def label(row: Row, name: str) -> str:
    """An id or category as text; "" where there is none. Raises ValueError."""
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{name} is neither text nor a number; write it in quotes")
    return whole(name, str(value))


def whole(name: str, text: str) -> str:
    """The text itself. Raises ValueError for a lone surrogate, which JSON can escape and UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} has half a character at {error.start}; write it as UTF-8") from error
    return text


def mapping(value: object, name: str) -> Row:
    """An object of JSON. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value


def sequence(value: object, name: str) -> list[Any]:
    """An array of JSON. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def content_text(content: object) -> str:
    """The text of a message's content: text, or a list of text parts. Raises ValueError for images and the like."""
    if content is None:
        return ""
    if isinstance(content, str):
        return whole("a message", content)
    parts = [mapping(part, "a part of a message") for part in sequence(content, "the content of a message")]
    for part in parts:
        if part.get("type") not in _TEXT_PARTS or not isinstance(part.get("text"), str):
            raise ValueError(f"a message has a part of type {shorten(part.get('type'), 40)}; only text can be scored")
    return whole("a message", "".join(part["text"] for part in parts))


def read_message(value: object) -> Message:
    """A chat message with its content as one text and its tool calls' arguments as objects. Raises ValueError.

    Chat templates expect arguments as objects, and OpenAI's API writes them as JSON text; vLLM's server parses them,
    too (vllm-project/vllm, vllm/entrypoints/chat_utils.py).
    """
    given = mapping(value, "a message")
    role = read_text(given.get("role"), "the role of a message")
    message: Message = {"role": role, "content": content_text(given.get("content"))}
    message |= {key: given[key] for key in ("name", "tool_call_id") if given.get(key)}
    if reasoning := reasoning_text(given):
        message["reasoning_content"] = reasoning
    if given.get("tool_calls"):
        message["tool_calls"] = [_tool_call(call) for call in sequence(given["tool_calls"], "tool_calls")]
    return message


def reasoning_text(given: Row) -> str:
    """What a message or a part of a streamed one says of its reasoning; "" for nothing. Raises ValueError.

    vLLM's server writes `reasoning` (vllm/entrypoints/openai/chat_completion/protocol.py), others and chat templates
    `reasoning_content`.
    """
    found = given.get("reasoning_content") or given.get("reasoning")
    return read_text(found, "the reasoning of a message") if found else ""


def read_messages(value: object) -> list[Message]:
    """As `read_message`, a list of at least one. Raises ValueError."""
    messages = [read_message(each) for each in sequence(value, "messages")]
    if not messages:
        raise ValueError("messages is empty; every transcript needs a prompt and an output")
    return messages


def _tool_call(value: object) -> Row:
    function = mapping(mapping(value, "a tool call").get("function"), "the function of a tool call")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = json_or_text(arguments)
    name = read_text(function.get("name"), "the name of a tool call")
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def json_or_text(text: str) -> Any:
    """What `text` is as JSON; the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def turns(messages: Sequence[Message], **about: Any) -> Iterable[Exchange]:
    """Every turn of the assistant after its own history. Raises ValueError where there is none.

    A turn that begins the conversation has no prompt, and is history only.
    """
    found = [index for index, message in enumerate(messages) if index and message["role"] == "assistant"]
    if not found:
        raise ValueError("the assistant never answers; every transcript needs a prompt and an output")
    for index in found:
        yield Exchange(list(messages[:index]), messages[index], **about)
