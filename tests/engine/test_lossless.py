"""Every lane prints exactly what vanilla prints, greedily and sampled, on language models that are tables.

The tests run all methods on random prompts with several draft sizes, and then drafters made to break the claim. A real
model's KV cache and forwards over several rows are tested in `tests/paths`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.drafters import METHODS, Drafter
from tests.parts import (
    EOS,
    VOCAB,
    ScriptedDrafter,
    TableTarget,
    continuation,
    inputs,
    random_prompt,
    random_tree,
    run_lane,
)

NO_END: frozenset[int] = frozenset()
SAMPLING = {"greedy": SamplingParams(), "sampled": SamplingParams(0.8, top_p=0.9, top_k=20, seed=11)}
DRAFTING_METHODS = tuple(name for name in METHODS if name != "vanilla")


@cache
def table_target(order: int) -> TableTarget:
    """A language model whose tokens depend on the last `order` tokens; a text of a low order soon repeats itself."""
    return TableTarget(order, order=order, eos_ids=frozenset({EOS}))


def random_prompts(order: int, count: int) -> list[tuple[int, ...]]:
    """`count` prompts for the model of this order; the first has one token."""
    rng = random.Random(order)
    return [(rng.randrange(2, VOCAB),), *(random_prompt(rng) for _ in range(count - 1))]


def vanilla_tokens(target: TableTarget, prompt: Sequence[int], params: SamplingParams, count: int = 16) -> list[int]:
    """The `count` tokens that vanilla prints if end-of-text tokens do not end it."""
    drafter = METHODS["vanilla"].build(inputs(prompt))
    prefix = target.prefill(prompt)
    return run_lane(target, prefix, prompt, drafter, params=params, max_new_tokens=count, eos_ids=NO_END).tokens


def cut_at_end(tokens: list[int], eos_ids: frozenset[int]) -> list[int]:
    """`tokens` up to and including the first end-of-text token."""
    positions = [index for index, token in enumerate(tokens) if token in eos_ids]
    return tokens[: positions[0] + 1] if positions else tokens


@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING)
@pytest.mark.parametrize(("order", "num_tokens"), [(1, 16), (2, 48)], ids=["order 1", "order 2"])
def test_every_method_prints_vanillas_text(order: int, num_tokens: int, params: SamplingParams) -> None:
    target = table_target(order)
    num_accepted = dict.fromkeys(DRAFTING_METHODS, 0)
    for number, prompt in enumerate(random_prompts(order, 9)):
        prefix = target.prefill(prompt)
        expected = vanilla_tokens(target, prompt, params, num_tokens)
        num_draft = (4, 9, 16)[number % 3]
        # For every third prompt, vanilla's eighth token is an end-of-text token.
        eos_ids = frozenset({expected[7]}) if number % 3 == 0 else NO_END
        for method in DRAFTING_METHODS:
            drafter = METHODS[method].build(inputs(prompt, seed=number))
            lane = run_lane(
                target,
                prefix,
                prompt,
                drafter,
                params=params,
                max_new_tokens=num_tokens,
                num_draft=num_draft,
                eos_ids=eos_ids,
            )
            assert lane.tokens == cut_at_end(expected, eos_ids), (method, prompt)
            num_accepted[method] += len(lane.tokens) - lane.num_steps
    # If no drafts were accepted, the lanes would only do what vanilla does.
    assert sum(count > 0 for count in num_accepted.values()) > len(DRAFTING_METHODS) / 2, num_accepted


def test_vanilla_prints_the_targets_likeliest_tokens() -> None:
    target = table_target(2)
    for prompt in random_prompts(2, 6):
        expected = cut_at_end(continuation(prompt, target.next_token, 24), target.eos_ids)
        drafter = METHODS["vanilla"].build(inputs(prompt))
        lane = run_lane(target, target.prefill(prompt), prompt, drafter, max_new_tokens=24)
        assert (lane.tokens, lane.end) == (expected, "eos" if expected[-1] == EOS else "length")


def test_each_seed_prints_another_text() -> None:
    target = table_target(1)
    prompt = random_prompts(1, 4)[3]
    assert len({tuple(vanilla_tokens(target, prompt, SamplingParams(0.8, seed=seed))) for seed in range(4)}) == 4


# Drafters made to change the text.


def random_trees(seed: int) -> Callable[[Sequence[int], int], TokenTree]:
    """A function that drafts trees of random shapes and tokens."""
    rng = random.Random(seed)
    return lambda context, budget: random_tree(rng, context[-1], rng.randint(0, budget))


def wide_and_deep(context: Sequence[int], _budget: int) -> TokenTree:
    """Every token of the vocabulary under the root, so the target's is among them; then a chain below the last one."""
    builder = TreeBuilder(context[-1])
    for token in range(VOCAB):
        builder.add(0, token)
    builder.add_path([token % VOCAB for token in context], parent=VOCAB)
    return builder.build()


