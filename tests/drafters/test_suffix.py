"""Suffix decoding: a draft by hand, and a version that counts n-grams in lists and tries every match length."""

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


def test_the_draft_by_hand() -> None:
    """After 7: 1 twice, 2 once, and the end of the text: 2/4. After 1 come 3 and 4: 1/4 a path."""
    prompt = (7, 1, 3, 7, 1, 4, 7, 2, 9, 7)
    drafter = SuffixDrafter(inputs(prompt), factor=8)
    tree = drafter.propose(prompt, 8)
    # 3, the first of equals, is followed by 7, 1 and so on, each seen once.
    assert tree.tokens == (7, 1, 3, 7, 1, 4, 7, 2, 9) and tree.is_chain
    assert tree.probs == (1.0, 0.5, 0.5, *[1.0] * 6)
    assert tree.positions == (-1, *range(1, 9))
    assert drafter.propose(prompt, 3) == tree.cut(3)
    drafter = SuffixDrafter(inputs(prompt), factor=8, tree=True)
    tree = drafter.propose(prompt, 6)
    # By path probability: 1 has 1/2; 2, 3, 4 and what follows them 1/4 each, the shallow first.
    assert tree.tokens == (7, 1, 2, 3, 4, 9, 7)
    assert tree.parents == (-1, 0, 0, 1, 1, 2, 3)
    assert tree.probs == (1.0, 0.5, 0.25, 0.5, 0.5, 1.0, 1.0)


def test_a_match_may_draft_as_many_tokens_as_factor_times_its_length() -> None:
    prompt = (9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2)
    assert SuffixDrafter(inputs(prompt)).propose(prompt, 9).tokens == (2, 3, 4)
    assert SuffixDrafter(inputs(prompt), factor=2).propose(prompt, 9).tokens == (2, 3, 4, 5, 6)
    assert SuffixDrafter(inputs(prompt), factor=2).propose(prompt, 3).tokens == (2, 3, 4, 5)
    # A depth of 4 has a match of 2 and 2 tokens more, or a match of 1 and 3 more; the second drafts more and wins.
    for tree in (False, True):
        drafter = SuffixDrafter(inputs(prompt), factor=8, depth=4, tree=tree)
        assert drafter.propose(prompt, 9).tokens == (2, 3, 4, 5)


def test_unlikely_paths_are_not_drafted() -> None:
    prompt = (1, 2, 1, 3, 1, 4, 1, 5, 1)
    assert SuffixDrafter(inputs(prompt), factor=4, min_percent=20).propose(prompt, 1).tokens == (1, 2)
    assert SuffixDrafter(inputs(prompt), factor=4, min_percent=21).propose(prompt, 1).tokens == (1,)


def test_the_score_chooses_the_match_length() -> None:
    """A long match that was seen once may draft more; a short one that is sure wins where both may draft the same."""
    prompt = (1, 2, 9, 2, 3, 2, 3, 2, 3, 1, 2)
    # After 1 2: 9 (1/2, then 2, 3 ...). After 2: 3 three times of five.
    assert SuffixDrafter(inputs(prompt)).propose(prompt, 1).tokens == (2, 3)
    assert SuffixDrafter(inputs(prompt)).propose(prompt, 2).tokens == (2, 9, 2)


def test_past_outputs_are_a_second_text() -> None:
    prompt, past = (1, 2), ((1, 2, 3, 4), (2, 5))
    drafter = SuffixDrafter(inputs(prompt, past=past))
    tree = drafter.propose(prompt, 4)
    # Nothing in the prompt has a continuation. 1 2 in the past was followed by 3, always; by 5 only after 2 alone.
    assert tree == TokenTree((2, 3, 4), (-1, 0, 1), (1.0, 1.0, 1.0), (-1, -1, -1))
    assert SuffixDrafter(inputs((4,), past=past)).propose((4,), 4).tokens == (4,)  # no draft runs into the next
    assert SuffixDrafter(inputs((4,), past=[(4,), (4, 6)])).propose((4,), 4).tokens == (4, 6)


def test_of_equal_scores_the_requests_own_is_drafted() -> None:
    prompt = (1, 2, 1)
    past = ((1, 3), (1,))  # 1/2, as in the prompt
    assert SuffixDrafter(inputs(prompt, past=past)).propose(prompt, 1).tokens == (1, 2)
    assert SuffixDrafter(inputs(prompt, past=past[:1])).propose(prompt, 1).tokens == (1, 3)


def test_the_output_is_learned() -> None:
    drafter = SuffixDrafter(inputs((1, 2, 3)))
    tree = drafter.propose((1, 2, 3), 4)
    drafter.observe(tree, step_verdict(tree, [1] * len(tree)))
    tree = drafter.propose((1, 2, 3, 1), 4)
    assert tree.tokens == (1, 2)
    drafter.observe(tree, step_verdict(tree, [2, 5]))
    assert drafter.text.tokens == [1, 2, 3, 1, 2, 5]


def stands(text: Sequence[int], ngram: Path, at: int) -> bool:
    return tuple(text[at : at + len(ngram)]) == ngram


def count(text: Sequence[int], ngram: Path) -> int:
    return sum(stands(text, ngram, at) for at in range(len(text)))


