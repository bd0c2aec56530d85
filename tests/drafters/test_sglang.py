"""SGLang's NGRAM: worked examples, and a comparison with a plain version of its rule."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.drafters.twins.sglang import Documents, StdHeap
from specrace.lab.scoring.score import forced_steps
from specrace.ngrams.suffix_index import SuffixIndex
from tests.parts import inputs

TEXTS = st.lists(st.integers(2, 5), min_size=1, max_size=40)


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    """The tokens from the root's children to every node."""
    return {tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))}


def test_defaults_are_those_of_sglang() -> None:
    method = METHODS["sglang-ngram"]
    assert method.defaults("cuda") == {
        "num_draft_tokens": 12,
        "max_trie_depth": 18,
        "min_bfs_breadth": 1,
        "max_bfs_breadth": 10,
        "match_type_prob": False,
        "external_sam_budget": 0,
    }
    assert method.budget("cpu", method.defaults("cpu")) == 11


def test_only_the_end_of_the_prompt_is_copied() -> None:
    """Each draft enters the last tokens of its context into the trie, so later drafts find the end of the prompt."""
    prompt = (2, 3, 4, 5, 6, 7, 8, 9) * 4
    drafter = METHODS["sglang-ngram"].build(inputs(prompt), max_trie_depth=4)
    assert drafter.propose(prompt, 99).num_draft == 0
    assert drafter.propose((*prompt, 9), 99).num_draft == 0
    # The last draft entered 7 8 9 9. The tokens before these are not in the trie.
    assert drafter.propose((*prompt, 9, 2), 99).num_draft == 0
    assert paths(drafter.propose((*prompt, 9, 2, 7), 99)) == {(8,), (8, 9), (8, 9, 9)}


class ReferenceDrafter:
    """A plain version of the rule, with a dictionary from n-gram to its count and the time of its last entry."""

    def __init__(self, depth: int, min_breadth: int, max_breadth: int) -> None:
        self.depth, self.min_breadth, self.max_breadth = depth, min_breadth, max_breadth
        self.ngrams: dict[tuple[int, ...], list[int]] = {}
        # The number of entries and of context tokens read so far, and the lengths of the suffixes that match.
        self.clock = self.num_read = 0
        self.match_lengths: set[int] = set()

    def insert(self, tokens: Sequence[int]) -> None:
        """Count every n-gram of `tokens`."""
        for start in range(len(tokens)):
            for end in range(start + 1, min(len(tokens), start + self.depth) + 1):
                entry = self.ngrams.setdefault(tuple(tokens[start:end]), [0, 0])
                self.clock += 1
                entry[:] = entry[0] + 1, self.clock

    def children(self, ngram: tuple[int, ...]) -> list[int]:
        """The tokens that followed an n-gram, the most recently entered first."""
        longer = [path for path in self.ngrams if path[:-1] == ngram]
        return [path[-1] for path in sorted(longer, key=lambda path: -self.ngrams[path][1])]

    def matches(self, context: Sequence[int]) -> list[tuple[int, ...]]:
        """The suffixes that match, longest first; a match begins with one token and grows with the context."""
        for end in range(self.num_read + 1, len(context) + 1):
            lengths = [1, *(length + 1 for length in self.match_lengths)]
            self.match_lengths = {length for length in lengths if tuple(context[end - length : end]) in self.ngrams}
            self.match_lengths = {length for length in self.match_lengths if length <= self.depth}
        self.num_read = len(context)
        return [tuple(context[-length:]) for length in sorted(self.match_lengths, reverse=True)]

    def tree(self, context: Sequence[int], size: int) -> set[tuple[int, ...]]:
        """The paths of a draft of `size` tokens, added breadth first after each match."""
        paths: list[tuple[int, ...]] = []
        # As in SGLang, fewer continuations are tried after a longer match, and at a greater depth.
        slope = (self.max_breadth - self.min_breadth) / (self.depth - 1)
        for match in self.matches(context):
            queue = [((), (self.depth - 1 - len(match)) * slope + self.min_breadth)]
            for path, breadth in queue:
                for token in self.children(match + path)[: max(1, int(breadth))]:
                    if len(paths) == size:
                        return set(paths)
                    if (*path, token) not in paths:
                        paths.append((*path, token))
                    queue.append(((*path, token), breadth - slope))
        return set(paths)


