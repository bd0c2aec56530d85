"""From token ids to text, one token at a time, without breaking characters that span tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from specrace.core.events import Event, Finished, Step

_BROKEN = "\ufffd"


class Detokenizer:
    """Text of a growing output, token by token; joined, the shares are the decoded whole.

    A token that ends inside a character has the share ""; the token that completes it has the character.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        # Text of the tokens up to `_read` has been returned; what follows is decoded from `_start` on.
        self._start = 0
        self._read = 0

    def feed(self, tokens: Sequence[int]) -> list[str]:
        """The share of each of `tokens`."""
        return [self._feed_one(token) for token in tokens]

    def _feed_one(self, token: int) -> str:
        self._tokens.append(token)
        share = self._rest()
        if not share or share.endswith(_BROKEN):
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return share

    def flush(self) -> str:
        """What is held back at the end: an unfinished character."""
        share = self._rest()
        self._start = self._read = len(self._tokens)
        return share

    def _rest(self) -> str:
        # Decoded with the share before it: what a token prints depends on its neighbour.
        before = self._decode(self._tokens[self._start : self._read])
        return self._decode(self._tokens[self._start :])[len(before) :]


class Narrator:
    """Fills the texts into a race's events; one Detokenizer a lane."""

    def __init__(self, tokenizer: Any) -> None:
        self._lanes = defaultdict[str, Detokenizer](
            lambda: Detokenizer(lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True))
        )
        self._texts = defaultdict[str, str](str)
        # A token by itself; a control token has no text.
        self._piece = cache(lambda token: tokenizer.decode([token], skip_special_tokens=True))

    def __call__(self, event: Event) -> Event:
        """The event with its texts."""
        if isinstance(event, Step):
            return self._step(event)
        if isinstance(event, Finished):
            lanes = tuple(replace(lane, text=self._texts[lane.lane].strip()) for lane in event.lanes)
            return replace(event, lanes=lanes)
        return event

    def _step(self, step: Step) -> Step:
        lane = self._lanes[step.lane]
        texts = lane.feed(step.emitted)
        if step.end and texts:
            texts[-1] += lane.flush()
        self._texts[step.lane] += "".join(texts)
        pieces = tuple(map(self._piece, step.tree.tokens))
        return replace(step, texts=tuple(texts), pieces=pieces, note=step.note and step.note.with_texts(self._piece))