def brute_force(
    texts: Sequence[Sequence[int]],
    context: Sequence[int],
    budget: int,
    depth: int,
    factor: int,
    min_prob: float,
    wide: bool,
) -> tuple[float, list[Path]]:
    """(score, drafted paths) of the best of all match lengths; every count scans `texts`."""

    def total_count(ngram: Path) -> int:
        return sum(count(text, ngram) for text in texts)

    def first(ngram: Path) -> tuple[int, int]:
        return next((t, at) for t, text in enumerate(texts) for at in range(len(text)) if stands(text, ngram, at))

    best: tuple[float, list[Path]] = (0.0, [])
    for length in range(1, min(depth - 1, len(context)) + 1):
        query, limit = tuple(context[-length:]), min(budget, length * factor)
        drafted: list[Path] = []
        score, frontier = 0.0, [(-1.0, 0, (0, 0), query)]
        while frontier and len(drafted) <= limit:
            negative, _, _, path = heapq.heappop(frontier)
            if path != query:
                drafted.append(path[length:])
                if len(drafted) > limit:
                    drafted.pop()
                    break
                score -= negative
            below = [(*path, token) for token in range(3) if total_count((*path, token))] if len(path) < depth else []
            below.sort(key=lambda child: (-total_count(child), first(child)))
            for child in below if wide else below[:1]:
                prob = -negative * (total_count(child) / total_count(path))
                if prob >= min_prob:
                    heapq.heappush(frontier, (-prob, len(child), first(child), child))
        if score >= best[0] and drafted:
            best = score, drafted
    return best


@pytest.mark.parametrize("wide", [False, True])
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
def test_the_draft_is_the_brute_force_one(
    wide: bool,
    prompt: list[int],
    past: list[list[int]],
    budget: int,
    depth: int,
    factor: int,
    percent: int,
    num_output: int,
) -> None:
    """It does not matter which part of the text is the output."""
    prompt = [0, *prompt]
    split = max(1, len(prompt) - num_output)
    shared = inputs(prompt[:split], past=tuple(map(tuple, past)))
    drafter = SuffixDrafter(shared, depth=depth, factor=factor, min_percent=percent, tree=wide)
    for position in range(split, len(prompt)):
        bare = TokenTree.chain(prompt[position - 1])
        drafter.observe(bare, step_verdict(bare, [prompt[position]]))
    tree = drafter.propose(prompt, budget)
    options = (budget, depth, factor, percent / 100, wide)
    from_request, from_past = brute_force([prompt], prompt, *options), brute_force(past, prompt, *options)
    paths = [tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))]
    assert paths == (from_past if from_past[0] > from_request[0] else from_request)[1]


@pytest.mark.parametrize("tree", [False, True])
def test_only_the_requests_own_text_has_positions(tree: bool) -> None:
    """A path that just reaches the lowest probability is drafted."""
    prompt = (1, 2, 3, 1)
    draft = SuffixDrafter(inputs(prompt), min_percent=50, factor=2, tree=tree).propose(prompt, 2)
    assert (draft.tokens, draft.positions) == ((1, 2, 3), (-1, 1, 2))
    past = SuffixDrafter(inputs((9,), past=((9, 2, 3),)), factor=2, tree=tree).propose((9,), 2)
    assert (past.tokens, past.positions) == ((9, 2, 3), (-1, -1, -1))


def test_a_tree_ends_where_a_shorter_match_may_draft_no_more() -> None:
    prompt = (1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3)
    tree = SuffixDrafter(inputs(prompt), factor=1, tree=True).propose(prompt, 3)
    # Three tokens matched once, then 9 2 3, each sure but for the first: 1/2 + 1/2 + 1/2.
    assert tree.tokens == (3, 9, 2, 3) and tree.probs == (1.0, 0.5, 1.0, 1.0)


def test_a_trees_match_is_as_short_as_brings_more() -> None:
    """Match and draft have four tokens at most, so one token less matched is one more drafted."""
    prompt = (9, 1, 2, 3, 4, 5, 6, 8, 1, 2, 3)
    drafter = SuffixDrafter(inputs(prompt), factor=2, depth=4, tree=True)
    tree = drafter.propose(prompt, 2)
    assert tree.tokens == (3, 4, 5) and drafter.note(tree).facts["matched tokens"] == 2
    past = SuffixDrafter(inputs((1, 2), past=((1, 2, 3, 4, 5),)), factor=8, depth=4, tree=True)
    assert past.propose((1, 2), 2).tokens == (2, 3, 4)


def test_of_equal_trees_the_longer_match_is_noted() -> None:
    drafter = SuffixDrafter(inputs((1, 2), past=((1, 2, 3),)), depth=3, tree=True)
    tree = drafter.propose((1, 2), 8)
    assert tree.tokens == (2, 3) and drafter.note(tree).facts["matched tokens"] == 2


def test_the_surer_text_wins_in_trees_too() -> None:
    for past in (((1, 3),), ((1, 3), (1, 3))):
        drafter = SuffixDrafter(inputs((1, 2, 1), past=past), tree=True)
        assert drafter.propose((1, 2, 1), 1).tokens == (1, 3)


def test_as_much_of_the_prompt_is_found_in_past_outputs_as_runs_are_counted() -> None:
    past = ((1, 2, 3), (2, 4), (2, 4), (2, 4))
    assert SuffixDrafter(inputs((1, 2), past=past), depth=3).propose((1, 2), 1).tokens == (2, 3)
    assert SuffixDrafter(inputs((1, 2), past=past), depth=2).propose((1, 2), 1).tokens == (2, 4)
