"""Calibration of copies: by the expected token, by the token that came instead, and by earlier answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specrace.core.cost_curve import ASSUMED_CPU
from specrace.drafters import DrafterInputs
from specrace.drafters.fusion import FusionDrafter
from specrace.drafters.fusion_calibration import Calibration
from specrace.drafters.fusion_copies import EarlierAnswers
from specrace.lab.score import forced_steps
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END as OVER

STOP, CITE, ONE, CLOSE, END, START = 3, 4, 5, 6, 7, 12


def answers(num_requests: int) -> list[tuple[list[int], list[int]]]:
    """Prompts of three sentences that end in STOP; outputs: START, a copy of the second up to STOP, a citation."""
    requests = []
    for index in range(num_requests):
        words = iter(range(100 + 100 * index, 200 + 100 * index))
        sentences = [[next(words) for _ in range(12)] + [STOP] for _ in range(3)]
        prompt = [*sentences[0], *sentences[1], *sentences[2], 8, 9, 10, 11]
        requests.append((prompt, [START, *sentences[1][:-1], CITE, ONE, CLOSE, END]))
    return requests


def emitted(prompt: Sequence[int], output: Sequence[int], past: PastOutputs) -> list[tuple[int, ...]]:
    """The tokens of each of fusion's steps on an output."""
    drafter = FusionDrafter(DrafterInputs(tuple(prompt), 5000, curve=ASSUMED_CPU, past=past))
    return [step.emitted for step in forced_steps(drafter, prompt, output, 32)]


def test_a_token_at_which_copies_stop_is_no_longer_drafted_but_what_came_instead() -> None:
    past, steps_of_requests = PastOutputs(), list[list[tuple[int, ...]]]()
    for prompt, output in answers(6):
        steps_of_requests.append(emitted(prompt, output, past))
        past.add(output, prompt)
    first, last = steps_of_requests[0], steps_of_requests[-1]
    assert [(CITE in step, CLOSE in step) for step in first[-3:]] == [(False, False), (False, True), (False, False)]
    # The end of the copy and all that follows come in one step.
    assert last[-1][-4:] == (CITE, ONE, CLOSE, END) and len(last) <= 3 < len(first)


def test_estimates_are_revised_by_hits_and_misses_of_the_likeliest_token() -> None:
    calibration = Calibration(8)
    probs = {STOP: 0.8, 50: 0.1}
    assert calibration.revise(probs, 0.1, STOP) == 0.1 and probs == {STOP: 0.8, 50: 0.1}
    for _ in range(4):
        calibration.learn(5, STOP, 0.9, CITE)
    escape = calibration.revise(probs, 0.1, STOP)
    assert probs[STOP] < 0.4 and probs[CITE] > probs[50] == 0.1
    assert sum(probs.values()) + escape == pytest.approx(1.0)
    assert calibration.instead(STOP) == {CITE}
    for _ in range(40):
        calibration.learn(1, 50, 0.3, 50)
    probs = {50: 0.3, 51: 0.3}
    escape = calibration.revise(probs, 0.4, 50)
    assert 0.4 < probs[50] <= Calibration.MAX_PROB and sum(probs.values()) + escape == pytest.approx(1.0)


def test_what_came_instead_of_short_matches_is_not_kept() -> None:
    calibration = Calibration(8)
    calibration.learn(Calibration.COPY - 1, 50, 0.9, 51)
    assert not calibration.instead(50)
    probs = {50: 0.9}
    calibration.revise(probs, 0.1, 50)
    assert set(probs) == {50} and probs[50] < 0.9


def test_a_calibration_starts_from_the_earlier_one_and_leaves_it_as_it_was() -> None:
    earlier = Calibration(2)
    for _ in range(400):
        earlier.learn(2, 50, 0.5, 51)
    hits, expected = list(earlier.hits), list(earlier.expected)
    calibration = Calibration(2, earlier)
    assert (
        calibration.factor(2, 0.5) == pytest.approx(hits[2] / expected[2])
        and calibration.expected[2] == Calibration.MAX_EARLIER
    )
    assert calibration.factor(1, 0.5) == pytest.approx(0.9)
    # The request's own outcomes soon outweigh the earlier ones.
    for _ in range(20):
        calibration.learn(2, 52, 0.5, 52)
    assert calibration.factor(2, 0.5) > 0.9
    assert (earlier.hits, earlier.expected) == (hits, expected) and 52 not in earlier.tokens


def test_earlier_answers_are_what_a_drafter_sees_token_by_token() -> None:
    """Predictions in an answer come from its prompt and from earlier answers; without the prompt there are none."""
    (_, output), (second_prompt, second_output) = answers(2)
    earlier = EarlierAnswers(8)
    earlier.add((), output)
    assert not earlier.calibration.tokens and earlier.model.automaton.tokens[: len(output)] == output
    earlier.add(second_prompt, second_output)
    assert earlier.calibration.instead(STOP) == {CITE}
    outcomes = earlier.calibration.tokens[CLOSE]
    assert outcomes.hits == 1 and outcomes.expected > 0


def test_where_an_earlier_output_ended_is_no_prediction() -> None:
    """Outputs in a log end without an end token, so a text that goes on there did not miss a copy."""
    earlier, past = EarlierAnswers(8), PastOutputs()
    for number in range(8):
        earlier.add((20 + number,), (40 + number, 8, 9))
        past.add((40 + number, 8, 9), (20 + number,))
    earlier.add((3,), (4, 8, 9, 30))
    assert OVER not in earlier.calibration.tokens
    drafter = FusionDrafter(DrafterInputs((3,), 5000, curve=ASSUMED_CPU, past=past))
    list(forced_steps(drafter, (3,), (4, 8, 9, 30), 32))
    assert OVER not in drafter.calibration.tokens


def test_an_index_of_answers_gets_prompts_and_outputs_and_is_rebuilt_between_requests() -> None:
    class AnswerList:
        def __init__(self) -> None:
            self.pairs = list[tuple[tuple[int, ...], tuple[int, ...]]]()

        def add(self, prompt: Sequence[int], output: Sequence[int]) -> None:
            self.pairs.append((tuple(prompt), tuple(output)))

    past = PastOutputs(max_outputs=2)
    past.add([1], [10, 11])
    answer_list = past.answers(AnswerList)
    past.add([2], [12])
    assert answer_list.pairs == [((10, 11), (1,)), ((12,), (2,))] and past.answers(AnswerList) is answer_list
    assert past.excluding([12]).answers(AnswerList).pairs == [((10, 11), (1,))]
    past.add([3], [13])
    rebuilt = past._indexes.copy()
    assert past.answers(AnswerList).pairs == [((12,), (2,)), ((13,), (3,))] and past._indexes == rebuilt
