"""Where each n-gram of a growing text stood first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FirstOccurrences:
    """For every n-gram up to `longest` tokens, the index just after its first occurrence."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Append to the text."""
        text, after = self.tokens, self._after
        for token in tokens:
            text.append(token)
            for length in range(1, min(self.longest, len(text)) + 1):
                after.setdefault(tuple(text[-length:]), len(text))

    def match_end(self, shortest: int = 1, query: Sequence[int] | None = None) -> tuple[int, int]:
        """(index, length): the longest suffix of `query` (None: the text) that goes on here, and the index after it.

        The place is the first one. (-1, 0) when no suffix of `shortest` tokens or more does.
        """
        last = self.tokens if query is None else query
        for length in range(min(self.longest, len(last)), shortest - 1, -1):
            index = self._after.get(tuple(last[-length:]), len(self.tokens))
            if index < len(self.tokens):
                return index, length
        return -1, 0
