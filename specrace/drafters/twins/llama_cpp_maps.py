"""llama.cpp's drafters that copy after an n-gram: `ngram-simple`, `ngram-map-k`, `ngram-map-k4v`; see `llama_cpp`."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
# The number of slots of the maps' hash table, and the factor of its hash.
MAP_SLOTS, MAP_FACTOR = 2**18, 2654435761
# ngram-map-k4v keeps up to four m-grams for each key.
MAX_VALUES = 4


def map_draft(options: Mapping[str, int]) -> int:
    """The default draft size of an n-gram map."""
    return options["size_m"]


class LlamaCppDrafter(ABC):
    """Base class of llama.cpp's five drafters. Subclasses draft in `draft` and learn in `accept`."""

    def __init__(self, inputs: DrafterInputs) -> None:
        self.num_prompt = len(inputs.prompt)
        self._drafted = False

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain; the bare root before the first output token."""
        may_draft = budget > 0 and len(context) > self.num_prompt
        tree = TokenTree.chain(context[-1], self.draft(context)[:budget] if may_draft else ())
        self._drafted = tree.num_draft > 0
        return tree

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Call `accept` with the number of accepted draft tokens, if any were drafted."""
        if self._drafted:
            self.accept(verdict.accepted)

    @abstractmethod
    def draft(self, context: Sequence[int]) -> Sequence[int]:
        """The tokens to draft after `context`."""

    def accept(self, accepted: int) -> None:  # noqa: B027  two of the five drafters learn nothing
        """Learn that `accepted` tokens of the last draft were accepted; by default nothing."""


class SimpleDrafter(LlamaCppDrafter):
    """ngram-simple: what followed the latest earlier occurrence of the last `size_n` tokens.

    If fewer than `size_n` tokens follow, there is no draft. An occurrence at the very start of the text does not count.

    1 2 occurred earlier, followed by 3 9:

    >>> drafter = SimpleDrafter(DrafterInputs((7, 1, 2, 3, 9, 1), vocab_size=10), size_n=2, size_m=2)
    >>> drafter.propose((7, 1, 2, 3, 9, 1, 2), budget=4).tokens
    (2, 3, 9)
    """

    def __init__(self, inputs: DrafterInputs, *, size_n: SizeN = 12, size_m: SizeM = 48) -> None:
        super().__init__(inputs)
        self.size_n = size_n
        self.size_m = size_m
        # The start of the latest occurrence of each n-gram.
        self._latest: dict[NGram, int] = {}
        # The start of the first n-gram that is not in `_latest` yet.
        self._next = 1

    def draft(self, context: Sequence[int]) -> Sequence[int]:
        # All bounds are llama.cpp's.
        n, last = self.size_n, len(context) - 1
        if last <= n + self.size_m + 1:
            return ()
        for start in range(self._next, last - n):
            self._latest[tuple(context[start : start + n])] = start
        self._next = last - n
        match = self._latest.get(tuple(context[-n:]), 0)
        draft = context[match + n : min(match + n + self.size_m, last)]
        return draft if match and len(draft) >= n else ()


@dataclass
class Value:
    """An m-gram after a key: its tokens, its count, and the accepted tokens of its last draft (`size_m` at first)."""

    tokens: NGram
    accepted: int
    count: int = 0


@dataclass
class Key:
    """An n-gram that occurred again: its number of lookups (`hits`), its values, and the start up to which the
    occurrences of the n-gram were counted.
    """

    hits: int = 0
    counted: int = 0
    values: list[Value] = field(default_factory=list)


