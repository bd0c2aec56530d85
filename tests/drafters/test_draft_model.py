"""The draft-model drafter: its KV cache, its limits, its time on the lane's clock, and its distributions.

The draft model of most tests, `CopyingModel`, gives probability 1/2 to what followed the last token before, or else to
that token itself. Its session's `readings` are the tokens that each forward read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters.base import DrafterInputs
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.engine.race import race
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec
from specrace.lab.scoring.score import ScoredLane, scorable_lanes
from specrace.views.frames import report
from tests.parts import (
    VOCAB,
    CopyingModel,
    CopyingSession,
    FunctionTarget,
    PromptedCopyingModel,
    continuation,
    function_lane,
    inputs,
    markov,
    random_prompt,
    step_verdict,
)

PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)


# The drafter.


def test_the_cache_is_rolled_back_to_the_accepted_text() -> None:
    model = CopyingModel()
    drafter = DraftModelDrafter(inputs((5, 6, 7, 5), draft_model=model))
    session = model.sessions[0]
    assert session.tokens == [5, 6, 7] and session.readings == []
    tree = drafter.propose((5, 6, 7, 5), 3)
    assert tree == TokenTree((5, 6, 7, 5), (-1, 0, 1, 2), (1.0, 0.5, 0.5, 0.5))
    # The pending token and two draft tokens were read; the last draft token was not.
    assert session.readings == [[5], [6], [7]]
    drafter.observe(tree, step_verdict(tree, [6, 9, 0, 0]))
    # 6 was accepted and 9 came instead of 7: the cache goes back to 5 6 7 5 6, and only 9 is new to it.
    tree = drafter.propose((5, 6, 7, 5, 6, 9), 2)
    assert session.readings[3:] == [[9], [9]] and tree.tokens == (9, 9, 9)
    assert session.tokens == [5, 6, 7, 5, 6, 9, 9]
    # All accepted: neither the last draft token nor the bonus was read before.
    tree = drafter.propose((5, 6, 7, 5, 6, 9, 9, 9, 5), 1)
    assert session.readings[5:] == [[9, 5]] and tree.tokens == (5, 6)


def test_text_left_unread_without_a_budget_is_read_later() -> None:
    model = CopyingModel()
    drafter = DraftModelDrafter(inputs((5, 6), draft_model=model))
    assert drafter.propose((5, 6), 0).tokens == (6,) and drafter.propose((5, 6, 7), -1).tokens == (7,)
    drafter.propose((5, 6, 7, 5), 1)
    assert model.sessions[0].readings == [[6, 7, 5]]


def test_the_cache_holds_the_context_and_the_draft_after_each_step() -> None:
    """After any verdict, the cache holds the context before the step and the draft without its last token."""
    rng = random.Random(2)
    for seed in range(20):
        prompt, model = random_prompt(rng), CopyingModel()
        drafter = DraftModelDrafter(inputs(prompt, draft_model=model))
        lane = function_lane(prompt, drafter, markov(seed, vocab=6, order=1), num_draft=rng.randint(1, 6))
        while not lane.end:
            context = list(lane.context)
            tree = lane.step().tree
            if tree.num_draft:
                assert model.sessions[0].tokens == [*context, *tree.tokens[1:-1]]


@pytest.mark.parametrize("num_draft", [1, 3, 8])
@pytest.mark.parametrize("sampled", [False, True])
def test_no_token_is_drafted_past_the_length_limit(num_draft: int, sampled: bool) -> None:
    """Every draft token costs a forward of the smaller model. One of the remaining tokens is the bonus token."""
    for limit in range(1, 14):
        model = CopyingModel()
        drafter = DraftModelDrafter(inputs(PROMPT, draft_model=model, params=SamplingParams(1.0)), sampled=sampled)
        lane = function_lane(PROMPT, drafter, markov(3, vocab=6), max_new_tokens=limit, num_draft=num_draft)
        readings = model.sessions[0].readings
        while not lane.end:
            remaining, num_readings = lane.remaining, len(readings)
            step = lane.step()
            assert len(readings) - num_readings == step.tree.num_draft == min(num_draft, remaining - 1)
        assert lane.tokens == continuation(PROMPT, markov(3, vocab=6), limit)


@pytest.mark.parametrize("size", [4, 5, 6, 9])
def test_a_draft_ends_where_the_models_context_is_full(size: int) -> None:
    """There is room to read the pending token and size - 4 draft tokens. The last draft token is not read."""
    model = CopyingModel(size)
    drafter = DraftModelDrafter(inputs((5, 6, 7, 5), draft_model=model))
    assert drafter.propose((5, 6, 7, 5), 8).num_draft == size - 3
    assert drafter.propose((5, 6, 7, *range(8, 8 + size)), 8).num_draft == 0


def test_the_session_gets_the_races_parameters_and_room() -> None:
    """A session reads one token in a forward, or two after a draft that was accepted whole."""
    calls: list[tuple[SamplingParams, int, Sequence[int]]] = []

    class RecordingModel:
        name, prefill_ms = "recording", 0.0

        def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> CopyingSession:
            calls.append((params, room, rows))
            return CopyingSession(PROMPT[:-1], 1 << 20)

    params = SamplingParams(temperature=0.5)
    DraftModelDrafter(DrafterInputs(PROMPT, vocab_size=VOCAB, params=params, draft_models=(RecordingModel(),), room=17))
    assert calls == [(params, 17, (1, 2))]


def test_a_missing_draft_model_is_an_error() -> None:
    with pytest.raises(InputError, match="--draft-model"):
        DraftModelDrafter(inputs((5,), draft_model=None))


def test_the_draft_models_time_is_on_the_lanes_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    # The wall clock: a sleep may end late, but never early.
    monkeypatch.setattr("specrace.core.clock.waited_ms", lambda: 0.0)

    class SlowSession(CopyingSession):
        def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
            time.sleep(0.004)
            return super().likeliest(tokens)

    class SlowModel:
        name, prefill_ms = "slow", 0.0

        def after(self, _: Sequence[int]) -> SlowModel:
            return self

        def session(self, *arguments: Any) -> CopyingSession:
            time.sleep(0.02)
            return SlowSession(PROMPT[:-1], 1 << 20)

    target = FunctionTarget(markov(3))
    spec = RaceSpec(("draft-model",), max_new_tokens=9, num_draft=3)
    target.drafting = SlowModel()  # type: ignore[assignment]
    lane = RaceSetup(target, PROMPT, target.prefill(PROMPT), spec).make_lane("draft-model")
    assert lane.at_ms >= 20
    while not lane.end:
        step = lane.step()
        assert step.timing.draft_ms >= 4 * step.tree.num_draft


def test_the_draft_models_prefill_is_reported_but_on_no_clock() -> None:
    """Like the target's, the prefill is measured in a second run. It is not part of the lane's time."""
    prompt_lengths: list[int] = []

    class SlowPrefillModel(CopyingModel):
        def after(self, prompt: Sequence[int]) -> PromptedCopyingModel:
            prompt_lengths.append(len(prompt))
            prompted = super().after(prompt)
            prompted.prefill_ms = 1e6 * len(prompt_lengths)
            return prompted

    target = FunctionTarget(markov(3))
    target.drafting = SlowPrefillModel()
    events = list(race(target, PROMPT, RaceSpec(("trie", "draft-model"), max_new_tokens=4)))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert [info.prefill_ms for info in started.lanes] == [0.0, 0.0, 2e6] and prompt_lengths == [len(PROMPT)] * 2
    assert started.lanes[2].build_ms < 1e6 and finished.lanes[2].decode_ms < 1e6
    lanes = report(started, finished)["lanes"]
    assert [lane["draft_prefill_ms"] for lane in lanes] == [0.0, 0.0, 2e6]


def test_scoring_the_draft_model_is_refused() -> None:
    assert "draft-model" not in scorable_lanes()
    with pytest.raises(InputError, match="second model"):
        ScoredLane.of("draft-model", {})


def test_draft_tokens_are_drawn_from_the_returned_distributions() -> None:
    """The returned q is the model's distribution at both draft tokens, and the first tokens have its frequencies."""
    model, params = CopyingModel(), SamplingParams(0.7)
    drafter = DraftModelDrafter(inputs(PROMPT, params=params, draft_model=model), sampled=True)
    first_tokens: list[int] = []
    for _ in range(600):
        tree = drafter.propose(PROMPT, 2)
        q = drafter.distributions()
        first, second = tree.tokens[1:]
        expected = [CopyingSession(text, 99).distribution([last]) for *text, last in (PROMPT, (*PROMPT, first))]
        assert q == pytest.approx(np.stack(expected))
        assert tree.probs == (1.0, q[0, first], q[1, second])
        first_tokens.append(first)
    frequencies = np.bincount(first_tokens, minlength=VOCAB) / len(first_tokens)
    # The total variation distance to be expected from this number of draws; the bound below leaves room for chance.
    expected_noise = np.sqrt(2 * q[0] / np.pi / len(first_tokens)).sum() / 2
    assert np.abs(frequencies - q[0]).sum() / 2 < 1.6 * expected_noise + 0.01
