"""Checks that a rendered prompt shows all of a request, however the template trims, escapes and formats it."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Message = dict[str, Any]

# Users switch reasoning on and off with these flags in a message. Templates (of SmolLM3, Qwen3 and Nemotron) obey the
# flags and do not print them.
_FLAGS = re.compile(r"/(no_)?think\b")
# A text with fewer characters may occur in a prompt by chance, like "be" in "maybe" (the number is a guess).
_SEARCHABLE_LENGTH = 10
_ROLES = {"system": "the system message", "developer": "the developer message", "tool": "a tool's result"}
# The marks that end the reasoning in an assistant's text.
_CLOSE_MARKS = ("</think>", "</seed:think>", "[/THINK]", "<|END_THINKING|>", "<channel|>", "</thinking>", "</thought>")
# The keys under which a document may hold its text.
DOCUMENT_TEXTS = ("text", "content", "contents", "snippet")


class LostError(ValueError):
    """The template renders the request, but leaves out a part of it."""


def squeeze(text: str) -> str:
    """The text without white space and without flags such as /no_think, both of which templates may take out."""
    return "".join(_FLAGS.sub("", text).split())


def shows(rendered: str, text: str, times: int = 1) -> bool:
    """Whether a squeezed rendering contains a text at least `times` times: unchanged, escaped, or line by line."""
    needle = squeeze(text)
    if not needle or rendered.count(needle) >= times:
        return True
    if any(rendered.count(squeeze(form)) >= times for form in _escaped(text)):
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) > 1 and all(shows(rendered, line, times) for line in lines)


def _escaped(text: str) -> Iterator[str]:
    """The forms in which a template may print a text: as JSON, as JSON in JSON, as Python, as HTML."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    yield quoted
    yield json.dumps(text)[1:-1]
    yield json.dumps(quoted, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    # Jinja2 escapes quotes by number, unlike Python's `html`.
    yield html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def find_loss(
    rendered: str, messages: Sequence[Message], tools: Sequence[Any] | None, documents: Sequence[Any] | None
) -> str:
    """The first part of a request that a rendered prompt leaves out, in words; "" if it shows everything.

    The reasoning of earlier turns may be missing, because the templates that servers use leave it out.
    """
    rendered = squeeze(rendered)
    # How many messages have the same text: the prompt must show it as often.
    texts = Counter(squeeze(_visible(message)) for message in messages)
    for index, message in enumerate(messages):
        text = _visible(message)
        # Llama's templates drop the text beside a tool call, which `drops_beside_calls` reports.
        if not message.get("tool_calls") and not shows(rendered, text, texts[squeeze(text)]):
            last = "the last message" if index == len(messages) - 1 else "an earlier message"
            return _ROLES.get(message["role"], last)
    listed = Counter(_tool_names(tools))
    if not all(shows(rendered, name) for name in listed):
        return "the tools"
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    if not shows_calls(rendered, calls, listed):
        return "an earlier tool call"
    if not all(shows(rendered, text) for document in documents or () for text in _document_texts(document)):
        return "the documents"
    return ""


def mark_short(messages: Sequence[Message]) -> list[Message]:
    """The messages with a unique word in place of every text that is too short to search for; [] if none is."""
    marked = [
        message | {"content": f"zqx{index}xqz"} if 0 < len(squeeze(_visible(message))) < _SEARCHABLE_LENGTH else message
        for index, message in enumerate(messages)
    ]
    return marked if marked != list(messages) else []


def drops_beside_calls(rendered: str, messages: Sequence[Message]) -> bool:
    """Whether a prompt leaves out what the assistant wrote in the same message as an earlier tool call."""
    rendered = squeeze(rendered)
    return any(message.get("tool_calls") and not shows(rendered, _visible(message)) for message in messages)


def shows_calls(rendered: str, calls: Sequence[Mapping[str, Any]], listed: Mapping[str, int] | None = None) -> bool:
    """Whether a squeezed rendering shows each of the calls: its name and the texts and numbers in its arguments.

    `listed`: how often the list of tools has each name, which the rendering must show in addition.
    """
    names = Counter(call["function"]["name"] for call in calls)
    names.update({name: listed[name] for name in names if listed and name in listed})
    if not all(shows(rendered, name, times) for name, times in names.items()):
        return False
    return all(shows(rendered, leaf) for call in calls for leaf in leaves(call["function"].get("arguments")))


def prints_python(rendered: str, messages: Sequence[Message]) -> bool:
    """Whether a rendering prints a call's arguments, or a message's parts, in Python's notation instead of JSON's."""
    objects = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    objects += [call["function"].get("arguments") for message in messages for call in message.get("tool_calls", ())]
    texts = [str(value) for value in objects if isinstance(value, dict | list) and value]
    # An object of numbers alone may look the same in Python as in JSON.
    return any(text in rendered for text in texts if "'" in text or "None" in text or "True" in text or "False" in text)


def _visible(message: Message) -> str:
    """The text of a message that a prompt must show; for an assistant's message, without the reasoning before it."""
    text = str(message.get("content") or "")
    if message["role"] == "assistant":
        for mark in _CLOSE_MARKS:
            text = text.rpartition(mark)[2]
    return text


def leaves(value: Any) -> Iterator[str]:
    """The keys, texts and numbers in a call's arguments."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


def _tool_names(tools: Sequence[Any] | None) -> Iterator[str]:
    for tool in tools or ():
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            yield function["name"]


def _document_texts(document: Any) -> list[str]:
    """The texts of a document: its values under the usual keys, or else all its texts except ids."""
    if isinstance(document, str):
        return [document]
    if not isinstance(document, Mapping):
        return []
    data = document.get("data")
    if isinstance(data, str):
        return [data]
    data = data if isinstance(data, Mapping) else document
    texts = [data[key] for key in ("title", *DOCUMENT_TEXTS) if isinstance(data.get(key), str)]
    return texts or [text for key, text in data.items() if isinstance(text, str) and key not in ("id", "doc_id")]
