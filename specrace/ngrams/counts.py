"""Sparse counts of bigrams and trigrams in two layers: a lane's text on top of a shared corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Context = tuple[int, ...]


class NGramCounts:
    """How often each token followed each context of 1 or 2 tokens. A context's counts by token are its row.

    A lane uses `NGramCounts(below=corpus)`: the corpus is counted once, shared and never changed; prompt and output are
    counted on top.

    >>> counts = NGramCounts()
    >>> counts.extend([1, 2, 3, 1, 2, 5])
    >>> counts.row((2,)), counts.row((1, 2)), counts.row((9,))
    ({3: 1, 5: 1}, {3: 1, 5: 1}, {})
    """

    def __init__(self, below: NGramCounts | None = None) -> None:
        self.below = below
        self._rows: dict[Context, dict[int, int]] = {}
        self._last: Context = ()

    def extend(self, tokens: Iterable[int]) -> None:
        """Count `tokens` as the continuation of the tokens counted before."""
        rows, last = self._rows, self._last
        for token in tokens:
            for start in range(len(last)):
                row = rows.setdefault(last[start:], {})
                row[token] = row.get(token, 0) + 1
            last = (*last[-1:], token)
        self._last = last

    def extend_apart(self, texts: Iterable[Sequence[int]]) -> None:
        """Count several separate texts; no n-gram spans two of them."""
        for tokens in texts:
            self._last = ()
            self.extend(tokens)
        self._last = ()

    @property
    def last(self) -> Context:
        """The last one or two tokens counted: the context of the next."""
        return self._last

    def rows(self) -> Iterator[tuple[Context, Mapping[int, int]]]:
        """Every context and its row, layer by layer; a context that is in both layers comes twice."""
        if self.below is not None:
            yield from self.below.rows()
        yield from self._rows.items()

    def total(self, context: Context) -> int:
        """The sum of a context's row."""
        return sum(self.row(context).values())

    def row(self, context: Context) -> dict[int, int]:
        """The counts by token after `context` (1 or 2 tokens), the layers added; empty for an unknown context."""
        upper = self._rows.get(context, {})
        lower = self.below.row(context) if self.below is not None else {}
        if not upper or not lower:
            return upper or lower
        merged = dict(lower)
        for token, count in upper.items():
            merged[token] = merged.get(token, 0) + count
        return merged
