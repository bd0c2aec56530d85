"""Variable-order back-off: what comes next, by everything that ever followed the last 1, 2, ... tokens of a text.

The estimate is Witten and Bell's (1991, method C, with a weight of its own), interpolated over all orders as in
prediction by partial matching: a context that was seen C times with D different successors says C / (C + a * D) of
what comes next, in proportion to its counts, and leaves the rest to the context that is one token shorter. What no
context accounts for goes by how often a token stands in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest

from specrace.ngrams.trie import NGramTrie, Node

# A successor that was seen once is right a third of the time. Chosen on half of the Spec-Bench transcripts, where 1.2
# gave much the same and 4 lost 6 % of the tokens per step on summaries.
ESCAPE = 2.0
# The most frequent tokens, which are guessed where nothing else is known; they are counted anew now and then.
NUM_COMMON, REFRESH = 32, 16

# Contexts that end at one place, the longest first: a node of the trie, or the start of the only window there; depth.
State = tuple[tuple[Node | int, int], ...]


class BackoffModel:
    """Estimates over a growing text, for contexts of up to `longest` tokens; or over a `trie` one deeper than that."""

    def __init__(self, longest: int, tokens: Sequence[int] = (), trie: NGramTrie | None = None) -> None:
        self.trie = NGramTrie(longest + 1, tokens) if trie is None else trie
        self._common: list[tuple[int, int]] = []
        self._common_at = -1

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens` to the text."""
        self.trie.extend(tokens)

    def state(self) -> State:
        """The contexts at the text's end."""
        nodes = self.trie.ends
        return tuple((node, len(nodes) - index) for index, node in enumerate(nodes) if node.children)

    def follow(self, state: State, token: int) -> State:
        """The contexts one token further: those of `state` that go on with `token` and beyond, and `token` alone."""
        text, deepest = self.trie.tokens, self.trie.n - 1
        found: list[tuple[Node | int, int]] = []
        for place, depth in (*state, (self.trie.root, 0)):
            if depth == deepest:
                continue
            if isinstance(place, Node):
                child = place.children.get(token)
                if child is None:
                    continue
            elif text[place + depth] == token:
                child = place
            else:
                continue
            depth += 1
            if child.children if isinstance(child, Node) else child + depth < len(text):
                found.append((child, depth))
        return tuple(found)

    def successors(self, state: State) -> tuple[dict[int, float], float]:
        """The probability of each token that followed one of the contexts, and what is left for all others."""
        text, ends = self.trie.tokens, self.trie.ends
        probs: dict[int, float] = {}
        rest = 1.0
        for place, depth in state:
            if isinstance(place, Node):
                # The text's own end is a sighting that nothing followed yet.
                count = place.count - (place in ends)
                spread = ESCAPE * len(place.children)
                share = rest / (count + spread)
                for token, child in place.children.items():
                    seen = child.count if isinstance(child, Node) else 1
                    probs[token] = probs.get(token, 0.0) + share * seen
                rest = share * spread
            else:
                token, share = text[place + depth], rest / (1.0 + ESCAPE)
                probs[token] = probs.get(token, 0.0) + share
                rest = share * ESCAPE
        return probs, rest

    def common(self) -> list[tuple[int, float]]:
        """The most frequent tokens of the text, each with its probability where no context is known."""
        children = self.trie.root.children
        if self._common_at < 0 or len(self.trie.tokens) >= self._common_at + REFRESH:
            self._common_at = len(self.trie.tokens)
            counts = ((child.count if isinstance(child, Node) else 1, token) for token, child in children.items())
            self._common = nlargest(NUM_COMMON, counts, key=lambda each: each[0])
        total = len(self.trie.tokens) + ESCAPE * len(children)
        return [(token, count / total) for count, token in self._common]

    def position(self, state: State, token: int) -> int:
        """Where in the text `token` stands first after the longest of the contexts that it follows; -1 for nowhere."""
        for place, depth in state:
            if isinstance(place, Node):
                child = place.children.get(token)
                if child is not None:
                    return (child.start if isinstance(child, Node) else child) + depth
            elif self.trie.tokens[place + depth] == token:
                return place + depth
        return -1
