"""SGLang's NGRAM: a trie of the generated text, and a suffix automaton of the documents.

Source: sgl-project/sglang 0.5.23, python/sglang/srt/speculative/ngram_worker.py and the C++ of its n-gram corpus. The
prompt is not entered into the trie. After each draft, the last `max_trie_depth` tokens of its context are entered with
all their suffixes, and later drafts see them. The first token comes with the prompt's forward, without a draft. See
docs/twins.md for what is not modelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Generic, Protocol, TypeVar

import numpy as np

from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, CorpusPart, DrafterInputs, Flag, Method, OnChains, Scoring
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END, Ints

T = TypeVar("T")


class Node:
    """An n-gram of the trie, with its `children` by token; the most recently entered child is last."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, Node] = {}


# An n-gram of `Trie`: its node in this request, the positions after it in earlier requests, and its length.
TrieNode = tuple[Node | None, Ints, int]
NO_POSITIONS = np.empty(0, np.int64)


class Source(Protocol[T]):
    """A source of continuations. A node (of type T) represents everything that follows one n-gram."""

    def latest(self, node: T, max_tokens: int) -> list[tuple[int, T]]:
        """The token and node of at most `max_tokens` continuations, the most recent first."""

    def frequent(self, node: T, max_tokens: int) -> list[tuple[int, T, int]]:
        """The token, node and count of at most `max_tokens` continuations, by descending count, then by token."""


class Texts:
    """Texts that do not grow, each followed by an END. A node is an array: the positions after an n-gram."""

    def __init__(self, text: Ints, depth: int) -> None:
        self.text = text
        self.depth = depth

    def suffixes(self, context: Sequence[int]) -> Iterator[tuple[int, Ints]]:
        """The length and the end positions of each suffix of `context` that occurs, the shortest first."""
        ends = np.flatnonzero(self.text == context[-1])
        for length in range(1, min(self.depth, len(context)) + 1):
            if length > 1:
                ends = ends[ends >= length - 1]
                ends = ends[self.text[ends - length + 1] == context[-length]]
            if not len(ends):
                return
            yield length, ends

    def following(self, ends: Ints) -> Ints:
        """The node of an n-gram that ends at the positions `ends`."""
        starts: Ints = ends[self.text[ends + 1] != END] + 1
        return starts

    def after(self, node: Ints, token: int) -> Ints:
        """The node of the n-gram that consists of the n-gram of `node` and `token`."""
        return self.following(node[self.text[node] == token]) if len(node) else node

    def latest(self, node: Ints, max_tokens: int) -> list[tuple[int, Ints]]:
        """See `Source`."""
        # The first occurrence in the reversed text is the latest.
        tokens, from_end = np.unique(self.text[node][::-1], return_index=True)
        return [(token, self.after(node, token)) for token in tokens[np.argsort(from_end)][:max_tokens].tolist()]

    def frequent(self, node: Ints, max_tokens: int) -> list[tuple[int, Ints, int]]:
        """See `Source`."""
        tokens, counts = np.unique(self.text[node], return_counts=True)
        chosen = np.argsort(-counts, kind="stable")[:max_tokens]
        token_counts = zip(tokens[chosen].tolist(), counts[chosen].tolist(), strict=True)
        return [(token, self.after(node, token), count) for token, count in token_counts]


class Documents(Texts):
    """The suffix automaton of the documents."""

    def matches(self, context: Sequence[int]) -> list[tuple[Ints, int]]:
        """The nodes of the matching suffixes of `context` with their lengths, the longest first.

        Suffixes with the same occurrences are one state of the automaton; of these only the longest is returned.
        """
        # A longer suffix that occurs as often replaces the shorter one, whose occurrences are the same.
        states = {len(ends): (self.following(ends), length) for length, ends in self.suffixes(context)}
        return [match for match in reversed(states.values()) if len(match[0])]


