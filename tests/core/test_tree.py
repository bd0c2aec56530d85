"""TokenTree and TreeBuilder: their invariants, and each derived property against its definition."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specrace.core.tree import TokenTree, TreeBuilder
from tests.parts import trees


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [
        ((), ()),
        ((5,), ()),
        ((5,), (0,)),
        ((5, 6), (-1,)),
        ((5, 6), (-1, -1)),
        ((5, 6), (-1, 1)),
        ((5, 6, 7), (-1, 2, 0)),
        ((5, 6, 7), (-1, 0, 3)),
        ((5, 6, 6), (-1, 0, 0)),
        ((5, 6, 7, 7), (-1, 0, 1, 1)),
    ],
)
def test_invalid_trees_are_refused(tokens: tuple[int, ...], parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        TokenTree(tokens, parents)


@pytest.mark.parametrize("extra", ["probs", "positions"])
def test_probs_and_positions_need_one_entry_for_each_node(extra: str) -> None:
    with pytest.raises(ValueError, match="one entry for each node"):
        TokenTree((5, 6), (-1, 0), **{extra: (1,)})


def test_equal_tokens_under_different_parents_are_allowed() -> None:
    assert TokenTree((5, 5, 5), (-1, 0, 1)).depths == (0, 1, 2)


def test_a_chain() -> None:
    tree = TokenTree.chain(9, [3, 4])
    assert (tree.tokens, tree.parents, tree.num_draft, tree.is_chain) == ((9, 3, 4), (-1, 0, 1), 2, True)
    assert TokenTree.chain(9) == TokenTree((9,), (-1,))


@given(trees())
def test_paths_depths_and_children_follow_from_the_parents(tree: TokenTree) -> None:
    for node in range(1, len(tree)):
        path = tree.path_to(node)
        assert path[0] == 0 and path[-1] == node
        assert all(tree.parents[child] == parent for parent, child in pairwise(path))
        assert tree.depths[node] == len(path) - 1
        assert tree.children[tree.parents[node]][tree.tokens[node]] == node
    assert sum(map(len, tree.children)) == tree.num_draft == len(tree) - 1


@given(trees())
def test_the_mask_shows_each_node_its_ancestors_and_itself(tree: TokenTree) -> None:
    mask = tree.ancestor_mask()
    assert mask.shape == (len(tree), len(tree)) and mask.dtype == bool
    for node in range(len(tree)):
        assert set(mask[node].nonzero()[0]) == set(tree.path_to(node))


@given(st.lists(st.integers(0, 5), max_size=10))
def test_a_chains_mask_is_causal(draft: list[int]) -> None:
    mask = TokenTree.chain(0, draft).ancestor_mask()
    assert all(mask[i, j] == (j <= i) for i in range(len(draft) + 1) for j in range(len(draft) + 1))


@given(trees(), st.integers(-3, 30))
def test_a_cut_keeps_the_first_draft_nodes(tree: TokenTree, num_draft: int) -> None:
    cut = tree.cut(num_draft)
    assert cut.num_draft == min(max(0, num_draft), tree.num_draft)
    for name in ("tokens", "parents", "probs", "positions"):
        assert getattr(cut, name) == getattr(tree, name)[: len(cut)]


def test_cutting_a_tree_without_probs_and_positions_adds_none() -> None:
    cut = TokenTree((5, 6, 7), (-1, 0, 0)).cut(1)
    assert (cut.probs, cut.positions) == (None, None)


@given(trees(), st.integers(-1, 8))
@example(TokenTree((5,), (-1,)), -1)
def test_a_pruned_tree_keeps_the_nodes_that_are_not_too_deep(tree: TokenTree, depth: int) -> None:
    size = len(tree)
    tree = TokenTree(tree.tokens, tree.parents, tuple(node / 100 for node in range(size)), tuple(range(size)))
    pruned = tree.pruned(depth)
    # A node's position is its number in the unpruned tree.
    kept_nodes = [node for node in range(size) if tree.depths[node] <= max(0, depth)]
    assert pruned.positions == tuple(kept_nodes) and pruned.probs == tuple(node / 100 for node in kept_nodes)
    assert pruned.tokens == tuple(tree.tokens[node] for node in kept_nodes)
    for number, node in enumerate(kept_nodes):
        assert [kept_nodes[index] for index in pruned.path_to(number)] == list(tree.path_to(node))
    assert (pruned is tree) == (len(kept_nodes) == size)
    assert TokenTree(tree.tokens, tree.parents).pruned(depth) == TokenTree(pruned.tokens, pruned.parents)


def test_adding_a_child_twice_returns_the_same_unchanged_node() -> None:
    builder = TreeBuilder(1)
    assert builder.add(0, 2, prob=0.5, position=7) == builder.add(0, 2, prob=0.1, position=9) == 1
    tree = builder.build()
    assert (tree.probs, tree.positions, len(builder.tokens)) == ((1.0, 0.5), (-1, 7), 2)


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=8))
def test_merged_paths_have_one_node_for_each_prefix(paths: list[list[int]]) -> None:
    builder = TreeBuilder(9)
    for path in paths:
        nodes = builder.add_path(path)
        assert [builder.tokens[node] for node in nodes] == path
    tree = builder.build()
    prefixes = {tuple(tree.tokens[node] for node in tree.path_to(end)[1:]) for end in range(1, len(tree))}
    assert prefixes == {tuple(path[:length]) for path in paths for length in range(1, len(path) + 1)}
    assert len(prefixes) == tree.num_draft


def test_a_cut_that_removes_nothing_returns_the_tree_itself() -> None:
    tree = TokenTree((5, 6, 7), (-1, 0, 0))
    assert tree.cut(2) is tree and tree.cut(3) is tree


def test_a_node_has_probability_1_and_no_position_by_default() -> None:
    builder = TreeBuilder(1)
    builder.add(0, 2)
    assert (builder.build().probs, builder.build().positions) == ((1.0, 1.0), (-1, -1))


def test_padding_is_a_chain_below_the_last_node() -> None:
    tree = TokenTree((5, 6, 7), (-1, 0, 0), (1.0, 0.5, 0.5), (-1, 3, 4))
    assert tree.padded(5) == TokenTree((5, 6, 7, 5, 5), (-1, 0, 0, 2, 3))
    assert tree.padded(4) == TokenTree((5, 6, 7, 5), (-1, 0, 0, 2))
    assert all(tree.padded(size) is tree for size in (0, 2, 3))


@given(trees())
def test_path_probs_are_products_along_the_path(tree: TokenTree) -> None:
    probs = tuple(1.0 if not node else 1 / (1 + node) for node in range(len(tree)))
    products = TokenTree(tree.tokens, tree.parents, probs).path_probs()
    expected = [math.prod(probs[ancestor] for ancestor in tree.path_to(node)) for node in range(len(tree))]
    assert products == pytest.approx(expected)
    assert TokenTree(tree.tokens, tree.parents).path_probs() == [1.0] * len(tree)


def test_the_best_chain_follows_the_likeliest_child_and_without_probabilities_the_first() -> None:
    #   5 -> 6 -> 8, and 5 -> 7 -> 9
    tree = TokenTree((5, 6, 7, 8, 9), (-1, 0, 0, 1, 2))
    assert tree.best_chain().tokens == (5, 6, 8)
    weighted = TokenTree(tree.tokens, tree.parents, (1.0, 0.3, 0.6, 1.0, 0.2), (-1, 3, 7, 4, 8))
    assert weighted.best_chain() == TokenTree((5, 7, 9), (-1, 0, 1), (1.0, 0.6, 0.2), (-1, 7, 8))
    tied = TokenTree((5, 6, 7), (-1, 0, 0), (1.0, 0.5, 0.5))
    assert tied.best_chain().tokens == (5, 6)


def test_the_best_chain_of_a_chain_is_the_chain_itself() -> None:
    chain = TokenTree.chain(5, [6, 7])
    assert chain.best_chain() is chain
