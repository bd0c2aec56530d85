"""Lookahead decoding (Fu et al., 2024): a two-dimensional window of Jacobi trajectories and a pool of n-grams.

The window is N-1 rows. The trunk is the pending token and row 0; from trunk node i hangs the chain row1[i], row2[i],
... With the ancestor mask and position = base + depth that is the published mask and the published positions, so the
window is a tree like any other, and the n-grams to verify are more branches at its root.

Where this differs from the reference code, on purpose: a full match keeps its bonus token (N tokens, not N-1), the
output is never extended by a stale hit, and branches that share a prefix share its nodes. Verifying the window's own
branches costs nothing and is not forbidden.

At a temperature above 0 the window takes the tokens that the target draws, where the reference code takes the likeliest
ones: the noise of a position is the same in every step, so what is drawn there is what the text will hold if the tokens
before it come true. (Tokens a step, drawn and likeliest: 1.47 and 1.39 at temperature 1 on the character model with
N, W, G = 3, 5, 3; elsewhere, and with the bundled model, within 4 % of each other.)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, Flag, Material

NGram = tuple[int, ...]


def tree_size(options: Mapping[str, int]) -> int:
    """Most draft nodes a step with these options: the full window and G branches, or the widest stage of filling."""
    n, window = options["n"], options["window"]
    first = window + n - 3
    filling = max(first - stage + stage * (first - stage + 1) for stage in range(n - 2))
    return max((n - 1) * (window + options["guesses"]) - 1, filling)


class NGramPool:
    """Token -> the at most `guesses` n-grams seen after it, the least recently inserted first (and first to go)."""

    def __init__(self, guesses: int) -> None:
        self.guesses = guesses
        self._entries: dict[int, dict[NGram, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, key: int, ngram: NGram) -> None:
        """Add `ngram` after `key`, or refresh it; a full entry drops its oldest."""
        if not self.guesses:
            return
        entry = self._entries.setdefault(key, {})
        entry.pop(ngram, None)
        if len(entry) >= self.guesses:
            del entry[next(iter(entry))]
        entry[ngram] = None

    def after(self, key: int) -> list[NGram]:
        """N-grams after `key`, the most recent first."""
        return list(reversed(self._entries.get(key, {})))


class LookaheadDrafter:
    """Names as in the paper: `n` = N, `window` = W, `guesses` = G."""

    takes_depth: ClassVar[bool] = True

    def __init__(
        self,
        material: Material,
        *,
        n: Annotated[int, Bounds(3, 16, "N: tokens of an n-gram; the window has N-1 rows")] = 3,
        window: Annotated[int, Bounds(1, 64, "W: columns of the window, n-grams made a step")] = 5,
        guesses: Annotated[int, Bounds(0, 64, "G: n-grams verified a step, and kept for each token")] = 3,
        pool_from_prompt: Annotated[bool, Flag("also fill the pool from the prompt and the output")] = False,
    ) -> None:
        self.n, self.width = n, window
        chance = random.Random(material.seed)
        self.rows: list[list[int]] = [[chance.choice(material.prompt) for _ in range(window + n - 3)]]
        self.pool = NGramPool(guesses)
        self.pool_from_prompt = pool_from_prompt
        self.recent: list[int] = []
        if pool_from_prompt:
            self._follow(material.prompt)
        self._last_row_nodes: list[int] = []

    @property
    def is_filled(self) -> bool:
        """Whether the window has all its N-1 rows."""
        return len(self.rows) == self.n - 1

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The window, then the pool's n-grams after the pending token, the most recent first.

        With a budget too small for the window there is no window this step: it stays as it is. Columns that would reach
        deeper than `depth` stand past the end of the text, and are given up.
        """
        builder = TreeBuilder(context[-1])
        self._last_row_nodes = []
        if self._narrow(depth) and sum(len(row) for row in self.rows) <= budget:
            self._hang_window(builder)
        if self.is_filled or not self._last_row_nodes:
            for ngram in self.pool.after(context[-1]):
                builder.add_path(ngram)
        return builder.build()

    def _narrow(self, depth: int) -> bool:
        """Keep the columns whose last token is at most so deep; whether there are any."""
        first, *more = self.rows
        # The columns of a single row begin at depth 1; of several at 0, with the pending token in row 0's first place.
        columns = min(len(more[0]), depth + 1 - len(more)) if more else min(len(first), depth)
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
        """The window as drafted, a column under each trunk token, and the pool's n-grams after the pending one."""
        pending = tree.tokens[0]
        hits = self.pool.after(pending)
        rows = [NoteRow("Pool", f"n-gram {number}", hit, after=(pending,)) for number, hit in enumerate(hits, 1)]
        if self._last_row_nodes:
            trunk = NoteRow("Window", "row 0", (pending, *self.rows[0]))
            below = [NoteRow("Window", f"row {number}", tuple(row)) for number, row in enumerate(self.rows[1:], 1)]
            rows = [trunk, *below, *rows]
        return Note({"pool hits": len(hits), "tokens with n-grams in the pool": len(self.pool)}, tuple(rows))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """One more row from the target's tokens at the last row; once full, W n-grams and one column forward."""
        if self._last_row_nodes:
            fresh = [verdict.scores.targets[node] for node in self._last_row_nodes]
            if self.is_filled:
                self._collect(tree.tokens[0], fresh)
                self.rows = [self.rows[1][1:], *self.rows[2:], fresh]
            else:
                # The first fill leaves the new row whole, since row 0 gives up its first token to the trunk.
                fresh = fresh if len(self.rows) == 1 else fresh[1:]
                self.rows = [*(row[1:] for row in self.rows), fresh]
        if self.pool_from_prompt:
            self._follow(verdict.output(tree))

    def _collect(self, pending: int, fresh: list[int]) -> None:
        """Column i of rows 1.. and its new token, keyed by the token before it: the pending one, then row 0."""
        keys = [pending, *self.rows[0]]
        for key, *ngram in zip(keys, *self.rows[1:], fresh, strict=True):
            self.pool.insert(key, tuple(ngram))

    def _follow(self, tokens: Sequence[int]) -> None:
        """Insert every n-gram that ends in one of `tokens`, the text's next."""
        for token in tokens:
            self.recent = [*self.recent[-(self.n - 1) :], token]
            if len(self.recent) == self.n:
                self.pool.insert(self.recent[0], tuple(self.recent[1:]))


class PoolDrafter(LookaheadDrafter):
    """Lookahead without its window: the n-grams of prompt and output, which is all that a transcript can tell."""

    scored_part: ClassVar[str] = "pool from the prompt only"
    scored_options: ClassVar[Mapping[str, int]] = {"pool_from_prompt": True}

    def _hang_window(self, builder: TreeBuilder) -> None:
        """None is drafted: what the model would say there is not known."""