class Trie:
    """The n-grams of up to `depth` tokens of this request, and of earlier ones (`past`).

    `anchors`: this request's nodes for the last 1, 2, ... tokens, None where there is no such node. As in SGLang, each
    token moves every anchor to its child. Anchors are not looked up again, so n-grams entered later are missed.
    """

    def __init__(self, depth: int, past: Texts) -> None:
        self.depth = depth
        self.past = past
        self.root = Node()
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
        """Move the anchors along `tokens`. After more than `depth` tokens, the anchors start at the root again."""
        if len(tokens) > self.depth:
            self.anchors, tokens = [], tokens[-self.depth :]
        for token in tokens:
            parents = [self.root, *self.anchors][: self.depth]
            self.anchors = [None if node is None else node.children.get(token) for node in parents]

    def matches(self, context: Sequence[int]) -> list[tuple[TrieNode, int]]:
        """The nodes of the suffixes of `context` that have continuations, with their lengths, the longest first.

        `follow` must have been called for all of `context`.
        """
        past = {length: self.past.following(ends) for length, ends in self.past.suffixes(context)}
        matches: list[tuple[TrieNode, int]] = []
        for length, node in enumerate(self.anchors, 1):
            positions = past.get(length, NO_POSITIONS)
            if (node and node.children) or len(positions):
                matches.append(((node, positions, length), length))
        return matches[::-1]

    def latest(self, node: TrieNode, max_tokens: int) -> list[tuple[int, TrieNode]]:
        """See `Source`; continuations in this request are later than all others."""
        current, past, length = node
        children = dict(islice(reversed(current.children.items()), max_tokens)) if current else {}
        latest: list[tuple[int, TrieNode]] = [
            (token, (child, self.past.after(past, token), length + 1)) for token, child in children.items()
        ]
        if len(past) and len(latest) < max_tokens:
            earlier = self.past.latest(past, max_tokens)
            latest += [(token, (None, after, length + 1)) for token, after in earlier if token not in children]
        return latest[:max_tokens]

    def frequent(self, node: TrieNode, max_tokens: int) -> list[tuple[int, TrieNode, int]]:
        """See `Source`; an n-gram of an earlier request counts once for each draft that entered the n-gram."""
        current, past, length = node
        children = current.children if current else {}
        by_token: dict[int, tuple[int, TrieNode, int]] = {
            token: (token, (child, NO_POSITIONS, length + 1), child.count) for token, child in children.items()
        }
        # Each draft entered the last `depth` tokens of its context, so this many drafts entered one n-gram.
        weight = max(1, self.depth - length)
        earlier = self.past.frequent(past, len(past)) if len(past) else []
        for token, after, count in earlier:
            child = children.get(token)
            total = count * weight + (child.count if child else 0)
            by_token[token] = token, (child, after, length + 1), total
        return sorted(by_token.values(), key=lambda entry: (-entry[2], entry[0]))[:max_tokens]


