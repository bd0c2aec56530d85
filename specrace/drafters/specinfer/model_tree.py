"""One draft model's tree: its likeliest tokens, or tokens drawn from its distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

import numpy as np

from specrace.core.cost_curve import row_counts
from specrace.core.rejection import draw
from specrace.core.tree import TreeBuilder
from specrace.drafters.base import DrafterInputs
from specrace.drafters.sessions import PromptedDraftModel


@dataclass(frozen=True)
class Guess:
    """A token that a model drafted after node `parent` of its tree, and the token's probability under the model.

    `row`: the row of `ModelTree.q` that it was drawn from; -1 if it was not drawn.
    """

    parent: int
    node: int
    token: int
    prob: float
    row: int = -1


@dataclass
class ModelTree:
    """A growing tree: its guesses in order, and the distributions [V] that they were drawn from."""

    builder: TreeBuilder
    guesses: list[Guess] = field(default_factory=list)
    q: list[np.ndarray] = field(default_factory=list)

    def room(self, budget: int) -> int:
        """How many more draft tokens fit a budget."""
        return budget + 1 - len(self.builder.tokens)

    def add(self, parent: int, token: int, prob: float, row: int = -1) -> None:
        """Add a guess. If the parent has a child with this token, the guess is that node."""
        # The model reads the tree's tokens and parents only, so the probability is kept in the guess alone.
        self.guesses.append(Guess(parent, self.builder.add(parent, token), token, prob, row))


class TreeReader:
    """Drafts trees with one model, level by level: each level is one forward of the model over the tree so far.

    `widths`: the number of tokens after each node of a depth, the root's first. With `random`, tokens are drawn from
    the model's distribution, otherwise they are the likeliest.
    """

    def __init__(
        self,
        model: PromptedDraftModel,
        inputs: DrafterInputs,
        widths: Sequence[int],
        random: np.random.Generator | None,
    ) -> None:
        self.name = model.name
        self.widths, self.random = widths, random
        # The first forward of a step reads the last root and the accepted tokens, and scores the new root. The last
        # forward scores the root and all nodes but the deepest.
        rows = max(len(widths) + 2, 1 + tree_size(widths[:-1]))
        self.session = model.session(inputs.params, inputs.room, row_counts(rows))
        # The number of tokens of the text that the session has read.
        self.read = len(inputs.prompt) - 1

    def draft(self, context: Sequence[int], budget: int, depth: int) -> ModelTree:
        """A tree of at most `budget` draft tokens, none deeper than `depth`, within the model's context.

        How many tokens are drawn after a node never depends on these tokens, because verification would then change the
        target's distribution: where only n more nodes fit, n tokens are drawn, even if some turn out to be equal.
        """
        tree = ModelTree(TreeBuilder(context[-1]))
        unread = context[self.read : -1]
        depth = min(depth, self.session.room - len(unread))
        frontier = [0]
        for width in self.widths[: max(0, depth)]:
            if not frontier or tree.room(budget) < 1:
                break
            first = len(tree.guesses)
            if self.random is None:
                self._add_likeliest(tree, unread, frontier, width, budget)
            else:
                self._add_drawn(tree, unread, frontier, width, budget)
            self.read, unread = len(context) - 1, ()
            frontier = list(dict.fromkeys(guess.node for guess in tree.guesses[first:]))
        return tree

    def _add_likeliest(
        self, tree: ModelTree, unread: Sequence[int], parents: Sequence[int], width: int, budget: int
    ) -> None:
        """Add the `width` likeliest tokens after each of `parents`, as far as the budget allows."""
        likeliest = self.session.tree_likeliest(unread, tree.builder.build(), parents, width)
        for parent, tokens in zip(parents, likeliest, strict=True):
            for token, prob in tokens[: tree.room(budget)]:
                tree.add(parent, token, prob)

    def _add_drawn(
        self, tree: ModelTree, unread: Sequence[int], parents: Sequence[int], width: int, budget: int
    ) -> None:
        """Add `width` tokens drawn after each of `parents`, as far as the budget allows."""
        assert self.random is not None
        rows = self.session.tree_distributions(unread, tree.builder.build(), parents)
        for parent, probs in zip(parents, rows, strict=True):
            count = min(width, tree.room(budget))
            tree.q.append(probs)
            for token in draw(np.broadcast_to(probs, (count, len(probs))), self.random.random(count)).tolist():
                tree.add(parent, token, float(probs[token]), len(tree.q) - 1)


def tree_size(widths: Sequence[int]) -> int:
    """The number of draft tokens of a tree; `widths[i]` is the number of tokens after each node of depth i.

    >>> tree_size((1, 1, 3, 1))
    8
    """
    return sum(accumulate(widths, mul))
