"""SpecInfer's drafter: the shape of its trees, what its models read, its draws, and its notes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.drafters.base import DrafterInputs
from specrace.drafters.specinfer.drafter import SpecInferDrafter, specinfer_size
from specrace.engine.spec import RaceSpec, plan_lane
from tests.parts import CopyingModel, CopyingSession, function_lane, inputs, markov, random_prompt, step_verdict

PROMPT = (5, 6, 7, 5)
SAMPLING = SamplingParams(1.0)


class Ranked:
    """A draft model with one ranking of tokens for every context; a token's probability is 0.4 divided by its rank.

    It is its own session, and `calls` records what it reads.
    """

    prefill_ms = 0.0

    def __init__(self, name: str, *ranking: int, room: int = 100) -> None:
        self.name, self.ranking, self.room = name, ranking, room
        self.calls: list[tuple[list[int], TokenTree, list[int]]] = []

    def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> Ranked:
        return self

    def tree_likeliest(
        self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        self.calls.append((list(unread), tree, list(nodes)))
        self.room -= len(unread)
        return [[(token, 0.4 / rank) for rank, token in enumerate(self.ranking[:k], 1)] for _ in nodes]

    def tree_distributions(self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int]) -> np.ndarray:
        self.tree_likeliest(unread, tree, nodes, 1)
        row = np.zeros(10)
        row[list(self.ranking)] = 1 / len(self.ranking)
        return np.stack([row] * len(nodes))


def drafter_of(*models: Ranked, **options: int) -> SpecInferDrafter:
    """A greedy SpecInfer drafter with these draft models, after `PROMPT`."""
    values = DrafterInputs(PROMPT, vocab_size=10, params=SAMPLING, draft_models=models, room=44)  # type: ignore[arg-type]
    return SpecInferDrafter(values, models=len(models), **options)  # type: ignore[arg-type]


def test_the_default_tree_branches_at_depth_three() -> None:
    model = Ranked("first", 1, 2, 3, 4)
    tree = drafter_of(model).propose(PROMPT, 20)
    assert (tree.tokens, tree.parents) == ((5, 1, 1, 1, 2, 3), (-1, 0, 1, 2, 2, 2))
    assert tree.probs == (1.0, 0.4, 0.4, 0.4, 0.2, 0.4 / 3)
    method = METHODS["specinfer"]
    assert method.budget("cpu", method.defaults("cpu")) == 5
    # The paper's tree: 1, 1, 3, then five more levels of three.
    assert method.budget("cuda", method.defaults("cuda")) == 20
    assert specinfer_size({"depth": 2, "width": 4, "branch_depth": 1, "models": 3}) == 24


def test_it_drafts_with_as_many_models_as_its_option_says() -> None:
    assert METHODS["specinfer"].draft_models_with({"models": 3}) == 3
    assert [METHODS[name].draft_models_with({}) for name in ("draft-model", "vanilla")] == [1, 0]


def test_each_level_is_one_forward_over_the_tree_so_far() -> None:
    model = Ranked("first", 1, 2, 3)
    drafter = drafter_of(model, depth=4)
    tree = drafter.propose(PROMPT, 20)
    assert [(unread, len(seen), nodes) for unread, seen, nodes in model.calls] == [
        ([], 1, [0]), ([], 2, [1]), ([], 3, [2]), ([], 6, [3, 4, 5]),
    ]  # fmt: skip
    # 1 and 1 were accepted: the old root, 5, and these two are read now. The bonus, 8, is the root of the new tree.
    drafter.observe(tree, step_verdict(tree, [1, 1, 8, *[0] * 6]))
    model.calls.clear()
    drafter.propose((*PROMPT, 1, 1, 8), 20)
    assert [unread for unread, _, _ in model.calls] == [[5, 1, 1], [], [], []]
    assert all(seen.tokens[0] == 8 for _, seen, _ in model.calls)


@pytest.mark.parametrize(("options", "rows"), [({"depth": 1}, 3), ({}, 5), ({"depth": 8}, 18)])
def test_graphs_are_captured_for_the_largest_forward(options: dict[str, int], rows: int) -> None:
    """The largest forward follows a wholly accepted draft, or is the last level's."""
    captured: list[Sequence[int]] = []

    class Recording(Ranked):
        def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> Ranked:
            assert (params, room) == (SAMPLING, 44)
            captured.append(rows)
            return self

    model = Recording("first", 1, 2, 3)
    drafter = drafter_of(model, **options)
    drafter.propose(PROMPT, 20)
    drafter.propose((*PROMPT, *[1] * options.get("depth", 3), 8), 20)
    assert captured[0][-1] == rows == max(len(unread) + len(tree) for unread, tree, _ in model.calls)


