"""Finds requests of a conversation that a log holds without the turns before them.

Chat applications often log one row for each question and its answer, with the conversation's id. The model read the
earlier turns, too, so a prompt without them is too short. But an id may also name a user's visit, whose requests the
model answered one by one; so such a row gets a remark, and still counts.
"""

from __future__ import annotations

from specrace.lab.logs.formats.base import Exchange, Row

CONVERSATION_IDS = (
    *("conversation_id", "conversationId", "conversation", "chat_id", "chatId", "dialogue_id", "dialog_id"),
    *("thread_id", "threadId", "session_id", "sessionId"),
)
# More conversations than this would fill the memory; later ones are not checked.
MAX_CONVERSATIONS = 1_000_000


class Conversations:
    """The conversations of a log so far."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()

    def explain(self, row: Row, exchange: Exchange) -> str:
        """Why the exchange of a row may lack earlier turns; "" if nothing says so. Notes the row's conversation."""
        field, name = next(
            ((field, row[field]) for field in CONVERSATION_IDS if isinstance(row.get(field), str | int)), ("", "")
        )
        if not name or _holds_history(exchange):
            return ""
        key = field, str(name)
        if key in self._names:
            return (
                f"an earlier row has the same {field}, and this prompt has no earlier turn; if the model read the "
                "conversation so far, the prompt is too short and the figures are wrong: log the whole request"
            )
        if len(self._names) < MAX_CONVERSATIONS:
            self._names.add(key)
        return ""


def _holds_history(exchange: Exchange) -> bool:
    """Whether a prompt has earlier turns, or may have them: in token ids and in a text they are not told apart."""
    prompt = exchange.prompt
    if isinstance(prompt, list):
        return any(message["role"] in ("assistant", "tool") for message in prompt)
    return isinstance(prompt, tuple)
