"""llama.cpp's drafters without a model: `ngram-simple`, `-map-k`, `-map-k4v`, `-mod` and `-cache`.

Source: ggml-org/llama.cpp, common/speculative.cpp, ngram-map.cpp, ngram-mod.cpp and ngram-cache.cpp, as in build 11549.
As there, a draft is cut to the room that is left after the rule made it. See docs/engines.md for what is left out.
"""

from __future__ import annotations

import sys
from collections import ChainMap, deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import reduce
from typing import Annotated, Any

from specrace.drafters.base import Bounds, CorpusPart, DrafterInputs, Flag, Method, Scoring
from specrace.drafters.twins.llama_cpp_maps import (
    LlamaCppDrafter,
    MapK4vDrafter,
    MapKDrafter,
    NGram,
    SimpleDrafter,
    map_draft,
)
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs

# Slots of ngram-mod's pool, and the factor of its hash.
POOL_SLOTS, POOL_FACTOR = 2**22, 6364136223846793005
# Tokens after which ngram-mod adds new n-grams to its pool.
POOL_CHUNK = 32
# So many drafts in a row with a lower share accepted empty ngram-mod's pool.
LOW_DRAFTS, LOW_SHARE = 5, 0.25
CACHE_DRAFT = 8
# ngram-cache's n-grams have 1 to 4 tokens; by size, the fewest counts and the least percent of them for a draft.
CACHE_NGRAM = 4
FEWEST = (2, 2, 1, 1)
MIN_PERCENT = (66, 50, 50, 50)
STATIC_NGRAM = 2


class Pool:
    """ngram-mod's hash table: slot -> the token that followed last. N-grams with one hash share a slot."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.slots: MutableMapping[int, int] = {}
        # What the oldest of n tokens counts in the hash.
        self._oldest = pow(POOL_FACTOR, n - 1, POOL_SLOTS)

    def add(self, tokens: Iterable[int]) -> None:
        """Enter what follows every n-gram of `tokens`."""
        last: deque[int] = deque()
        slot = 0
        for token in tokens:
            if len(last) == self.n:
                self.slots[slot] = token
                slot -= last.popleft() * self._oldest
            slot = (slot * POOL_FACTOR + token) % POOL_SLOTS
            last.append(token)

    def extend(self, tokens: Sequence[int]) -> None:
        """`add` a text with an END after it."""
        self.add(tokens[:-1])

    def follow(self, tokens: Sequence[int], most: int) -> list[int]:
        """What follows the n `tokens`, up to a slot without token, at most `most`."""
        found = list(tokens)
        slot = reduce(lambda slot, token: (slot * POOL_FACTOR + token) % POOL_SLOTS, tokens, 0)
        for index in range(most):
            token = self.slots.get(slot)
            if token is None:
                break
            slot = ((slot - found[index] * self._oldest) * POOL_FACTOR + token) % POOL_SLOTS
            found.append(token)
        return found[self.n :]


class ModDrafter(LlamaCppDrafter):
    """ngram-mod: a hash of the last `n_match` tokens gives the next token, again and again.

    A draft of fewer than `n_min` tokens is none. Earlier requests are in the pool, which is one for all of a server.
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        n_match: Annotated[int, Bounds(1, 1024, "tokens that are looked up")] = 24,
        n_min: Annotated[int, Bounds(0, 1024, "fewest tokens of a draft")] = 48,
        n_max: Annotated[int, Bounds(1, 1024, "most tokens of a draft")] = 64,
    ) -> None:
        super().__init__(inputs)
        self.n_match, self.n_min, self.n_max = n_match, n_min, n_max
        self._pool = Pool(n_match)
        if len(past := PastOutputs.of(inputs.past)):
            self._pool.slots = ChainMap({}, past.index(Pool, n_match, prompt_tail=sys.maxsize).slots)
        self._pool.add(inputs.prompt)
        self._added = max(0, self.prompt_tokens - n_match)
        self._low = self._length = 0

    def _draft(self, context: Sequence[int]) -> Sequence[int]:
        n, known = self.n_match, len(context) - 1
        self._length = 0
        if known < n:
            return ()
        if self._added + POOL_CHUNK < known:
            self._pool.add(context[self._added : known])
            self._added = known - n
        draft = self._pool.follow(context[-n:], self.n_max)
        # An n_min above n_max refuses no full draft.
        if len(draft) < min(self.n_min, self.n_max):
            return ()
        self._length = len(draft)
        return draft

    def _accept(self, accepted: int) -> None:
        self._low = self._low + 1 if accepted < LOW_SHARE * self._length else 0
        if self._low >= LOW_DRAFTS:
            self._pool.slots = {}
            self._low = self._added = 0


