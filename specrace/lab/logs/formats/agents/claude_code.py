"""Claude Code's sessions, ~/.claude/projects/*/*.jsonl, and those of its subagents.

A line is {"type": "user" | "assistant" | "system" | ..., "sessionId", "uuid", "parentUuid", "isSidechain", "message"},
where message.content is text or blocks of type text, thinking, tool_use and tool_result (claude-dev.tools/docs/
jsonl-format; michaelschleiss/claude-convos; docs.rs/skiagram-core, adapters/claude_code).

- Lines are linked by parentUuid. Going back in a session, or resuming it, starts another branch; compacting it starts
  with another first line (compact_boundary), whose logicalParentUuid is not in the prompt.
- A response is spread over several lines with one message.id, and the result of each of its calls is in a line of its
  own, whose parent is the line of the call. So a result may lie on a branch beside the next answer's chain, and yet be
  in its prompt.
- Lines of type content-replacement and of subtype microcompact_boundary hold what the model read in place of long
  results.
- The usage in the first lines of a response may have been counted when the response began.
"""

from __future__ import annotations

import json
from typing import Any

from specrace.lab.logs.formats.agents import sessions
from specrace.lab.logs.formats.agents.claude_turns import Links, Response, Results, Turn, read_chain
from specrace.lab.logs.formats.agents.sessions import (
    INTERRUPTED,
    LOST,
    TOO_LONG,
    UNREADABLE,
    AgentSession,
    TooLong,
    digest_of,
    left_out,
    read_content,
    read_count,
    read_part,
    tool_result,
)
from specrace.lab.logs.formats.apis.messages import HIDDEN_REASONING, tool_call
from specrace.lab.logs.formats.base import Exchange, Message, Row, Usage, read_label, require_list, require_object

TOOL_WROTE = "Claude Code wrote it, not the model"
EDITED = "the server left out parts of its prompt (applied_edits), which the log does not show"
ATTACHED = "Claude Code put the text of a file or a hook into its prompt in a form that the log does not show"
# The types of attachments that give the model such a text. Others list tools and skills, which no prompt here has, or
# remind the model of something.
_ATTACHED = (
    *("file", "directory", "edited_text_file", "nested_memory", "selected_lines_in_ide", "mcp_resource"),
    *("plan_file_reference", "diagnostics", "hook_additional_context", "hook_blocking_error"),
)
# In no text do tokens have more characters than this on average.
_CHARACTERS_PER_TOKEN = 8
# How many replaced results are remembered; a guess.
_MAX_REPLACED = 10_000
# The types of lines that have a place in the chain of parents.
_LINKED = ("user", "assistant", "system", "attachment", "progress")
_INTERRUPTION = "[Request interrupted by user]"
# Answers that Claude Code writes itself; and the beginnings of those that report API errors, which later prompts lack.
_OWN_ANSWERS = ("(no content)", "No response requested.", _INTERRUPTION, "[Request interrupted by user for tool use]")
_API_ERRORS = ("API Error: ", "API Error (")


