"""Token recycling: the rule of the template, worked examples of drafts, and a comparison with a brute-force lookup.

A template is the fixed shape of its trees: each node as the ranks of the tokens on the path to it. `Scores` has the
target's token at each node, and its likeliest tokens there; a `Verdict` the accepted path, the bonus token and scores.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.errors import InputError
from specrace.core.events import Finished
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict, verify
from specrace.drafters import METHODS
from specrace.drafters.recycling import NUM_TOP, RecyclingDrafter, template
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.lab.scoring.score import ScoredLane, scorable_lanes
from tests.parts import TableTarget, inputs, run_lane


def verdict_of(tree: TokenTree, rows: dict[int, tuple[int, ...]]) -> Verdict:
    """The verdict of a target whose likeliest tokens after a token are `rows[token]`."""
    top = tuple(rows[token] for token in tree.tokens)
    return verify(tree, Scores(tuple(row[0] for row in top), top))


def without_copy(prompt: Sequence[int], **options: bool) -> RecyclingDrafter:
    """Token recycling as published: it copies nothing."""
    return RecyclingDrafter(inputs(prompt), copy=False, **options)


def test_small_templates() -> None:
    # One node has path probability 1/2, two have 1/4, and four have 1/8.
    assert template(0) == ()
    assert template(1) == ((0,),)
    assert template(3) == ((0,), (1,), (0, 0))
    assert template(7) == ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))


def levels(num_nodes: int) -> list[int]:
    """The number of nodes on each level of a template."""
    return list(Counter(len(ranks) for ranks in template(num_nodes)).values())


def test_with_80_nodes_the_template_is_the_published_one() -> None:
    """The levels have the published widths, and the nodes the published numbers of children."""
    assert METHODS["recycling"].budget("cuda", {}) == 80
    assert levels(80) == [8, 21, 25, 15, 8, 3]
    published = template(80)
    num_children = Counter(ranks[:-1] for ranks in published)
    assert [num_children[(rank,)] for rank in range(8)] == [8, 4, 3, 2, 1, 1, 1, 1]
    assert [num_children[(0, rank)] for rank in range(8)] == [8, 3, 2, 1, 1, 1, 1, 1]
    assert [num_children[(0,) * depth] for depth in range(6)] == [8, 8, 8, 5, 3, 2]
    assert {(0, 0, 0, 0, 0, 1), (0, 0, 0, 1, 0, 0), (1, 0, 0, 0, 0), (5, 0, 0), (7, 0)} <= set(published)
    assert not {(6, 0, 0), (2, 1, 0), (0, 1, 0, 1), (0, 0, 1, 0, 0, 0)} & set(published)


def likelihood_key(ranks: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    """A sort key: -log2 of the path probability, then depth, then ranks."""
    return sum(ranks) + len(ranks), len(ranks), ranks


@pytest.mark.parametrize("size", [5, 16, 31, 40, 64, 79])
def test_a_smaller_template_is_the_likeliest_part_of_the_published_one(size: int) -> None:
    chosen = template(size)
    assert set(chosen) == set(sorted(template(80), key=likelihood_key)[:size])
    assert [len(ranks) for ranks in chosen] == sorted(len(ranks) for ranks in chosen)
    assert all(ranks[:-1] in chosen or len(ranks) == 1 for ranks in chosen)


@pytest.mark.parametrize("size", [5, 16, 31])
def test_up_to_31_nodes_the_template_is_the_likeliest_tree(size: int) -> None:
    nodes = [ranks for depth in range(1, 6) for ranks in itertools.product(range(NUM_TOP), repeat=depth)]
    assert set(template(size)) == set(sorted(nodes, key=likelihood_key)[:size])
    assert levels(16) == [5, 6, 4, 1]


@pytest.mark.parametrize("size", [81, 200, 1024])
def test_a_larger_template_adds_the_likeliest_other_nodes(size: int) -> None:
    chosen, published = set(template(size)), set(template(80))
    assert len(chosen) == size and published < chosen
    assert all(ranks[:-1] in chosen for ranks in chosen if len(ranks) > 1)
    last_added = max(likelihood_key(ranks) for ranks in chosen - published)
    children = [(*ranks, rank) for ranks in ((), *chosen) for rank in range(NUM_TOP)]
    assert all(likelihood_key(ranks) > last_added for ranks in children if ranks not in chosen)


def test_worked_example_of_a_draft() -> None:
    drafter = without_copy((4, 5))
    tree = drafter.propose((4, 5), 7)
    assert tree.tokens == (5,)  # nothing is known yet
    drafter.observe(tree, verdict_of(tree, {5: (6, 7, 8)}))
    tree = drafter.propose((4, 5, 6), 7)
    assert tree.tokens == (6,)  # nothing is known after 6 yet
    drafter.observe(tree, verdict_of(tree, {6: (5, 9)}))
    tree = drafter.propose((4, 5, 6, 5), 7)
    # 6, 7 and 8 are likely after 5, and 5 and 9 after 6. The template also has (1, 0), but nothing is known after 7.
    assert tree.tokens == (5, 6, 7, 8, 5, 9, 6)
    assert tree.parents == (-1, 0, 0, 0, 1, 1, 4)
    assert tree.probs == (1.0, 0.5, 0.25, 0.125, 0.5, 0.25, 0.5)


@pytest.mark.parametrize("copy", [True, False])
def test_without_a_budget_nothing_is_drafted(copy: bool) -> None:
    drafter = RecyclingDrafter(inputs((5, 6, 5, 6)), copy=copy)
    drafter.successors = {6: (5, 7)}
    assert [drafter.propose((5, 6, 5, 6), budget).tokens for budget in (-1, 0)] == [(6,), (6,)]


def test_rejected_nodes_are_learned_too() -> None:
    drafter = without_copy((5,))
    drafter.successors = {5: (6, 7)}
    tree = drafter.propose((5,), 2)
    assert tree.tokens == (5, 6, 7)
    drafter.observe(tree, verdict_of(tree, {5: (9, 6), 6: (1, 2), 7: (3, 4)}))  # 6 and 7 are rejected
    assert drafter.successors == {5: (9, 6), 6: (1, 2), 7: (3, 4)}


def test_a_token_at_several_nodes_is_learned_at_the_accepted_node() -> None:
    drafter = without_copy((5,))
    tree = TokenTree((5, 6, 7, 6), (-1, 0, 0, 2))
    drafter.observe(tree, verify(tree, Scores((6, 8, 9, 9), ((6, 7), (8, 1), (9, 2), (9, 3)))))
    assert drafter.successors[6] == (8, 1)
    drafter.observe(tree, verify(tree, Scores((0, 8, 9, 9), ((0, 7), (8, 1), (9, 2), (9, 3)))))
    assert drafter.successors[6] == (9, 3)  # no node with 6 was accepted, so the last one counts


def test_without_top_tokens_the_targets_tokens_are_learned() -> None:
    drafter = without_copy((5,))
    tree = TokenTree.chain(5)
    for token in (6, 7, -1, 8, 7):  # -1: not known
        drafter.observe(tree, Verdict((0,), 0, Scores((token,))))
    assert drafter.successors == {5: (7, 8, 6)}
    for token in range(10, 30):
        drafter.observe(tree, Verdict((0,), 0, Scores((token,))))
    assert drafter.successors == {5: tuple(range(29, 21, -1))}


def test_warm_starts_from_bigrams() -> None:
    prompt = (1, 2, 1, 3, 1, 3, 1, 4, 1)
    assert without_copy(prompt).propose(prompt, 3).tokens == (1,)
    # 1 was followed by 3 twice, then by 2 and by 4 in order of occurrence; 3 was followed by 1.
    assert without_copy(prompt, warm=True).propose(prompt, 3).tokens == (1, 3, 2, 1)
    # Past outputs count, too. 4 has now followed 1 three times. No bigram crosses outputs, so 7 did not follow 1.
    drafter_inputs = inputs(prompt, past=((1, 4, 1, 4, 5, 1), (7, 8)))
    assert RecyclingDrafter(drafter_inputs).successors == {}
    assert RecyclingDrafter(drafter_inputs, warm=True).successors == {
        1: (4, 3, 2), 2: (1,), 3: (1,), 4: (1, 5), 5: (1,), 7: (8,)
    }  # fmt: skip


def test_copied_nodes_come_before_template_nodes() -> None:
    """2 3 was followed by 4 1. The target found 4 and 8 likely after 3, 1 and 7 after 4, and 5 after 8."""
    prompt = (2, 3, 4, 1, 9, 2, 3)
    drafter = RecyclingDrafter(inputs(prompt))
    drafter.successors = {3: (4, 8), 4: (1, 7), 8: (5,)}
    copied = drafter.propose(prompt, 2)
    assert copied.tokens == (3, 4, 1) and copied.parents == (-1, 0, 1) and copied.positions == (-1, 2, 3)
    # Of the template's likeliest nodes, 4 and 1 are already copied. The others are added: 8, 7 after 4, and 5 after 8.
    tree = drafter.propose(prompt, 9)
    assert tree.tokens[:6] == (3, 4, 1, 9, 2, 3)
    assert tree.tokens[6:] == (8, 7, 5) and tree.parents[6:] == (0, 1, 6)
    assert without_copy(prompt).propose(prompt, 9).num_draft == 0
    unknown = RecyclingDrafter(inputs((2, 3, 4)))
    unknown.successors = {4: (5, 6)}
    assert unknown.propose((2, 3, 4), 9).tokens == (4, 5, 6)


def test_output_is_copied_too() -> None:
    drafter, bare = RecyclingDrafter(inputs((2, 3))), TokenTree.chain(3)
    for token in (5, 2, 3):
        drafter.observe(bare, Verdict((0,), token, Scores((-1,))))
    assert drafter.propose((2, 3, 5, 2, 3), 9).tokens == (3, 5, 2, 3)


# A target's three likeliest tokens.
ROWS = st.lists(st.integers(0, 5), min_size=3, max_size=3, unique=True).map(tuple)


@pytest.mark.slow
@given(st.lists(st.lists(ROWS, min_size=20, max_size=20), min_size=1, max_size=8), st.integers(0, 19))
@settings(deadline=None)
def test_drafts_equal_a_brute_force_lookup(rows_of_steps: list[list[tuple[int, ...]]], budget: int) -> None:
    """For any target, the tree has exactly the paths that looking up the template's ranks one by one gives."""
    drafter, successors, context = without_copy((0,)), dict[int, tuple[int, ...]](), [0]
    for rows in rows_of_steps:
        tree = drafter.propose(context, budget)
        expected = set()
        for ranks in template(budget):
            path = [context[-1]]
            for rank in ranks:
                path.append((successors.get(path[-1], ()) + (-1,) * NUM_TOP)[rank])
            if -1 not in path:
                expected.add(tuple(path))
        assert {
            tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)) for node in range(1, len(tree))
        } == expected
        verdict = verify(tree, Scores(tuple(row[0] for row in rows[: len(tree)]), tuple(rows[: len(tree)])))
        successors |= {token: rows[node] for node, token in enumerate(tree.tokens)}
        successors |= {tree.tokens[node]: rows[node] for node in verdict.path}
        drafter.observe(tree, verdict)
        context += [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]


