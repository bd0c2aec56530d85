"""llama.cpp's drafters that copy after an n-gram: `ngram-simple`, `ngram-map-k`, `ngram-map-k4v`; see `llama_cpp`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Annotated

from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs

NGram = tuple[int, ...]

SizeN = Annotated[int, Bounds(1, 1024, "tokens of the n-gram that is looked up")]
SizeM = Annotated[int, Bounds(1, 1024, "tokens of the m-gram that is drafted")]
# Slots of the maps' hash table, and the factor of its hash.
MAP_SLOTS, MAP_FACTOR = 2**18, 2654435761
MAX_VALUES = 4


def map_draft(options: Mapping[str, int]) -> int:
    """The draft size of an n-gram map."""
    return options["size_m"]


class LlamaCppDrafter:
    """What the five have in common; a rule makes `_draft` of the context, and learns by `_accept`."""

    def __init__(self, inputs: DrafterInputs) -> None:
        self.prompt_tokens = len(inputs.prompt)
        self._drafted = False

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain; the bare root for the first token."""
        calls = budget > 0 and len(context) > self.prompt_tokens
        tree = TokenTree.chain(context[-1], self._draft(context)[:budget] if calls else ())
        self._drafted = tree.num_draft > 0
        return tree

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Hand the number of accepted tokens to the rule, if it drafted."""
        if self._drafted:
            self._accept(verdict.accepted)

    def _draft(self, context: Sequence[int]) -> Sequence[int]:
        raise NotImplementedError

    def _accept(self, accepted: int) -> None:
        """Nothing to learn."""


class SimpleDrafter(LlamaCppDrafter):
    """ngram-simple: what followed the latest earlier occurrence of the last `size_n` tokens.

    Fewer than `size_n` following tokens are no draft, nor is an occurrence at the very start of the text.
    """

    def __init__(self, inputs: DrafterInputs, *, size_n: SizeN = 12, size_m: SizeM = 48) -> None:
        super().__init__(inputs)
        self.size_n, self.size_m = size_n, size_m
        # N-gram -> the start of its latest occurrence.
        self._latest: dict[NGram, int] = {}
        self._next = 1

    def _draft(self, context: Sequence[int]) -> Sequence[int]:
        n, known = self.size_n, len(context) - 1
        if known <= n + self.size_m + 1:
            return ()
        for start in range(self._next, known - n):
            self._latest[tuple(context[start : start + n])] = start
        self._next = known - n
        found = self._latest.get(tuple(context[-n:]), 0)
        draft = context[found + n : min(found + n + self.size_m, known)]
        return draft if found and len(draft) >= n else ()


@dataclass
class Value:
    """An m-gram after a key: its tokens, how often it was counted, how many of its last draft were accepted."""

    tokens: NGram
    accepted: int
    count: int = 0


@dataclass
class Key:
    """An n-gram that occurred again: its lookups, the start up to which its values are counted, and these."""

    hits: int = 0
    seen: int = 0
    values: list[Value] = field(default_factory=list)


class MapKDrafter(LlamaCppDrafter):
    """ngram-map-k: what followed an earlier occurrence of the last `size_n` tokens, as much as was accepted last time.

    A key whose draft was rejected whole drafts no more. A hash table of `MAP_SLOTS` finds keys: the first n-gram in a
    slot stays, the prompt's being entered from its end. An n-gram is entered once `size_m` tokens follow it; of those
    at the prompt's end none ever is.
    """

    def __init__(self, inputs: DrafterInputs, *, size_n: SizeN = 12, size_m: SizeM = 48) -> None:
        super().__init__(inputs)
        self.size_n, self.size_m = size_n, size_m
        self._slots: dict[int, int] = {}
        self._entered = 0
        self._keys: dict[NGram, Key] = {}
        self._value: Value | None = None

    def _draft(self, context: Sequence[int]) -> Sequence[int]:
        n, m = self.size_n, self.size_m
        self._value = None
        if len(context) - 1 < 2 * n + m:
            return ()
        ngram = tuple(context[-n:])
        start = self._find(context, ngram)
        if not start:
            return ()
        key = self._keys.setdefault(ngram, Key())
        key.hits += 1
        self._value = self._choose(context, ngram, key, start)
        return context[start + n : start + n + self._value.accepted] if self._value else ()

    def _find(self, context: Sequence[int], ngram: NGram) -> int:
        """The start of an earlier occurrence, 0 for none; then the new n-grams are entered."""
        n, end = self.size_n, len(context) - 1 - self.size_n - self.size_m - 1
        found = self._slots.get(_map_slot(ngram), 0)
        if found >= end or tuple(context[found : found + n]) != ngram:
            found = 0
        for start in self._new_starts(end):
            other = tuple(context[start : start + n])
            if not found and other == ngram:
                found = start
            self._slots.setdefault(_map_slot(other), start)
        self._entered = max(self._entered, end)
        return found

    def _new_starts(self, end: int) -> Iterator[int]:
        """Starts that are not entered yet, in llama.cpp's order: the prompt's from its end, then the output's."""
        prompt = self.prompt_tokens
        in_prompt = range(prompt - self.size_n - self.size_m - 1, self._entered, -1)
        return chain(in_prompt, range(end, max(prompt, self._entered), -1))

    def _choose(self, context: Sequence[int], ngram: NGram, key: Key, start: int) -> Value | None:
        """The value to draft."""
        if not key.values:
            key.values.append(Value((), self.size_m))
        return key.values[0]

    def _accept(self, accepted: int) -> None:
        if self._value:
            self._value.accepted = accepted


class MapK4vDrafter(MapKDrafter):
    """ngram-map-k4v: as ngram-map-k, where one of up to four m-grams after the key is twice as frequent as the others.

    Fewer than `min_hits` lookups of a key are no draft. Each lookup counts the occurrence that was found once more.
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        size_n: SizeN = 12,
        size_m: SizeM = 48,
        min_hits: Annotated[int, Bounds(1, 1024, "lookups of a key from which on it drafts")] = 1,
    ) -> None:
        super().__init__(inputs, size_n=size_n, size_m=size_m)
        self.min_hits = min_hits

    def _choose(self, context: Sequence[int], ngram: NGram, key: Key, start: int) -> Value | None:
        n, m = self.size_n, self.size_m
        if key.hits < self.min_hits:
            return None
        for index in range(key.seen, start + 1):
            if tuple(context[index : index + n]) != ngram:
                continue
            following = tuple(context[index + n : index + n + m])
            value = next((each for each in key.values if each.tokens == following), None)
            if value is None and len(key.values) < MAX_VALUES:
                value = Value(following, m)
                key.values.append(value)
            if value is not None:
                value.count += 1
        key.seen = start
        best = max(key.values, key=lambda value: value.count)
        others = sum(value.count for value in key.values) - best.count
        return best if best.count >= 2 * others else None


def _map_slot(ngram: Iterable[int]) -> int:
    """The slot of an n-gram in the maps' hash table."""
    return reduce(lambda slot, token: (slot * MAP_FACTOR + token) % MAP_SLOTS, ngram, 0)
