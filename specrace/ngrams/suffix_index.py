"""A suffix index (suffix array): binary search in a corpus's sorted suffixes finds where a token sequence occurs.

The index is built once for a corpus and shared. Each document ends in `END`, which no query and no draft contains.
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
# Suffixes are sorted by this many of their first tokens; ties keep the order of the text.
SORTED_TOKENS = 32


class SuffixIndex:
    """The sorted suffixes of a corpus. The index never changes once it is built.

    `text` [T]: all documents, concatenated, with an `END` after each. `order` [T]: where its suffixes start, in sorted
    order.

    >>> index = SuffixIndex([[1, 2, 3], [7, 1, 2, 5]])
    >>> index.positions_after([1, 2], max_positions=10).tolist()  # where 3 and 5 are in 1 2 3 END 7 1 2 5 END
    [2, 7]
    """

    def __init__(self, documents: Iterable[Sequence[int]]) -> None:
        text: Ints = np.fromiter((token for tokens in documents for token in (*tokens, END)), np.int64)
        self.__setstate__((text, _sorted_suffixes(text)))

    def __getstate__(self) -> tuple[Ints, Ints]:
        """The arrays; the memory views cannot be pickled."""
        return self.text, self.order

    def __setstate__(self, state: tuple[Ints, Ints]) -> None:
        """Set the arrays, and memory views of them."""
        self.text, self.order = state
        # A search reads single numbers, which memory views return as Python's ints.
        self.tokens = memoryview(self.text)
        self._starts = memoryview(self.order)

    def __len__(self) -> int:
        return len(self.text)

    def positions_after(self, query: Sequence[int], max_positions: int) -> Ints:
        """The positions in `text` of the tokens that follow `query`, in the order of the suffixes.

        Occurrences at the end of a document have no continuation and are left out. If there are more than
        `max_positions`, evenly spaced ones are returned, because suffixes are sorted by token ids, and the first ones
        would favour continuations with small ids.
        """
        size, text = len(query), self.tokens
        first = self._first(query)
        end = bisect_right(self._starts, list(query), first, key=lambda start: text[start : start + size].tolist())
        if end - first <= max_positions:
            return self.order[first:end] + size
        return self.order[np.linspace(first, end - 1, max_positions).astype(np.int64)] + size

    def _first(self, query: Sequence[int]) -> int:
        """The index in `order` of the first suffix in which a token other than END follows `query`.

        If there is none, the index where it would be inserted.
        """
        size, text = len(query) + 1, self.tokens
        return bisect_left(self._starts, [*query, END + 1], key=lambda start: text[start : start + size].tolist())

    def _has_continuation(self, query: Sequence[int]) -> bool:
        first = self._first(query)
        if first == len(self):
            return False
        start = self._starts[first]
        return self.tokens[start : start + len(query)].tolist() == list(query)

    def longest_match(self, context: Sequence[int], shortest: int, longest: int, max_positions: int) -> Ints:
        """The `positions_after` the longest suffix of `context` that has a continuation.

        Only suffixes of `shortest` to `longest` tokens are tried; if none matches, the result is empty.
        """
        lengths = range(shortest, min(longest, len(context)) + 1)
        # If a suffix occurs, so do its own suffixes. Hence all matching lengths come before those that do not match.
        num_matching = bisect_left(lengths, True, key=lambda length: not self._has_continuation(context[-length:]))
        if not num_matching:
            return np.empty(0, np.int64)
        return self.positions_after(context[-lengths[num_matching - 1] :], max_positions)


def _sorted_suffixes(text: Ints) -> Ints:
    """The starts of the suffixes [T], sorted by their first 2, 4, 8, 16 and 32 tokens in turn.

    This is prefix doubling (Manber and Myers, 1990).
    """
    size, width = len(text), 1
    ranks: Ints = np.unique(text, return_inverse=True)[1].astype(np.int64)
    order: Ints
    while width < SORTED_TOKENS:
        # Ties are broken by the rank of the suffix `width` tokens later; the end of the text sorts before every token.
        following = np.zeros(size, np.int64)
        following[: max(0, size - width)] = ranks[width:] + 1
        pairs = ranks * (size + 1) + following
        order = np.argsort(pairs, kind="stable")
        differs = np.diff(pairs[order], prepend=pairs[order[:1]]) != 0
        ranks[order] = np.cumsum(differs)
        width *= 2
    return order


def earlier_matches(text: Ints, shortest: int, longest: int) -> Ints:
    """The positions after all earlier occurrences of the longest suffix of `text` [T] that occurs earlier, ascending.

    Only suffixes of `shortest` to `longest` tokens are tried. This is one vectorised scan, which needs no index and so
    suits a text that grows at every step.
    """
    ends = np.flatnonzero(text[:-1] == text[-1])
    match_ends = ends if shortest <= 1 else ends[:0]
    for length in range(2, longest + 1):
        ends = ends[ends >= length - 1]
        ends = ends[text[ends - length + 1] == text[-min(length, len(text))]]
        if not len(ends):
            break
        if length >= shortest:
            match_ends = ends
    return match_ends + 1


@dataclass(frozen=True)
class Continuation:
    """A token sequence that starts at `count` of the positions; `first` is the first of these."""

    tokens: tuple[int, ...]
    count: int
    first: int


def count_continuations(
    text: Sequence[int], positions: Sequence[int], max_length: int, max_continuations: int
) -> list[Continuation]:
    """The most frequent token sequences that start at `positions`, best first.

    Ties go to the shorter, then to the earlier in the text. A sequence has at most `max_length` tokens and stops before
    an END; `text` ends in one. At most `max_continuations` are returned. The prefixes of a sequence count as sequences,
    too, and come before it.
    """
    continuations: list[Continuation] = []
    # (-count, depth, first) is unique to a sequence, so later fields are never compared.
    frontier: list[tuple[int, int, int, tuple[int, ...], Sequence[int]]] = []

    def push(tokens: tuple[int, ...], starts: Sequence[int]) -> None:
        depth = len(tokens)
        groups = dict[int, list[int]]()
        for start in starts:
            groups.setdefault(text[start + depth], []).append(start)
        groups.pop(END, None)
        for token, group in groups.items():
            heappush(frontier, (-len(group), depth + 1, min(group), (*tokens, token), group))

    push((), positions)
    while frontier and len(continuations) < max_continuations:
        negative_count, depth, first, tokens, group = heappop(frontier)
        continuations.append(Continuation(tokens, -negative_count, first))
        if depth < max_length:
            push(tokens, group)
    return continuations
