"""Kinds of logs that are refused, because they do not keep the requests as the model got them.

- Gemini CLI, ~/.gemini/tmp/*/chats/session-*: one record may hold the calls of several answers with their results
  (google-gemini/gemini-cli, packages/core/src/services/chatRecordingService.ts, recordToolCalls).
- Cursor, ~/.cursor/projects/*/agent-transcripts/*.jsonl: {"role", "message": {"content"}}.
- GitHub Copilot CLI, ~/.copilot/session-state/*/events.jsonl: {"type": "user.message" | ..., "data", "id", "parentId"}.
- OpenHands: {"source", "action", "args"} and {"source", "observation", "extras"}
  (All-Hands-AI/OpenHands, frontend/src/types/core/base.ts), or events with a `kind` (OpenHands/software-agent-sdk); the
  output.jsonl of an evaluation: {"instance_id", "history", "test_result"} (evaluation/utils/shared.py: EvalOutput).
- Cline and Roo Code, ui_messages.json: {"ts", "type": "say" | "ask", ...}; their api_conversation_history.json is read.
- opencode's messages: {"info": {...}, "parts": [...]}.
- Continue's sessions and development data: {"prompt", "completion", "modelTitle"}, in which the messages are joined to
  one text (continuedev/continue, core/index.d.ts: PromptLog; gui/src/redux/thunks/streamNormalInput.ts).
- ChatGPT's export: {"mapping", "current_node"}, and Claude's: {"chat_messages"}.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from specrace.lab.logs.formats.base import Row

# The types of Copilot CLI's events.
_COPILOT = re.compile(r"(?:session|user|assistant|tool|hook)\.\w+")


def refused_title(row: Row) -> str:
    """What a file with this row is, if logs of its kind are refused; "" for any other file."""
    return next((title for looks_like, title in _REFUSED if looks_like(row)), "")


def _is_gemini(row: Row) -> bool:
    return {"sessionId", "projectHash"} <= row.keys()


def _is_cursor(row: Row) -> bool:
    return row.keys() == {"role", "message"} and isinstance(row["message"], dict) and "content" in row["message"]


def _is_copilot(row: Row) -> bool:
    kind = row.get("type")
    return isinstance(kind, str) and _COPILOT.fullmatch(kind) is not None and isinstance(row.get("data"), dict)


def _is_openhands(row: Row) -> bool:
    if {"instance_id", "history", "test_result"} <= row.keys():
        return True
    kind = row.get("kind")
    is_event = {"action", "args"} <= row.keys() or {"observation", "extras"} <= row.keys()
    return {"source", "timestamp"} <= row.keys() and (is_event or (isinstance(kind, str) and kind.endswith("Event")))


def _is_cline(row: Row) -> bool:
    return "ts" in row and row.get("type") in ("say", "ask") and row["type"] in row


def _is_opencode(row: Row) -> bool:
    return isinstance(row.get("info"), dict) and isinstance(row.get("parts"), list)


def _is_continue(row: Row) -> bool:
    fields_beside = {"completionOptions", "modelProvider", "eventName"}
    return {"prompt", "completion", "modelTitle"} <= row.keys() and not fields_beside.isdisjoint(row)


def _is_chatgpt(row: Row) -> bool:
    return {"mapping", "current_node"} <= row.keys()


def _is_claude(row: Row) -> bool:
    return isinstance(row.get("chat_messages"), list)


_REFUSED: tuple[tuple[Callable[[Row], bool], str], ...] = (
    (_is_gemini, "a session of Gemini CLI"),
    (_is_cursor, "a transcript of Cursor's agent"),
    (_is_copilot, "a session of GitHub Copilot CLI"),
    (_is_openhands, "a session of OpenHands"),
    (_is_cline, "what Cline or Roo Code showed (give api_conversation_history.json, which is beside it)"),
    (_is_opencode, "a session of opencode"),
    (_is_continue, "a session or development data of Continue"),
    (_is_chatgpt, "ChatGPT's export"),
    (_is_claude, "Claude's export"),
)
