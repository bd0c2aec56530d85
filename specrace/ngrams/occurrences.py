"""Where each n-gram of a growing text occurs first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FirstOccurrences:
    """For every n-gram of up to `longest` tokens, the index after its first occurrence."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens`."""
        text, after = self.tokens, self._after
        for token in tokens:
            text.append(token)
            for length in range(1, min(self.longest, len(text)) + 1):
                after.setdefault(tuple(text[-length:]), len(text))

    def match_suffix(self, shortest: int = 1, query: Sequence[int] | None = None) -> tuple[int, int]:
        """The longest suffix of `query` (None: of the text) that has a continuation: (index after it, its length).

        (-1, 0) when no suffix of at least `shortest` tokens has one.
        """
        last = self.tokens if query is None else query
        for length in range(min(self.longest, len(last)), shortest - 1, -1):
            index = self._after.get(tuple(last[-length:]), len(self.tokens))
            if index < len(self.tokens):
                return index, length
        return -1, 0
