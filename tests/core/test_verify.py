"""Sample-and-match verification against a search over all paths; there is always a bonus token."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.core.verify import NO_TOKEN, Scores, verify
from tests.parts import trees


@st.composite
def scored_trees(draw: st.DrawFn) -> tuple[TokenTree, Scores]:
    """A tree, and scores whose targets are often the token of a child."""
    tree = draw(trees())
    targets = []
    for node in range(len(tree)):
        likely = [*tree.children[node], draw(st.integers(0, 4))]
        targets.append(draw(st.sampled_from(likely)))
    return tree, Scores(tuple(targets))


@given(scored_trees())
def test_the_walk_is_the_longest_path_that_the_target_agrees_with(scored_tree: tuple[TokenTree, Scores]) -> None:
    tree, scores = scored_tree
    agreed = []
    for end in range(len(tree)):
        path = tree.path_to(end)
        if all(scores.targets[parent] == tree.tokens[child] for parent, child in pairwise(path)):
            agreed.append(path)
    longest = max(agreed, key=len)
    verdict = verify(tree, scores)
    assert verdict.path == longest
    assert verdict.bonus == scores.targets[longest[-1]]
    assert verdict.accepted == len(longest) - 1
    assert sum(len(path) == len(longest) for path in agreed) == 1


@given(scored_trees())
def test_the_bonus_is_no_child_of_the_last_accepted_node(scored_tree: tuple[TokenTree, Scores]) -> None:
    tree, scores = scored_tree
    verdict = verify(tree, scores)
    assert verdict.bonus not in tree.children[verdict.path[-1]]


def test_worked_example() -> None:
    #      7
    #    1   2
    #   3 4   3
    tree = TokenTree((7, 1, 2, 3, 4, 3), (-1, 0, 0, 1, 1, 2))
    assert verify(tree, Scores((2, 0, 3, 0, 0, 8))).path == (0, 2, 5)
    assert verify(tree, Scores((2, 0, 3, 0, 0, 8))).bonus == 8
    assert verify(tree, Scores((1, 4, 3, 0, 9, 8))).path == (0, 1, 4)
    # The target's token is elsewhere in the tree, but not below the root.
    assert verify(tree, Scores((3, 3, 3, 3, 3, 3))).path == (0,)
    assert verify(tree, Scores((3, 3, 3, 3, 3, 3))).accepted == 0


def test_the_bare_root_gives_the_bonus() -> None:
    verdict = verify(TokenTree.chain(5), Scores((6,)))
    assert (verdict.path, verdict.bonus, verdict.accepted) == ((0,), 6, 0)


@pytest.mark.parametrize("targets", [(), (1,), (1, 2, 3)])
def test_scores_need_one_target_token_for_each_node(targets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="2 nodes"):
        verify(TokenTree.chain(1, [2]), Scores(targets))


def test_the_output_is_the_accepted_tokens_and_the_bonus() -> None:
    tree = TokenTree((7, 1, 2, 3, 4, 3), (-1, 0, 0, 1, 1, 2))
    scores = Scores((2, 0, 3, 0, 0, 8))
    verdict = verify(tree, scores)
    assert verdict.output(tree) == [2, 3, 8]
    assert verdict.scores is scores
    assert verify(TokenTree.chain(5), Scores((6,))).output(TokenTree.chain(5)) == [6]


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"not numbers \(NaN\): .* so use --dtype bfloat16\.$"):
        Scores((4, NO_TOKEN))