def test_text_left_unread_without_a_budget_is_read_later() -> None:
    model = Ranked("first", 1)
    drafter = drafter_of(model)
    assert [drafter.propose(text, 0).num_draft for text in (PROMPT, (*PROMPT, 6, 7))] == [0, 0] and not model.calls
    drafter.propose((*PROMPT, 6, 7, 8), 5)
    assert model.calls[0][0] == [5, 6, 7]


@pytest.mark.parametrize("budget", range(8))
def test_a_small_budget_cuts_the_last_level(budget: int) -> None:
    tree = drafter_of(Ranked("first", 1, 2, 3)).propose(PROMPT, budget)
    assert tree.num_draft == min(budget, 5)
    assert tree.tokens[1:] == (1, 1, 1, 2, 3)[:budget]


def test_a_budget_is_shared_by_the_models_and_trees_are_merged() -> None:
    models = Ranked("first", 1, 2, 3), Ranked("second", 1, 4, 3)
    drafter = drafter_of(*models, width=2, branch_depth=2, depth=2)
    # Both draft 1; below it, the first drafts 1 and 2, the second 1 and 4.
    tree = drafter.propose(PROMPT, 6)
    assert (tree.tokens, tree.parents) == ((5, 1, 1, 2, 4), (-1, 0, 1, 1, 1))
    assert [len(model.calls) for model in models] == [2, 2]
    # Of five tokens the first model drafts three; the second drafts two that the first had. Of four, each drafts two.
    tree = drafter.propose(PROMPT, 5)
    assert (tree.tokens, tree.parents) == ((5, 1, 1, 2), (-1, 0, 1, 1))
    assert drafter.propose(PROMPT, 4).tokens == (5, 1, 1)


def test_a_draft_ends_where_a_models_context_is_full() -> None:
    """A model reads the root and all nodes but the deepest, so with room for two tokens it drafts two levels."""
    for room in range(5):
        assert max(drafter_of(Ranked("first", 1, room=room)).propose(PROMPT, 9).depths) == min(room, 3)
        # A token that is not read yet takes room, too.
        tree = drafter_of(Ranked("first", 1, room=room)).propose((*PROMPT, 6), 9)
        assert max(tree.depths) == max(0, min(room - 1, 3))


@pytest.mark.parametrize("sampled", [False, True])
def test_no_token_is_drafted_past_the_length_limit(sampled: bool) -> None:
    prompt = (2, 3, 4, 2, 3, 5, 2, 3)
    for limit in range(1, 9):
        drafter = SpecInferDrafter(inputs(prompt, params=SAMPLING), depth=8, sampled=sampled)
        lane = function_lane(prompt, drafter, markov(3, vocab=6), max_new_tokens=limit, num_draft=20)
        while not lane.end:
            remaining = lane.remaining
            assert max(lane.step().tree.depths) == min(8, remaining - 1)


def test_a_models_text_is_the_lanes_text_after_any_verdict() -> None:
    rng = random.Random(2)
    for seed in range(10):
        prompt, model = random_prompt(rng), CopyingModel()
        drafter = SpecInferDrafter(inputs(prompt, draft_model=model), width=rng.randint(1, 3))
        lane = function_lane(prompt, drafter, markov(seed, vocab=6, order=1), num_draft=rng.randint(1, 6))
        while not lane.end:
            context = list(lane.context)
            tree = lane.step().tree
            assert not tree.num_draft or model.sessions[0].tokens == context[:-1]


def test_too_few_draft_models_are_an_error() -> None:
    with pytest.raises(InputError, match=r"drafts with 1 model and has none; give smaller ones .*--draft-model"):
        SpecInferDrafter(inputs((5,), draft_model=None))
    model = Ranked("first", 1)
    with pytest.raises(InputError, match="drafts with 2 models and has 1;"):
        SpecInferDrafter(DrafterInputs(PROMPT, vocab_size=10, draft_models=(model,)), models=2)  # type: ignore[arg-type]


def test_on_a_target_that_scores_chains_only_it_drafts_one_branch() -> None:
    plan = plan_lane(RaceSpec(("specinfer",)), "specinfer", "cpu", chains_only=True)
    assert (plan.options["width"], plan.options["models"], plan.num_draft) == (1, 1, 3)


# Draws.


