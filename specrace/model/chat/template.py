"""Chat templates: renders a conversation exactly like transformers, in a shape that the template accepts.

Published templates expect the same conversation in different shapes: a tool call's arguments as an object or as JSON
text, content as text or as a list of parts, tool-call ids of nine letters. A shape is used only if the rendered prompt
then shows the whole request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

from specrace.core.template_failure import describe_failure
from specrace.model.chat.losses import (
    DOCUMENT_TEXTS,
    LostError,
    drops_beside_calls,
    find_loss,
    mark_short,
    prints_python,
)

Message = dict[str, Any]
T = TypeVar("T")

# A log does not record the date of its requests. Llama's own template prints this date when it is given none.
LOG_DATE = datetime(2024, 7, 26)
DATED = "the template prints the date, which a log does not record; 26 July 2024 stands in the prompt"
NO_DEVELOPER = "the template does not know the role developer; its message is rendered as a system message"
OTHER_IDS = "the template wants tool-call ids of another form; ids in that form stand in the log's place"
RENAMED_DOCUMENTS = "the template knows documents by id, title and text; they are given to it by these names"
TEXT_DROPPED = "the template drops the text beside an earlier tool call, as the model's server does"
OWN_TEMPLATE = "the request brings a chat template of its own; the tokenizer's is used"
# Arguments of a template that a request must not set, because `ChatTemplate` sets them.
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "chat_template")
# Keys under which templates look for a message's reasoning; vLLM's server and transformers set all of them.
_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")
# Forms of tool-call ids: Mistral's templates demand nine letters and digits; Kimi's print a call's id instead of the
# function's name, so the id must contain the name.
LETTERS, FUNCTIONS = "letters", "functions"
_ID_LENGTH = 9


@dataclass(frozen=True)
class ChatRequest:
    """A conversation and the answer that a model gave. `options`: the request's arguments for the template."""

    messages: list[Message]
    answer: Message
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rendering:
    """A request that the template has rendered.

    `prompt`: the messages and the beginning of the model's turn. `history`: the messages alone, "" if the template
    refuses to end there. `whole`: the messages and the answer.
    """

    prompt: str
    history: str
    whole: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Shape:
    """The changes to a request before it is rendered.

    - `text_arguments`: tool calls' arguments become JSON text.
    - `parts`: content becomes a list of parts.
    - `ids`: the form that tool-call ids get; "" leaves the ids unchanged.
    - `plain_lists`: missing tools and documents become empty lists; documents become objects of doc_id, title and text.
    """

    text_arguments: bool = False
    parts: bool = False
    ids: str = ""
    plain_lists: bool = False


class ChatTemplate:
    """A template's source, and the special tokens that it may print. `name`: the tokenizer's name in error messages."""

    def __init__(self, source: str, special_tokens: Mapping[str, Any], name: str) -> None:
        self.source, self.name = source, name
        self._special_tokens = special_tokens
        self._is_dated = False

    @cached_property
    def _compiled(self) -> Any:
        from transformers.utils.chat_template_utils import _compile_jinja_template

        return _compile_jinja_template(self.source)

    def render(self, request: ChatRequest, use: Callable[[Rendering], T]) -> tuple[Rendering, T]:
        """A rendering that shows all of a request, and what `use` returns for it.

        The shapes are tried in turn until the template shows everything and `use` does not raise ValueError. Raises
        ValueError with the reason if there is no such shape.
        """
        request, own_warnings = self._clean(request)
        failures: list[ValueError] = []
        for roles, warnings in self._roles(request):
            for shape in self._shapes(roles):
                try:
                    rendering = self._render_in(shape, roles)
                    used = use(rendering)
                except ValueError as error:
                    failures.append(error)
                    continue
                more = [OTHER_IDS] if shape.ids else []
                more += [RENAMED_DOCUMENTS] if shape.plain_lists and roles.documents else []
                return replace(rendering, warnings=(*own_warnings, *warnings, *rendering.warnings, *more)), used
        # A loss says more than a refusal: it comes from a shape that the template accepts.
        raise next((error for error in failures if isinstance(error, LostError)), failures[0])

    def _clean(self, request: ChatRequest) -> tuple[ChatRequest, list[str]]:
        """The request with reasoning under all keys that templates read, without reserved arguments, and warnings."""
        warnings = []
        options = dict(request.options)
        nested = options.pop("chat_template_kwargs", None)
        options |= nested if isinstance(nested, dict) else {}
        if options.get("chat_template"):
            warnings.append(OWN_TEMPLATE)
        options = {name: value for name, value in options.items() if name not in _RESERVED}
        messages = [_with_reasoning_names(message) for message in request.messages]
        return replace(
            request, messages=messages, answer=_with_reasoning_names(request.answer), options=options
        ), warnings

    def _roles(self, request: ChatRequest) -> Iterator[tuple[ChatRequest, list[str]]]:
        """Yields the requests to try, and warnings: unchanged if all roles are known, then "developer" as "system"."""
        has_developer = any(message["role"] == "developer" for message in request.messages)
        if not has_developer or re.search(r"['\"]developer['\"]", self.source):
            yield request, []
        if has_developer:
            messages = [
                message | {"role": "system"} if message["role"] == "developer" else message
                for message in request.messages
            ]
            yield replace(request, messages=messages), [NO_DEVELOPER]

    def _shapes(self, request: ChatRequest) -> Iterator[_Shape]:
        """The shapes that can matter for this template and request; those with few changes come first."""
        calls = [call for message in (*request.messages, request.answer) for call in message.get("tool_calls", ())]
        has_lists = ("documents" if request.documents else "in documents", "in tools")
        # What each field of a `_Shape` may be, in their order.
        choices = (
            (False, True) if calls and "arguments" in self.source else (False,),
            (False, True) if re.search(r"['\"]text['\"]|\.text\b", self.source) else (False,),
            ("", LETTERS, FUNCTIONS) if calls and re.search(r"\bid\b|tool_call_id", self.source) else ("",),
            (False, True) if any(name in self.source for name in has_lists) else (False,),
        )
        yield from sorted((_Shape(*choice) for choice in product(*choices)), key=_num_changes)

    def _render_in(self, shape: _Shape, request: ChatRequest) -> Rendering:
        """Render a request in a shape. Raises LostError if a part is missing, ValueError if the template refuses it."""
        shaped = _apply_shape(request, shape)
        self._is_dated = False
        prompt = self._text(shaped, shaped.messages, begins_turn=True)
        loss = find_loss(prompt, request.messages, request.tools, request.documents)
        if loss := loss or self._short_loss(shape, request):
            raise LostError(f"the chat template of {self.name} does not show {loss}")
        whole = self._text(shaped, [*shaped.messages, shaped.answer], begins_turn=False)
        if prints_python(whole, [*shaped.messages, shaped.answer]):
            raise LostError(f"the chat template of {self.name} prints tool calls as Python objects")
        history = ""
        if not whole.startswith(prompt):
            try:
                history = self._text(shaped, shaped.messages, begins_turn=False)
            except ValueError:
                history = ""
        warnings = [DATED] if self._is_dated else []
        if drops_beside_calls(prompt, request.messages):
            warnings.append(TEXT_DROPPED)
        return Rendering(prompt, history, whole, tuple(warnings))

    def _short_loss(self, shape: _Shape, request: ChatRequest) -> str:
        """What the template leaves out of the messages that are too short to search for, in words; "" for nothing.

        Such a text may occur in a prompt by chance, so the request is rendered again with unique words in its place.
        """
        messages = mark_short(request.messages)
        if not messages:
            return ""
        shaped = _apply_shape(replace(request, messages=messages), shape)
        try:
            return find_loss(self._text(shaped, shaped.messages, begins_turn=True), messages, None, None)
        except ValueError:
            return ""

    def _text(self, request: ChatRequest, messages: list[Message], *, begins_turn: bool) -> str:
        """The rendered messages. Raises ValueError with the template's reason to refuse them."""
        variables = dict(self._special_tokens) | dict(request.options)
        try:
            text: str = self._compiled.render(
                messages=messages,
                tools=request.tools,
                documents=request.documents,
                add_generation_prompt=begins_turn,
                strftime_now=self._format_date,
                **variables,
            )
        except Exception as error:  # a template is a program, which may raise anything
            reason = describe_failure(self.source, error)
            raise ValueError(f"the chat template refuses this conversation ({reason})") from error
        return text

    def _format_date(self, form: str) -> str:
        self._is_dated = True
        return LOG_DATE.strftime(form)


