"""From token ids to text, one token at a time, without breaking characters that several tokens share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from specrace.core.events import Event, Finished, Step

_BROKEN = "\ufffd"


class Detokenizer:
    """Text of a growing output: each token's share, so that the shares in a row are the decoded whole.

    A token that ends inside a character has the share ""; the token that completes it has the character.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        # Tokens before `_start` are done with; those up to `_read` have been given out.
        self._start = 0
        self._read = 0

    def feed(self, tokens: Sequence[int]) -> list[str]:
        """The share of each of `tokens`."""
        return [self._feed_one(token) for token in tokens]

    def _feed_one(self, token: int) -> str:
        self._tokens.append(token)
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        # The window starts where a share ended, and is decoded with it: what a token prints depends on its neighbour.
        if len(now) <= len(before) or now.endswith(_BROKEN):
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def flush(self) -> str:
        """What is held back at the end: an unfinished character."""
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        self._start = self._read = len(self._tokens)
        return now[len(before) :]


class Narrator:
    """Fills the texts into a race's events; one Detokenizer a lane."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lanes: dict[str, Detokenizer] = {}
        self._said: dict[str, list[str]] = {}
        self._pieces: dict[int, str] = {}

    def __call__(self, event: Event) -> Event:
        """The event with its texts."""
        if isinstance(event, Step):
            return self._step(event)
        if isinstance(event, Finished):
            lanes = tuple(replace(lane, text="".join(self._said.get(lane.lane, ())).strip()) for lane in event.lanes)
            return replace(event, lanes=lanes)
        return event

    def _step(self, step: Step) -> Step:
        lane = self._lanes.setdefault(step.lane, Detokenizer(self._printed))
        texts = lane.feed(step.emitted)
        if step.end and texts:
            texts[-1] += lane.flush()
        self._said.setdefault(step.lane, []).extend(texts)
        pieces = tuple(self._piece(token) for token in step.tree.tokens)
        return replace(step, texts=tuple(texts), pieces=pieces, note=step.note and step.note.with_texts(self._piece))

    def _printed(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _piece(self, token: int) -> str:
        """A token by itself, special ones by name."""
        if token not in self._pieces:
            self._pieces[token] = self._tokenizer.decode([token])
        return self._pieces[token]
