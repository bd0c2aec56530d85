"""The n-gram trie of "Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding", sections 3.1-3.2.

A window of n tokens starts at every token; windows at the end of the text are shorter, but count as well. The trie
holds every prefix of every window, with the number of windows that start with it. The paper also inserts each window
without its first 1, 2, ... L_p - 1 tokens. These copies of later windows add no nodes, but they count: an n-gram of the
text that the trie was built from counts up to L_p times, one that was appended later only once. So in a growing trie
the prompt's n-grams rank before those that occurred once or twice in the output.

Most windows are unique after a few tokens. Such a window is stored as a leaf, a start index, and its further tokens are
read from the text. When a second window reaches it, it becomes an inner node with a new leaf below it, one token
deeper. So T tokens cost about T operations, not T * n, and a leaf grows with the text.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specrace.core.tree import TokenTree


class Node:
    """An inner node: `count` windows pass through it, the first from `start`; `children` are keyed by token."""

    __slots__ = ("children", "count", "start")

    def __init__(self, start: int, count: int, children: dict[int, Node | int]) -> None:
        self.start = start
        self.count = count
        # A child is a Node or, for a leaf, the start index of the only window that passes through it.
        self.children = children


@dataclass(frozen=True)
class Match:
    """A node at depth `length`: an inner Node or, for a leaf, the start index of the only window through it."""

    node: Node | int
    length: int


class NGramTrie:
    """A trie of the n-grams of 1 to `n` tokens in a text that may grow.

    The n-grams of `tokens`, from which it is built, count as often as the paper inserts them with L_p = `copies`: once
    for their own window, and once for each window that starts up to `copies` - 1 tokens earlier and contains them.

    >>> trie = NGramTrie(3, [1, 2, 3, 1, 2, 5])
    >>> {token: trie.count(child) for token, child in trie.children(trie.find([1, 2])).items()}
    {3: 1, 5: 1}
    """

    def __init__(self, n: int, tokens: Sequence[int] = (), copies: int = 1) -> None:
        self.n = n
        self.copies = copies
        self.tokens: list[int] = []
        self._built = len(tokens)
        self.root = Node(0, 0, {})
        # Inner nodes where the text ends, the deepest first: the next token extends their windows.
        self._open: list[Node] = []
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens`; every window that reaches the end of the text grows."""
        text, n, root = self.tokens, self.n, self.root
        single = self.copies == 1
        for token in tokens:
            end = len(text)
            text.append(token)
            still_open = []
            # `_open[k]` is a window that started `len(_open) - k` tokens ago; a new one starts here.
            depth = len(self._open) + 1
            for node in (*self._open, root):
                child = node.children.get(token)
                if child is None:
                    node.children[token] = end - depth + 1
                else:
                    if isinstance(child, int):
                        following: dict[int, Node | int] = {text[child + depth]: child} if depth < n else {}
                        count = 1 if single else self._weight(child, depth)
                        child = node.children[token] = Node(child, count, following)
                    child.count += 1 if single else self._weight(end - depth + 1, depth)
                    if depth < n:
                        still_open.append(child)
                depth -= 1
            self._open = still_open

    def find(self, path: Sequence[int]) -> Match | None:
        """The node at the end of `path` (at least one token); None if `path` is not an n-gram of the text."""
        node: Node | int = self.root
        for depth, token in enumerate(path):
            if not isinstance(node, Node):
                # The further tokens of a leaf are in the text.
                matches = len(path) <= self.n and self.tokens[node + depth : node + len(path)] == list(path[depth:])
                return Match(node, len(path)) if matches else None
            following = node.children.get(token)
            if following is None:
                return None
            node = following
        return Match(node, len(path))

    def match(self, suffix: Sequence[int]) -> Match | None:
        """The longest suffix of `suffix` that is in the trie *and has a continuation there* (section 3.2)."""
        for start in range(len(suffix)):
            match = self.find(suffix[start:])
            if match is not None and self._children(match.node, match.length):
                return match
        return None

    def children(self, match: Match) -> dict[int, Match]:
        """The children of a node by token, in order of first occurrence."""
        children = self._children(match.node, match.length)
        return {token: Match(child, match.length + 1) for token, child in children.items()}

    def count(self, match: Match) -> int:
        """The number of windows that pass through a node, the paper's copies included."""
        return self._count(match.node, match.length)

    def best(self, match: Match, root: int, num_draft: int) -> TokenTree:
        """The `num_draft` most frequent nodes below `match`, as a tree whose root is the token `root`.

        Ties go to the shallower node, then to the earlier one in the text. The tree's `positions` are the first
        occurrences of its tokens; its `probs` are the shares of a node's count among its siblings'.
        """
        tokens = [root]
        parents = [-1]
        probs = [1.0]
        positions = [-1]
        frontier: list[tuple[int, int, int, int, Node | int, int, float]] = []

        def push(node: Node | int, depth: int, parent: int) -> None:
            children = self._children(node, depth)
            counts = [self._count(child, depth + 1) for child in children.values()]
            total = sum(counts)
            for (token, child), count in zip(children.items(), counts, strict=True):
                start = child.start if isinstance(child, Node) else child
                # (start, depth) is unique to a node, so later fields are never compared.
                entry = (-count, depth + 1, start, parent, child, token, count / total)
                heapq.heappush(frontier, entry)

        push(match.node, match.length, 0)
        while frontier and len(tokens) <= num_draft:
            _, depth, start, parent, node, token, prob = heapq.heappop(frontier)
            tokens.append(token)
            parents.append(parent)
            probs.append(prob)
            positions.append(start + depth - 1)
            push(node, depth, len(tokens) - 1)
        return TokenTree(tuple(tokens), tuple(parents), tuple(probs), tuple(positions))

    def _children(self, node: Node | int, depth: int) -> dict[int, Node | int]:
        """The children of a node at `depth`; a leaf has one, the next token of its window, or none at its end."""
        if isinstance(node, Node):
            return node.children
        index = node + depth
        if depth >= self.n or index >= len(self.tokens):
            return {}
        return {self.tokens[index]: node}

    def _weight(self, start: int, depth: int) -> int:
        """How often the first `depth` tokens of the window at `start` were inserted; never increases with `depth`."""
        if self.copies == 1 or start + depth > self._built:
            return 1
        # Windows that start up to `copies` - 1 tokens earlier (not before the text) and reach as far.
        return min(self.copies, self.n - depth + 1, start + 1)

    def _count(self, node: Node | int, depth: int) -> int:
        return node.count if isinstance(node, Node) else self._weight(node, depth)
