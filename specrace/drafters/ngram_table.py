"""Bigram and trigram drafts, after "Adding Trigram to Speculative Decoding": count tables with add-k smoothing.

The trigram row is used where its context was seen often enough, else the bigram row. A `sampled` draft is drawn from
the smoothed row at the race's temperature, as there. Over thousands of tokens such a row is nearly uniform and the
draft mostly noise, so the default is each row's most frequent token, without smoothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, DepthDrafter, DrafterInputs, Flag
from specrace.drafters.sampled_rows import SampledRows
from specrace.ngrams.counts import Context, NGramCounts

Sampled = Annotated[bool, Flag("draw drafts from the smoothed rows at the race's temperature")]
Smoothing = Annotated[int, Bounds(1, 1000, "added to every count of a sampled draft, in hundredths")]
# What a note has room for.
ROWS_NOTED = 8
CONTINUATIONS_NOTED = 6


class BigramDrafter(DepthDrafter):
    """P(next | current): the likeliest tokens, up to an empty row; or drawn ones, uniform from an empty row."""

    order = 2
    # By length of the context.
    names: ClassVar[Mapping[int, str]] = {1: "bigram", 2: "trigram"}

    def __init__(self, inputs: DrafterInputs, *, sampled: Sampled = False, smoothing_percent: Smoothing = 100) -> None:
        self.vocab_size = inputs.vocab_size
        self.smoothing = smoothing_percent / 100
        self.counts = NGramCounts(below=inputs.corpus)
        self.counts.extend(inputs.prompt)
        self.rows: SampledRows | None = None
        if sampled:
            # Another stream of the seed than the coins of rejection sampling.
            random = np.random.default_rng((inputs.seed, self.order, 2))
            self.rows = SampledRows(self.counts, inputs.vocab_size, self.smoothing, inputs.params, random)
        self._drawn_from: list[np.ndarray] = []
        self._previous: int | None = None

    def context(self, previous: int | None, current: int) -> Context:
        """The context whose row is used after (`previous`, `current`)."""
        return (current,)

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """A chain after the last two tokens of the context; at most `budget`, `depth`, and what the table has."""
        previous, current = (context[-2] if len(context) > 1 else None), context[-1]
        self._previous, self._drawn_from = previous, []
        draft, probs = list[int](), [1.0]
        while len(draft) < min(budget, depth) and (found := self._next(self.context(previous, current))) is not None:
            previous, current = current, found[0]
            draft.append(current)
            probs.append(found[1])
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def note(self, tree: TokenTree) -> Note:
        """The row of each draft token: its context, how often that was seen, its most frequent tokens."""
        before = (self._previous, *tree.tokens)
        pairs = list(zip(before, tree.tokens, strict=False))[: min(tree.num_draft + 1, ROWS_NOTED)]
        return Note({}, tuple(self._describe_row(previous, current) for previous, current in pairs))

    def _describe_row(self, previous: int | None, current: int) -> NoteRow:
        context = self.context(previous, current)
        row = self.counts.row(context)
        best = heapq.nlargest(CONTINUATIONS_NOTED, row, key=row.__getitem__)
        seen = f"{self.names[len(context)]}, seen {sum(row.values())}×"
        if len(context) < self.order - 1 and previous is not None:
            seen += f"; the {self.names[self.order - 1]} only {self.counts.total((previous, current))}×"
        return NoteRow("Rows of the table", seen, tuple(best), tuple(row[token] for token in best), context)

    def distributions(self) -> np.ndarray:
        """What the last draft was drawn from, [k, V]; of a `sampled` draft only."""
        return np.array(self._drawn_from).reshape(-1, self.vocab_size)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Count the output tokens."""
        output = verdict.output(tree)
        self.counts.extend(output)
        if self.rows is not None:
            self.rows.extend(output)

    def _next(self, context: Context) -> tuple[int, float] | None:
        """A token and its probability; None from an empty row."""
        if self.rows is not None:
            token, probs = self.rows.draw(context)
            self._drawn_from.append(probs)
            return token, float(probs[token])
        row = self.counts.row(context)
        if not row:
            return None
        # Ties go to the token counted first, so that a draft does not depend on token ids.
        token = max(row, key=row.__getitem__)
        return token, row[token] / sum(row.values())


class TrigramDrafter(BigramDrafter):
    """P(next | previous, current), with back-off to the bigram."""

    order = 3

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        min_context_count: Annotated[int, Bounds(1, 1000, "least count of a context for its trigram row")] = 2,
        sampled: Sampled = False,
        smoothing_percent: Smoothing = 100,
    ) -> None:
        super().__init__(inputs, sampled=sampled, smoothing_percent=smoothing_percent)
        self.min_context_count = min_context_count

    def context(self, previous: int | None, current: int) -> Context:
        """Both tokens if their row counts at least `min_context_count`, else `current` alone."""
        if previous is not None and self.counts.total((previous, current)) >= self.min_context_count:
            return (previous, current)
        return (current,)
