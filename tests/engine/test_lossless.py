"""Every drafter prints exactly what vanilla prints, in fp32, at T = 0 and at T > 0; and vanilla what `generate` prints.

Six architectures with random weights, each on 36 random prompts of its own, by turns greedy and sampled; then drafters
that try to break it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch

from specrace.core.events import Finished, Step
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.drafters import METHODS, Drafter, native_methods
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model.kv import Prefix
from specrace.model.replays import trace_forwards
from specrace.model.target import Target
from tests.models import ARCHITECTURES, tiny_model, tiny_target
from tests.parts import EOS, VOCAB, CopyingModel, Scripted, inputs, random_prompt, random_tree, run_lane

PROMPTS = 36
NO_END: frozenset[int] = frozenset()
RULES = {"greedy": SamplingParams(), "sampled": SamplingParams(0.8, seed=11)}
DRAFTING = tuple(name for name in native_methods() if name != "vanilla")


@cache
def target_of(name: str) -> Target:
    """One target an architecture, for the whole file."""
    return tiny_target(name)


@cache
def replayed_target_of(name: str, packed: bool) -> Target:
    """The same with forwards that are replayed, as load_target leaves it on a CPU."""
    target = tiny_target(name)
    trace_forwards(target, packed=packed)
    assert target.traced is not None
    return target


def prompts_of(name: str, count: int = PROMPTS) -> list[tuple[int, ...]]:
    """The architecture's own prompts, the first of one token."""
    chance = random.Random(name)
    return [(chance.randrange(2, VOCAB),), *(random_prompt(chance) for _ in range(count - 1))]


def vanilla(
    target: Target, prefix: Prefix, prompt: Sequence[int], params: SamplingParams, count: int = 16
) -> list[int]:
    """What the target says, one token a step and past any end."""
    drafter = METHODS["vanilla"].build(inputs(prompt))
    return run_lane(target, prefix, prompt, drafter, params=params, max_new_tokens=count, eos_ids=NO_END).tokens


def cut_at(tokens: list[int], ends: frozenset[int]) -> list[int]:
    """`tokens` up to and with the first end."""
    found = [index for index, token in enumerate(tokens) if token in ends]
    return tokens[: found[0] + 1] if found else tokens


def test_there_are_prompts_enough() -> None:
    assert PROMPTS * len(ARCHITECTURES) >= 200


@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_drafter_prints_vanillas_text(name: str, params: SamplingParams) -> None:
    accepted = dict.fromkeys(DRAFTING, 0)
    # Every second prompt is this rule's, and both rules begin with the prompt of one token.
    first, *others = prompts_of(name)
    for number, prompt in enumerate((first, *others[bool(params.temperature) :: 2])):
        # By turns on the engines that a CPU has; a replay is quicker. Of 18 prompts each gets all three budgets.
        target = replayed_target_of(name, packed=number % 4 == 2) if number % 8 else target_of(name)
        prefix = target.prefill(prompt)
        expected = vanilla(target, prefix, prompt, params)
        ends = frozenset({expected[7]}) if number % 3 == 0 else NO_END
        for method in DRAFTING:
            drafter = METHODS[method].build(inputs(prompt, seed=number))
            lane = run_lane(
                target, prefix, prompt, drafter, params=params, num_draft=(4, 9, 16)[number % 3], eos_ids=ends
            )
            assert lane.tokens == cut_at(expected, ends), (method, prompt)
            accepted[method] += len(lane.tokens) - lane.num_steps
    # Else this would be vanilla against itself. A sampled text repeats too little for some.
    assert sum(accepted.values()) > 100
    assert params.temperature or all(accepted.values()), accepted


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_vanilla_prints_what_generate_prints(name: str) -> None:
    target, ended = target_of(name), 0
    for prompt in prompts_of(name, 12):
        ids = torch.tensor([prompt])
        output = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=0
        )
        drafter = METHODS["vanilla"].build(inputs(prompt))
        lane = run_lane(target, target.prefill(prompt), prompt, drafter, max_new_tokens=24)
        assert lane.tokens == output[0, len(prompt) :].tolist()
        assert lane.end == ("eos" if lane.tokens[-1] == EOS else "length")
        ended += lane.end == "eos"
    assert target.eos_ids == {EOS}


def test_another_seed_prints_another_text() -> None:
    target, prompt = target_of("llama"), prompts_of("llama")[3]
    prefix = target.prefill(prompt)
    texts = {tuple(vanilla(target, prefix, prompt, SamplingParams(0.8, seed=seed))) for seed in range(4)}
    assert len(texts) == 4


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
    """The same branches again and again, from three matches."""
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