def sampler(seed: int = 0, **options: int) -> SpecInferDrafter:
    """A SpecInfer drafter that draws its tokens, from draft models that copy."""
    return SpecInferDrafter(inputs((2, 3, 4, 2, 3), params=SAMPLING, seed=seed), sampled=True, **options)  # type: ignore[arg-type]


def test_draws_name_their_node_and_the_distribution_they_were_drawn_from() -> None:
    drafter, context = sampler(width=4, branch_depth=1, depth=2, models=2), (2, 3, 4, 2, 3)
    num_repeated = 0
    for _ in range(50):
        tree = drafter.propose(context, 16)
        draws = drafter.draws()
        assert set(draws.nodes) == set(range(1, len(tree))) and len(draws.rows) == len(draws.nodes)
        for node, row in zip(draws.nodes, draws.rows, strict=True):
            path = [tree.tokens[number] for number in tree.path_to(tree.parents[node])]
            expected = CopyingSession(context[:-1], 99).distribution([*path])
            assert draws.q[row] == pytest.approx(expected)
        root_draws = [node for node in draws.nodes if not tree.parents[node]]
        # Each model draws four tokens after the root; equal ones share a node.
        assert len(root_draws) == 8
        num_repeated += 8 - len(set(root_draws))
    assert num_repeated > 50


def test_the_number_of_draws_never_depends_on_the_tokens_drawn() -> None:
    """If a repeated token made room for another draw, the draws after a node would be biased."""
    for seed in range(20):
        drafter = sampler(seed, width=8, branch_depth=1, depth=1)
        drafter.propose((2, 3, 4, 2, 3), 3)
        # The budget allows for three nodes, so three tokens are drawn, even if they are the same.
        assert len(drafter.draws().nodes) == 3


def test_tokens_are_drawn_with_the_distributions_frequencies() -> None:
    drafter, counts, num_varied = sampler(width=8, branch_depth=1, depth=1), np.zeros(32), 0
    for _ in range(500):
        tree = drafter.propose((2, 3, 4, 2, 3), 8)
        num_varied += tree.num_draft > 1
        for node in drafter.draws().nodes:
            counts[tree.tokens[node]] += 1
    # The draft model copies the 4 that followed 3 with a probability of 1/2.
    assert counts.sum() == 4000 and counts[4] == pytest.approx(2000, abs=150)
    # Each draw is independent of the others.
    assert num_varied > 480


def test_seeds_and_rounds_draw_different_trees() -> None:
    trees = [sampler(seed).propose((2, 3, 4, 2, 3), 8) for seed in (1, 2, 3, 1)]
    assert len(set(trees[:3])) > 1 and trees[0] == trees[3]


def test_without_sampling_there_are_no_draws() -> None:
    drafter = drafter_of(Ranked("first", 1, 2, 3))
    drafter.propose(PROMPT, 9)
    draws = drafter.draws()
    assert (draws.nodes, draws.rows, draws.q.shape) == ((), (), (0, 10))


# Notes.


def test_the_note_names_each_models_probability_of_each_token() -> None:
    drafter = drafter_of(Ranked("first", 1, 2), Ranked("second", 2, 3), depth=1, width=2, branch_depth=1)
    note = drafter.note(drafter.propose(PROMPT, 9))
    assert note.facts == {
        "drafted": 3,
        "draft models": "first, second",
        "tokens after each node": "2",
        "each token": "the draft model's likeliest",
        "expected": "1.80 tokens",
    }
    assert [(row.group, row.label, row.tokens) for row in note.rows] == [
        ("Draft tokens", "depth 1: first 40%", (1,)),
        ("Draft tokens", "depth 1: first 20%, second 40%", (2,)),
        ("Draft tokens", "depth 1: second 20%", (3,)),
    ]


def test_the_note_counts_repeated_draws() -> None:
    values = DrafterInputs(PROMPT, vocab_size=10, params=SAMPLING, draft_models=(Ranked("only", 4),))  # type: ignore[arg-type]
    drafter = SpecInferDrafter(values, sampled=True)
    note = drafter.note(drafter.propose(PROMPT, 9))
    assert note.facts["tokens after each node"] == "1, 1, 3"
    assert note.facts["draws"] == 5 and note.facts["each token"] == "drawn at the race's temperature"
    assert [row.label for row in note.rows][-1] == "depth 3: only 100% (drawn 3 times)"
    drafter = SpecInferDrafter(values, sampled=True, width=2)
    assert drafter.note(drafter.propose(PROMPT, 9)).rows[-1].label == "depth 3: only 100% (drawn 2 times)"