def merged_duplicates(context: Sequence[int], _budget: int) -> TokenTree:
    """A tree built from paths, some of them repeated; the builder merges these."""
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
    "random": random_trees(1),
    "wide and deep": wide_and_deep,
    "merged duplicates": merged_duplicates,
    "ends everywhere": ends_everywhere,
    "the pending token": lambda context, budget: TokenTree.chain(context[-1], [context[-1]] * budget),
    "over the budget": lambda context, budget: TokenTree.chain(context[-1], [3] * (budget + 50)),
    "outside the prompt": lambda context, budget: TokenTree.chain(context[-1], [VOCAB - 1] * budget),
}


@pytest.mark.slow
@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_draft_changes_the_text(adversary: str, params: SamplingParams) -> None:
    target = table_target(1)
    for number, prompt in enumerate(random_prompts(1, 6)):
        expected = cut_at_end(vanilla_tokens(target, prompt, params), target.eos_ids)
        for num_draft in (0, 1, 40):
            drafter = ScriptedDrafter(ADVERSARIES[adversary])
            lane = run_lane(target, target.prefill(prompt), prompt, drafter, params=params, num_draft=num_draft)
            assert lane.tokens == expected, (number, num_draft)
            assert all(tree.num_draft <= num_draft for tree, _ in drafter.observed)


def test_a_tree_with_duplicate_siblings_is_refused() -> None:
    with pytest.raises(ValueError, match="same token"):
        TokenTree((1, 5, 5), (-1, 0, 0))


def oracle(expected: Sequence[int], num_prompt: int, depth: int) -> Drafter:
    """A drafter that knows vanilla's output and drafts its next `depth` tokens."""

    def propose(context: Sequence[int], budget: int) -> TokenTree:
        position = len(context) - num_prompt
        return TokenTree.chain(context[-1], expected[position : position + min(depth, budget)])

    return ScriptedDrafter(propose)


@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING)
@pytest.mark.parametrize("depth", [1, 3, 7])
def test_the_oracle_prints_its_depth_plus_one_tokens_per_step(depth: int, params: SamplingParams) -> None:
    target = table_target(2)
    num_steps = 4
    count = num_steps * (depth + 1)
    for prompt in random_prompts(2, 6):
        prefix = target.prefill(prompt)
        expected = vanilla_tokens(target, prompt, params, count)
        drafter = oracle(expected, len(prompt), depth)
        lane = run_lane(target, prefix, prompt, drafter, params=params, max_new_tokens=count, eos_ids=NO_END)
        assert lane.tokens == expected and lane.num_steps == num_steps


# The first, a middle and the last draft token, and the bonus.
@pytest.mark.parametrize("position", [0, 2, 4, 5])
def test_an_end_of_text_token_inside_the_accepted_path_ends_the_text(position: int) -> None:
    target = table_target(1)
    num_tested = 0
    for prompt in random_prompts(1, 20):
        prefix = target.prefill(prompt)
        expected = vanilla_tokens(target, prompt, SAMPLING["sampled"])
        eos_ids = frozenset({expected[position]})
        if expected.index(expected[position]) < position:
            continue  # this token ends the text earlier
        drafter = oracle(expected, len(prompt), 5)
        lane = run_lane(target, prefix, prompt, drafter, params=SAMPLING["sampled"], eos_ids=eos_ids)
        assert (lane.tokens, lane.end, lane.num_steps) == (expected[: position + 1], "eos", 1)
        num_tested += 1
    assert num_tested > 5


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_the_length_limit_cuts_the_accepted_path(limit: int) -> None:
    target = table_target(2)
    prompt = random_prompts(2, 6)[5]
    prefix = target.prefill(prompt)
    expected = vanilla_tokens(target, prompt, SAMPLING["sampled"])
    drafter = oracle(expected, len(prompt), 5)
    lane = run_lane(target, prefix, prompt, drafter, params=SAMPLING["sampled"], max_new_tokens=limit, eos_ids=NO_END)
    assert (lane.tokens, lane.end) == (expected[:limit], "length")


def test_an_end_of_text_token_at_the_length_limit_ends_the_text_with_eos() -> None:
    target = table_target(2)
    prompt = random_prompts(2, 6)[5]
    prefix = target.prefill(prompt)
    first_token = vanilla_tokens(target, prompt, SAMPLING["greedy"], 1)
    for method in METHODS:
        drafter = METHODS[method].build(inputs(prompt))
        lane = run_lane(target, prefix, prompt, drafter, max_new_tokens=1, eos_ids=frozenset(first_token))
        assert (lane.tokens, lane.end) == (first_token, "eos")
