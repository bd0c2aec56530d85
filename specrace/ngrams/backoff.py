"""Variable-order back-off: what comes next, by everything that ever followed the last 1, 2, ... tokens of a text.

The estimate is Witten and Bell's (1991, method C, with a weight of its own), interpolated over all orders as in
prediction by partial matching: a context that was seen C times with D different successors says C / (C + a * D) of
what comes next, in proportion to its counts, and leaves the rest to the context that is one token shorter. What no
context accounts for goes by how often a token stands in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter

from specrace.ngrams.trie import NGramTrie, Node

# A successor that was seen once is right a third of the time. Chosen on half of the Spec-Bench transcripts, where 1.2
# gave much the same and 4 lost 6 % of the tokens per step on summaries.
ESCAPE = 2.0
# What so many contexts leave open of which each was seen once, all with one successor.
SINGLE = tuple((ESCAPE / (1.0 + ESCAPE)) ** count for count in range(65))
# The most frequent tokens, which are guessed where nothing else is known; they are looked up anew when the text has
# grown by so many tokens and by such a part, which changes their order.
NUM_COMMON, REFRESH, GROWTH = 32, 16, 1 / 8

# Contexts that end at one place, the longest first, each (what follows, its tokens, contexts): a node of the trie; or
# the index of the only token that ever followed, and how many contexts, each a token shorter, were seen just there.
State = tuple[tuple[Node | int, int, int], ...]
Estimate = tuple[dict[int, float], float]


class BackoffModel:
    """Estimates over a growing text, for contexts of up to `longest` tokens; or over a `trie` one deeper than that."""

    def __init__(self, longest: int, tokens: Sequence[int] = (), trie: NGramTrie | None = None) -> None:
        self.longest = longest
        self.trie = NGramTrie(longest + 1, tokens) if trie is None else trie
        self._empty: State = ((self.trie.root, 0, 1),)
        self._common: list[tuple[int, float]] = []
        self._common_at = 0
        # How often each token stands in the first `_common_at` tokens of the text, in the order of their first places.
        self._counts = Counter[int]()

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens` to the text."""
        self.trie.extend(tokens)

    def state(self) -> State:
        """The contexts at the text's end."""
        nodes = self.trie.ends
        return tuple((node, len(nodes) - index, 1) for index, node in enumerate(nodes) if node.children)

    def follow(self, state: State, token: int) -> State:
        """The contexts one token further: those of `state` that go on with `token` and beyond, and `token` alone."""
        text, deepest, size = self.trie.tokens, self.trie.n - 1, len(self.trie.tokens)
        found: list[tuple[Node | int, int, int]] = []
        single = -1
        for place, depth, contexts in state + self._empty:
            if depth == deepest:
                contexts -= 1
                if not contexts:
                    continue
                depth -= 1
            if isinstance(place, Node):
                child = place.children.get(token)
                if child is None:
                    continue
                if isinstance(child, Node):
                    if child.children:
                        found.append((child, depth + 1, 1))
                    continue
                after = child + depth + 1
            elif text[place] == token:
                after = place + 1
            else:
                continue
            if after == single:
                found[-1] = (after, found[-1][1], found[-1][2] + contexts)
            elif after < size:
                found.append((after, depth + 1, contexts))
                single = after
        return tuple(found)

    def successors(self, state: State) -> Estimate:
        """The probability of each token that followed one of the contexts, and what is left for all others."""
        probs: dict[int, float] = {}
        return probs, self.blend(state, probs, 1.0)

    def blend(self, state: State, probs: dict[int, float], rest: float, least: float = 0.0) -> float:
        """Add to `probs` what these contexts, one after the other, make of the `rest`; returns what they leave.

        Once that is less than `least` the shorter ones, which have the most successors, are not asked.
        """
        text, ends = self.trie.tokens, self.trie.ends
        for place, depth, contexts in state:
            if rest < least:
                break
            if isinstance(place, Node):
                # The text's own end is a sighting that nothing followed yet.
                count = place.count - (depth <= len(ends) and ends[-depth] is place)
                spread = ESCAPE * len(place.children)
                share = rest / (count + spread)
                for token, child in place.children.items():
                    seen = share * child.count if isinstance(child, Node) else share
                    probs[token] = probs[token] + seen if token in probs else seen
                rest = share * spread
            else:
                token, left = text[place], rest * SINGLE[contexts]
                probs[token] = probs.get(token, 0.0) + rest - left
                rest = left
        return rest

    def common(self) -> list[tuple[int, float]]:
        """The most frequent tokens of the text, each with its probability where no context is known."""
        text, counts = self.trie.tokens, self._counts
        total = len(text)
        if not self._common_at or total >= self._common_at + max(REFRESH, GROWTH * self._common_at):
            counts.update(text[self._common_at :])
            self._common_at = total
            most = sorted(counts.items(), key=itemgetter(1), reverse=True)[:NUM_COMMON]
            self._common = [(token, count / (total + ESCAPE * len(counts))) for token, count in most]
        return self._common

    def position(self, state: State, token: int) -> int:
        """Where in the text `token` stands first after the longest of the contexts that it follows; -1 for nowhere."""
        for place, depth, _ in state:
            if isinstance(place, Node):
                child = place.children.get(token)
                if child is not None:
                    return (child.start if isinstance(child, Node) else child) + depth
            elif self.trie.tokens[place] == token:
                return place
        return -1