class ClaudeCode(AgentSession):
    """One or more sessions, their lines in any order in which parents come first.

    The prompt of an answer is the chain of its line's parents, even on abandoned branches and for subagents.
    """

    name = "claude-code"
    title = "Claude Code sessions"

    @staticmethod
    def looks_like(row: Row) -> bool:
        has_session = "sessionId" in row or "session_id" in row
        return has_session and row.get("type") in ("user", "assistant") and "message" in row

    def __init__(self) -> None:
        super().__init__()
        self._links = Links(sessions.MAX_HISTORY, self._complete)
        # (session, uuid) of a line -> the first and the last of the lines that a compaction put after it.
        self._kept: dict[tuple[str, str], tuple[str, str]] = {}
        # The texts that the model read in place of tool results that were too long, by the ids of the calls.
        self._replaced: dict[str, str] = {}
        # (session, branch) -> the last turn, for conversations whose lines do not name their parents.
        self._last: dict[tuple[str, str], Turn] = {}

    def _read(self, row: Row) -> None:
        kind = row.get("type")
        if kind == "content-replacement":
            self._replace(row)
        if kind not in _LINKED or not (kind in ("user", "assistant") or row.get("uuid")):
            return
        if kind == "system" and row.get("subtype") == "compact_boundary":
            self._link(row, self._boundary(row))
            return
        before = self._before(row)
        turn = self._assistant(row, before) if kind == "assistant" else _read_other(row, before)
        if kind == "user" and before is not None and turn is not None and turn is not before:
            _note_outcome(before, turn)
        self._link(row, turn or Turn(None))

    def _lose(self, row: Row) -> None:
        if row.get("type") not in _LINKED:
            return
        try:
            before = self._before(row)
            response = self._response(row, before) if row["type"] == "assistant" else None
            if response is not None:
                response.fault = UNREADABLE
            self._link(row, response or Turn(before, fault=UNREADABLE))
        except ValueError:
            # Without a readable id no later line is linked to this one.
            return

    def missed(self) -> None:
        self._last = {key: Turn(turn, fault=UNREADABLE) for key, turn in self._last.items()}

    def _end(self) -> None:
        self._links.finish()

    def _before(self, row: Row) -> Turn | None:
        """The turn before a line; None if the line begins a conversation. Raises ValueError."""
        session = _session(row)
        if "parentUuid" not in row:
            return self._last.get((session, _branch(row)))
        parent = read_label(row, "parentUuid")
        if not parent:
            return None
        # Lines whose parent is the anchor follow the kept turns; only the first of these follows the anchor itself.
        if (session, parent) in self._kept and read_label(row, "uuid") != self._kept[session, parent][0]:
            return self._after_summary(session, parent)
        if row.get("isCompactSummary") is True:
            return None
        turn = self._links.find(session, parent)
        if turn is None:
            return Turn(None, fault=LOST)
        # A subagent does not see the conversation from which it was started.
        return None if row.get("isSidechain") is True and not turn.sidechain else turn

    def _boundary(self, row: Row) -> Turn:
        """The turn at which a session was compacted: nothing before it is in later prompts. Raises ValueError."""
        # A compaction may keep the turns from head to tail, which then follow the line `anchor`.
        metadata = row.get("compactMetadata")
        segment = metadata.get("preservedSegment") if isinstance(metadata, dict) else None
        if isinstance(segment, dict):
            head, anchor, tail = (read_label(segment, name) for name in ("headUuid", "anchorUuid", "tailUuid"))
            self._kept[_session(row), anchor] = head, tail
        return Turn(None)

    def _after_summary(self, session: str, anchor: str) -> Turn:
        """The last of the turns that a compaction put after its summary, or after the line before the summary."""
        head, tail = self._kept[session, anchor]
        turn = self._links.find(session, anchor) or Turn(None, fault=LOST)
        first, last = self._links.find(session, head), self._links.find(session, tail)
        preserved: list[Turn] = []
        for node in last.chain() if last else ():
            preserved.append(node)
            if node is first:
                break
        if not preserved or preserved[-1] is not first:
            return Turn(turn, fault=LOST)
        for node in reversed(preserved):
            turn = node.moved(turn)
        return turn

    def _replace(self, row: Row) -> None:
        """Note the texts that replace results in every prompt; the results' own lines keep them whole."""
        for record in require_list(row.get("replacements"), "replacements"):
            replacement = require_object(record, "a replacement")
            text = replacement.get("replacement")
            if isinstance(text, str):
                self._replaced[read_label(replacement, "toolUseId")] = text
        while len(self._replaced) > _MAX_REPLACED:
            del self._replaced[next(iter(self._replaced))]

    def _link(self, row: Row, turn: Turn) -> None:
        """Remember the turn of a line. Raises ValueError for a session that is too long."""
        turn.sidechain = turn.sidechain or row.get("isSidechain") is True
        is_too_long = turn.size > sessions.MAX_HISTORY
        if is_too_long:
            # Later lines follow an empty turn, whose fault leaves their answers out.
            turn.fault = TOO_LONG
            turn = Turn(None, fault=TOO_LONG)
        if "parentUuid" not in row:
            self._last[_session(row), _branch(row)] = turn
        self._links.add(_session(row), read_label(row, "uuid"), turn)
        if is_too_long:
            raise TooLong

    def _assistant(self, row: Row, before: Turn | None) -> Turn | None:
        """The turn of a line of an answer. Raises ValueError."""
        logged = require_object(row.get("message"), "message")
        part, hidden = _read_answer(logged.get("content"))
        if kind := _kind_of_own_text(row, logged, part):
            key = digest_of([read_label(row, "uuid"), part]).hex()
            self._completed.append(left_out(_session(row), TOOL_WROTE, key))
            return before if kind == "API" else Turn(before, [part])
        response = self._response(row, before)
        if response is None:
            before = before or Turn(None, fault=LOST)
            if before.response is not None:
                self._complete(before.response)
            response = Response(before, _session(row), read_label(logged, "id"), read_label(row, "uuid"))
            response.conversation.open[response.key] = response
        if response.complete:
            raise ValueError("this line of an answer comes after the next answer; sort the lines by time")
        response.add(logged.get("content"), part)
        if hidden:
            response.warnings[HIDDEN_REASONING] = None
        response.edited = response.edited or _is_edited(logged.get("context_management"))
        response.usage = _read_usage(logged.get("usage"), response.usage)
        return response

    def _response(self, row: Row, before: Turn | None) -> Response | None:
        """The response to which a line belongs; None for a line that begins another one. Raises ValueError."""
        logged = row.get("message")
        message_id = read_label(logged, "id") if isinstance(logged, dict) else ""
        if before is None:
            return None
        # The line's parent is another line of the response, the result of one of its calls, or the line before it.
        turn: Turn | None = before
        while isinstance(turn, Results) and message_id:
            turn = turn.before
        if isinstance(turn, Response) and (turn.session, turn.message_id) == (_session(row), message_id):
            return turn
        return before.conversation.open.get((_session(row), message_id or read_label(row, "uuid"), before))

    def _complete(self, response: Response) -> None:
        """Append the exchange of a response that no longer grows."""
        if response.complete or response.before is None:
            return
        response.complete = True
        response.conversation.open.pop(response.key, None)
        prompt, fault = read_chain(response.before, self._replaced)
        if any(turn.attached for turn in response.before.chain()):
            response.warnings[ATTACHED] = None
        answer = response.message
        key = digest_of([response.message_id or response.uuid, answer]).hex()
        reason = fault or response.fault or (EDITED if response.edited else "") or ("" if prompt else LOST)
        if reason:
            self._completed.append(left_out(response.session, reason, key))
        elif any(answer.get(name) for name in ("content", "reasoning_content", "tool_calls")):
            usage, warnings = _final_usage(response), tuple(response.warnings)
            self._completed.append(Exchange(prompt, answer, response.session, usage=usage, warnings=warnings, key=key))


