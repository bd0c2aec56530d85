"""Sparse counts of bigrams and trigrams, in layers: a shared corpus below, one lane's own text above."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Context = tuple[int, ...]


class NGramCounts:
    """How often each token followed each context of 1 and of 2 tokens; a context's token -> count map is its row.

    A lane's counts are `NGramCounts(below=corpus)`: the corpus is counted once, shared and never changed; prompt and
    output are counted on top.
    """

    def __init__(self, below: NGramCounts | None = None) -> None:
        self.below = below
        self._rows: dict[Context, dict[int, int]] = {}
        self._last: Context = ()

    def extend(self, tokens: Iterable[int]) -> None:
        """Count `tokens` as the continuation of what was counted last."""
        rows, last = self._rows, self._last
        for token in tokens:
            for start in range(len(last)):
                row = rows.setdefault(last[start:], {})
                row[token] = row.get(token, 0) + 1
            last = (*last[-1:], token)
        self._last = last

    def extend_apart(self, texts: Iterable[Sequence[int]]) -> None:
        """Count several texts; no n-gram crosses from one into the next."""
        for tokens in texts:
            self._last = ()
            self.extend(tokens)
        self._last = ()

    @property
    def last(self) -> Context:
        """The last tokens counted, at most two: the context of the next."""
        return self._last

    def rows(self) -> Iterator[tuple[Context, Mapping[int, int]]]:
        """Every context and its row, layer by layer: a context of several layers comes once for each."""
        if self.below is not None:
            yield from self.below.rows()
        yield from self._rows.items()

    def total(self, context: Context) -> int:
        """The sum of a context's row."""
        return sum(self.row(context).values())

    def row(self, context: Context) -> dict[int, int]:
        """Token -> count after `context` (1 or 2 tokens), layers added; empty where it was never seen."""
        own = self._rows.get(context, {})
        under = self.below.row(context) if self.below is not None else {}
        if not own or not under:
            return own or under
        merged = dict(under)
        for token, count in own.items():
            merged[token] = merged.get(token, 0) + count
        return merged