def _with_reasoning_names(message: Message) -> Message:
    """The message with its reasoning under `_REASONING_NAMES`, and without keys whose value is None."""
    message = {key: value for key, value in message.items() if value is not None}
    if message.get("reasoning_content"):
        message = dict.fromkeys(_REASONING_NAMES, message["reasoning_content"]) | message
    return message


def _num_changes(shape: _Shape) -> int:
    return shape.text_arguments + shape.parts + bool(shape.ids) + shape.plain_lists


def _apply_shape(request: ChatRequest, shape: _Shape) -> ChatRequest:
    """The request in the shape; ids of tool results change with those of their calls."""
    messages = [dict(message) for message in (*request.messages, request.answer)]
    ids: dict[str, str] = {}
    num_calls = 0
    for message in messages:
        if "tool_calls" in message:
            calls = [_call(call, number, shape) for number, call in enumerate(message["tool_calls"], num_calls)]
            ids |= {
                before["id"]: after["id"]
                for before, after in zip(message["tool_calls"], calls, strict=True)
                if "id" in before
            }
            message["tool_calls"] = calls
            num_calls += len(calls)
        if "tool_call_id" in message:
            message["tool_call_id"] = ids.get(message["tool_call_id"], message["tool_call_id"])
        if shape.parts and message.get("content"):
            message["content"] = [{"type": "text", "text": message["content"]}]
    tools, documents = request.tools or None, request.documents or None
    if shape.plain_lists:
        tools = tools or []
        documents = [_plain_document(number, document) for number, document in enumerate(documents or ())]
    elif documents:
        documents = [{"text": document} if isinstance(document, str) else document for document in documents]
    return replace(request, messages=messages[:-1], answer=messages[-1], tools=tools, documents=documents)


def _call(call: Mapping[str, Any], number: int, shape: _Shape) -> Message:
    """A tool call in the shape; `number`: its number in the conversation."""
    function = dict(call["function"])
    if function.get("arguments") is None:
        function["arguments"] = {}
    if shape.text_arguments and not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    shaped = {**call, "function": function}
    if shape.ids == FUNCTIONS:
        shaped["id"] = f"functions.{function['name']}:{number}"
    elif shape.ids == LETTERS:
        shaped["id"] = hashlib.sha256(str(call.get("id", number)).encode()).hexdigest()[:_ID_LENGTH]
    return shaped


def _plain_document(number: int, document: Any) -> Message:
    """A document under the keys that templates of Granite and Command R read."""
    if not isinstance(document, Mapping):
        document = {"text": str(document)}
    data = document.get("data")
    data = data if isinstance(data, Mapping) else document
    text = next((data[name] for name in DOCUMENT_TEXTS if isinstance(data.get(name), str)), None)
    name = document.get("doc_id") or document.get("id") or data.get("title") or str(number)
    return {
        "doc_id": str(name),
        "title": str(data.get("title") or name),
        "text": json.dumps(data, ensure_ascii=False) if text is None else text,
    }