def _session(row: Row) -> str:
    return read_label(row, "sessionId") or read_label(row, "session_id")


def _branch(row: Row) -> str:
    """A name for the agent that wrote a line, to tell subagents' lines apart where lines do not name their parents."""
    return read_label(row, "agentId") or read_label(row, "parent_tool_use_id") or str(row.get("isSidechain") is True)


def _kind_of_own_text(row: Row, logged: Row, part: Message) -> str:
    """What Claude Code wrote itself: "API" for an error of the API, "text" for other text, "" if the model wrote it."""
    text = part["content"]
    is_text_only = not part.get("tool_calls") and not part.get("reasoning_content")
    if row.get("isApiErrorMessage") is True or (is_text_only and text.startswith(_API_ERRORS)):
        return "API"
    return "text" if logged.get("model") == "<synthetic>" or (is_text_only and text.strip() in _OWN_ANSWERS) else ""


def _is_edited(management: object) -> bool:
    """Whether the server left out parts of a prompt other than earlier thinking, which chat templates also leave out
    (platform.claude.com/docs/en/build-with-claude/context-editing)."""
    edits = management.get("applied_edits") if isinstance(management, dict) else None
    return isinstance(edits, list) and any(
        not (isinstance(edit, dict) and str(edit.get("type")).startswith("clear_thinking")) for edit in edits
    )


