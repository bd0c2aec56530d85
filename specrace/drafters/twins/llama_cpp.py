"""llama.cpp's drafters without a model: `ngram-simple`, `-map-k`, `-map-k4v`, `-mod` and `-cache`.

Source: ggml-org/llama.cpp, common/speculative.cpp (001d906), ngram-map.cpp (6870ab7), ngram-mod.cpp (20a0483) and
ngram-cache.cpp (5c5f166); the numbers in brackets are commits. Checked against build 11549 (the wheel xllamacpp
2026.10.11549). As in llama.cpp, a drafter makes its whole draft, which is then cut to the budget. See docs/twins.md for
what is not modelled.
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

# The number of slots of ngram-mod's pool, and the factor of its hash.
POOL_SLOTS, POOL_FACTOR = 2**22, 6364136223846793005
# ngram-mod adds new n-grams to its pool once this many tokens are new.
POOL_CHUNK = 32
# ngram-mod empties its pool after LOW_DRAFTS poor drafts in a row: less than LOW_SHARE of each was accepted.
LOW_DRAFTS, LOW_SHARE = 5, 0.25
# ngram-cache drafts up to 8 tokens.
CACHE_DRAFT = 8
# ngram-cache counts what followed n-grams of 1 to 4 tokens. For each n-gram size: the minimum total count, and the
# percentage of it that the most frequent token needs.
CACHE_NGRAM = 4
MIN_COUNTS = (2, 2, 1, 1)
MIN_PERCENT = (66, 50, 50, 50)
# The n-gram size of ngram-cache's static counts, which are those of all documents.
STATIC_NGRAM = 2


class Pool:
    """ngram-mod's hash table: the token that last followed each n-gram. N-grams with the same hash share a slot."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.slots: MutableMapping[int, int] = {}
        # The weight of the oldest of n tokens in the hash.
        self._oldest_weight = pow(POOL_FACTOR, n - 1, POOL_SLOTS)

    def add(self, tokens: Iterable[int]) -> None:
        """Enter the token that follows each n-gram of `tokens`."""
        ngram: deque[int] = deque()
        slot = 0
        for token in tokens:
            if len(ngram) == self.n:
                self.slots[slot] = token
                slot -= ngram.popleft() * self._oldest_weight
            slot = (slot * POOL_FACTOR + token) % POOL_SLOTS
            ngram.append(token)

    def extend(self, tokens: Sequence[int]) -> None:
        """Enter a text that ends in an END; the END is left out."""
        self.add(tokens[:-1])

    def follow(self, tokens: Sequence[int], max_tokens: int) -> list[int]:
        """The tokens that follow `tokens`, an n-gram, up to an empty slot; at most `max_tokens`."""
        text = list(tokens)
        slot = reduce(lambda slot, token: (slot * POOL_FACTOR + token) % POOL_SLOTS, tokens, 0)
        for index in range(max_tokens):
            token = self.slots.get(slot)
            if token is None:
                break
            slot = ((slot - text[index] * self._oldest_weight) * POOL_FACTOR + token) % POOL_SLOTS
            text.append(token)
        return text[self.n :]


