"""Bigram and trigram drafts: count tables, add-k smoothing, back-off from trigram to bigram.

After "Adding Trigram to Speculative Decoding": the trigram row is used where its context was seen often enough, else
the bigram row. As there, a `sampled` draft is drawn from the smoothed row at the race's temperature, and hands over
the distribution that it was drawn from. Over a vocabulary of thousands a smoothed row is nearly uniform and such a
draft mostly noise; the default draft is each row's most likely token, one-hot, with the smoothed probability for show.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, Flag, Material
from specrace.drafters.sampled_rows import SampledRows
from specrace.ngrams.counts import Context, NGramCounts

Sampled = Annotated[bool, Flag("draw drafts from the smoothed rows at the race's temperature")]
Smoothing = Annotated[int, Bounds(1, 1000, "added to every count, in hundredths")]


# What a note has room for.
ROWS_TOLD = 8
CONTINUATIONS_TOLD = 6


class _TableDrafter(ABC):
    """A chain from the table's rows: the most likely continuations, or tokens drawn from them.

    The most likely ones stop where the table knows none; a row that nothing is known of is drawn from uniformly.
    """

    takes_depth: ClassVar[bool] = True
    order: int
    # By the length of the context.
    names: ClassVar[Mapping[int, str]] = {1: "bigram", 2: "trigram"}

    def __init__(self, material: Material, sampled: bool, smoothing_percent: int) -> None:
        self.vocab_size = material.vocab_size
        self.smoothing = smoothing_percent / 100
        self.counts = NGramCounts(below=material.corpus)
        self.counts.extend(material.prompt)
        self.rows: SampledRows | None = None
        if sampled:
            # The lane's coins come from the same seed, so this is another stream of it.
            random = np.random.default_rng((material.seed, self.order, 2))
            self.rows = SampledRows(self.counts, material.vocab_size, self.smoothing, material.params, random)
        self._drawn_from: list[np.ndarray] = []
        self._previous: int | None = None

    @abstractmethod
    def context(self, previous: int | None, current: int) -> Context:
        """The tokens whose row is used after (`previous`, `current`)."""

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The context is the last two real tokens; it rolls forward with every guess."""
        previous, current = (context[-2] if len(context) > 1 else None), context[-1]
        self._previous = previous
        draft: list[int] = []
        probs = [1.0]
        self._drawn_from = []
        while len(draft) < min(budget, depth) and (guess := self._guess(self.context(previous, current))) is not None:
            previous, current = current, guess[0]
            draft.append(current)
            probs.append(guess[1])
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def note(self, tree: TokenTree) -> Note:
        """The row that each guess was taken from: its context, how often that was seen, its most frequent tokens."""
        before = (self._previous, *tree.tokens)
        pairs = list(zip(before, tree.tokens, strict=False))[: min(tree.num_draft + 1, ROWS_TOLD)]
        return Note({}, tuple(self._describe_row(previous, current) for previous, current in pairs))

    def _describe_row(self, previous: int | None, current: int) -> NoteRow:
        context = self.context(previous, current)
        row = self.counts.row(context)
        best = heapq.nlargest(CONTINUATIONS_TOLD, row, key=row.__getitem__)
        seen = f"{self.names[len(context)]}, seen {sum(row.values())}×"
        if len(context) < self.order - 1 and previous is not None:
            seen += f"; the {self.names[self.order - 1]} only {self.counts.total((previous, current))}×"
        return NoteRow("Rows of the table", seen, tuple(best), tuple(row[token] for token in best), context)

    def distributions(self) -> np.ndarray:
        """What the guesses of the last proposal were drawn from, [k, V]; only of a `sampled` draft."""
        return np.array(self._drawn_from).reshape(-1, self.vocab_size)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Count what was really said: the accepted tokens and the bonus."""
        said = verdict.output(tree)
        self.counts.extend(said)
        if self.rows is not None:
            self.rows.extend(said)

    def _guess(self, context: Context) -> tuple[int, float] | None:
        """A token and its probability."""
        if self.rows is not None:
            token, probs = self.rows.draw(context)
            self._drawn_from.append(probs)
            return token, float(probs[token])
        row = self.counts.row(context)
        if not row:
            return None
        # Ties go to the token that was counted first, so that a draft does not depend on token numbers.
        token = max(row, key=row.__getitem__)
        return token, (row[token] + self.smoothing) / (sum(row.values()) + self.smoothing * self.vocab_size)


class BigramDrafter(_TableDrafter):
    """P(next | current)."""

    order = 2

    def __init__(self, material: Material, *, sampled: Sampled = False, smoothing_percent: Smoothing = 100) -> None:
        super().__init__(material, sampled, smoothing_percent)

    def context(self, previous: int | None, current: int) -> Context:
        """`current` alone."""
        return (current,)


class TrigramDrafter(_TableDrafter):
    """P(next | previous, current), with back-off to the bigram."""

    order = 3

    def __init__(
        self,
        material: Material,
        *,
        min_context_count: Annotated[int, Bounds(1, 1000, "sightings before a trigram row is trusted")] = 2,
        sampled: Sampled = False,
        smoothing_percent: Smoothing = 100,
    ) -> None:
        super().__init__(material, sampled, smoothing_percent)
        self.min_context_count = min_context_count

    def context(self, previous: int | None, current: int) -> Context:
        """Both tokens if they were seen in a row `min_context_count` times, else `current` alone."""
        if previous is not None and self.counts.total((previous, current)) >= self.min_context_count:
            return (previous, current)
        return (current,)
