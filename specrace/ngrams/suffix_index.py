"""A suffix index (suffix array): where some tokens occur in a corpus, by binary search in its sorted suffixes.

Built once for a corpus and shared. Each document ends in `END`, which no query and no draft contains.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

END = -1
# Suffixes are sorted by this many of their first tokens; equal ones are in the order of the text.
SORTED_TOKENS = 32


class SuffixIndex:
    """The sorted suffixes of all documents' tokens, immutable.

    `text` [T] is all documents in a row, an `END` after each; `order` [T] the starts of its suffixes, sorted.
    """

    def __init__(self, documents: Iterable[Sequence[int]]) -> None:
        text: Ints = np.fromiter((token for tokens in documents for token in (*tokens, END)), np.int64)
        self.__setstate__((text, _sorted_suffixes(text)))

    def __getstate__(self) -> tuple[Ints, Ints]:
        """What is pickled: views of memory cannot be."""
        return self.text, self.order

    def __setstate__(self, state: tuple[Ints, Ints]) -> None:
        """As it was pickled."""
        self.text, self.order = state
        # Memoryviews, because a search reads single numbers and these give Python's own.
        self.tokens, self._starts = memoryview(self.text), memoryview(self.order)

    def __len__(self) -> int:
        return len(self.text)

    def places(self, query: Sequence[int], most: int) -> Ints:
        """Indices of the tokens that follow `query`, sorted by what follows, [at most `most`].

        Of more than `most` an even spread over the sorted ones is taken, so that no continuation is dropped for its
        token ids. Occurrences at a document's end are left out.
        """
        size, text = len(query), self.tokens
        first = self._first(query)
        end = bisect_right(self._starts, list(query), first, key=lambda start: text[start : start + size].tolist())
        if end - first <= most:
            return self.order[first:end] + size
        return self.order[np.linspace(first, end - 1, most).astype(np.int64)] + size

    def _first(self, query: Sequence[int]) -> int:
        """Where in the order the suffixes begin that start with `query` and have a continuation, if there are any."""
        size, text = len(query) + 1, self.tokens
        return bisect_left(self._starts, [*query, END + 1], key=lambda start: text[start : start + size].tolist())

    def _has_continuation(self, query: Sequence[int]) -> bool:
        first = self._first(query)
        if first == len(self):
            return False
        start = self._starts[first]
        return self.tokens[start : start + len(query)].tolist() == list(query)

    def longest_match(self, context: Sequence[int], shortest: int, longest: int, most: int) -> Ints:
        """`places` of the longest suffix of `context`, of `shortest` to `longest` tokens, that has a continuation."""
        lengths = range(shortest, min(longest, len(context)) + 1)
        # Where a suffix occurs its own suffixes do, so the lengths that match come first.
        matching = bisect_left(lengths, True, key=lambda length: not self._has_continuation(context[-length:]))
        if not matching:
            return np.empty(0, np.int64)
        return self.places(context[-lengths[matching - 1] :], most)


def _sorted_suffixes(text: Ints) -> Ints:
    """Starts of the suffixes [T], by prefix doubling (Manber and Myers, 1990): by 2 tokens, then 4, 8, 16 and 32."""
    size, width = len(text), 1
    ranks: Ints = np.unique(text, return_inverse=True)[1].astype(np.int64)
    order: Ints
    while width < SORTED_TOKENS:
        # The rank `width` tokens further breaks ties; the end of the text sorts before every token.
        following = np.zeros(size, np.int64)
        following[: max(0, size - width)] = ranks[width:] + 1
        pairs = ranks * (size + 1) + following
        order = np.argsort(pairs, kind="stable")
        steps = np.diff(pairs[order], prepend=pairs[order[:1]]) != 0
        ranks[order] = np.cumsum(steps)
        width *= 2
    return order


def matches_in_itself(text: Ints, shortest: int, longest: int) -> Ints:
    """Indices in `text` [T] after earlier occurrences of its longest suffix that has one, in ascending order.

    For a text that grows at every step: one vectorised scan, no index to maintain.
    """
    found = ends = np.flatnonzero(text[:-1] == text[-1])
    if shortest > 1:
        found = ends[:0]
    for length in range(2, longest + 1):
        ends = ends[ends >= length - 1]
        ends = ends[text[ends - length + 1] == text[-min(length, len(text))]]
        if not len(ends):
            break
        if length >= shortest:
            found = ends
    return found + 1


@dataclass(frozen=True)
class Continuation:
    """Tokens that follow at `count` of the places, first at the index `first` of the text."""

    tokens: tuple[int, ...]
    count: int
    first: int


def count_continuations(text: Sequence[int], places: Sequence[int], length: int, most: int) -> list[Continuation]:
    """The `most` most frequent prefixes, of at most `length` tokens, of what follows at `places` up to an END.

    `text` ends in an END. Best first, so a prefix comes after its own prefixes, and only prefixes that are returned are
    extended. Ties: the shorter, then the first in the text.
    """
    found: list[Continuation] = []
    # (-count, depth, first) is unique to a prefix, so later fields are never compared.
    frontier: list[tuple[int, int, int, tuple[int, ...], Sequence[int]]] = []

    def push(tokens: tuple[int, ...], places: Sequence[int]) -> None:
        depth, groups = len(tokens), dict[int, list[int]]()
        for place in places:
            groups.setdefault(text[place + depth], []).append(place)
        groups.pop(END, None)
        for token, group in groups.items():
            heappush(frontier, (-len(group), depth + 1, min(group), (*tokens, token), group))

    push((), places)
    while frontier and len(found) < most:
        negative, depth, first, tokens, group = heappop(frontier)
        found.append(Continuation(tokens, -negative, first))
        if depth < length:
            push(tokens, group)
    return found