class ModDrafter(LlamaCppDrafter):
    """ngram-mod: looks up the token that followed the last `n_match` tokens, appends it, and repeats.

    A draft of fewer than `n_min` tokens is discarded. The pool also has the n-grams of earlier requests, because a
    llama.cpp server has one pool.

    1 2 was followed by 3, 2 3 by 9, and 3 9 by 4:

    >>> drafter = ModDrafter(DrafterInputs((1, 2, 3, 9, 4, 1), vocab_size=10), n_match=2, n_min=1, n_max=3)
    >>> drafter.propose((1, 2, 3, 9, 4, 1, 2), budget=8).tokens
    (2, 3, 9, 4)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        n_match: Annotated[int, Bounds(1, 1024, "tokens that are looked up")] = 24,
        n_min: Annotated[int, Bounds(0, 1024, "minimum number of tokens of a draft")] = 48,
        n_max: Annotated[int, Bounds(1, 1024, "maximum number of tokens of a draft")] = 64,
    ) -> None:
        super().__init__(inputs)
        self.n_match = n_match
        self.n_min = n_min
        self.n_max = n_max
        self._pool = Pool(n_match)
        if len(past := PastOutputs.of(inputs.past)):
            # The server's pool holds whole prompts, so their tails are not cut.
            self._pool.slots = ChainMap({}, past.index(Pool, n_match, prompt_tail=sys.maxsize).slots)
        self._pool.add(inputs.prompt)
        # The index of the first token that is not in the pool yet.
        self._added = max(0, self.num_prompt - n_match)
        # The number of poor drafts in a row, and the length of the last draft.
        self._low_drafts = 0
        self._draft_length = 0

    def draft(self, context: Sequence[int]) -> Sequence[int]:
        n, last = self.n_match, len(context) - 1
        self._draft_length = 0
        if last < n:
            return ()
        if self._added + POOL_CHUNK < last:
            self._pool.add(context[self._added : last])
            self._added = last - n
        draft = self._pool.follow(context[-n:], self.n_max)
        # Even if n_min is above n_max, a full draft is kept.
        if len(draft) < min(self.n_min, self.n_max):
            return ()
        self._draft_length = len(draft)
        return draft

    def accept(self, accepted: int) -> None:
        self._low_drafts = self._low_drafts + 1 if accepted < LOW_SHARE * self._draft_length else 0
        if self._low_drafts >= LOW_DRAFTS:
            self._pool.slots = {}
            self._low_drafts = 0
            self._added = 0


class CacheDrafter(LlamaCppDrafter):
    """ngram-cache: drafts up to eight tokens, each the most frequent one after the last 4, 3, 2 or 1 tokens.

    A token must be frequent enough; of two equally frequent ones, the one that was first seen later wins. The prompt is
    counted together with the first output token, then the tokens of each step separately. So n-grams that span two
    steps are not counted.

    1 2 3 was followed by 9, and 1 2 3 9 by 4. After three tokens or more a single count is enough, after two it is not:

    >>> drafter = CacheDrafter(DrafterInputs((1, 2, 3, 9, 4, 1, 2), vocab_size=10))
    >>> drafter.propose((1, 2, 3, 9, 4, 1, 2, 3), budget=2).tokens
    (3, 9, 4)
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
        # N-gram -> token -> how often the token followed the n-gram.
        self._counts: dict[NGram, dict[int, int]] = {}
        self._counted = 0

    def draft(self, context: Sequence[int]) -> Sequence[int]:
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
        """Count the tokens that follow the n-grams of `tokens`."""
        for size in range(1, CACHE_NGRAM + 1):
            for end in range(size, len(tokens)):
                row = self._counts.setdefault(tuple(tokens[end - size : end]), {})
                row[tokens[end]] = row.get(tokens[end], 0) + 1

    def _next_token(self, tokens: Sequence[int]) -> int | None:
        """The token to draft after `tokens`, by the longest n-gram with a frequent token, else by the static counts."""
        static = self.static.row(tuple(tokens[-STATIC_NGRAM:])) if len(tokens) >= STATIC_NGRAM else {}
        # As in llama.cpp, a count is multiplied by 100 times the token's static count, if it has one.
        weights = {token: 100 * count for token, count in static.items()}
        for size in range(min(CACHE_NGRAM, len(tokens)), 0, -1):
            token = _frequent(self._counts.get(tuple(tokens[-size:]), {}), weights, size)
            if token is not None:
                return token
        return _frequent(static, {}, STATIC_NGRAM)


def _frequent(row: Mapping[int, int], weights: Mapping[int, int], size: int) -> int | None:
    """The token with the highest count times weight (1 if none), if its count is enough for an n-gram of `size`."""
    total = sum(row.values())
    if total < MIN_COUNTS[size - 1]:
        return None
    # On a tie, llama.cpp's hash table lists the later of two tokens first. Three equal counts never reach MIN_PERCENT.
    best = max(reversed(row), key=lambda token: row[token] * weights.get(token, 1))
    return best if 100 * row[best] >= MIN_PERCENT[size - 1] * total else None


def _corpus_part(options: Mapping[str, Any]) -> CorpusPart:
    """The field through which ngram-cache reads the documents, if it uses them."""
    return "corpus" if options["lookup_cache_static"] else ""


# fmt: off
METHODS = (
    Method("llamacpp-simple", "llama.cpp ngram-simple", "copies what followed the latest earlier occurrence",
           SimpleDrafter, map_draft, profile=None, twin_of="llama.cpp"),
    Method("llamacpp-map-k", "llama.cpp ngram-map-k",
           "copies what followed an n-gram, as many tokens as were last accepted",
           MapKDrafter, map_draft, profile=None, twin_of="llama.cpp"),
    Method("llamacpp-map-k4v", "llama.cpp ngram-map-k4v",
           "copies what followed an n-gram, if one continuation dominates",
           MapK4vDrafter, map_draft, profile=None, twin_of="llama.cpp"),
    Method("llamacpp-mod", "llama.cpp ngram-mod", "follows a hash table from n-gram to next token",
           ModDrafter, lambda options: int(options["n_max"]), profile=None, twin_of="llama.cpp"),
    Method("llamacpp-cache", "llama.cpp ngram-cache", "drafts tokens that often followed the last 1 to 4 tokens",
           CacheDrafter, CACHE_DRAFT, profile=None, corpus_part=_corpus_part,
           scoring=Scoring("without static counts", options={"lookup_cache_static": False}), twin_of="llama.cpp"),
)
# fmt: on