class MapKDrafter(LlamaCppDrafter):
    """ngram-map-k: what followed the last `size_n` tokens earlier, as many tokens as were last accepted.

    A key whose draft was rejected as a whole never drafts again. Keys are found in a hash table with `MAP_SLOTS` slots.
    The first n-gram in a slot stays, and the prompt's n-grams are entered from its end to its start. An n-gram is
    entered once `size_m` tokens follow it; n-grams at the end of the prompt are never entered.

    1 2 occurred earlier, followed by 3 9. Only 3 is accepted, so the next draft after 1 2 has one token:

    >>> from specrace.core.verify import Scores, verify
    >>> drafter = MapKDrafter(DrafterInputs((7, 1, 2, 3, 9, 8, 8, 1), vocab_size=10), size_n=2, size_m=2)
    >>> context = (7, 1, 2, 3, 9, 8, 8, 1, 2)
    >>> tree = drafter.propose(context, budget=4)
    >>> drafter.observe(tree, verify(tree, Scores(targets=(3, 5, 5))))
    >>> tree.tokens, drafter.propose((*context, 3, 5, 1, 2), budget=4).tokens
    ((2, 3, 9), (2, 3))
    """

    def __init__(self, inputs: DrafterInputs, *, size_n: SizeN = 12, size_m: SizeM = 48) -> None:
        super().__init__(inputs)
        self.size_n = size_n
        self.size_m = size_m
        # The hash table, from slot to the start of an n-gram, and the start up to which n-grams have been entered.
        self._slots: dict[int, int] = {}
        self._entered = 0
        self._keys: dict[NGram, Key] = {}
        # The value drafted last.
        self._value: Value | None = None

    def draft(self, context: Sequence[int]) -> Sequence[int]:
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
        """The start of an earlier occurrence of `ngram`, 0 for none. Also enters the new n-grams of `context`."""
        # All bounds are llama.cpp's.
        n = self.size_n
        end = len(context) - 1 - n - self.size_m - 1
        match = self._slots.get(_map_slot(ngram), 0)
        if match >= end or tuple(context[match : match + n]) != ngram:
            match = 0
        for start in self._new_starts(end):
            new_ngram = tuple(context[start : start + n])
            if not match and new_ngram == ngram:
                match = start
            self._slots.setdefault(_map_slot(new_ngram), start)
        self._entered = max(self._entered, end)
        return match

    def _new_starts(self, end: int) -> Iterator[int]:
        """The starts of n-grams that are not entered yet, in llama.cpp's order: the prompt's, then the output's.

        Both parts are in descending order.
        """
        prompt = self.num_prompt
        in_prompt = range(prompt - self.size_n - self.size_m - 1, self._entered, -1)
        return chain(in_prompt, range(end, max(prompt, self._entered), -1))

    def _choose(self, context: Sequence[int], ngram: NGram, key: Key, start: int) -> Value | None:
        """The value of `key` to draft from, or None. `start`: the index of an earlier occurrence of `ngram`."""
        if not key.values:
            # The only value of a key; its tokens are read from the text.
            key.values.append(Value((), self.size_m))
        return key.values[0]

    def accept(self, accepted: int) -> None:
        if self._value:
            self._value.accepted = accepted


class MapK4vDrafter(MapKDrafter):
    """ngram-map-k4v: drafts an m-gram only if it followed the key at least twice as often as all others together.

    The rest is ngram-map-k. A key counts up to four m-grams, and drafts from its lookup number `min_hits` on. The
    occurrence that a lookup matched is counted once more by the next lookup.

    1 2 was followed by 3 9 both times:

    >>> prompt = (7, 1, 2, 3, 9, 1, 2, 3, 9, 8, 8, 1)
    >>> drafter = MapK4vDrafter(DrafterInputs(prompt, vocab_size=10), size_n=2, size_m=2)
    >>> drafter.propose((*prompt, 2), budget=4).tokens
    (2, 3, 9)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        size_n: SizeN = 12,
        size_m: SizeM = 48,
        min_hits: Annotated[int, Bounds(1, 1024, "minimum lookups of an n-gram for a draft")] = 1,
    ) -> None:
        super().__init__(inputs, size_n=size_n, size_m=size_m)
        self.min_hits = min_hits

    def _choose(self, context: Sequence[int], ngram: NGram, key: Key, start: int) -> Value | None:
        n, m = self.size_n, self.size_m
        if key.hits < self.min_hits:
            return None
        for index in range(key.counted, start + 1):
            if tuple(context[index : index + n]) != ngram:
                continue
            following = tuple(context[index + n : index + n + m])
            value = next((value for value in key.values if value.tokens == following), None)
            if value is None and len(key.values) < MAX_VALUES:
                value = Value(following, m)
                key.values.append(value)
            if value is not None:
                value.count += 1
        key.counted = start
        best = max(key.values, key=lambda value: value.count)
        others = sum(value.count for value in key.values) - best.count
        return best if best.count >= 2 * others else None


def _map_slot(ngram: Iterable[int]) -> int:
    """The slot of an n-gram in the maps' hash table."""
    return reduce(lambda slot, token: (slot * MAP_FACTOR + token) % MAP_SLOTS, ngram, 0)
