"""Every lane prints exactly what vanilla prints, greedily and sampled, on language models that are tables.

All methods, on random prompts and at several budgets; then drafters that try to break it. What a real model adds, a
cache and rows that are scored together, is tested in `tests/paths`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.drafters import METHODS, Drafter
from tests.parts import EOS, VOCAB, Scripted, TableTarget, inputs, random_prompt, random_tree, run_lane

NO_END: frozenset[int] = frozenset()
RULES = {"greedy": SamplingParams(), "sampled": SamplingParams(0.8, top_p=0.9, top_k=20, seed=11)}
DRAFTING = tuple(name for name in METHODS if name != "vanilla")


@cache
def target_of(order: int) -> TableTarget:
    """A language model whose tokens depend on the last `order` tokens; with order 1 a text soon repeats itself."""
    return TableTarget(order, order=order, eos_ids=frozenset({EOS}))


def prompts_of(order: int, count: int) -> list[tuple[int, ...]]:
    """Prompts for the model of this order; the first has one token."""
    chance = random.Random(order)
    return [(chance.randrange(2, VOCAB),), *(random_prompt(chance) for _ in range(count - 1))]


def vanilla(target: TableTarget, prompt: Sequence[int], params: SamplingParams, count: int = 16) -> list[int]:
    """The target's text, one token a step and past any end."""
    drafter = METHODS["vanilla"].build(inputs(prompt))
    prefix = target.prefill(prompt)
    return run_lane(target, prefix, prompt, drafter, params=params, max_new_tokens=count, eos_ids=NO_END).tokens


def cut_at(tokens: list[int], ends: frozenset[int]) -> list[int]:
    """`tokens` up to and including the first end."""
    positions = [index for index, token in enumerate(tokens) if token in ends]
    return tokens[: positions[0] + 1] if positions else tokens


@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("order", [1, 2])
def test_every_method_prints_vanillas_text(order: int, params: SamplingParams) -> None:
    target, accepted = target_of(order), dict.fromkeys(DRAFTING, 0)
    for number, prompt in enumerate(prompts_of(order, 9)):
        prefix, expected = target.prefill(prompt), vanilla(target, prompt, params)
        ends = frozenset({expected[7]}) if number % 3 == 0 else NO_END
        for method in DRAFTING:
            drafter = METHODS[method].build(inputs(prompt, seed=number))
            lane = run_lane(
                target, prefix, prompt, drafter, params=params, num_draft=(4, 9, 16)[number % 3], eos_ids=ends
            )
            assert lane.tokens == cut_at(expected, ends), (method, prompt)
            accepted[method] += len(lane.tokens) - lane.num_steps
    # Otherwise this would be vanilla against itself.
    assert sum(count > 0 for count in accepted.values()) > len(DRAFTING) / 2, accepted


def test_vanilla_prints_what_the_function_says() -> None:
    target = target_of(2)
    for prompt in prompts_of(2, 6):
        text = list(prompt)
        for _ in range(24):
            text.append(target.next_token(text))
        expected = cut_at(text[len(prompt) :], target.eos_ids)
        lane = run_lane(
            target, target.prefill(prompt), prompt, METHODS["vanilla"].build(inputs(prompt)), max_new_tokens=24
        )
        assert (lane.tokens, lane.end) == (expected, "eos" if expected[-1] == EOS else "length")


def test_another_seed_prints_another_text() -> None:
    target, prompt = target_of(1), prompts_of(1, 4)[3]
    assert len({tuple(vanilla(target, prompt, SamplingParams(0.8, seed=seed))) for seed in range(4)}) == 4


# Drafters that try to break it.


def random_shapes(seed: int) -> Callable[[Sequence[int], int], TokenTree]:
    chance = random.Random(seed)
    return lambda context, budget: random_tree(chance, context[-1], chance.randint(0, budget))


def wide_and_deep(context: Sequence[int], _budget: int) -> TokenTree:
    """Every token of the vocabulary under the root, then a chain under the last: the target's token is always there."""
    builder = TreeBuilder(context[-1])
    for token in range(VOCAB):
        builder.add(0, token)
    builder.add_path([token % VOCAB for token in context], parent=VOCAB)
    return builder.build()


def merged_duplicates(context: Sequence[int], _budget: int) -> TokenTree:
    """A tree from matches that repeat their branches."""
    builder = TreeBuilder(context[-1])
    for start in (0, 1, 0, 0, 1):
        builder.add_path(context[start : start + 4])
    return builder.build()