@given(TEXTS, TEXTS, st.integers(2, 5), st.integers(1, 2), st.integers(2, 4), st.integers(2, 12))
@settings(max_examples=50)
def test_breadth_first_trees_equal_the_reference(
    prompt: list[int], output: list[int], depth: int, min_breadth: int, max_breadth: int, nodes: int
) -> None:
    drafter = METHODS["sglang-ngram"].build(
        inputs(prompt),
        max_trie_depth=depth,
        num_draft_tokens=nodes,
        min_bfs_breadth=min_breadth,
        max_bfs_breadth=max_breadth,
    )
    reference, context = ReferenceDrafter(depth, min_breadth, max_breadth), list(prompt)
    for number, step in enumerate(forced_steps(drafter, prompt, output, 100)):
        if number:
            assert paths(step.tree) == reference.tree(context, nodes - 1)
            reference.insert(context[-depth:])
        context += step.emitted


def test_nodes_are_added_by_probability() -> None:
    """2 was followed by 3 twice and by 4 once, and 3 by 5 both times."""
    drafter = METHODS["sglang-ngram"].build(inputs((9,)), match_type_prob=True, num_draft_tokens=4, max_trie_depth=3)
    trie = drafter.trie  # type: ignore[attr-defined]
    for tokens in ((2, 3, 5), (2, 3, 5), (2, 4, 6)):
        trie.insert(tokens)
    assert drafter.propose((9, 2), 99).tokens == (2, 3, 5, 4)


def test_documents_get_their_budget_of_nodes() -> None:
    index = SuffixIndex([[5, 6, 7, 8], [5, 6, 9], [2, 5, 6]])
    prompt = (3,)
    drafter = METHODS["sglang-ngram"].build(
        inputs(prompt, corpus_index=index), external_sam_budget=2, num_draft_tokens=4
    )
    # The latest continuation comes first.
    assert paths(drafter.propose((*prompt, 5, 6), 99)) == {(9,), (7,)}
    drafter = METHODS["sglang-ngram"].build(inputs(prompt, corpus_index=index), num_draft_tokens=4)
    assert drafter.propose((*prompt, 5, 6), 99).num_draft == 0


@pytest.mark.parametrize("by_probability", [False, True])
def test_earlier_requests_are_in_the_trie(by_probability: bool) -> None:
    """5 was followed by 6 twice and then by 7 in earlier outputs, and by 8 in this output."""
    past = ((5, 6, 9), (5, 6, 9), (5, 7))
    drafter = METHODS["sglang-ngram"].build(inputs((3,), past=past), match_type_prob=by_probability, num_draft_tokens=7)
    assert drafter.propose((3, 5, 8), 99).num_draft == 0
    drafter.trie.insert((5, 8))  # type: ignore[attr-defined]
    tree = drafter.propose((3, 5, 8, 5), 99)
    root_children = [token for token, parent in zip(tree.tokens, tree.parents, strict=True) if parent == 0]
    assert root_children == ([6, 7, 8] if by_probability else [8, 7, 6])


@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, st.integers(1, 5))
def test_documents_match_like_a_suffix_automaton(texts: list[list[int]], context: list[int], depth: int) -> None:
    """Each distinct set of occurrences is one state, with the length of its longest match and the tokens after it."""
    matches = Documents(SuffixIndex(texts).text, depth).matches(context)
    expected: dict[int, tuple[int, list[int]]] = {}
    for length in range(1, min(depth, len(context)) + 1):
        ends = [
            (number, end)
            for number, text in enumerate(texts)
            for end in range(length, len(text) + 1)
            if text[end - length : end] == context[-length:]
        ]
        if ends:
            following = [texts[number][end] for number, end in ends if end < len(texts[number])]
            # Suffixes with equally many occurrences have the same ones, so the longest replaces the shorter.
            expected[len(ends)] = length, following
    continued = [entry for entry in reversed(expected.values()) if entry[1]]
    text = SuffixIndex(texts).text
    assert [(length, text[node].tolist()) for node, length in matches] == continued


@pytest.mark.parametrize("seed", range(5))
def test_the_heap_pops_the_highest_priority(seed: int) -> None:
    rng, heap, items = random.Random(seed), StdHeap[int](), []
    for number in range(200):
        if items and rng.random() < 0.4:
            priority, item = heap.pop()
            assert priority == max(items)[0] and (priority, item) in items
            items.remove((priority, item))
        else:
            items.append((float(rng.randrange(6)), number))
            heap.push(*items[-1])


def test_the_heap_breaks_ties_like_gnus_library() -> None:
    heap = StdHeap[int]()
    for number in range(6):
        heap.push(1.0, number)
    assert [heap.pop()[1] for _ in range(6)] == [0, 2, 5, 4, 1, 3]