def _read_answer(content: object) -> tuple[Message, bool]:
    """(a line of an answer as a message, whether it has thinking that the log lacks). Raises ValueError."""
    message: Message = {"role": "assistant", "content": ""}
    hidden = False
    if isinstance(content, str):
        return message | {"content": read_content(content)[0]}, hidden
    for part in require_list(content, "the content of a message"):
        block = require_object(part, "a block")
        kind = block.get("type")
        if kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input")}
            message.setdefault("tool_calls", []).append(tool_call({"id": block.get("id"), "function": function}))
        elif kind in ("thinking", "redacted_thinking"):
            thinking = read_content(block.get("thinking") if kind == "thinking" else "")[0]
            hidden = hidden or not thinking
            if thinking:
                message["reasoning_content"] = message.get("reasoning_content", "") + thinking
        else:
            text, fault = read_part(block)
            if fault:
                raise ValueError(f"an answer has a part of type {kind}; only text can be scored")
            message["content"] += text
    return message, hidden


def _read_other(row: Row, before: Turn | None) -> Turn | None:
    """The turn of a line from the user or from Claude Code; `before` itself if the model does not see the line.

    Raises ValueError.
    """
    if row["type"] == "user":
        if row.get("isVisibleInTranscriptOnly") is True and row.get("isCompactSummary") is not True:
            return before
        return _read_user(require_object(row.get("message"), "message").get("content"), before)
    content = None
    metadata = row.get("microcompactMetadata")
    if isinstance(metadata, dict):
        turn = Turn(before)
        cleared = require_list(metadata.get("compactedToolIds") or [], "compactedToolIds")
        turn.cleared = tuple(call for call in cleared if isinstance(call, str))
        return turn
    if row.get("subtype") == "local_command":
        content = row.get("content")
    elif row["type"] == "attachment" and isinstance(row.get("attachment"), dict):
        # `rendered` is what the model read; older versions have only what the user typed while the model worked.
        rendered = row.get("rendered")
        queued = row["attachment"].get("type") == "queued_command"
        content = row["attachment"].get("prompt") if queued else None
        if isinstance(rendered, list) and rendered:
            for message in rendered:
                before = _read_user(require_object(message, "a message").get("content"), before)
            return before
        if row["attachment"].get("type") in _ATTACHED:
            turn = Turn(before)
            turn.attached = True
            return turn
    return before if content is None else _read_user(content, before)


def _read_user(content: object, before: Turn | None) -> Turn:
    """The turn of a user message, which may hold tool results. Raises ValueError."""
    results: dict[str, Message] = {}
    other_blocks: list[Any] = []
    fault = ""
    for part in content if isinstance(content, list) else ():
        block = require_object(part, "a block")
        if block.get("type") != "tool_result":
            other_blocks.append(block)
            continue
        text, part_fault = read_content(block.get("content"))
        fault = fault or part_fault
        identifier = read_label(block, "tool_use_id")
        results[identifier or str(len(results))] = tool_result(identifier, text)
    text, part_fault = read_content(other_blocks if isinstance(content, list) else content)
    messages: list[Message] = [{"role": "user", "content": text}] if text or not results else []
    if not results:
        return Turn(before, messages, part_fault)
    return Results(before, results, messages, fault or part_fault)


def _note_outcome(before: Turn, turn: Turn) -> None:
    """Add what a user's line tells about the response before it: its tool results, or that it was interrupted."""
    response = before.response
    if response is None:
        return
    if isinstance(turn, Results):
        for call, result in turn.results.items():
            response.results[call] = result, turn.fault
    elif before is response and [message["content"].strip() for message in turn.messages] == [_INTERRUPTION]:
        response.warnings[INTERRUPTED] = None


def _read_usage(usage: object, earlier: Usage) -> Usage:
    """What the API counted for a response; a later line's count replaces the `earlier` one."""
    if not isinstance(usage, dict):
        return earlier
    prompt = read_count(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(prompt=prompt, output=read_count(usage, "output_tokens"))


def _final_usage(response: Response) -> Usage:
    """The usage of a response; without its output if that was counted too early, and is too small for the text."""
    usage = response.usage
    message = response.message
    calls = json.dumps(message["tool_calls"], ensure_ascii=False) if "tool_calls" in message else ""
    characters = len(message["content"]) + len(message.get("reasoning_content", "")) + len(calls)
    if usage.output is not None and characters > _CHARACTERS_PER_TOKEN * usage.output:
        return Usage(prompt=usage.prompt)
    return usage
