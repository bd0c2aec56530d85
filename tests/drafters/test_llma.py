"""LLMA's rule, an option of prompt lookup: copy from the prompt only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specrace.core.cost_curve import CostCurve
from specrace.drafters import METHODS
from specrace.drafters.prompt_lookup import PromptLookupDrafter
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.scoring.score import ScoredLane, forced_steps
from tests.parts import inputs, step_verdict

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=25)


def test_worked_example_of_copies() -> None:
    prompt, output = (1, 2, 3, 4, 5, 2, 6), (2, 3, 9, 9, 3, 4, 5, 2, 6)
    drafter = PromptLookupDrafter(inputs(prompt), llma=True)
    # `forced_steps` lets the drafter draft as if the target printed `output`.
    steps = [(step.tree.tokens, step.emitted) for step in forced_steps(drafter, prompt, output, num_draft=3)]
    assert steps == [
        ((6,), (2,)),  # 6 occurs only at the prompt's end
        ((2, 3, 4, 5), (3, 9)),  # one token is enough; its first occurrence counts
        ((9,), (9,)),  # not in the prompt
        ((9,), (3,)),  # the output has 9 twice, but LLMA copies from the prompt only
        ((3, 4, 5, 2), (4, 5, 2, 6)),
    ]


def test_the_longest_match_is_used() -> None:
    prompt = (2, 7, 1, 2, 8, 0)
    drafter = PromptLookupDrafter(inputs(prompt), llma=True)
    assert drafter.propose((*prompt, 1, 2), 1).tokens == (2, 8)
    assert drafter.propose((*prompt, 5, 2), 1).tokens == (2, 7)
    assert PromptLookupDrafter(inputs(prompt), llma=True, longest=1).propose((1, 2), 1).tokens == (2, 7)
    assert PromptLookupDrafter(inputs(prompt), llma=True, shortest=2).propose((5, 2), 1).tokens == (2,)


def test_positions_are_indices_in_the_prompt() -> None:
    drafter = PromptLookupDrafter(inputs((4, 5, 6, 7)), llma=True)
    tree = drafter.propose((4, 5, 6, 7, 5), 20)
    assert tree.tokens == (5, 6, 7) and tree.positions == (-1, 2, 3)


def test_default_draft_sizes_are_those_of_the_papers() -> None:
    method, llma = METHODS["prompt-lookup"], {"llma": True}
    assert [method.budget(device, llma) for device in ("cpu", "cuda")] == [20, 20]
    assert [method.budget(device, {"llma": False}) for device in ("cpu", "cuda")] == [10, 10]
    assert [ScoredLane.of("prompt-lookup", options).num_draft for options in ({"llma": "yes"}, {})] == [20, 10]
    spec = RaceSpec(("prompt-lookup",), options={"prompt-lookup": llma})
    assert plan_lane(spec, "prompt-lookup", "cuda").num_draft == 20
    # On a CPU with a measured cost curve, the draft size that pays on it replaces both defaults.
    cheap, expensive = CostCurve((1, 33), (1.0, 1.01)), CostCurve((1, 2, 33), (1.0, 2.0, 90.0))
    for race_spec in (spec, RaceSpec(("prompt-lookup",))):
        assert plan_lane(race_spec, "prompt-lookup", "cpu", expensive).num_draft < 10
        assert plan_lane(race_spec, "prompt-lookup", "cpu", cheap).num_draft > 15


def test_without_llma_the_output_is_copied_too() -> None:
    for llma, expected in ((True, (9,)), (False, (9, 8, 9))):
        drafter = PromptLookupDrafter(inputs((1, 2)), llma=llma)
        for token, context in ((9, (1, 2)), (8, (1, 2, 9)), (9, (1, 2, 9, 8))):
            drafter.observe(drafter.propose(context, 0), step_verdict(drafter.propose(context, 0), [token]))
        assert drafter.propose((1, 2, 9, 8, 9), 4).tokens == expected


@given(TEXTS, TEXTS, st.integers(0, 6), st.integers(1, 6))
def test_drafts_equal_a_brute_force_search(prompt: list[int], output: list[int], num_draft: int, longest: int) -> None:
    lane = ScoredLane.of("prompt-lookup", {"llma": "true", "longest": longest}, num_draft)
    drafter = lane.build(inputs(prompt), **lane.options)
    text = list(prompt)
    for step in forced_steps(drafter, prompt, output, lane.num_draft):
        assert list(step.tree.tokens[1:]) == brute_force_copy(prompt, text, longest, num_draft)
        text += step.emitted
    assert text == prompt + output


def brute_force_copy(prompt: list[int], text: list[int], longest: int, num_draft: int) -> list[int]:
    """What follows the first occurrence of the longest possible suffix of `text` in the prompt."""
    for length in range(min(longest, len(text)), 0, -1):
        ends = [end for end in range(length, len(prompt)) if prompt[end - length : end] == text[-length:]]
        if ends:
            return prompt[ends[0] : ends[0] + num_draft]
    return []
