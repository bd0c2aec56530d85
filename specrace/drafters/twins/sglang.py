"""SGLang's NGRAM: a trie of what was generated, and a suffix automaton of the documents.

Source: sgl-project/sglang 0.5.23, python/sglang/srt/speculative/ngram_worker.py and the C++ of its n-gram corpus. The
prompt is not entered: each draft enters the last `max_trie_depth` tokens that it was made for, all their suffixes, and
later drafts see them. The first token comes with the prompt's forward, without a draft. See docs/engines.md for what is
left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Generic, Protocol, TypeVar

import numpy as np

from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, CorpusPart, DrafterInputs, Flag, Method, Scoring
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END, Ints

T = TypeVar("T")


class Node:
    """An n-gram of the trie; `children` by token, the one entered last at the end."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, Node] = {}


# A node of the trie: this request's, where it stands in earlier ones, and its tokens.
Joined = tuple[Node | None, Ints, int]
NOWHERE = np.empty(0, np.int64)


class Source(Protocol[T]):
    """Where continuations come from; a node of it is all that follows one n-gram."""

    def latest(self, node: T, most: int) -> list[tuple[int, T]]:
        """Token and node of at most `most` continuations, the one seen last first."""

    def frequent(self, node: T, most: int) -> list[tuple[int, T, int]]:
        """Token, node and count of at most `most` continuations, the most frequent first, then by token."""


class Texts:
    """Texts that do not grow, an END after each; a node is the indices of what follows an n-gram."""

    def __init__(self, text: Ints, depth: int) -> None:
        self.text, self.depth = text, depth

    def suffixes(self, context: Sequence[int]) -> Iterator[tuple[int, Ints]]:
        """Number and end indices of the last 1, 2, ... tokens, up to the longest that occur."""
        ends = np.flatnonzero(self.text == context[-1])
        for length in range(1, min(self.depth, len(context)) + 1):
            if length > 1:
                ends = ends[ends >= length - 1]
                ends = ends[self.text[ends - length + 1] == context[-length]]
            if not len(ends):
                return
            yield length, ends

    def following(self, ends: Ints) -> Ints:
        """The node of an n-gram that ends at these indices."""
        found: Ints = ends[self.text[ends + 1] != END] + 1
        return found

    def after(self, node: Ints, token: int) -> Ints:
        """The node one token on."""
        return self.following(node[self.text[node] == token]) if len(node) else node

    def latest(self, node: Ints, most: int) -> list[tuple[int, Ints]]:
        """See `Source`."""
        tokens, last = np.unique(self.text[node][::-1], return_index=True)
        return [(token, self.after(node, token)) for token in tokens[np.argsort(last)][:most].tolist()]

    def frequent(self, node: Ints, most: int) -> list[tuple[int, Ints, int]]:
        """See `Source`."""
        tokens, counts = np.unique(self.text[node], return_counts=True)
        chosen = np.argsort(-counts, kind="stable")[:most]
        found = zip(tokens[chosen].tolist(), counts[chosen].tolist(), strict=True)
        return [(token, self.after(node, token), count) for token, count in found]


class Documents(Texts):
    """The suffix automaton of the documents."""

    def matches(self, context: Sequence[int]) -> list[tuple[Ints, int]]:
        """The nodes of the last tokens, and their number, the longest first.

        Of the lengths with the same occurrences, one state of the automaton, the longest.
        """
        states = {len(ends): (self.following(ends), length) for length, ends in self.suffixes(context)}
        return [match for match in reversed(states.values()) if len(match[0])]


