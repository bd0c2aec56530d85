"""Lookahead decoding: a two-dimensional window of Jacobi trajectories and a pool of n-grams.

Sources: Fu et al., "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding" (2024); "Exploring the
Transformer Series (32): Lookahead Decoding".

The window has N-1 rows. Its trunk is the pending token and row 0; below trunk node i hangs the chain row1[i], row2[i],
... The n-grams to verify are further branches at the root. With the ancestor mask (a node sees its ancestors only) and
position = the root's + depth, such a tree has exactly the published mask and positions. Each step yields W n-grams,
which go into the pool, keyed by their first token; the least recently used are dropped.

This drafter differs from the reference code in four ways. A full match keeps its bonus token, so it emits N tokens, not
N-1. Tokens of the pool are emitted only if the target confirms them in the same step. Branches with a common prefix
share the nodes of the prefix. The window's branches are verified too, at no cost.

It differs from the second source in two ways. The window moves by one column a step, however many tokens were accepted,
as with the reference code's `ALWAYS_FWD_ONE = 1`; the source (3.7) drops a column for each accepted token and adds
random tokens. A token is accepted if it is the one that the target draws; the source (3.6) accepts a candidate if a
random number is below its probability, and draws the last token from probabilities that it does not normalise. The
source's step "match n-grams ... and replace the candidate sequence" (2.2) is neither in the reference code nor here.

With N = 2 the window is a single row, and lookahead is Jacobi decoding, as the sources say: there are no n-grams to
verify, the row itself is verified, and it is shifted by the accepted tokens (`jacobi` with W-1 draft tokens).

At a temperature above 0 the window is filled with the tokens that the target draws, not with the likeliest. The noise
of a position is the same at every step, so these are the tokens that the output will have if the tokens before them are
right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from specrace.core.errors import InputError
from specrace.core.note import Fact, Note, NoteRow
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, DepthDrafter, Drafter, DrafterInputs, Flag, OnChains, Scoring

NGram = tuple[int, ...]

# The N with which lookahead is Jacobi decoding.
JACOBI = 2


def tree_size(options: Mapping[str, int]) -> int:
    """The largest number of draft nodes in a step: while the window fills up, or once it is full and G n-grams join."""
    return _tree_size(options["n"], options["window"], options["guesses"])


@cache
def _tree_size(n: int, window: int, guesses: int) -> int:
    if n == JACOBI:
        return window - 1
    first_row = window + n - 3
    # After `stage` steps of the fill, row 0 has `first_row` - `stage` tokens, and each row below it has one more.
    filling = max(first_row - stage + stage * (first_row - stage + 1) for stage in range(n - 2))
    return max((n - 1) * (window + guesses) - 1, filling)


@cache
def fitting_window(n: int, window: int, guesses: int, budget: int) -> int:
    """The largest number of columns, up to `window`, whose tree fits into `budget` draft nodes; 0 if none does.

    The size assumes as many n-grams as columns, but at most `guesses`. `propose` adds all n-grams that the pool has
    for the pending token, and the lane cuts the tree to the budget.
    """
    fitting = (columns for columns in range(1, window + 1) if _tree_size(n, columns, min(guesses, columns)) <= budget)
    return max(fitting, default=0)


@cache
def fitting_size(n: int, window: int, guesses: int, budget: int) -> tuple[int, int]:
    """N and the number of columns of the largest window that fits into `budget` draft nodes; 0 columns for budget 0.

    If not even one column fits with its n-gram, N is reduced to the largest value for which it does. If none does, N
    becomes 3: then the column is one node, and n-grams get the rest of the budget.
    """
    if n == JACOBI:
        return n, min(window, budget + 1) if budget > 0 else 0
    for smaller in range(n, JACOBI, -1):
        if columns := fitting_window(smaller, window, guesses, budget):
            return smaller, columns
    return (JACOBI + 1, 1) if budget > 0 else (n, 0)


class NGramPool:
    """For each token, its `capacity` most recently inserted continuations: the other N-1 tokens of n-grams (LRU)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: dict[int, dict[NGram, None]] = {}

    def __len__(self) -> int:
        """The number of tokens that have n-grams."""
        return len(self._entries)

    def insert(self, key: int, ngram: NGram) -> None:
        """Make `ngram` the most recent n-gram after `key`; if there are too many, drop the oldest."""
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
    """Drafts the window and the pool's n-grams; `n`, `window` and `guesses` are the paper's N, W and G.

    A window of one column starts with a random token of the prompt. After that token the target says 8, which becomes
    row 1. So the next draft has 8 below the pending 6, and 7 5 from the pool, because they followed 6 in the prompt:

    >>> from specrace.core.verify import Scores, verify
    >>> drafter = LookaheadDrafter(DrafterInputs((5, 6, 7, 5), 10), n=3, window=1, guesses=1, pool_from_prompt=True)
    >>> tree = drafter.propose((5, 6, 7, 5), budget=3)
    >>> drafter.observe(tree, verify(tree, Scores(targets=(6, 8))))
    >>> tree = drafter.propose((5, 6, 7, 5, 6), budget=3)
    >>> tree.tokens, tree.parents
    ((6, 8, 7, 5), (-1, 0, 0, 2))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        n: Annotated[int, Bounds(JACOBI, 16, "N: tokens of an n-gram; the window has N-1 rows; 2 is Jacobi")] = 3,
        window: Annotated[int, Bounds(1, 64, "W: columns of the window, and n-grams collected a step")] = 5,
        guesses: Annotated[int, Bounds(0, 64, "G: most n-grams verified in a step, and kept for each token")] = 3,
        pool_from_prompt: Annotated[bool, Flag("also collect n-grams of the prompt and the output")] = False,
    ) -> None:
        if n == JACOBI and window == 1:
            raise InputError(
                "With lookahead.n = 2, a draft has window - 1 tokens; give a lookahead.window of 2 or more."
            )
        self.window = window
        self.guesses = guesses
        self.pool_from_prompt = pool_from_prompt
        self._prompt, self._seed = inputs.prompt, inputs.seed
        self._wanted_n = n
        # The draft size to which N was fitted; 0 before the first draft.
        self._budget = 0
        self._start(n)

    def _start(self, n: int) -> None:
        """Start with N = `n`: the first row has random tokens of the prompt."""
        self.n = n
        self._random = random.Random(self._seed)
        self.rows = [self._random_tokens(self.window + n - 3)]
        self.pool = NGramPool(self.guesses if n > JACOBI else 0)
        # The last n tokens of the text, or all if there are fewer.
        self.recent: list[int] = []
        if self.pool_from_prompt:
            self._collect_text(self._prompt)
        # The tree's nodes for the tokens of the window's last row, set by `propose`.
        self._last_row_nodes: list[int] = []

    def _random_tokens(self, count: int) -> list[int]:
        return [self._random.choice(self._prompt) for _ in range(count)]

    @property
    def is_filled(self) -> bool:
        """Whether the window has all its N-1 rows."""
        return len(self.rows) == self.n - 1

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The window, then the pool's n-grams after the pending token, the most recent first.

        Columns that are deeper than `depth` or do not fit into `budget` are dropped for the rest of the generation. If
        none fits, the first draft reduces N, as `fitting_size` says; a later draft leaves the window out.
        """
        n, columns = fitting_size(self.n, self.window, self.guesses, budget)
        if budget > 0 and not self._budget:
            self._budget = budget
            if n != self.n:
                self._start(n)
        builder = TreeBuilder(context[-1])
        self._last_row_nodes = []
        if self._narrow(columns if n == self.n else 0, depth):
            self._add_window(builder)
        # As in the reference code, n-grams are verified once the window is full; without a window, at once.
        if self.is_filled or not self._last_row_nodes:
            for ngram in self.pool.after(context[-1]):
                builder.add_path(ngram)
        return builder.build()

    def _narrow(self, window: int, depth: int) -> bool:
        """Cut the rows to `window` columns that reach no deeper than `depth`; return whether any column is left.

        If no column is left, the rows are not changed.
        """
        if not window:
            return False
        first, *others = self.rows
        # While the window is being filled, it is wider by one column for each missing row.
        width = window + self.n - 2 - len(others)
        if others:
            # The first column hangs below the pending token, so row 0 is one shorter than the others.
            columns = min(len(others[0]), width, depth + 1 - len(others))
            trunk_size = columns - 1
        else:
            # Column i of a single row has depth i + 1.
            columns = min(len(first), width - 1, depth)
            trunk_size = columns
        if columns <= 0:
            return False
        self.rows = [first[:trunk_size], *(row[:columns] for row in others)]
        return True

    def _add_window(self, builder: TreeBuilder) -> None:
        """Add the trunk, and below each of its nodes the tokens of the same column in the other rows."""
        trunk = [0, *builder.add_path(self.rows[0])]
        tips = trunk[1:] if len(self.rows) == 1 else trunk
        for row in self.rows[1:]:
            tips = [builder.add(tip, token) for tip, token in zip(tips, row, strict=True)]
        self._last_row_nodes = tips

    def note(self, tree: TokenTree) -> Note:
        """The rows of the window, and the pool's n-grams after the pending token."""
        pending = tree.tokens[0]
        hits = self.pool.after(pending)
        rows = [NoteRow("Pool", f"n-gram {number}", ngram, after=(pending,)) for number, ngram in enumerate(hits, 1)]
        if self._last_row_nodes:
            trunk = NoteRow("Window", "row 0", (pending, *self.rows[0]))
            below = [NoteRow("Window", f"row {number}", tuple(row)) for number, row in enumerate(self.rows[1:], 1)]
            rows = [trunk, *below, *rows]
        facts: dict[str, Fact] = {"pool hits": len(hits), "tokens with n-grams in the pool": len(self.pool)}
        if self.n != self._wanted_n:
            facts["N"] = f"{self.n}, not {self._wanted_n}, whose window does not fit into {self._budget} draft tokens"
        return Note(facts, tuple(rows))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Make the target's tokens at the last row a new row; a full window first adds its columns to the pool."""
        if self.n == JACOBI:
            # The tokens at accepted nodes are output now, so only those at the nodes after the path form the new row.
            row = list(verdict.scores.targets[len(verdict.path) :])
            self.rows = [[*row, *self._random_tokens(self.window - 1 - len(row))]]
        elif self._last_row_nodes:
            new_row = [verdict.scores.targets[node] for node in self._last_row_nodes]
            if self.is_filled:
                self._collect_columns(tree.tokens[0], new_row)
                self.rows = [self.rows[1][1:], *self.rows[2:], new_row]
            else:
                # In the first fill step the new row stays whole: the first token of row 0 becomes the pending token.
                self.rows = [*(row[1:] for row in self.rows), new_row if len(self.rows) == 1 else new_row[1:]]
        if self.pool_from_prompt:
            self._collect_text(verdict.output(tree))

    def _collect_columns(self, pending: int, new_row: list[int]) -> None:
        """Insert each column of rows 1, 2, ... and `new_row` into the pool, keyed by the trunk token above it."""
        for key, *ngram in zip([pending, *self.rows[0]], *self.rows[1:], new_row, strict=True):
            self.pool.insert(key, tuple(ngram))

    def _collect_text(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to the text, and insert every n-gram that ends in one of them into the pool."""
        for token in tokens:
            self.recent = [*self.recent[-(self.n - 1) :], token]
            if len(self.recent) == self.n:
                self.pool.insert(self.recent[0], tuple(self.recent[1:]))


class PoolDrafter(LookaheadDrafter):
    """Lookahead without its window: the pool has n-grams of prompt and output only.

    For transcripts, which lack the target's tokens at the window's nodes, and for targets that score chains only,
    because the window is made of branches.
    """

    def _add_window(self, builder: TreeBuilder) -> None:
        """Add nothing."""


def window_size(options: Mapping[str, Any], budget: int) -> int:
    """The number of draft tokens of the full window that fits into `budget`; 0 for budget 0."""
    n, columns = fitting_size(options["n"], options["window"], options["guesses"], budget)
    return (n - 1) * columns - 1 if columns else 0


def refuse_jacobi(options: Mapping[str, Any]) -> str:
    """Why lookahead cannot be scored with these options; "" if it can."""
    is_jacobi = options["n"] == JACOBI
    return "n=2 is Jacobi, whose next draft is the model's tokens after the rejected ones" if is_jacobi else ""


POOL_SCORING = Scoring(
    "pool from prompt and output; the window only adds cost",
    build=PoolDrafter,
    options={"pool_from_prompt": True},
    unscored_rows=window_size,
    refuses=refuse_jacobi,
)


def build_on_chains(inputs: DrafterInputs, **options: Any) -> Drafter:
    """Lookahead for targets that score chains only: without its window, unless that is a chain (with N = 2)."""
    return (LookaheadDrafter if options["n"] == JACOBI else PoolDrafter)(inputs, **options)


POOL_ON_CHAINS = OnChains(build=build_on_chains, options={"pool_from_prompt": True})
