"""The turns of a Claude Code session as a tree: an answer's prompt is the chain of turns before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from specrace.lab.logs.formats.agents.sessions import digest_of, extend, size_of
from specrace.lab.logs.formats.base import Message, Usage

# How much memory a line's link takes, as a number of characters of text; an estimate.
_LINK_SIZE = 300
_CLEARED = "[Old tool result content cleared]"
# How many conversations may have responses that still grow; a guess. The oldest is closed.
_MAX_GROWING = 64

# What identifies a response: (session, message id, the turn before it).
ResponseKey = tuple[str, str, "Turn | None"]


class Turn:
    """The messages of a line and the turn before it; branches share the turns before they fork.

    `fault`: why no answer after this turn can be scored, "" if it can. `size`: the size of the chain up to this turn,
    in characters of JSON. `response`: the last response up to this turn. `cleared`: the ids of the calls whose results
    the model no longer reads after this turn. `attached`: whether the prompt had a text here that the log lacks.
    """

    def __init__(self, before: Turn | None, messages: list[Message] | None = None, fault: str = "") -> None:
        self.before = before
        self.messages = messages or []
        self.fault = fault
        # The size of this turn's own messages.
        self.own_size = size_of(self.messages)
        self.size: int = self.own_size + (before.size if before else 0)
        self.cleared: tuple[str, ...] = ()
        self.attached = False
        # The part of `own_size` that `Links` has counted.
        self.counted = 0
        self.conversation: Conversation = before.conversation if before else Conversation()
        self.response: Response | None = before.response if before else None
        # Whether it belongs to a subagent.
        self.sidechain: bool = before is not None and before.sidechain

    def chain(self) -> Iterator[Turn]:
        """This turn and those before it, the last one first."""
        turn: Turn | None = self
        while turn is not None:
            yield turn
            turn = turn.before

    def grow(self, messages: list[Message], replaced: Collection[Message] = ()) -> None:
        """Add the size of messages that are added to this turn, less that of the messages `replaced` by them."""
        added = size_of(messages) - size_of(replaced)
        self.own_size += added
        self.size += added

    def moved(self, before: Turn) -> Turn:
        """A copy of this turn that follows the turn `before`."""
        copy = Turn(before, self.messages, self.fault)
        copy.cleared, copy.attached = self.cleared, self.attached
        return copy


class Results(Turn):
    """The tool results in one line, by the ids of their calls; `messages`: what else the line says."""

    def __init__(self, before: Turn | None, results: dict[str, Message], messages: list[Message], fault: str) -> None:
        super().__init__(before, messages, fault)
        self.results = results
        self.grow(list(results.values()))

    def moved(self, before: Turn) -> Turn:
        return Results(before, self.results, self.messages, self.fault)


class Response(Turn):
    """An answer of the model, to which lines are added until another answer follows it.

    `results`: the results of its calls, with the faults of the lines that have them.
    """

    def __init__(self, before: Turn, session: str, message_id: str, uuid: str) -> None:
        self.message: Message = {"role": "assistant", "content": ""}
        super().__init__(before, [self.message])
        self.response = self
        self.session, self.message_id, self.uuid = session, message_id, uuid
        self.results: dict[str, tuple[Message, str]] = {}
        self.usage = Usage()
        self.warnings: dict[str, None] = {}
        # Whether the server left out parts of this answer's prompt. Later prompts need not lack them.
        self.edited = False
        # Whether the response's exchange was made; after that the response must not change.
        self.complete = False
        self._lines: set[bytes] = set()

    def add(self, content: Any, part: Message) -> None:
        """Append a line's part of the answer, unless the line is a copy of an earlier one.

        Some programs write the whole answer so far in each line; such a line takes the place of those before it.
        """
        digest = digest_of(content)
        if digest in self._lines:
            return
        self._lines.add(digest)
        if _begins_with(part, self.message):
            self.grow([part], [self.message])
            self.message.update(part)
        else:
            extend(self.message, part)
            self.grow([part])

    @property
    def key(self) -> ResponseKey:
        """Identifies the response for further lines whose parent is the turn before it."""
        return self.session, self.message_id or self.uuid, self.before

    def moved(self, before: Turn) -> Turn:
        copy = Response(before, self.session, self.message_id, self.uuid)
        copy.message, copy.messages, copy.results = self.message, self.messages, self.results
        copy.fault, copy.complete = self.fault, True
        # The copy began with the size of an empty message.
        copy.grow(self.messages)
        return copy


def _begins_with(part: Message, before: Message) -> bool:
    """Whether a part of an answer repeats all of the answer `before` it, which has some text."""
    calls, calls_before = part.get("tool_calls", []), before.get("tool_calls", [])
    return (
        bool(before["content"].strip())
        and part["content"].startswith(before["content"])
        and part.get("reasoning_content", "").startswith(before.get("reasoning_content", ""))
        and calls[: len(calls_before)] == calls_before
    )


class Conversation:
    """All turns with the same first turn: the lines that are linked to them, and the responses that still grow."""

    def __init__(self) -> None:
        self.links: list[tuple[str, str]] = []
        self.open: dict[ResponseKey, Response] = {}


def read_chain(last: Turn, replaced: Mapping[str, str]) -> tuple[list[Message], str]:
    """(the messages of a chain as the model read them, the chain's first fault or "").

    The results of a response's calls follow it in the order of the calls, even if a result is on another branch.
    `replaced`: the texts that the model read in place of results that were too long, by the ids of the calls.
    """
    parts: list[list[Message]] = []
    # The results in the turns after this one, up to the next response, each with the list that holds it.
    results: dict[str, tuple[Message, list[Message]]] = {}
    replacements = dict(replaced)
    fault = ""
    for turn in last.chain():
        fault = turn.fault or fault
        replacements |= dict.fromkeys(turn.cleared, _CLEARED)
        if isinstance(turn, Results):
            parts.append(turn.messages)
            results_of_line = []
            for call, result in turn.results.items():
                results_of_line.append(_as_read(call, result, replacements))
                results.setdefault(call, (results_of_line[-1], results_of_line))
            parts.append(results_of_line)
            continue
        if isinstance(turn, Response):
            as_read = []
            for call in turn.message.get("tool_calls", ()):
                identifier = call.get("id", "")
                if identifier in results:
                    result, holder = results[identifier]
                    holder.remove(result)
                    as_read.append(result)
                elif identifier in turn.results:
                    result, result_fault = turn.results[identifier]
                    fault = result_fault or fault
                    as_read.append(_as_read(identifier, result, replacements))
            parts.append(as_read)
            results = {}
        parts.append(turn.messages)
    return [message for part in reversed(parts) for message in part], fault


def _as_read(call: str, result: Message, replacements: Mapping[str, str]) -> Message:
    """A tool result as the model read it, with its text replaced if `replacements` has its call."""
    return result | {"content": replacements[call]} if call in replacements else result


class Links:
    """The turn of each line, by the line's session and id; to bound memory, old conversations are forgotten.

    `max_size`: how much to keep, in characters of JSON; once there is twice as much, the rest is forgotten. `close`:
    called with each response that can no longer grow, because its conversation is too old or too large.
    """

    def __init__(self, max_size: int, close: Callable[[Response], None]) -> None:
        self._max_size = max_size
        self._close = close
        self._turns: dict[str, dict[str, Turn]] = {}
        # The conversations, the least recently extended first.
        self._conversations: dict[Conversation, None] = {}
        self._growing: dict[Conversation, None] = {}
        self._size = 0

    def find(self, session: str, uuid: str) -> Turn | None:
        """The turn of a line; None if it is unknown. A session that continues another one may name that one's lines."""
        by_session = self._turns.get(uuid)
        return None if by_session is None else by_session.get(session) or next(reversed(by_session.values()))

    def add(self, session: str, uuid: str, turn: Turn) -> None:
        """Link a line to its turn."""
        conversation = turn.conversation
        if uuid:
            self._turns.setdefault(uuid, {})[session] = turn
            conversation.links.append((session, uuid))
            self._size += _LINK_SIZE
        self._size += turn.own_size - turn.counted
        turn.counted = turn.own_size
        _touch(self._conversations, conversation)
        if conversation.open:
            _touch(self._growing, conversation)
            if len(self._growing) > _MAX_GROWING:
                self._finish(next(iter(self._growing)))
        if self._size > 2 * self._max_size:
            self._shrink(turn)

    def finish(self) -> None:
        """Close all responses."""
        for conversation in list(self._growing):
            self._finish(conversation)

    def _finish(self, conversation: Conversation) -> None:
        self._growing.pop(conversation, None)
        for response in list(conversation.open.values()):
            self._close(response)

    def _shrink(self, turn: Turn) -> None:
        """Forget the conversations extended least recently; if that is not enough, all turns but this turn's chain."""
        for conversation in list(self._conversations):
            if conversation is turn.conversation or self._size <= self._max_size:
                break
            self._forget(conversation, ())
        if self._size > self._max_size:
            self._forget(turn.conversation, set(turn.chain()))

    def _forget(self, conversation: Conversation, kept: Collection[Turn]) -> None:
        """Forget a conversation's turns except those `kept`, and close the responses among the forgotten."""
        for response in [response for response in conversation.open.values() if response not in kept]:
            self._close(response)
        forgotten: dict[Turn, None] = {}
        links, conversation.links = conversation.links, []
        for session, uuid in links:
            turn = self._turns.get(uuid, {}).get(session)
            if turn is None or turn.conversation is not conversation:
                # A copy of the line has been linked to another turn since.
                self._size -= _LINK_SIZE
            elif turn in kept:
                conversation.links.append((session, uuid))
            else:
                forgotten[turn] = None
                del self._turns[uuid][session]
                self._size -= _LINK_SIZE
                if not self._turns[uuid]:
                    del self._turns[uuid]
        self._size -= sum(turn.counted for turn in forgotten)
        if not conversation.links:
            self._conversations.pop(conversation, None)
            self._growing.pop(conversation, None)


def _touch(ordered: dict[Conversation, None], conversation: Conversation) -> None:
    """Move a conversation to the end of `ordered`, or add it there."""
    ordered.pop(conversation, None)
    ordered[conversation] = None