class Trie:
    """The n-grams of up to `depth` tokens, of this request and of `past`, earlier ones.

    `anchors` are this request's nodes of the last 1, 2, ... tokens, None for none. As in SGLang they move on by one
    token from where they were, so what was entered since is not seen by them.
    """

    def __init__(self, depth: int, past: Texts) -> None:
        self.depth, self.root, self.past = depth, Node(), past
        self.anchors: list[Node | None] = []

    def insert(self, tokens: Sequence[int]) -> None:
        """Count every n-gram of `tokens`."""
        for start in range(len(tokens)):
            node = self.root
            for token in tokens[start : start + self.depth]:
                child = node.children.pop(token, None) or Node()
                child.count += 1
                node.children[token] = node = child

    def follow(self, tokens: Sequence[int]) -> None:
        """Move the anchors on by `tokens`; start again if these are more than `depth`."""
        if len(tokens) > self.depth:
            self.anchors, tokens = [], tokens[-self.depth :]
        for token in tokens:
            before = [self.root, *self.anchors][: self.depth]
            self.anchors = [node and node.children.get(token) for node in before]

    def matches(self, context: Sequence[int]) -> list[tuple[Joined, int]]:
        """The nodes of the last tokens, which were followed, and their number, the longest first."""
        past = {length: self.past.following(ends) for length, ends in self.past.suffixes(context)}
        nodes = [((node, past.get(length, NOWHERE), length), length) for length, node in enumerate(self.anchors, 1)]
        return [each for each in reversed(nodes) if (each[0][0] and each[0][0].children) or len(each[0][1])]

    def latest(self, node: Joined, most: int) -> list[tuple[int, Joined]]:
        """See `Source`; this request's are the latest."""
        own, past, length = node
        children = dict(islice(reversed(own.children.items()), most)) if own else {}
        found: list[tuple[int, Joined]] = [
            (each, (child, self.past.after(past, each), length + 1)) for each, child in children.items()
        ]
        if len(past) and len(found) < most:
            others = self.past.latest(past, most)
            found += [(each, (None, after, length + 1)) for each, after in others if each not in children]
        return found[:most]

    def frequent(self, node: Joined, most: int) -> list[tuple[int, Joined, int]]:
        """See `Source`; earlier requests count an n-gram once for each token until it is too far back."""
        own, past, length = node
        children = own.children if own else {}
        found: dict[int, tuple[int, Joined, int]] = {
            token: (token, (child, NOWHERE, length + 1), child.count) for token, child in children.items()
        }
        for token, after, count in self.past.frequent(past, len(past)) if len(past) else ():
            here = children.get(token)
            weight = max(1, self.depth - length)
            found[token] = token, (here, after, length + 1), count * weight + (here.count if here else 0)
        return sorted(found.values(), key=lambda each: (-each[2], each[0]))[:most]


