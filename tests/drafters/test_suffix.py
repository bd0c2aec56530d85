"""Suffix decoding: worked examples, and a comparison with a brute-force version that tries every match length.

A match of n tokens allows `factor` times n draft tokens; match and draft together have at most `depth` tokens.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.tree import TokenTree
from specrace.drafters.suffix import SuffixDrafter
from tests.parts import inputs, step_verdict

Path = tuple[int, ...]
TOKENS = st.lists(st.integers(0, 2), max_size=25)


def test_worked_example_of_a_draft() -> None:
    """7 was followed by 1 twice, by 2 once and by the text's end: 1 has 2/4. 1 was followed by 3 and by 4: 1/2 each."""
    prompt = (7, 1, 3, 7, 1, 4, 7, 2, 9, 7)
    drafter = SuffixDrafter(inputs(prompt), factor=8)
    tree = drafter.propose(prompt, 8)
    # Of 3 and 4, 3 was seen first. It is followed by 7, 1 and so on, each of which was seen once.
    assert tree.tokens == (7, 1, 3, 7, 1, 4, 7, 2, 9) and tree.is_chain
    assert tree.probs == (1.0, 0.5, 0.5, *[1.0] * 6)
    assert tree.positions == (-1, *range(1, 9))
    assert drafter.propose(prompt, 3) == tree.cut(3)
    drafter = SuffixDrafter(inputs(prompt), factor=8, tree=True)
    tree = drafter.propose(prompt, 6)
    # The path probability of 1 is 1/2. It is 1/4 for 2, 3, 4 and the tokens after them, the shallower ones first.
    assert tree.tokens == (7, 1, 2, 3, 4, 9, 7)
    assert tree.parents == (-1, 0, 0, 1, 1, 2, 3)
    assert tree.probs == (1.0, 0.5, 0.25, 0.5, 0.5, 1.0, 1.0)


def test_a_match_drafts_up_to_factor_times_its_length() -> None:
    prompt = (9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2)
    assert SuffixDrafter(inputs(prompt)).propose(prompt, 9).tokens == (2, 3, 4)
    assert SuffixDrafter(inputs(prompt), factor=2).propose(prompt, 9).tokens == (2, 3, 4, 5, 6)
    assert SuffixDrafter(inputs(prompt), factor=2).propose(prompt, 3).tokens == (2, 3, 4, 5)
    # A depth of 4 allows a match of 2 tokens and a draft of 2, or a match of 1 and a draft of 3, which scores higher.
    for tree in (False, True):
        drafter = SuffixDrafter(inputs(prompt), factor=8, depth=4, tree=tree)
        assert drafter.propose(prompt, 9).tokens == (2, 3, 4, 5)


def test_a_path_after_a_long_match_is_no_longer_than_depth_allows() -> None:
    prompt = (1, 2, 3, 4, 5, 6, 2, 7, 2, 8, 1, 2)
    drafter = SuffixDrafter(inputs(prompt), factor=8, depth=4)
    # After 1 2, two tokens fit: 1/2 each. After 2 alone three would fit, but 3 followed only one 2 of four: 1/4 each.
    tree = drafter.propose(prompt, 9)
    assert tree.tokens == (2, 3, 4) and drafter.note(tree).facts["matched tokens"] == 2


def test_unlikely_paths_are_not_drafted() -> None:
    prompt = (1, 2, 1, 3, 1, 4, 1, 5, 1)
    assert SuffixDrafter(inputs(prompt), factor=4, min_percent=20).propose(prompt, 1).tokens == (1, 2)
    assert SuffixDrafter(inputs(prompt), factor=4, min_percent=21).propose(prompt, 1).tokens == (1,)


def test_the_score_chooses_the_match_length() -> None:
    """A long match may draft more tokens. If both may draft equally many, a more certain short match wins."""
    prompt = (1, 2, 9, 2, 3, 2, 3, 2, 3, 1, 2)
    # 1 2 was followed by 9 (1/2), then by 2, 3 and so on. 2 was followed by 3 three times of five.
    assert SuffixDrafter(inputs(prompt)).propose(prompt, 1).tokens == (2, 3)
    assert SuffixDrafter(inputs(prompt)).propose(prompt, 2).tokens == (2, 9, 2)