def ends_everywhere(context: Sequence[int], _budget: int) -> TokenTree:
    """The end-of-text token at every depth, and text after it."""
    builder = TreeBuilder(context[-1])
    for token in range(VOCAB):
        node = builder.add(0, token)
        builder.add_path([EOS, token, EOS], parent=node)
    return builder.build()


ADVERSARIES: dict[str, Callable[[Sequence[int], int], TokenTree]] = {
    "random": random_shapes(1),
    "wide and deep": wide_and_deep,
    "merged duplicates": merged_duplicates,
    "ends everywhere": ends_everywhere,
    "the pending token": lambda context, budget: TokenTree.chain(context[-1], [context[-1]] * budget),
    "over the budget": lambda context, budget: TokenTree.chain(context[-1], [3] * (budget + 50)),
    "outside the prompt": lambda context, budget: TokenTree.chain(context[-1], [VOCAB - 1] * budget),
}


@pytest.mark.slow
@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_draft_changes_the_text(adversary: str, params: SamplingParams) -> None:
    target = target_of(1)
    for number, prompt in enumerate(prompts_of(1, 6)):
        expected = cut_at(vanilla(target, prompt, params), target.eos_ids)
        for num_draft in (0, 1, 40):
            drafter = Scripted(ADVERSARIES[adversary])
            lane = run_lane(target, target.prefill(prompt), prompt, drafter, params=params, num_draft=num_draft)
            assert lane.tokens == expected, (number, num_draft)
            assert all(tree.num_draft <= num_draft for tree, _ in drafter.told)


def test_a_draft_with_duplicate_siblings_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="same token"):
        TokenTree((1, 5, 5), (-1, 0, 0))


def oracle(expected: Sequence[int], num_prompt: int, depth: int) -> Drafter:
    """A drafter that knows vanilla's output and drafts its next `depth` tokens."""

    def propose(context: Sequence[int], budget: int) -> TokenTree:
        done = len(context) - num_prompt
        return TokenTree.chain(context[-1], expected[done : done + min(depth, budget)])

    return Scripted(propose)


@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("depth", [1, 3, 7])
def test_the_oracles_tau_is_its_depth_and_one(depth: int, params: SamplingParams) -> None:
    target, steps = target_of(2), 4
    for prompt in prompts_of(2, 6):
        prefix, count = target.prefill(prompt), steps * (depth + 1)
        expected = vanilla(target, prompt, params, count)
        drafter = oracle(expected, len(prompt), depth)
        lane = run_lane(target, prefix, prompt, drafter, params=params, max_new_tokens=count, eos_ids=NO_END)
        assert lane.tokens == expected
        assert lane.num_steps == steps and len(lane.tokens) / lane.num_steps == depth + 1


@pytest.mark.parametrize("position", [0, 2, 3, 5])
def test_an_end_inside_an_accepted_path_ends_there(position: int) -> None:
    """Accepted tokens after it are not printed, whichever node carries it: first, middle, last, bonus."""
    target = target_of(1)
    tested = 0
    for prompt in prompts_of(1, 20):
        prefix = target.prefill(prompt)
        expected = vanilla(target, prompt, RULES["sampled"])
        if expected.index(expected[position]) < position:
            continue
        drafter = oracle(expected, len(prompt), 5)
        lane = run_lane(
            target, prefix, prompt, drafter, params=RULES["sampled"], eos_ids=frozenset({expected[position]})
        )
        assert (lane.tokens, lane.end, lane.num_steps) == (expected[: position + 1], "eos", 1)
        tested += 1
    assert tested > 5


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_the_length_limit_holds_inside_an_accepted_path(limit: int) -> None:
    target, prompt = target_of(2), prompts_of(2, 6)[5]
    prefix = target.prefill(prompt)
    expected = vanilla(target, prompt, RULES["sampled"])
    drafter = oracle(expected, len(prompt), 5)
    lane = run_lane(target, prefix, prompt, drafter, params=RULES["sampled"], max_new_tokens=limit, eos_ids=NO_END)
    assert (lane.tokens, lane.end) == (expected[:limit], "length")


def test_an_end_at_the_limit_is_an_end() -> None:
    target, prompt = target_of(2), prompts_of(2, 6)[5]
    prefix = target.prefill(prompt)
    first = vanilla(target, prompt, RULES["greedy"], 1)
    for method in METHODS:
        drafter = METHODS[method].build(inputs(prompt))
        lane = run_lane(target, prefix, prompt, drafter, max_new_tokens=1, eos_ids=frozenset(first))
        assert (lane.tokens, lane.end) == (first, "eos")