class NgramDrafter:
    """The continuations of all matches, the longest match first, in one tree.

    Breadth first, the latest continuations first, fewer of them the deeper and the longer the match; with
    `match_type_prob` the most probable first. `external_sam_budget` of the nodes are the documents'.
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        num_draft_tokens: Annotated[int, Bounds(2, 256, "nodes of the tree, its root included")] = 12,
        max_trie_depth: Annotated[int, Bounds(2, 64, "longest n-gram: match and draft, in tokens")] = 18,
        min_bfs_breadth: Annotated[int, Bounds(1, 64, "fewest continuations of a node")] = 1,
        max_bfs_breadth: Annotated[int, Bounds(1, 64, "most continuations of a node")] = 10,
        match_type_prob: Annotated[bool, Flag("match type PROB in place of BFS: the most probable first")] = False,
        external_sam_budget: Annotated[int, Bounds(0, 255, "nodes for what follows in the documents")] = 0,
    ) -> None:
        self.prompt_tokens = len(inputs.prompt)
        self.size, self.prob, self.breadth = num_draft_tokens - 1, match_type_prob, max_bfs_breadth
        self.narrowest = min(min_bfs_breadth, max_bfs_breadth)
        self.deepest = max_trie_depth - 1
        # Of an earlier prompt the first draft entered all but one of the last tokens that it was made for.
        past: list[int] = PastOutputs.of(inputs.past).index(list, prompt_tail=max_trie_depth - 1)
        self.trie = Trie(max_trie_depth, Texts(np.array(past, np.int64), max_trie_depth))
        self.documents: Documents | None = None
        if external_sam_budget and inputs.corpus_index is not None:
            self.documents = Documents(inputs.corpus_index.text, max_trie_depth)
        self.document_size = min(external_sam_budget, self.size) if self.documents else 0
        self._followed = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The tree of the trie, then that of the documents; the bare root for the first token."""
        builder = TreeBuilder(context[-1])
        if budget < 1 or len(context) <= self.prompt_tokens:
            return builder.build()
        self.trie.follow(context[self._followed :])
        self._followed = len(context)
        self._grow(builder, self.trie, self.trie.matches(context), self.size - self.document_size)
        if self.documents:
            other = TreeBuilder(context[-1])
            self._grow(other, self.documents, self.documents.matches(context), self.document_size)
            nodes = [0]
            for token, parent in zip(other.tokens[1:], other.parents[1:], strict=True):
                nodes.append(builder.add(nodes[parent], token))
        self.trie.insert(context[-self.trie.depth :])
        return builder.build().cut(budget)

    def _grow(self, builder: TreeBuilder, source: Source[T], matches: list[tuple[T, int]], size: int) -> None:
        if self.prob:
            self._grow_by_probability(builder, source, [node for node, _ in matches], size)
        else:
            self._grow_by_recency(builder, source, matches, size)

    def _grow_by_recency(
        self, builder: TreeBuilder, source: Source[T], matches: list[tuple[T, int]], size: int
    ) -> None:
        slope = (self.breadth - self.narrowest) / self.deepest
        for match, length in matches:
            queue = deque([(0, (self.deepest - length) * slope + self.narrowest, match)])
            while queue and len(builder.tokens) <= size:
                parent, breadth, node = queue.popleft()
                for token, child in source.latest(node, max(1, int(breadth))):
                    if len(builder.tokens) > size:
                        break
                    queue.append((builder.add(parent, token), breadth - slope, child))

    def _grow_by_probability(self, builder: TreeBuilder, source: Source[T], matches: list[T], size: int) -> None:
        heap: StdHeap[tuple[int, int, T]] = StdHeap()

        def push(parent: int, node: T, prob: float) -> None:
            found = source.frequent(node, self.breadth)
            total = sum(count for _, _, count in found)
            for token, child, count in found:
                heap.push(count / total * prob, (parent, token, child))

        for match in matches:
            push(0, match, 1.0)
            while heap.items and len(builder.tokens) <= size:
                prob, (parent, token, child) = heap.pop()
                push(builder.add(parent, token), child, prob)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the output comes with the context."""


class StdHeap(Generic[T]):
    """C++'s priority queue as GNU's library has it: of equal priorities the same one comes first."""

    def __init__(self) -> None:
        self.items: list[tuple[float, T]] = []

    def push(self, priority: float, item: T) -> None:
        """Add an item."""
        self.items.append((priority, item))
        self._rise(len(self.items) - 1, self.items[-1])

    def pop(self) -> tuple[float, T]:
        """Take the item of the highest priority."""
        items = self.items
        top, last = items[0], items.pop()
        size, hole = len(items), 0
        if not size:
            return top
        # The hole sinks to the bottom first, by the larger child, the right one of equals.
        while (child := 2 * hole + 2) <= size:
            if child == size or items[child][0] < items[child - 1][0]:
                child -= 1
            items[hole] = items[child]
            hole = child
        self._rise(hole, last)
        return top

    def _rise(self, hole: int, item: tuple[float, T]) -> None:
        items = self.items
        while hole and items[(hole - 1) // 2][0] < item[0]:
            items[hole] = items[(hole - 1) // 2]
            hole = (hole - 1) // 2
        items[hole] = item


def _corpus_part(options: Mapping[str, Any]) -> CorpusPart:
    return "corpus_index" if options["external_sam_budget"] else ""


METHODS = (
    Method(
        "sglang-ngram",
        "SGLang NGRAM",
        "drafts a tree of what followed in the output, of every match length",
        NgramDrafter,
        lambda options: int(options["num_draft_tokens"]) - 1,
        profile=None,
        corpus_part=_corpus_part,
        scoring=Scoring("trie, without documents", options={"external_sam_budget": 0}),
        twin_of="SGLang",
        padded=True,
    ),
)
