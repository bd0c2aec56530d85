"""A server's answer as the client saw it: chunks with their times, and what the server counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Chunk:
    """One streamed chunk: when it arrived, in ms since the request was sent, its text, and its token ids if given."""

    at_ms: float
    text: str
    tokens: tuple[int, ...] | None = None


@dataclass
class Reply:
    """An answer. `end` is "eos" or "length", or "" if the server gave no reason for the end.

    `accepted` and `drafted` hold a number of tokens for each step that had a draft, in order; `num_accepted` and
    `num_drafted` are the totals, and `num_steps` is the number of all steps. `num_tokens`: how many tokens the server
    counted in its answer. `prompt`: the token ids of the prompt that it read. Each of these is None if the server does
    not report it. `has_thoughts`: the server sent thoughts apart from its text.
    """

    chunks: list[Chunk] = field(default_factory=list)
    end: str = ""
    prompt: tuple[int, ...] | None = None
    num_tokens: int | None = None
    accepted: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None
    num_accepted: int | None = None
    num_drafted: int | None = None
    num_steps: int | None = None
    has_thoughts: bool = False

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(chunk.text for chunk in self.chunks)


@dataclass(frozen=True)
class Request:
    """What a server is asked: to continue a prompt, given as token ids, greedily.

    `message`: the user's message in the prompt, for a server that takes no token ids and has a chat template.
    `cache_salt`: a server with a prefix cache reuses entries only of requests with the same salt; "" if it may reuse
    all entries.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    cache_salt: str = ""
    message: str = ""


def read_tokens(value: object) -> tuple[int, ...] | None:
    """Token ids from JSON; None if it is no list of ids. Booleans and negative numbers are no ids."""
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < 2**31 for token in value):
        return None
    return tuple(value)


def read_count(value: object) -> int | None:
    """A count from JSON; None if it is not one. Beyond 2**53 not every JSON reader keeps integers exactly."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def read_counts(value: object) -> tuple[int, ...] | None:
    """A list of counts from JSON; None if it is not one."""
    return read_tokens(value)


def field_of(value: object, *path: str | int) -> object:
    """The value at `path` in nested JSON; None where a part is missing or of another type."""
    for key in path:
        if isinstance(key, str) and isinstance(value, dict):
            value = value.get(key)
        elif isinstance(key, int) and isinstance(value, Sequence) and not isinstance(value, str):
            value = value[key] if -len(value) <= key < len(value) else None
        else:
            return None
    return value