def test_past_outputs_are_a_second_text() -> None:
    prompt, past = (1, 2), ((1, 2, 3, 4), (2, 5))
    drafter = SuffixDrafter(inputs(prompt, past=past))
    tree = drafter.propose(prompt, 4)
    # The prompt has no match. In the past outputs 1 2 was always followed by 3; 5 followed only 2.
    assert tree == TokenTree((2, 3, 4), (-1, 0, 1), (1.0, 1.0, 1.0), (-1, -1, -1))
    assert SuffixDrafter(inputs((4,), past=past)).propose((4,), 4).tokens == (4,)  # a draft ends where its output ends
    assert SuffixDrafter(inputs((4,), past=[(4,), (4, 6)])).propose((4,), 4).tokens == (4, 6)


def test_the_most_frequent_token_is_drafted_where_most_outputs_end() -> None:
    past = [(5, 1, 2)] * 3 + [(6, 1, 2, 3)] * 2 + [(7, 1, 2, 4)]
    assert SuffixDrafter(inputs((1, 2), past=past)).propose((1, 2), 1).tokens == (2, 3)


def test_of_equal_scores_the_requests_text_wins() -> None:
    prompt = (1, 2, 1)
    past = ((1, 3), (1,))  # 3 follows 1 with probability 1/2, as 2 does in the prompt
    assert SuffixDrafter(inputs(prompt, past=past)).propose(prompt, 1).tokens == (1, 2)
    assert SuffixDrafter(inputs(prompt, past=past[:1])).propose(prompt, 1).tokens == (1, 3)


def test_output_is_appended_to_the_text() -> None:
    drafter = SuffixDrafter(inputs((1, 2, 3)))
    tree = drafter.propose((1, 2, 3), 4)
    drafter.observe(tree, step_verdict(tree, [1] * len(tree)))
    tree = drafter.propose((1, 2, 3, 1), 4)
    assert tree.tokens == (1, 2)
    drafter.observe(tree, step_verdict(tree, [2, 5]))
    assert drafter.text.tokens == [1, 2, 3, 1, 2, 5]


def occurs_at(text: Sequence[int], ngram: Path, index: int) -> bool:
    """Whether `ngram` begins at this index of `text`."""
    return tuple(text[index : index + len(ngram)]) == ngram


def count(text: Sequence[int], ngram: Path) -> int:
    """How often `ngram` occurs in `text`."""
    return sum(occurs_at(text, ngram, index) for index in range(len(text)))


def brute_force(
    texts: Sequence[Sequence[int]],
    context: Sequence[int],
    budget: int,
    depth: int,
    factor: int,
    min_prob: float,
    is_tree: bool,
) -> tuple[float, list[Path]]:
    """The score and the drafted paths of the best match length; every count scans `texts`."""

    def total_count(ngram: Path) -> int:
        return sum(count(text, ngram) for text in texts)

    def first(ngram: Path) -> tuple[int, int]:
        """The first occurrence: the number of its text, and the index in that text."""
        return next(
            (number, index)
            for number, text in enumerate(texts)
            for index in range(len(text))
            if occurs_at(text, ngram, index)
        )

    best: tuple[float, list[Path]] = (0.0, [])
    # The frontier's entries are (-path probability, length, first occurrence, path), so that the best is popped first.
    for length in range(1, min(depth - 1, len(context)) + 1):
        query, limit = tuple(context[-length:]), min(budget, length * factor)
        drafted: list[Path] = []
        score, frontier = 0.0, [(-1.0, 0, (0, 0), query)]
        while frontier and len(drafted) <= limit:
            negative_prob, _, _, path = heapq.heappop(frontier)
            if path != query:
                drafted.append(path[length:])
                if len(drafted) > limit:
                    drafted.pop()
                    break
                score -= negative_prob
            if len(path) == depth:
                continue
            children = [(*path, token) for token in range(3) if total_count((*path, token))]
            children.sort(key=lambda child: (-total_count(child), first(child)))
            for child in children if is_tree else children[:1]:
                prob = -negative_prob * (total_count(child) / total_count(path))
                if prob >= min_prob:
                    heapq.heappush(frontier, (-prob, len(child), first(child), child))
        if score >= best[0] and drafted:
            best = score, drafted
    return best


