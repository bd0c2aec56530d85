"""What every log format produces, requests with their outputs, and the checks that all formats share."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

Row = dict[str, Any]
Message = dict[str, Any]
Tokens = tuple[int, ...]

# Far above any real line: a file with a longer line is not a log, and must not fill the memory.
MAX_LINE_BYTES = 16_000_000
# How many times JSON text may be nested within JSON strings; a guess.
MAX_NESTED = 3
# The beginning of messages, of parts, of a request's body or of a response: as JSON, as JSON within a JSON string, or
# as Python's str() writes it, perhaps for a NumPy array. QUOTE stands for a quotation mark, perhaps escaped.
_LOGGED = re.compile(
    r"""(?:\s*array\()?[\s"\[]*\{\s*(?:
      (?:QUOTEmessageQUOTE\s*:\s*\{\s*)?QUOTE(?:message\.)?roleQUOTE\s*:\s*QUOTE(?:system|developer|user|assistant|tool)
    | QUOTEmessage\.\w+QUOTE\s*:
    | QUOTEtypeQUOTE\s*:\s*QUOTEtextQUOTE\s*,\s*QUOTEtextQUOTE\s*:
    | (?:QUOTE.{0,1000}?)??QUOTE(?:
        objectQUOTE\s*:\s*QUOTE(?:chat\.completion|text_completion|responseQUOTE)
      | typeQUOTE\s*:\s*QUOTEmessageQUOTE\s*,\s*QUOTEroleQUOTE
      | (?:messages|contents)QUOTE\s*:\s*\[\s*\{\s*QUOTE(?:role|parts|content)QUOTE
      | candidatesQUOTE\s*:\s*\[\s*\{\s*QUOTEcontentQUOTE
      | choicesQUOTE\s*:\s*\[\s*\{\s*QUOTE(?:index|message|delta|finish_reason|logprobs)QUOTE
      )
    )""".replace("QUOTE", r"""\\{0,9}["']"""),
    re.VERBOSE | re.DOTALL,
)
# The text of a Python object of a client library: with the class's name, as repr() writes it, or without, as pydantic's
# str() does. OpenAI's, Anthropic's, Google's, LiteLLM's, Ollama's and vLLM's responses, and LangChain's messages.
_PYTHON_TEXT = re.compile(
    r"""\s*(?:
      (?:Parsed)?Chat(?:Completion|CompletionMessage|Response)\(\w+=
    | (?:Completion\(id|ModelResponse\(\w+|GenerateContentResponse\(\w+)=
    | (?:RequestOutput\(request_id|LLMResult\(generations)=
    | Message\(id='msg_ | Response\(id='resp_
    | (?:messages=)?\[?(?:System|Human|AI|Tool|Chat)Message(?:Chunk)?\(content=
    | content=['"\[].*\ (?:additional_kwargs|response_metadata)=\{
    | (?:id|model)='[^']*'\ (?=\w+=).*\b(?:choices=\[Choice\(|message=Message\(|content=\[TextBlock\()
    )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Usage:
    """Tokens that the server counted for a request; None for a count that the log does not have.

    `output` includes `reasoning`.
    """

    prompt: int | None = None
    output: int | None = None
    reasoning: int | None = None


NO_USAGE = Usage()


@dataclass(frozen=True)
class Exchange:
    """A request and its output: token ids, texts, or the messages so far and the message that the model wrote.

    `tools` and `documents`: what the request offered, as in OpenAI's and Cohere's APIs. `template_options`: the
    request's arguments for the chat template, such as enable_thinking. `parameters`: the request's other fields, such
    as temperature. `warnings`: reasons why this exchange lacks something that the model read or wrote. `prefill`: the
    beginning of the answer, if the request wrote it and the model continued it. `key`: identifies the answer; "" if
    nothing does. A second exchange with the same key repeats the first, and is counted instead of scored, unless it is
    `repeatable`. `left_out`: why an answer is counted instead of scored, "" if it is scored; an exchange that is left
    out has neither prompt nor output. `draft_counts`: the engine's counts of its draft tokens, which `measured` reads;
    None if the log has none.
    """

    prompt: Tokens | str | list[Message]
    output: Tokens | str | Message
    id: str = ""
    category: str = ""
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = NO_USAGE
    parameters: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    prefill: str = ""
    key: str = ""
    repeatable: bool = False
    left_out: str = ""
    draft_counts: Row | None = None


class Format(ABC):
    """A log format; each file is read by a new object.

    `read` and `end` raise ValueError with the reason why a row cannot be used. A row without a request (metadata, a
    tool's result) yields nothing.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @staticmethod
    @abstractmethod
    def looks_like(row: Row) -> bool:
        """Whether a file with this row is of this format."""

    @abstractmethod
    def read(self, row: Row) -> Iterable[Exchange]:
        """The exchanges that this row completes."""

    def missed(self) -> None:  # noqa: B027 - most formats have nothing to note
        """Note that the file has a line here that could not be parsed, so `read` was not called with it."""

    def end(self) -> Iterable[Exchange]:
        """The exchanges that the end of the file completes."""
        return ()


def parse_line(line: bytes) -> Row:
    """Parse a line of JSON that holds an object. Raises ValueError."""
    try:
        # Some editors begin a file with a byte order mark. Without rstrip, json may report an error in the next line.
        row = json.loads(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError("this is not UTF-8 text; write the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"this is not JSON ({error.msg.removesuffix(' at')} at column {error.colno}); write one object a line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValueError("this JSON has a number too long or is nested too deeply; write a plain object") from error
    if not isinstance(row, dict):
        raise ValueError("this is JSON but not an object; write one {...} a line (jq -c '.[]' does it for a list)")
    return row


def read_ids(value: object, name: str) -> Tokens:
    """Return `value` as token ids. Raises ValueError unless it is a non-empty list of whole numbers."""
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ValueError(f"{name} is not a list of whole numbers; write token ids")
    if not value:
        raise ValueError(f"{name} is empty; every transcript needs a prompt and an output")
    return tuple(value)


def read_text(value: object, name: str) -> str:
    """Return `value` as text. Raises ValueError unless it is non-empty text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text; write it in quotes")
    if not value:
        raise ValueError(f"{name} is empty; every transcript needs a prompt and an output")
    return require_unicode(name, require_whole(name, value))


def require_whole(name: str, text: str) -> str:
    """Return the text. Raises ValueError if it begins like messages or an API's body and is not JSON.

    Tracers and tables cut long values, and Python's str() writes no JSON; the text is then neither what a model read
    nor what it wrote.
    """
    if _PYTHON_TEXT.match(text):
        raise ValueError(
            f"{name} is the text of a Python object, not what the model read or wrote; log its JSON (model_dump_json())"
        )
    if _LOGGED.match(text) is None:
        return text
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        # After JSON that is whole, the model may have read or written more text.
        if not error.msg.startswith("Extra data"):
            raise ValueError(
                f"{name} begins like messages, a request or a response in JSON, but is not JSON: it was cut off, or "
                "Python's str() wrote it; log it whole and as JSON"
            ) from error
    except (RecursionError, ValueError):
        pass  # It is JSON, though nested too deeply, or with a number too long, for Python.
    return text


def read_label(row: Row, name: str) -> str:
    """An id or category as text; "" if the row has none. Raises ValueError for anything but text and numbers."""
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{name} is neither text nor a number; write it in quotes")
    return require_unicode(name, str(value))


def require_unicode(name: str, text: str) -> str:
    """Return the text. Raises ValueError if it has a lone surrogate, which JSON can escape but UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} has half a character at {error.start}; write it as UTF-8") from error
    return text


def require_object(value: object, name: str) -> Row:
    """Return `value`. Raises ValueError unless it is a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value


def require_list(value: object, name: str) -> list[Any]:
    """Return `value`. Raises ValueError unless it is a JSON array."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def json_or_text(text: str) -> Any:
    """`text` parsed as JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def parse_nested(value: Any, accept: Callable[[Any], bool]) -> Any:
    """Return parsed JSON text, even if it was JSON within a JSON string, if `accept` takes it; else `value` unchanged.

    A prompt or an answer may itself be JSON text, so `accept` tells it from a request, a response or a message.
    """
    parsed = value
    for _ in range(MAX_NESTED):
        if not isinstance(parsed, str):
            break
        # Any other first character begins no JSON object, list or string.
        parsed = json_or_text(parsed) if parsed.lstrip()[:1] in ("{", "[", '"') else None
    return parsed if isinstance(parsed, dict | list) and accept(parsed) else value
