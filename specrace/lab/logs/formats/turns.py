"""Splits a conversation into exchanges: each assistant turn is the output of a request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from specrace.lab.logs.formats.apis.messages import MessageReader
from specrace.lab.logs.formats.base import Exchange, Message

# The second message of Gemini CLI's checkpoints, with which the program itself answers its description of the folder
# (google-gemini/gemini-cli, packages/core/src/utils/environmentContext.ts, getInitialChatHistory).
_GEMINI_CLI = {"role": "model", "parts": [{"text": "Got it. Thanks for the context!"}]}


def assistant_turns(logged: Sequence[Any], **about: Any) -> Iterable[Exchange]:
    """Yield an exchange for each of the assistant's messages, whose prompt is all messages before it.

    `about`: the other fields of every exchange. An assistant message that opens the conversation has no prompt, so it
    is only history, as are demonstrations (SWE-agent's `is_demo`) and what Gemini CLI wrote itself. A log may repeat
    the history with each request, so every answer has a key by which repetitions are recognised; the last answer always
    counts. Raises ValueError for a message that cannot be read, after yielding the turns before it, and if the
    assistant never answers.
    """
    if not logged:
        raise ValueError("messages is empty; every transcript needs a prompt and an output")
    reader = MessageReader()
    messages: list[Message] = []
    only_history: set[int] = set()
    unreadable: ValueError | None = None
    for logged_message in logged:
        try:
            read = reader.read(logged_message)
        except ValueError as error:
            unreadable = error
            break
        is_demo = isinstance(logged_message, dict) and logged_message.get("is_demo") is True
        if is_demo or (len(messages) == 1 and logged_message == _GEMINI_CLI):
            only_history.update(range(len(messages), len(messages) + len(read)))
        messages += read
    digest = hashlib.blake2b(digest_size=8)
    exchange: Exchange | None = None
    for index, message in enumerate(messages):
        digest.update(json.dumps(message, sort_keys=True).encode())
        if index and message["role"] == "assistant" and index not in only_history:
            if exchange is not None:
                yield exchange
            warnings = tuple(reader.warnings)
            exchange = Exchange(messages[:index], message, warnings=warnings, key=digest.hexdigest(), **about)
    if exchange is not None:
        yield replace(exchange, repeatable=unreadable is None)
    if unreadable is not None:
        raise unreadable
    if exchange is None:
        raise ValueError("the assistant never answers; every transcript needs a prompt and an output")
