"""The token tree of a step: the pending token as its root, and the draft below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class TokenTree:
    """N nodes, parents before their children. Node 0 is the root, the pending token; the others are the draft.

    `tokens` and `parents` have N entries; `parents[0] == -1` and `parents[i] < i`; siblings have distinct tokens.
    `probs`, optional: the drafter's estimate of each node's probability given its parent. `positions`, optional: the
    index in prompt and output that each node's token was copied from, -1 for none. Raises ValueError if one of these
    rules is broken.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probs: tuple[float, ...] | None = None
    positions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if not size or len(self.parents) != size or self.parents[0] != -1:
            raise ValueError("a tree needs a root (parents[0] == -1) and one parent for each token")
        for extra in (self.probs, self.positions):
            if extra is not None and len(extra) != size:
                raise ValueError("probs and positions need one entry for each node")
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
        """The number of draft nodes, N - 1."""
        return len(self.tokens) - 1

    @cached_property
    def is_chain(self) -> bool:
        """Whether every node is the child of the one before it."""
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The number of edges from the root to each node [N]."""
        depths = [0] * len(self.tokens)
        for node in range(1, len(self.tokens)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @cached_property
    def children(self) -> tuple[dict[int, int], ...]:
        """The children of each node [N], by token."""
        children: tuple[dict[int, int], ...] = tuple({} for _ in self.tokens)
        for node in range(1, len(self.tokens)):
            children[self.parents[node]][self.tokens[node]] = node
        return children

    def path_probs(self) -> list[float]:
        """The estimated probability that each node is accepted [N]: the product of `probs` on its path (1 if None)."""
        paths = [1.0]
        for node in range(1, len(self)):
            paths.append(paths[self.parents[node]] * (self.probs[node] if self.probs else 1.0))
        return paths

    def path_to(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to `node`, both included."""
        path = [node]
        while path[-1]:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    def ancestor_mask(self) -> np.ndarray:
        """The attention mask, bool [N, N]: row i is true at i and at its ancestors."""
        size = len(self.tokens)
        if self.is_chain:
            return np.tri(size, dtype=bool)
        mask = np.eye(size, dtype=bool)
        for node in range(1, size):
            mask[node] |= mask[self.parents[node]]
        return mask

    def padded(self, size: int) -> TokenTree:
        """This tree with at least `size` nodes: a chain of root tokens is added below its last node."""
        parents = range(len(self) - 1, size - 1)
        if not parents:
            return self
        return TokenTree((*self.tokens, *self.tokens[:1] * len(parents)), (*self.parents, *parents))

    def cut(self, num_draft: int) -> TokenTree:
        """This tree with no more than its first `num_draft` draft nodes."""
        return self if num_draft >= self.num_draft else self._keep(range(max(0, num_draft) + 1))

    def pruned(self, depth: int) -> TokenTree:
        """This tree without the nodes deeper than `depth`."""
        depth = max(0, depth)
        # The first test is cheap: a tree is never deeper than its number of draft nodes.
        if depth >= self.num_draft or max(self.depths) <= depth:
            return self
        return self._keep([node for node, node_depth in enumerate(self.depths) if node_depth <= depth])

    def best_chain(self) -> TokenTree:
        """The branch that starts at the root and continues with the likeliest child of each node.

        Without `probs` it continues with the first child, because drafters add their best nodes first.
        """
        if self.is_chain:
            return self
        nodes, probs = [0], self.probs
        while children := self.children[nodes[-1]].values():
            # Ties go to the first child.
            nodes.append(max(children, key=probs.__getitem__) if probs else min(children))
        return self._keep(nodes)

    def _keep(self, nodes: Sequence[int]) -> TokenTree:
        """The tree of `nodes`, which include the parent of each."""
        numbers = {node: number for number, node in enumerate(nodes)}
        return TokenTree(
            tuple(self.tokens[node] for node in nodes),
            tuple(numbers.get(self.parents[node], -1) for node in nodes),
            None if self.probs is None else tuple(self.probs[node] for node in nodes),
            None if self.positions is None else tuple(self.positions[node] for node in nodes),
        )


class TreeBuilder:
    """Builds a TokenTree node by node. A child added twice is one node, because its logits depend on its path only."""

    def __init__(self, root: int) -> None:
        self.tokens = [root]
        self.parents = [-1]
        self.probs = [1.0]
        self.positions = [-1]
        self._children: dict[tuple[int, int], int] = {}

    def add(self, parent: int, token: int, prob: float = 1.0, position: int = -1) -> int:
        """The child of `parent` with `token`, added if missing; an existing child keeps its `prob` and `position`."""
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
        """Add a chain below `parent` and return its nodes."""
        nodes = []
        for token in tokens:
            parent = self.add(parent, token)
            nodes.append(parent)
        return nodes

    def build(self) -> TokenTree:
        """The tree so far."""
        return TokenTree(tuple(self.tokens), tuple(self.parents), tuple(self.probs), tuple(self.positions))
