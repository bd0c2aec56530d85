"""Lookahead decoding (Fu et al., 2024): a two-dimensional window of Jacobi trajectories and a pool of n-grams.

The window has N-1 rows. Its trunk is the pending token and row 0; below trunk node i is the chain row1[i], row2[i], ...
The ancestor mask and position = base + depth make this the published mask and positions; the n-grams to verify are more
branches at the root.

Unlike the reference code, a full match keeps its bonus token (N tokens, not N-1), the output is never extended by a
stale hit, branches with a common prefix share its nodes, and the window's branches are verified too, at no cost.

At a temperature above 0 the window takes the tokens that the target draws, not the likeliest: the noise of a position
is the same at every step, so they are what the output will hold if the tokens before them are right. (Tokens per step,
drawn and likeliest: 1.47 and 1.39 at temperature 1 on the character model with N, W, G = 3, 5, 3; else within 4 %.)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, DepthDrafter, DrafterInputs, Flag, Scoring

NGram = tuple[int, ...]


def tree_size(options: Mapping[str, int]) -> int:
    """The most draft nodes of a step: those of the full window and G branches, or of the widest fill step."""
    return _tree_size(options["n"], options["window"], options["guesses"])


@cache
def _tree_size(n: int, window: int, guesses: int) -> int:
    first = window + n - 3
    filling = max(first - stage + stage * (first - stage + 1) for stage in range(n - 2))
    return max((n - 1) * (window + guesses) - 1, filling)


@cache
def fitting_window(n: int, window: int, guesses: int, budget: int) -> int:
    """The most columns whose window fits `budget` draft nodes beside as many n-grams, or `guesses`; 0 if none does."""
    return max((each for each in range(1, window + 1) if _tree_size(n, each, min(guesses, each)) <= budget), default=0)


class NGramPool:
    """Token -> the last `capacity` n-grams inserted after it (LRU)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: dict[int, dict[NGram, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, key: int, ngram: NGram) -> None:
        """Add `ngram` after `key`, or refresh it; a full entry drops its oldest."""
        if not self.capacity:
            return
        entry = self._entries.setdefault(key, {})
        entry.pop(ngram, None)
        if len(entry) >= self.capacity:
            del entry[next(iter(entry))]
        entry[ngram] = None

    def after(self, key: int) -> list[NGram]:
        """The n-grams after `key`, the most recent first."""
        return list(reversed(self._entries.get(key, {})))


class LookaheadDrafter(DepthDrafter):
    """The paper's N, W and G are `n`, `window` and `guesses`."""

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        n: Annotated[int, Bounds(3, 16, "N: tokens of an n-gram; the window has N-1 rows")] = 3,
        window: Annotated[int, Bounds(1, 64, "W: columns of the window, and n-grams collected a step")] = 5,
        guesses: Annotated[int, Bounds(0, 64, "G: most n-grams verified a step, and kept for each token")] = 3,
        pool_from_prompt: Annotated[bool, Flag("also collect n-grams of the prompt and the output")] = False,
    ) -> None:
        self.n, self.window, self.guesses = n, window, guesses
        chance = random.Random(inputs.seed)
        self.rows: list[list[int]] = [[chance.choice(inputs.prompt) for _ in range(window + n - 3)]]
        self.pool = NGramPool(guesses)
        self.pool_from_prompt = pool_from_prompt
        self.recent: list[int] = []
        if pool_from_prompt:
            self._follow(inputs.prompt)
        self._last_row_nodes: list[int] = []

    @property
    def is_filled(self) -> bool:
        """Whether the window has its N-1 rows."""
        return len(self.rows) == self.n - 1

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The window, then the pool's n-grams after the pending token, the most recent first.

        Columns that are deeper than `depth`, or that `budget` has no room for, are dropped for good.
        """
        builder = TreeBuilder(context[-1])
        self._last_row_nodes = []
        if self._narrow(fitting_window(self.n, self.window, self.guesses, budget), depth):
            self._hang_window(builder)
        if self.is_filled or not self._last_row_nodes:
            for ngram in self.pool.after(context[-1]):
                builder.add_path(ngram)
        return builder.build()

    def _narrow(self, window: int, depth: int) -> bool:
        """Keep the columns that a window of so many has at this stage, and that reach no deeper than `depth`; False
        where none does.
        """
        if not window:
            return False
        first, *more = self.rows
        # The window is wider while it is filled, by a column for each row that is missing.
        window += self.n - 2 - len(more)
        # With a single row, column i has depth i + 1; with several, the first column is below the pending token.
        columns = min(len(more[0]), window, depth + 1 - len(more)) if more else min(len(first), window - 1, depth)
        if columns > 0:
            self.rows = [first[: columns - 1] if more else first[:columns], *(row[:columns] for row in more)]
        return columns > 0

    def _hang_window(self, builder: TreeBuilder) -> None:
        trunk = [0, *builder.add_path(self.rows[0])]
        tips = trunk[1:] if len(self.rows) == 1 else trunk
        for row in self.rows[1:]:
            tips = [builder.add(tip, token) for tip, token in zip(tips, row, strict=True)]
        self._last_row_nodes = tips

    def note(self, tree: TokenTree) -> Note:
        """The window as drafted, its columns below the trunk, and the pool's n-grams after the pending token."""
        pending = tree.tokens[0]
        hits = self.pool.after(pending)
        rows = [NoteRow("Pool", f"n-gram {number}", hit, after=(pending,)) for number, hit in enumerate(hits, 1)]
        if self._last_row_nodes:
            trunk = NoteRow("Window", "row 0", (pending, *self.rows[0]))
            below = [NoteRow("Window", f"row {number}", tuple(row)) for number, row in enumerate(self.rows[1:], 1)]
            rows = [trunk, *below, *rows]
        return Note({"pool hits": len(hits), "tokens with n-grams in the pool": len(self.pool)}, tuple(rows))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """The target's tokens at the last row are the next row; a full window yields W n-grams and moves a column."""
        if self._last_row_nodes:
            new = [verdict.scores.targets[node] for node in self._last_row_nodes]
            if self.is_filled:
                self._collect(tree.tokens[0], new)
                self.rows = [self.rows[1][1:], *self.rows[2:], new]
            else:
                # The first fill keeps the new row whole: row 0 loses its first token to the trunk.
                self.rows = [*(row[1:] for row in self.rows), new if len(self.rows) == 1 else new[1:]]
        if self.pool_from_prompt:
            self._follow(verdict.output(tree))

    def _collect(self, pending: int, new: list[int]) -> None:
        """Insert each column of rows 1, 2, ... and `new`, keyed by the trunk token above it."""
        for key, *ngram in zip([pending, *self.rows[0]], *self.rows[1:], new, strict=True):
            self.pool.insert(key, tuple(ngram))

    def _follow(self, tokens: Sequence[int]) -> None:
        """Insert every n-gram that ends in one of `tokens`, the next of the text."""
        for token in tokens:
            self.recent = [*self.recent[-(self.n - 1) :], token]
            if len(self.recent) == self.n:
                self.pool.insert(self.recent[0], tuple(self.recent[1:]))


class PoolDrafter(LookaheadDrafter):
    """Lookahead without its window, for transcripts, which do not have the target's tokens there."""

    def _hang_window(self, builder: TreeBuilder) -> None:
        """No window."""


def window_size(options: Mapping[str, Any], budget: int) -> int:
    """The draft tokens of the full window that `budget` has room for."""
    columns = fitting_window(options["n"], options["window"], options["guesses"], budget)
    return (options["n"] - 1) * columns - 1 if columns else 0


POOL_SCORING = Scoring(
    "pool from the prompt only; of the window, the cost", PoolDrafter, {"pool_from_prompt": True}, window_size
)