class CacheDrafter(LlamaCppDrafter):
    """ngram-cache: the most frequent token after the last 4, 3, 2 or 1 tokens, if frequent enough, up to eight times.

    Counts are taken of the prompt with the first token, then of each step's own tokens, so no n-gram that crosses two
    steps is ever counted. Ties go to the token seen first last.
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        lookup_cache_static: Annotated[bool, Flag("draft also from bigram counts of all documents")] = False,
    ) -> None:
        super().__init__(inputs)
        self.static = NGramCounts()
        if lookup_cache_static and inputs.corpus is not None:
            self.static = inputs.corpus
        # N-gram -> token -> count.
        self._counts: dict[NGram, dict[int, int]] = {}
        self._counted = 0

    def _draft(self, context: Sequence[int]) -> Sequence[int]:
        self._count(context[self._counted :])
        self._counted = len(context)
        tokens = list(context[-CACHE_NGRAM:])
        size = len(tokens)
        while len(tokens) < size + CACHE_DRAFT:
            token = self._next_token(tokens)
            if token is None:
                break
            tokens.append(token)
        return tokens[size:]

    def _count(self, tokens: Sequence[int]) -> None:
        for size in range(1, CACHE_NGRAM + 1):
            for end in range(size, len(tokens)):
                row = self._counts.setdefault(tuple(tokens[end - size : end]), {})
                row[tokens[end]] = row.get(tokens[end], 0) + 1

    def _next_token(self, tokens: Sequence[int]) -> int | None:
        """The token to draft after `tokens`: of the longest n-gram that has one, else of the static counts."""
        static = self.static.row(tuple(tokens[-STATIC_NGRAM:])) if len(tokens) >= STATIC_NGRAM else {}
        weights = {token: 100 * count for token, count in static.items()}
        for size in range(min(CACHE_NGRAM, len(tokens)), 0, -1):
            token = _frequent(self._counts.get(tuple(tokens[-size:]), {}), weights, size)
            if token is not None:
                return token
        return _frequent(static, {}, STATIC_NGRAM)


def _frequent(row: Mapping[int, int], weights: Mapping[int, int], size: int) -> int | None:
    """The token of the highest count times weight (1 without), unless its count is too low for an n-gram of `size`."""
    total = sum(row.values())
    if total < FEWEST[size - 1]:
        return None
    # Of equals a hash table of two lists the later entry first; more than two never reach the percentage.
    best = max(reversed(row), key=lambda token: row[token] * weights.get(token, 1))
    return best if 100 * row[best] >= MIN_PERCENT[size - 1] * total else None


def _corpus_part(options: Mapping[str, Any]) -> CorpusPart:
    return "corpus" if options["lookup_cache_static"] else ""


# fmt: off
METHODS = (
    Method("llamacpp-simple", "llama.cpp ngram-simple", "copies what followed the latest earlier occurrence",
           SimpleDrafter, map_draft, profile=None, twin_of="llama.cpp"),
    Method("llamacpp-map-k", "llama.cpp ngram-map-k", "copies after an n-gram as much as was accepted last time",
           MapKDrafter, map_draft, profile=None, twin_of="llama.cpp"),
    Method("llamacpp-map-k4v", "llama.cpp ngram-map-k4v", "the same, where one continuation is the most frequent",
           MapK4vDrafter, map_draft, profile=None, twin_of="llama.cpp"),
    Method("llamacpp-mod", "llama.cpp ngram-mod", "follows a hash table from n-gram to next token",
           ModDrafter, lambda options: int(options["n_max"]), profile=None, twin_of="llama.cpp"),
    Method("llamacpp-cache", "llama.cpp ngram-cache", "drafts tokens that were frequent after the last 1 to 4",
           CacheDrafter, CACHE_DRAFT, profile=None, corpus_part=_corpus_part,
           scoring=Scoring("without static counts", options={"lookup_cache_static": False}), twin_of="llama.cpp"),
)
# fmt: on