@pytest.mark.parametrize("is_tree", [False, True])
@given(
    prompt=TOKENS,
    past=st.lists(TOKENS, max_size=3),
    budget=st.integers(0, 8),
    depth=st.integers(2, 8),
    factor=st.integers(1, 4),
    percent=st.sampled_from([1, 10, 30, 60]),
    num_output=st.integers(0, 25),
)
@settings(max_examples=60, deadline=None)
def test_the_draft_equals_a_brute_force_search(
    is_tree: bool,
    prompt: list[int],
    past: list[list[int]],
    budget: int,
    depth: int,
    factor: int,
    percent: int,
    num_output: int,
) -> None:
    """The last `num_output` tokens are the output; the draft does not depend on their number."""
    prompt = [0, *prompt]
    split = max(1, len(prompt) - num_output)
    drafter_inputs = inputs(prompt[:split], past=tuple(map(tuple, past)))
    drafter = SuffixDrafter(drafter_inputs, depth=depth, factor=factor, min_percent=percent, tree=is_tree)
    for position in range(split, len(prompt)):
        bare = TokenTree.chain(prompt[position - 1])
        drafter.observe(bare, step_verdict(bare, [prompt[position]]))
    tree = drafter.propose(prompt, budget)
    options = (budget, depth, factor, percent / 100, is_tree)
    from_request, from_past = brute_force([prompt], prompt, *options), brute_force(past, prompt, *options)
    paths = [tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))]
    assert paths == (from_past if from_past[0] > from_request[0] else from_request)[1]


@pytest.mark.parametrize("tree", [False, True])
def test_only_drafts_from_the_requests_text_have_positions(tree: bool) -> None:
    """The first draft has exactly the minimum probability, which is enough."""
    prompt = (1, 2, 3, 1)
    draft = SuffixDrafter(inputs(prompt), min_percent=50, factor=2, tree=tree).propose(prompt, 2)
    assert (draft.tokens, draft.positions) == ((1, 2, 3), (-1, 1, 2))
    draft = SuffixDrafter(inputs((9,), past=((9, 2, 3),)), factor=2, tree=tree).propose((9,), 2)
    assert (draft.tokens, draft.positions) == ((9, 2, 3), (-1, -1, -1))


def test_a_tree_uses_the_longest_match_if_shorter_ones_draft_no_more() -> None:
    prompt = (1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3)
    tree = SuffixDrafter(inputs(prompt), factor=1, tree=True).propose(prompt, 3)
    # 1 2 3 was followed by 9 2 3, with a path probability of 1/2 each.
    assert tree.tokens == (3, 9, 2, 3) and tree.probs == (1.0, 0.5, 1.0, 1.0)


def test_a_tree_uses_a_shorter_match_that_drafts_more() -> None:
    """Match and draft have at most four tokens together, so a shorter match allows a longer draft."""
    prompt = (9, 1, 2, 3, 4, 5, 6, 8, 1, 2, 3)
    drafter = SuffixDrafter(inputs(prompt), factor=2, depth=4, tree=True)
    tree = drafter.propose(prompt, 2)
    assert tree.tokens == (3, 4, 5) and drafter.note(tree).facts["matched tokens"] == 2
    drafter = SuffixDrafter(inputs((1, 2), past=((1, 2, 3, 4, 5),)), factor=8, depth=4, tree=True)
    assert drafter.propose((1, 2), 2).tokens == (2, 3, 4)


def test_of_equal_trees_the_longer_match_is_noted() -> None:
    drafter = SuffixDrafter(inputs((1, 2), past=((1, 2, 3),)), depth=3, tree=True)
    tree = drafter.propose((1, 2), 8)
    assert tree.tokens == (2, 3) and drafter.note(tree).facts["matched tokens"] == 2


def test_the_text_with_the_higher_score_wins_in_trees() -> None:
    for past in (((1, 3),), ((1, 3), (1, 3))):
        drafter = SuffixDrafter(inputs((1, 2, 1), past=past), tree=True)
        assert drafter.propose((1, 2, 1), 1).tokens == (1, 3)


def test_matches_in_past_outputs_are_shorter_than_depth() -> None:
    past = ((1, 2, 3), (2, 4), (2, 4), (2, 4))
    assert SuffixDrafter(inputs((1, 2), past=past), depth=3).propose((1, 2), 1).tokens == (2, 3)
    assert SuffixDrafter(inputs((1, 2), past=past), depth=2).propose((1, 2), 1).tokens == (2, 4)
