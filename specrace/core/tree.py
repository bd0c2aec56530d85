"""The draft: a tree of guessed tokens whose root is the pending token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class TokenTree:
    """N nodes in an order in which parents come first. Node 0 is the root: the pending token, not a guess.

    `tokens` and `parents` have N entries; `parents[0] == -1` and `parents[i] < i`; siblings have distinct tokens.
    `probs`, if given, is the drafter's estimate of each node given its parent. `positions`, if given, says where in
    the drafter's own text (prompt, then output) each node's token was found, -1 for nowhere.
    Raises ValueError when these rules do not hold.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probs: tuple[float, ...] | None = None
    positions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if not size or len(self.parents) != size or self.parents[0] != -1:
            raise ValueError("a tree needs a root: parents[0] == -1, and one parent a token")
        for extra in (self.probs, self.positions):
            if extra is not None and len(extra) != size:
                raise ValueError("probs and positions need one entry a node")
        if size == 1:
            return
        seen = set()
        for node in range(1, size):
            parent = self.parents[node]
            if not 0 <= parent < node:
                raise ValueError(f"node {node} comes before its parent {parent}")
            seen.add((parent, self.tokens[node]))
        if len(seen) != size - 1:
            raise ValueError("two siblings carry the same token")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def chain(cls, root: int, draft: Sequence[int] = ()) -> TokenTree:
        """The tree with one branch: root, draft[0], draft[1], ..."""
        return cls((root, *draft), tuple(range(-1, len(draft))))

    @property
    def num_draft(self) -> int:
        """How many nodes are guesses."""
        return len(self.tokens) - 1

    @cached_property
    def is_chain(self) -> bool:
        """Whether every node hangs from the one before it."""
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Edges from the root to each node, N entries; the root's is 0."""
        depths = [0] * len(self.tokens)
        for node in range(1, len(self.tokens)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @cached_property
    def children(self) -> tuple[dict[int, int], ...]:
        """For each node, token -> child."""
        children: list[dict[int, int]] = [{} for _ in self.tokens]
        for node in range(1, len(self.tokens)):
            children[self.parents[node]][self.tokens[node]] = node
        return tuple(children)

    def path_to(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to `node`, both included."""
        path = [node]
        while path[-1]:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    def ancestor_mask(self) -> np.ndarray:
        """Bool [N, N]: row i is true at i's ancestors and at i itself, which is what node i may attend to."""
        size = len(self.tokens)
        if self.is_chain:
            return np.tri(size, dtype=bool)
        mask = np.eye(size, dtype=bool)
        for node in range(1, size):
            mask[node] |= mask[self.parents[node]]
        return mask

    def padded(self, size: int) -> TokenTree:
        """This tree and, behind its last node, a chain that makes it `size` nodes; itself if it has as many."""
        more = size - len(self)
        if more <= 0:
            return self
        tokens = (*self.tokens, *[self.tokens[0]] * more)
        return TokenTree(tokens, (*self.parents, *range(len(self) - 1, size - 1)))

    def cut(self, num_draft: int) -> TokenTree:
        """The first `num_draft` guesses; a tree again, because parents come first."""
        if num_draft >= self.num_draft:
            return self
        size = max(0, num_draft) + 1
        probs = self.probs[:size] if self.probs is not None else None
        positions = self.positions[:size] if self.positions is not None else None
        return TokenTree(self.tokens[:size], self.parents[:size], probs, positions)

    def pruned(self, depth: int) -> TokenTree:
        """Without the nodes deeper than `depth`; a tree again, because a node is deeper than its parent."""
        # A tree of so many guesses is at most so deep.
        if depth >= self.num_draft or max(self.depths) <= depth:
            return self
        kept = [node for node, own in enumerate(self.depths) if own <= max(0, depth)]
        numbers = {node: number for number, node in enumerate(kept)}
        return TokenTree(
            tuple(self.tokens[node] for node in kept),
            tuple(numbers.get(self.parents[node], -1) for node in kept),
            None if self.probs is None else tuple(self.probs[node] for node in kept),
            None if self.positions is None else tuple(self.positions[node] for node in kept),
        )


class TreeBuilder:
    """Builds a TokenTree by adding nodes; adding a child twice gives the same node.

    Merging duplicates costs nothing: what the target says at a node depends on the path to it only.
    """

    def __init__(self, root: int) -> None:
        self.tokens = [root]
        self.parents = [-1]
        self.probs = [1.0]
        self.positions = [-1]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, prob: float = 1.0, position: int = -1) -> int:
        """The child of `parent` that carries `token`, new or not."""
        node = self._children.get((parent, token))
        if node is None:
            node = len(self.tokens)
            self._children[parent, token] = node
            self.tokens.append(token)
            self.parents.append(parent)
            self.probs.append(prob)
            self.positions.append(position)
        return node

    def add_path(self, tokens: Sequence[int], parent: int = 0) -> list[int]:
        """Hang a chain under `parent`; returns its nodes."""
        nodes = []
        for token in tokens:
            parent = self.add(parent, token)
            nodes.append(parent)
        return nodes

    def build(self) -> TokenTree:
        """The tree so far."""
        return TokenTree(tuple(self.tokens), tuple(self.parents), tuple(self.probs), tuple(self.positions))
