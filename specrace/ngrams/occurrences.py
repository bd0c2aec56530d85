"""Where each n-gram of a growing text occurs for the first time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FirstOccurrences:
    """The first occurrences of all n-grams of up to `longest` tokens.

    >>> text = FirstOccurrences(longest=3)
    >>> text.extend([1, 2, 3, 9, 2, 3])
    >>> text.match_suffix()  # 2 3 first ended before index 3
    (3, 2)
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        # The index after the first occurrence of each n-gram.
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens`."""
        text, after = self.tokens, self._after
        for token in tokens:
            text.append(token)
            for length in range(1, min(self.longest, len(text)) + 1):
                after.setdefault(tuple(text[-length:]), len(text))

    def match_suffix(self, shortest: int = 1, query: Sequence[int] | None = None) -> tuple[int, int]:
        """The longest suffix of `query` that has a continuation in the text, of at least `shortest` tokens.

        `query` None means the text itself. Returns the index after the first occurrence of that suffix, and its length;
        (-1, 0) if there is none.
        """
        searched = self.tokens if query is None else query
        for length in range(min(self.longest, len(searched)), shortest - 1, -1):
            index = self._after.get(tuple(searched[-length:]), len(self.tokens))
            if index < len(self.tokens):
                return index, length
        return -1, 0