@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_draft_changes_the_text(adversary: str, params: SamplingParams) -> None:
    for name in ("llama", "qwen3", "gpt2", "gpt-neox"):
        for number, prompt in enumerate(prompts_of(name, 3)):
            target = replayed_target_of(name, packed=number == 2) if number else target_of(name)
            prefix = target.prefill(prompt)
            expected = cut_at(vanilla(target, prefix, prompt, params), target.eos_ids)
            for num_draft in (0, 1, 40):
                drafter = Scripted(ADVERSARIES[adversary])
                lane = run_lane(target, prefix, prompt, drafter, params=params, num_draft=num_draft)
                assert lane.tokens == expected, (name, number, num_draft)
                assert all(tree.num_draft <= num_draft for tree, _ in drafter.told)


def test_a_draft_with_duplicate_siblings_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="same token"):
        TokenTree((1, 5, 5), (-1, 0, 0))


def oracle(expected: Sequence[int], num_prompt: int, depth: int) -> Drafter:
    """Knows vanilla's output and drafts its next `depth` tokens."""

    def propose(context: Sequence[int], budget: int) -> TokenTree:
        done = len(context) - num_prompt
        return TokenTree.chain(context[-1], expected[done : done + min(depth, budget)])

    return Scripted(propose)


@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("depth", [1, 3, 7])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "gpt-neox"])
def test_the_oracles_tau_is_its_depth_and_one(name: str, depth: int, params: SamplingParams) -> None:
    target, steps = target_of(name), 4
    for prompt in prompts_of(name, 4):
        prefix, count = target.prefill(prompt), steps * (depth + 1)
        expected = vanilla(target, prefix, prompt, params, count)
        drafter = oracle(expected, len(prompt), depth)
        lane = run_lane(target, prefix, prompt, drafter, params=params, max_new_tokens=count, eos_ids=NO_END)
        assert lane.tokens == expected
        assert lane.num_steps == steps and len(lane.tokens) / lane.num_steps == depth + 1


@pytest.mark.parametrize("place", [0, 2, 3, 5])
def test_an_end_inside_an_accepted_path_ends_there(place: int) -> None:
    """Accepted tokens after it are not printed, whichever node carries it: first, middle, last, bonus."""
    target = target_of("llama")
    tested = 0
    for prompt in prompts_of("llama", 20):
        prefix = target.prefill(prompt)
        expected = vanilla(target, prefix, prompt, RULES["sampled"])
        if expected.index(expected[place]) < place:
            continue
        drafter = oracle(expected, len(prompt), 5)
        lane = run_lane(target, prefix, prompt, drafter, params=RULES["sampled"], eos_ids=frozenset({expected[place]}))
        assert (lane.tokens, lane.end, lane.num_steps) == (expected[: place + 1], "eos", 1)
        tested += 1
    assert tested > 5


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_the_length_limit_holds_inside_an_accepted_path(limit: int) -> None:
    target, prompt = target_of("gpt2"), prompts_of("gpt2")[5]
    prefix = target.prefill(prompt)
    expected = vanilla(target, prefix, prompt, RULES["sampled"])
    drafter = oracle(expected, len(prompt), 5)
    lane = run_lane(target, prefix, prompt, drafter, params=RULES["sampled"], max_new_tokens=limit, eos_ids=NO_END)
    assert (lane.tokens, lane.end) == (expected[:limit], "length")


def test_an_end_at_the_limit_is_an_end() -> None:
    target, prompt = target_of("gpt2"), prompts_of("gpt2")[5]
    prefix = target.prefill(prompt)
    first = vanilla(target, prefix, prompt, RULES["greedy"], 1)
    for method in METHODS:
        drafter = METHODS[method].build(inputs(prompt))
        lane = run_lane(target, prefix, prompt, drafter, max_new_tokens=1, eos_ids=frozenset(first))
        assert (lane.tokens, lane.end) == (first, "eos")


# Lower precision: honest, not exact.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_lanes_run_and_a_difference_is_told(dtype: torch.dtype) -> None:
    """How often rows scored together differ from rows scored alone is the machine's affair; that it is told is ours."""
    for name in ("llama", "gpt2"):
        model = tiny_model(name, initializer_range=0.05, hidden_size=128, vocab_size=300)
        target = Target(model.to(dtype), name=name)
        target.drafting = CopyingModel()  # type: ignore[assignment]
        assert target.dtype == dtype
        for prompt in prompts_of(name, 3):
            spec = RaceSpec(("vanilla", *DRAFTING), max_new_tokens=16, num_draft=16)
            events = list(race(target, prompt, spec))
            finished = events[-1]
            assert isinstance(finished, Finished)
            outputs = {lane.lane: tokens_of(events, lane.lane) for lane in finished.lanes}
            for lane in finished.lanes:
                assert lane.identical == (outputs[lane.lane] == outputs["vanilla"])
                told = lane.first_difference
                assert (told is None) == lane.identical
                if told is not None:
                    assert outputs[lane.lane][: told.position] == outputs["vanilla"][: told.position]
                    assert len(set(told.best)) == 2 and 0.0 <= told.gap < 0.5


def tokens_of(events: Sequence[object], lane: str) -> list[int]:
    return [token for event in events if isinstance(event, Step) and event.lane == lane for token in event.emitted]
