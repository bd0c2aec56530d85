"""Bigram and trigram drafts: count tables, add-k smoothing, back-off from trigram to bigram.

After "Adding Trigram to Speculative Decoding": the trigram row is used where its context was seen often enough, else
the bigram row. Over a vocabulary of thousands a smoothed row is nearly uniform, so a draft drawn from it would be
noise; this draft is each row's most likely token, one-hot, and the row's smoothed probability is kept for show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated

from specrace.drafters.base import Bounds, Material
from specrace.ngrams.counts import NGramCounts
from specrace.tree import TokenTree
from specrace.verify import Verdict

SMOOTHING = 1.0


class _TableDrafter(ABC):
    """A chain that follows the table's most likely continuations and stops where the table knows none."""

    def __init__(self, material: Material) -> None:
        self.vocab_size = material.vocab_size
        self.counts = NGramCounts(below=material.corpus)
        self.counts.extend(material.prompt)

    @abstractmethod
    def row(self, previous: int | None, current: int) -> dict[int, int]:
        """Token -> count after (`previous`, `current`)."""

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The context is the last two real tokens; it rolls forward with every guess."""
        previous, current = (context[-2] if len(context) > 1 else None), context[-1]
        draft: list[int] = []
        probs = [1.0]
        while len(draft) < budget:
            row = self.row(previous, current)
            if not row:
                break
            # Ties go to the token that was counted first, so that a draft does not depend on token numbers.
            token = max(row, key=row.__getitem__)
            probs.append((row[token] + SMOOTHING) / (sum(row.values()) + SMOOTHING * self.vocab_size))
            draft.append(token)
            previous, current = current, token
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Count what was really said: the accepted tokens and the bonus."""
        self.counts.extend(tree.tokens[node] for node in verdict.path[1:])
        self.counts.extend((verdict.bonus,))


class BigramDrafter(_TableDrafter):
    """P(next | current)."""

    def row(self, previous: int | None, current: int) -> dict[int, int]:
        """The row of `current` alone."""
        return self.counts.row((current,))


class TrigramDrafter(_TableDrafter):
    """P(next | previous, current), with back-off to the bigram."""

    def __init__(
        self,
        material: Material,
        *,
        min_context_count: Annotated[int, Bounds(1, 1000, "sightings before a trigram row is trusted")] = 2,
    ) -> None:
        super().__init__(material)
        self.min_context_count = min_context_count

    def row(self, previous: int | None, current: int) -> dict[int, int]:
        """The trigram row if its context was seen `min_context_count` times, else the bigram row."""
        if previous is not None:
            row = self.counts.row((previous, current))
            if sum(row.values()) >= self.min_context_count:
                return row
        return self.counts.row((current,))
