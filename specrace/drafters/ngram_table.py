"""Bigram and trigram drafts from counts of pairs and triples of tokens in documents, prompt and output.

Source: "Adding Trigram to Speculative Decoding" (code: czhou578/multimodal-inference-visualizer,
nanogpt-trigram-spec-decode.py).

The trigram row of a context (its counts) is used if the context was seen often enough, else the bigram row. The source
draws every draft from the row with add-k smoothing. With thousands of tokens in the vocabulary such a row is nearly
uniform and the draft mostly noise, so by default each row's most frequent token is drafted, without smoothing; of
equally frequent tokens, the one counted first. A `sampled` draft, which rejection sampling needs, is drawn as in the
source.
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
Smoothing = Annotated[int, Bounds(1, 1000, "hundredths added to each count, if sampled")]
# A note shows at most this many rows, and this many continuations of each.
MAX_NOTE_ROWS = 8
MAX_NOTE_CONTINUATIONS = 6


class BigramDrafter(DepthDrafter):
    """Drafts a chain by P(next | current).

    By default it drafts each row's most frequent token and stops at an empty row. With `sampled` it draws each token
    from its row; where the row is empty, all tokens are equally likely.

    1 was followed by 2 twice and by 5 once, 2 always by 3, and 3 always by 1:

    >>> context = (1, 2, 3, 1, 5, 1, 2, 3, 1)
    >>> BigramDrafter(DrafterInputs(context, vocab_size=10)).propose(context, budget=3).tokens
    (1, 2, 3, 1)
    """

    order = 2
    # The names of the tables, by length of the context.
    names: ClassVar[Mapping[int, str]] = {1: "bigram", 2: "trigram"}

    def __init__(self, inputs: DrafterInputs, *, sampled: Sampled = False, smoothing_percent: Smoothing = 100) -> None:
        self.vocab_size = inputs.vocab_size
        self.smoothing = smoothing_percent / 100
        # The counts of prompt and output, on top of those of the documents.
        self.counts = NGramCounts(below=inputs.corpus)
        self.counts.extend(inputs.prompt)
        self.rows: SampledRows | None = None
        if sampled:
            # `order` is this drafter's stream (see `draft_model.STREAM`). The last 2 keeps it apart from the streams of
            # rejection sampling, which have a 1 or a 3 in its place.
            random = np.random.default_rng((inputs.seed, self.order, 2))
            self.rows = SampledRows(self.counts, inputs.vocab_size, self.smoothing, inputs.params, random)
        self._drawn_from: list[np.ndarray] = []
        self._previous: int | None = None

    def context(self, previous: int | None, current: int) -> Context:
        """The context whose row is used after `previous` and `current`."""
        return (current,)

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """A chain of at most `budget` and `depth` tokens; it ends earlier at a row without tokens."""
        previous = context[-2] if len(context) > 1 else None
        current = context[-1]
        self._previous = previous
        self._drawn_from = []
        draft: list[int] = []
        probs = [1.0]
        size = min(budget, depth)
        while len(draft) < size and (choice := self._next(self.context(previous, current))) is not None:
            token, prob = choice
            previous, current = current, token
            draft.append(token)
            probs.append(prob)
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def note(self, tree: TokenTree) -> Note:
        """The row of each draft token: the context, how often it was seen, and the row's most frequent tokens."""
        previous_tokens = (self._previous, *tree.tokens)
        pairs = list(zip(previous_tokens, tree.tokens, strict=False))[: min(tree.num_draft + 1, MAX_NOTE_ROWS)]
        return Note({}, tuple(self._describe_row(previous, current) for previous, current in pairs))

    def _describe_row(self, previous: int | None, current: int) -> NoteRow:
        """The note's row on the counts that were used after `previous` and `current`."""
        context = self.context(previous, current)
        row = self.counts.row(context)
        top = heapq.nlargest(MAX_NOTE_CONTINUATIONS, row, key=row.__getitem__)
        label = f"{self.names[len(context)]}, seen {sum(row.values())}×"
        if len(context) < self.order - 1 and previous is not None:
            label += f"; the {self.names[self.order - 1]} only {self.counts.total((previous, current))}×"
        return NoteRow("Rows of the table", label, tuple(top), tuple(row[token] for token in top), context)

    def distributions(self) -> np.ndarray:
        """The distributions that the last draft was drawn from, [k, V]; [0, V] unless it is `sampled`."""
        return np.array(self._drawn_from).reshape(-1, self.vocab_size)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Count the output tokens."""
        output = verdict.output(tree)
        self.counts.extend(output)
        if self.rows is not None:
            self.rows.extend(output)

    def _next(self, context: Context) -> tuple[int, float] | None:
        """The token to draft after `context` and its probability; None if the row is empty."""
        if self.rows is not None:
            token, probs = self.rows.draw(context)
            self._drawn_from.append(probs)
            return token, float(probs[token])
        row = self.counts.row(context)
        if not row:
            return None
        # Ties go to the token that was counted first, so a draft does not depend on token ids.
        token = max(row, key=row.__getitem__)
        return token, row[token] / sum(row.values())


class TrigramDrafter(BigramDrafter):
    """Drafts a chain by P(next | previous, current), with back-off to P(next | current).

    2 was followed by 4 more often than by 3, but 1 2 was followed only by 3:

    >>> context = (1, 2, 3, 2, 4, 2, 4, 2, 4, 1, 2, 3, 1, 2)
    >>> inputs = DrafterInputs(context, vocab_size=10)
    >>> [build(inputs).propose(context, budget=1).tokens for build in (BigramDrafter, TrigramDrafter)]
    [(2, 4), (2, 3)]
    """

    order = 3

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        min_context_count: Annotated[int, Bounds(1, 1000, "minimum count of a context for using its trigram row")] = 2,
        sampled: Sampled = False,
        smoothing_percent: Smoothing = 100,
    ) -> None:
        super().__init__(inputs, sampled=sampled, smoothing_percent=smoothing_percent)
        self.min_context_count = min_context_count

    def context(self, previous: int | None, current: int) -> Context:
        """Both tokens if they were seen at least `min_context_count` times, else `current` alone."""
        if previous is not None and self.counts.total((previous, current)) >= self.min_context_count:
            return (previous, current)
        return (current,)
