"""Where each n-gram of a growing text stood first."""

from __future__ import annotations

from collections.abc import Iterable


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

    def match_end(self, shortest: int = 1) -> tuple[int, int]:
        """(index, length): the longest suffix of the text that occurred before, and the index after that place.

        (-1, 0) when no suffix of `shortest` tokens or more did.
        """
        for length in range(min(self.longest, len(self.tokens)), shortest - 1, -1):
            index = self._after.get(tuple(self.tokens[-length:]), len(self.tokens))
            if index < len(self.tokens):
                return index, length
        return -1, 0
