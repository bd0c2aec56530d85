"""Turns token ids into text, token by token, without breaking characters that span tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from specrace.core.events import Event, Finished, LaneInfo, LaneResult, Started, Step
from specrace.views.comparison import Output, compare_lane, has_vanilla_as_reference

# What tokenizers decode an incomplete character to.
_BROKEN = "\ufffd"


class Detokenizer:
    """Returns the text of an output token by token; the tokens' texts, joined, are the decoded output.

    A token that ends inside a character gets the text ""; the token that completes the character gets the character.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        # The text of the tokens before index `_returned` has been returned. Later tokens are decoded from `_start` on.
        self._start = 0
        self._returned = 0

    def feed(self, tokens: Sequence[int]) -> list[str]:
        """The text of each of `tokens`."""
        return [self._feed_one(token) for token in tokens]

    def _feed_one(self, token: int) -> str:
        self._tokens.append(token)
        text = self._unreturned_text()
        if not text or text.endswith(_BROKEN):
            return ""
        self._start = self._returned
        self._returned = len(self._tokens)
        return text

    def flush(self) -> str:
        """The text that was held back because its last character is incomplete."""
        text = self._unreturned_text()
        self._start = self._returned = len(self._tokens)
        return text

    def _unreturned_text(self) -> str:
        # Decode together with earlier tokens, because a token's text depends on the token before it.
        before = self._decode(self._tokens[self._start : self._returned])
        return self._decode(self._tokens[self._start :])[len(before) :]


def text_decoder(tokenizer: Any, marks: tuple[str, str] | None = None) -> Callable[[list[int]], str]:
    """A function that returns the text of token ids, without control tokens; those in `marks` are shown as text.

    `marks`: what stands before and after an answer's thoughts. Some models write control tokens there.
    """
    hidden: set[int] = set()
    if marks:
        control = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        control_in_marks = control.intersection(tokenizer("".join(marks), add_special_tokens=False)["input_ids"])
        # If the marks have no control tokens, the tokenizer itself can skip them all.
        hidden = control - control_in_marks if control_in_marks else set()

    def decode(tokens: list[int]) -> str:
        if not hidden:
            return str(tokenizer.decode(tokens, skip_special_tokens=True))
        return str(tokenizer.decode([token for token in tokens if token not in hidden], skip_special_tokens=False))

    return decode


class Narrator:
    """Adds texts to the events of a race, with one Detokenizer per lane; `marks` are those of `text_decoder`.

    Lanes of servers that send texts instead of token ids, or that have a server as reference, are compared here, where
    all lanes have texts.
    """

    def __init__(self, tokenizer: Any, marks: tuple[str, str] | None = None) -> None:
        decode = text_decoder(tokenizer, marks)
        self._lanes = defaultdict[str, Detokenizer](lambda: Detokenizer(decode))
        self._outputs = defaultdict[str, Output](lambda: Output(sends_ids=True))
        self._infos: dict[str, LaneInfo] = {}
        # The text of a token alone; "" for a control token.
        self._piece = cache(lambda token: decode([token]))

    def __call__(self, event: Event) -> Event:
        """The event with its texts; an event without tokens is returned unchanged."""
        if isinstance(event, Started):
            self._infos = {info.lane: info for info in event.lanes}
            self._outputs |= {info.lane: Output.of(info) for info in event.lanes}
        if isinstance(event, Step):
            step = self._step(event) if self._outputs[event.lane].sends_ids else event
            self._outputs[event.lane].add(step)
            return step
        if isinstance(event, Finished):
            return replace(event, lanes=tuple(map(self._result, event.lanes)))
        return event

    def _result(self, result: LaneResult) -> LaneResult:
        """A lane's result with its text, compared with its reference if it was not compared with vanilla's tokens."""
        result, info = replace(result, text=self._outputs[result.lane].text.strip()), self._infos.get(result.lane)
        if info is None or has_vanilla_as_reference(info):
            return result
        identical, position = compare_lane(info, self._outputs)
        return replace(result, identical=identical, differs_at=position)

    def _step(self, step: Step) -> Step:
        lane = self._lanes[step.lane]
        texts = lane.feed(step.emitted)
        if step.end and texts:
            texts[-1] += lane.flush()
        pieces = tuple(map(self._piece, step.tree.tokens))
        return replace(step, texts=tuple(texts), pieces=pieces, note=step.note and step.note.with_texts(self._piece))