def test_a_race_passes_the_targets_likeliest_tokens_to_recycling() -> None:
    """Otherwise a row would hold only the tokens that the target chose."""
    target, prompt = TableTarget(), (3, 4, 5, 3, 4)
    events = list(race(target, prompt, RaceSpec(("recycling",), max_new_tokens=24, num_draft=16)))
    assert isinstance(events[-1], Finished)
    assert METHODS["recycling"].num_top_with({}) == 8 and METHODS["trie"].num_top_with({}) == 0
    lane = events[-1].lanes[1]
    assert lane.identical and lane.drafted_per_step > 6


def test_a_vocabulary_can_be_smaller_than_a_row() -> None:
    target, prompt = TableTarget(vocab=5), (3, 4, 2, 3, 4)
    session = target.session(target.prefill(prompt), 8, num_top=8)
    top = session.score(TokenTree.chain(4)).top
    assert top is not None and sorted(top[0]) == [0, 1, 2, 3, 4]
    events = list(race(target, prompt, RaceSpec(("recycling",), max_new_tokens=16)))
    assert isinstance(events[-1], Finished) and events[-1].lanes[1].identical


def test_the_output_is_vanillas_with_every_option() -> None:
    target, prompt = TableTarget(order=1), (3, 4, 5, 3, 4)
    prefix = target.prefill(prompt)
    texts = {
        tuple(run_lane(target, prefix, prompt, drafter).tokens)
        for drafter in (
            METHODS["vanilla"].build(inputs(prompt)),
            METHODS["recycling"].build(inputs(prompt)),
            METHODS["recycling"].build(inputs(prompt), copy=False),
            METHODS["recycling"].build(inputs(prompt), warm=True),
        )
    }
    assert len(texts) == 1


def test_scoring_recycling_is_refused() -> None:
    assert "recycling" not in scorable_lanes()
    with pytest.raises(InputError, match="likeliest tokens"):
        ScoredLane.of("recycling", {})