class NgramDrafter:
    """Drafts the continuations of all matches in one tree, those of the longest match first.

    They are added breadth first, the latest first, and fewer at greater depths and after longer matches. With
    `match_type_prob` they are added by probability. `external_sam_budget` nodes come from the documents.

    The trie is empty at the first draft, which then enters 1 2 3 1. At the second draft 1 was followed by 2 3 1:

    >>> drafter = NgramDrafter(DrafterInputs((1, 2, 3), vocab_size=10), num_draft_tokens=4)
    >>> drafter.propose((1, 2, 3, 1), budget=3).tokens
    (1,)
    >>> drafter.propose((1, 2, 3, 1, 9, 1), budget=3).tokens
    (1, 2, 3, 1)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        num_draft_tokens: Annotated[int, Bounds(2, 256, "nodes of the tree, its root included")] = 12,
        max_trie_depth: Annotated[int, Bounds(2, 64, "longest n-gram, match and draft together, in tokens")] = 18,
        min_bfs_breadth: Annotated[int, Bounds(1, 64, "minimum number of continuations of a node")] = 1,
        max_bfs_breadth: Annotated[int, Bounds(1, 64, "maximum number of continuations of a node")] = 10,
        match_type_prob: Annotated[bool, Flag("match type PROB (the most probable first), not BFS")] = False,
        external_sam_budget: Annotated[int, Bounds(0, 255, "nodes for continuations found in the documents")] = 0,
    ) -> None:
        self.num_prompt = len(inputs.prompt)
        # The number of draft nodes, without the root.
        self.size = num_draft_tokens - 1
        self.by_probability = match_type_prob
        self.max_breadth = max_bfs_breadth
        self.min_breadth = min(min_bfs_breadth, max_bfs_breadth)
        self.max_depth = max_trie_depth - 1
        # The first draft of an earlier request entered its first output token and this many last tokens of its prompt.
        past: list[int] = PastOutputs.of(inputs.past).index(list, prompt_tail=max_trie_depth - 1)
        self.trie = Trie(max_trie_depth, Texts(np.array(past, np.int64), max_trie_depth))
        self.documents: Documents | None = None
        if external_sam_budget and inputs.corpus_index is not None:
            self.documents = Documents(inputs.corpus_index.text, max_trie_depth)
        self.document_size = min(external_sam_budget, self.size) if self.documents else 0
        self._followed = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The tree from the trie, then the tree from the documents; the bare root before the first output token."""
        builder = TreeBuilder(context[-1])
        if budget < 1 or len(context) <= self.num_prompt:
            return builder.build()
        self.trie.follow(context[self._followed :])
        self._followed = len(context)
        self._grow(builder, self.trie, self.trie.matches(context), self.size - self.document_size)
        if self.documents:
            from_documents = TreeBuilder(context[-1])
            self._grow(from_documents, self.documents, self.documents.matches(context), self.document_size)
            nodes = [0]
            for token, parent in zip(from_documents.tokens[1:], from_documents.parents[1:], strict=True):
                nodes.append(builder.add(nodes[parent], token))
        self.trie.insert(context[-self.trie.depth :])
        return builder.build().cut(budget)

    def _grow(self, builder: TreeBuilder, source: Source[T], matches: list[tuple[T, int]], size: int) -> None:
        """Add continuations of the `matches` (node, length) until the tree has `size` draft nodes."""
        if self.by_probability:
            self._grow_by_probability(builder, source, [node for node, _ in matches], size)
        else:
            self._grow_by_recency(builder, source, matches, size)

    def _grow_by_recency(
        self, builder: TreeBuilder, source: Source[T], matches: list[tuple[T, int]], size: int
    ) -> None:
        # Each further level, and each matched token, lowers the number of continuations by this.
        slope = (self.max_breadth - self.min_breadth) / self.max_depth
        for match, length in matches:
            queue = deque([(0, (self.max_depth - length) * slope + self.min_breadth, match)])
            while queue and len(builder.tokens) <= size:
                parent, breadth, node = queue.popleft()
                for token, child in source.latest(node, max(1, int(breadth))):
                    if len(builder.tokens) > size:
                        break
                    queue.append((builder.add(parent, token), breadth - slope, child))

    def _grow_by_probability(self, builder: TreeBuilder, source: Source[T], matches: list[T], size: int) -> None:
        heap: StdHeap[tuple[int, int, T]] = StdHeap()

        def push(parent: int, node: T, prob: float) -> None:
            children = source.frequent(node, self.max_breadth)
            total = sum(count for _, _, count in children)
            for token, child, count in children:
                heap.push(count / total * prob, (parent, token, child))

        for match in matches:
            push(0, match, 1.0)
            while heap.items and len(builder.tokens) <= size:
                prob, (parent, token, child) = heap.pop()
                push(builder.add(parent, token), child, prob)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the context holds the output."""


class StdHeap(Generic[T]):
    """A priority queue that breaks ties like `std::priority_queue` in GNU's C++ library."""

    def __init__(self) -> None:
        self.items: list[tuple[float, T]] = []

    def push(self, priority: float, item: T) -> None:
        """Add an item."""
        self.items.append((priority, item))
        self._rise(len(self.items) - 1, self.items[-1])

    def pop(self) -> tuple[float, T]:
        """Remove and return the item with the highest priority."""
        items = self.items
        top, last = items[0], items.pop()
        size, hole = len(items), 0
        if not size:
            return top
        # First the hole sinks to the bottom, each time to the larger child, or to the right one if both are equal.
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
    """The field through which the drafter reads the documents, if it uses them."""
    return "corpus_index" if options["external_sam_budget"] else ""


METHODS = (
    Method(
        "sglang-ngram",
        "SGLang NGRAM",
        "drafts a tree of what followed matches of every length in the output",
        NgramDrafter,
        lambda options: int(options["num_draft_tokens"]) - 1,
        profile=None,
        corpus_part=_corpus_part,
        scoring=Scoring("trie, without documents", options={"external_sam_budget": 0}),
        on_chains=OnChains(refuses=lambda _: "SGLang drafts a tree"),
        twin_of="SGLang",
        padded=True,
    ),
)
