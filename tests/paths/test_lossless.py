"""Every lane prints vanilla's text on models: six architectures, each way that a CPU runs forwards, and end to end.

`tests/engine/test_lossless.py` proves on functions what lanes do with scores; here models prove that rows scored
together equal rows scored alone. Other execution paths have their own case: graphs, several devices, tensor
parallel and the compiled decoder in `tests/model`, `model.generate` in `tests/test_hf.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
import torch

from specrace.core.events import Finished, Step
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS, native_methods
from specrace.engine.race import race
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.model.capture import capture_replay
from specrace.model.forward.kv import Prefix
from specrace.model.target import Target
from specrace.workbench import Workbench
from tests.engine.test_lossless import ADVERSARIES, cut_at_end
from tests.models import ARCHITECTURES, give_heads, tiny_model, tiny_target
from tests.parts import EOS, VOCAB, CopyingModel, ScriptedDrafter, inputs, random_prompt, run_lane

NO_END: frozenset[int] = frozenset()
SAMPLING = {"greedy": SamplingParams(), "sampled": SamplingParams(0.8, seed=11)}
DRAFTING_METHODS = tuple(name for name in native_methods() if name != "vanilla")
# The model's own modules; a scripted forward; a scripted forward with the weights in a layout for few rows.
FORWARDS = ("eager", "replayed", "packed")


@cache
def target_of(name: str, forward: str = "eager") -> Target:
    """A target of this architecture with eager forwards, or with replayed ones as `load_target` makes them on a CPU."""
    target = tiny_target(name)
    if forward != "eager":
        capture_replay(target, packed=forward == "packed")
        assert target.replay is not None
    return target


def prompts_of(name: str, count: int) -> list[tuple[int, ...]]:
    """Prompts for this architecture; the first has one token."""
    rng = random.Random(name)
    return [(rng.randrange(2, VOCAB),), *(random_prompt(rng) for _ in range(count - 1))]


def vanilla(target: Target, prefix: Prefix, prompt: Sequence[int], params: SamplingParams) -> list[int]:
    """The target's tokens, decoded one per step and past any end token."""
    drafter = METHODS["vanilla"].build(inputs(prompt))
    return run_lane(target, prefix, prompt, drafter, params=params, eos_ids=NO_END).tokens


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_lane_prints_vanillas_text(name: str) -> None:
    """Pairwise cases: any two values of lane, architecture, sampling and forward occur together in some case.

    All 6 x 2 x 3 x 11 combinations, tried on several prompts, found no more failures.
    """
    architecture_number, accepted = ARCHITECTURES.index(name), dict.fromkeys(DRAFTING_METHODS, 0)
    for number, prompt in enumerate(prompts_of(name, 6)):
        target, params = target_of(name, FORWARDS[number // 2]), [*SAMPLING.values()][number % 2]
        prefix = target.prefill(prompt)
        expected = vanilla(target, prefix, prompt, params)
        ends = frozenset({expected[7]}) if number % 3 == 0 else NO_END
        for lane_number, method in enumerate(DRAFTING_METHODS):
            if (lane_number + architecture_number + number) % 2:
                continue
            drafter = METHODS[method].build(inputs(prompt, seed=number))
            budget = (4, 9, 16)[(number + architecture_number) % 3]
            lane = run_lane(target, prefix, prompt, drafter, params=params, num_draft=budget, eos_ids=ends)
            assert lane.tokens == cut_at_end(expected, ends), (method, prompt)
            accepted[method] += len(lane.tokens) - lane.num_steps
    # If no draft were accepted, this would compare vanilla with itself.
    assert sum(accepted.values()) > 10, accepted


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_vanilla_prints_the_text_of_generate(name: str) -> None:
    target = target_of(name)
    for prompt in prompts_of(name, 3):
        ids = torch.tensor([prompt])
        output = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=0
        )
        drafter = METHODS["vanilla"].build(inputs(prompt))
        lane = run_lane(target, target.prefill(prompt), prompt, drafter, max_new_tokens=24)
        assert lane.tokens == output[0, len(prompt) :].tolist()
        assert lane.end == ("eos" if lane.tokens[-1] == EOS else "length")
    assert target.eos_ids == {EOS}


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_draft_changes_the_text(adversary: str) -> None:
    target, prompt, params = target_of("llama", "replayed"), prompts_of("llama", 4)[3], SAMPLING["sampled"]
    prefix = target.prefill(prompt)
    expected = cut_at_end(vanilla(target, prefix, prompt, params), target.eos_ids)
    lane = run_lane(target, prefix, prompt, ScriptedDrafter(ADVERSARIES[adversary]), params=params, num_draft=40)
    assert lane.tokens == expected


@pytest.mark.parametrize(("temperature", "num_questions"), [(0.0, 1), (0.8, 1), (4.0, 2)])
def test_end_to_end_every_lane_prints_vanillas_text(bundled: Workbench, temperature: float, num_questions: int) -> None:
    """From a question to the text with the bundled model; at temperature 4 each seed gives another text.

    If there are two questions, each is answered by half of the lanes.
    """
    questions = ("What are glaciers made of?", "Tell me about token recycling.", "Describe how a volcano erupts.")
    texts, num_saved_steps = set(), Counter[str]()
    assert bundled.target.describe()["dtype"] == "float32"
    give_heads(bundled.target)
    for seed, question in enumerate(questions[:num_questions]):
        lanes = tuple(native_methods())[seed::num_questions]
        spec = RaceSpec(lanes, 10, num_draft=4, temperature=temperature, top_p=0.9, seed=seed)
        *_, finished = bundled.ask(RaceRequest(question, spec, 1))
        assert isinstance(finished, Finished)
        assert [lane.lane for lane in finished.lanes if not lane.identical] == [], question
        num_saved_steps.update({lane.lane: lane.tokens - lane.steps for lane in finished.lanes})
        texts.add(finished.lanes[0].text)
    assert len(texts) == num_questions
    # If no draft were accepted, this would compare vanilla with itself.
    assert temperature > 1 or sum(count > 2 for count in num_saved_steps.values()) >= 6, num_saved_steps


# In lower precision texts may differ, and every difference must be reported.


@pytest.mark.parametrize(("name", "dtype"), [("llama", torch.bfloat16), ("gpt2", torch.float16)])
def test_in_half_precision_differences_are_reported(name: str, dtype: torch.dtype) -> None:
    """How often rows scored together differ from rows scored alone depends on the machine."""
    model = tiny_model(name, initializer_range=0.05, hidden_size=128, vocab_size=300)
    target = Target(model.to(dtype), name=name)
    target.drafting = CopyingModel(vocab=300)  # type: ignore[assignment]
    give_heads(target)
    assert target.dtype == dtype
    for prompt in prompts_of(name, 2)[1:]:
        spec = RaceSpec(("vanilla", *DRAFTING_METHODS), max_new_tokens=16, num_draft=16)
        events = list(race(target, prompt, spec))
        finished = events[-1]
        assert isinstance(finished, Finished)
        outputs = {lane.lane: tokens_of(events, lane.lane) for lane in finished.lanes}
        for lane in finished.lanes:
            assert lane.identical == (outputs[lane.lane] == outputs["vanilla"])
            difference = lane.first_difference
            assert (difference is None) == lane.identical
            if difference is not None:
                assert outputs[lane.lane][: difference.position] == outputs["vanilla"][: difference.position]
                assert len(set(difference.best)) == 2 and 0.0 <= difference.gap < 0.5


def tokens_of(events: Sequence[object], lane: str) -> list[int]:
    """The tokens that a lane prints in a race."""
    return [token for event in events if isinstance(event, Step) and event.lane == lane for token in event.emitted]
