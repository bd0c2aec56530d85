"""REST: worked examples; its suffix index and its counts compared with brute-force versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.events import Finished
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.drafters.rest import RestDrafter
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import END, SORTED_TOKENS, SuffixIndex, count_continuations, earlier_matches
from tests.parts import TableTarget, inputs, step_verdict

TOKENS = st.lists(st.integers(0, 2), max_size=40)
DOCUMENTS = st.lists(TOKENS, max_size=5)

CORPUS = (
    (5, 1, 2, 3, 4, 9),
    (6, 1, 2, 3, 7),
    (8, 1, 2, 4),
    (1, 2),
)


def positions_by_scan(documents: Sequence[Sequence[int]], query: Sequence[int]) -> list[int]:
    """The indices of the tokens that follow `query`, in the documents joined with an END after each."""
    positions, base = [], 0
    for tokens in documents:
        for position in range(len(query), len(tokens)):
            if list(tokens[position - len(query) : position]) == list(query):
                positions.append(base + position)
        base += len(tokens) + 1
    return positions


def continuations(documents: Sequence[Sequence[int]], query: Sequence[int], length: int) -> list[tuple[int, list[int]]]:
    """For each occurrence of `query`: the position after it, and up to `length` tokens from there in the document."""
    text = [token for tokens in documents for token in (*tokens, END)]
    windows = []
    for position in positions_by_scan(documents, query):
        window = text[position : position + length]
        windows.append((position, window[: window.index(END)] if END in window else window))
    return windows


def ranked(windows: Sequence[tuple[int, list[int]]], max_prefixes: int) -> list[tuple[tuple[int, ...], int, int]]:
    """The tokens, count and first position of the best prefixes, by count, then length, then first position."""
    counts: Counter[tuple[int, ...]] = Counter()
    first: dict[tuple[int, ...], int] = {}
    for position, window in windows:
        for size in range(1, len(window) + 1):
            counts[tuple(window[:size])] += 1
            first.setdefault(tuple(window[:size]), position)
    best = sorted(counts, key=lambda tokens: (-counts[tokens], len(tokens), first[tokens]))[:max_prefixes]
    return [(tokens, counts[tokens], first[tokens]) for tokens in best]


def match_by_scan(documents: Sequence[Sequence[int]], context: Sequence[int], shortest: int, longest: int) -> list[int]:
    """The longest suffix of the context that has a continuation; [] if none has."""
    for size in range(min(longest, len(context)), shortest - 1, -1):
        if positions_by_scan(documents, context[len(context) - size :]):
            return list(context[len(context) - size :])
    return []


def test_worked_example_of_a_draft() -> None:
    """In the documents, token 3 follows the tokens 1 2 twice, and token 4 once; after 1 2 3 come 4 9 and 7.

    In the last document nothing follows 1 2.
    """
    drafter = RestDrafter(inputs((0, 9, 1, 2), corpus_index=SuffixIndex(CORPUS)))
    tree = drafter.propose((0, 9, 1, 2), 8)
    assert tree == TokenTree((2, 3, 4, 4, 7, 9), (-1, 0, 0, 1, 1, 3), (1.0, 2 / 3, 1 / 3, 1 / 2, 1 / 2, 1.0), (-1,) * 6)
    assert drafter.propose((0, 9, 1, 2), 2) == tree.cut(2)
    assert drafter.propose((0, 5, 1, 2), 8).tokens == (2, 3, 4, 9)  # 5 1 2 matches in the first document only
    assert drafter.propose((0, 9, 9, 2), 8).tokens == (2,)  # a match of one token is too short


def test_each_option_changes_the_draft() -> None:
    prompt, index = (5, 1, 2), SuffixIndex(CORPUS)
    assert RestDrafter(inputs(prompt, corpus_index=index), longest=2).propose(prompt, 8).tokens == (2, 3, 4, 4, 7, 9)
    assert RestDrafter(inputs(prompt, corpus_index=index), longest=2, length=1).propose(prompt, 8).tokens == (2, 3, 4)
    assert RestDrafter(inputs(prompt, corpus_index=index), branches=1).propose(prompt, 8).tokens == (2, 3)
    assert RestDrafter(inputs(prompt, corpus_index=index), shortest=1).propose((0, 6), 2).tokens == (6, 1, 2)


def test_matches_do_not_cross_documents() -> None:
    drafter = RestDrafter(inputs((1, 2), corpus_index=SuffixIndex([(1, 2), (3, 4), (7, 1, 2)])))
    assert drafter.propose((1, 2), 8).tokens == (2,)
    assert drafter.propose((2, 3), 8).tokens == (3,)


def test_output_extends_the_match_but_not_the_corpus() -> None:
    index = SuffixIndex([(1, 2, 3, 4), (1, 2, 5, 6)])
    drafter = RestDrafter(inputs((1, 2), corpus_index=index))
    tree = drafter.propose((1, 2), 8)
    drafter.observe(tree, step_verdict(tree, [5] + [0] * (len(tree) - 1)))
    assert drafter.propose((1, 2, 5), 8).tokens == (5, 6)
    assert drafter.propose((7, 8, 7, 8), 8).tokens == (8,)


def test_without_documents_the_text_is_the_corpus() -> None:
    drafter = METHODS["rest"].build(inputs((1, 2, 3, 1, 2, 4, 1, 2)))
    tree = drafter.propose((1, 2, 3, 1, 2, 4, 1, 2), 6)
    # 1 2 was followed by 3 1 2 4 1 2 and by 4 1 2. All counts are equal: ties go by depth, then by position.
    assert tree.tokens == (2, 3, 4, 1, 1, 2, 2)
    assert tree.parents == (-1, 0, 0, 1, 2, 3, 4)
    assert tree.positions == (-1, 2, 5, 3, 6, 4, 7)


@pytest.mark.slow
@given(DOCUMENTS, TOKENS, st.integers(1, 4), st.integers(0, 12), st.integers(1, 11), st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_the_draft_equals_a_brute_force_search(
    documents: list[list[int]], context: list[int], shortest: int, more: int, length: int, budget: int
) -> None:
    context = [0, *context]
    index, longest = SuffixIndex(documents), min(16, shortest + more)
    drafter = RestDrafter(inputs(context, corpus_index=index), longest=longest, shortest=shortest, length=length)
    tree = drafter.propose(context, budget)
    query = match_by_scan(documents, context, shortest, longest)
    expected = ranked(continuations(documents, query, length), budget) if query else []
    paths = [tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))]
    assert paths == [tokens for tokens, _, _ in expected]


@given(DOCUMENTS, st.lists(st.integers(0, 2), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_index_finds_all_positions_in_suffix_order(documents: list[list[int]], query: list[int]) -> None:
    index = SuffixIndex(documents)
    positions = index.positions_after(query, 10_000).tolist()
    assert sorted(positions) == positions_by_scan(documents, query)
    text = index.text.tolist()
    # Suffixes are sorted by their first SORTED_TOKENS tokens only; the query is the first of them.
    size = SORTED_TOKENS - len(query)
    continuations_found = [text[position : position + size] for position in positions]
    assert continuations_found == sorted(continuations_found)


def test_equal_suffixes_are_in_text_order() -> None:
    index = SuffixIndex([[7] * 3, [7] * 3])
    assert index.order.tolist() == [7, 3, 6, 2, 5, 1, 4, 0]
    assert SuffixIndex([[1], [1]]).order.tolist() == [3, 1, 2, 0]
    repeated = SuffixIndex([[7] * 100])
    assert repeated.order.tolist() == [*range(100, 100 - SORTED_TOKENS, -1), *range(101 - SORTED_TOKENS)]


def test_too_many_positions_are_sampled_evenly() -> None:
    index = SuffixIndex([[1, token] for token in range(100)])
    positions = index.positions_after([1], 10)
    assert index.text[positions].tolist() == [0, 11, 22, 33, 44, 55, 66, 77, 88, 99]
    assert len(index.positions_after([1], 100)) == len(index.positions_after([1], 150)) == 100
    assert len(SuffixIndex([]).positions_after([1], 10)) == 0


@pytest.mark.parametrize(("longest", "expected"), [(1, [2, 4, 7]), (2, [4, 7]), (3, [7]), (4, [7])])
def test_earlier_matches_are_those_of_the_longest_suffix(longest: int, expected: list[int]) -> None:
    """3 ends the text and occurs three times before, 2 3 twice, 1 2 3 once."""
    text = np.array([5, 3, 2, 3, 1, 2, 3, 8, 1, 2, 3])
    assert earlier_matches(text, 1, longest).tolist() == expected


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 8))
def test_earlier_matches_equal_a_brute_force_search(text: list[int], shortest: int, more: int) -> None:
    query = match_by_scan([text], text, shortest, shortest + more)
    expected = positions_by_scan([text], query) if query else []
    assert earlier_matches(np.array(text), shortest, shortest + more).tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("max_nodes", [1, 3, 8, 64])
@given(documents=DOCUMENTS, length=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_continuations_are_counted_and_ranked(documents: list[list[int]], length: int, max_nodes: int) -> None:
    index = SuffixIndex(documents)
    counted = count_continuations(index.text, index.positions_after([1], 10_000), length, max_nodes)
    expected = ranked(continuations(documents, [1], length), max_nodes)
    assert [(continuation.tokens, continuation.count, continuation.first) for continuation in counted] == expected


def test_counts_are_right_in_a_large_corpus() -> None:
    """There are more occurrences than `MAX_MATCHES`, and the documents repeat."""
    index = SuffixIndex([[1, 2, 3]] * 6000 + [[1, 2, 4]] * 2000)
    drafter = RestDrafter(inputs((1, 2), corpus_index=index))
    tree = drafter.propose((1, 2), 8)
    assert tree.tokens == (2, 3, 4)
    assert tree.probs == pytest.approx((1.0, 0.75, 0.25), abs=1e-3)


def test_a_race_passes_its_index_to_rest() -> None:
    """If the corpus contains the model's output, REST drafts that output, in a race and in `generate`."""
    target, prompt = TableTarget(), (3, 4, 5, 3, 4)
    spec = RaceSpec(("rest",), max_new_tokens=30)
    output = [token for step in generate(target, "vanilla", prompt, max_new_tokens=30) for token in step.emitted]
    index = SuffixIndex([[9, 9], [*prompt, *output], [3, 4, 8]])
    finished = list(race(target, prompt, spec, sources=Sources(corpus_index=index)))[-1]
    assert isinstance(finished, Finished) and finished.lanes[1].identical
    steps = list(generate(target, "rest", prompt, max_new_tokens=30, sources=Sources(corpus_index=index)))
    # After the first step, at least eight tokens a step.
    assert len(steps) == finished.lanes[1].steps <= 1 + len(output) / 8
    assert [token for step in steps for token in step.emitted] == output


def test_positions_are_int64_even_if_there_are_none() -> None:
    index = SuffixIndex(CORPUS)
    assert index.text.dtype == index.order.dtype == np.int64
    for context in ((1, 2), (0,), ()):
        assert index.longest_match(context, 1, 4, 10).dtype == np.int64
    assert SuffixIndex([]).longest_match((1,), 1, 4, 10).dtype == np.int64
