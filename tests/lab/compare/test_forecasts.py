"""A forecast for a server's answers equals the counts of a server that drafts as the lane does, with the same past."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.events import Step
from specrace.lab.compare.figures import drafts
from specrace.lab.compare.forecasts import Forecaster
from specrace.lab.compare.samples import Block, Question, Sample, plan_blocks
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.ngrams.past import PastOutputs
from tests.lab.compare.parts import sample

NGRAM = ScoredLane.of("vllm-ngram", {"prompt_lookup_min": 1, "prompt_lookup_max": 2}, 4)
SUFFIX = ScoredLane.of("vllm-suffix", {}, 8)
CURVE = CostCurve((1, 8, 64), (1.0, 1.2, 3.0))
VOCAB = 50


def question(number: int) -> Question:
    """A question whose prompt has the same eight tokens twice."""
    draw = random.Random(number)
    period = [draw.randrange(6) for _ in range(8)]
    return Question(str(number), "a" if number % 2 else "b", (*period, *period))


def answer(number: int) -> tuple[int, ...]:
    """The prompt's period with a change, so that copies of the prompt are often right."""
    draw = random.Random(-number)
    period = question(number).prompt[:8]
    return (*period, draw.randrange(6), *period, *draw.choices(range(6), k=5))


def served(lane: ScoredLane, number: int, past: PastOutputs, start_ms: float = 0.0, repetition: int = 0) -> Sample:
    """The answer of a server that drafts as the lane does, with the same earlier answers."""
    steps = list[Step]()
    text = Transcript(str(number), "none", question(number).prompt, answer(number), VOCAB)
    score_output(lane, text, past=past, watch=steps.append)
    sizes = [len(step.emitted) for step in steps]
    answered = sample("spec", number, sizes, output=answer(number), start_ms=start_ms, repetition=repetition)
    drafted_steps = [step for step in steps if step.tree.num_draft]
    counts = {
        "engine": "vLLM 0.32.0",
        "per_step_accepted": [step.accepted for step in drafted_steps],
        "per_step_drafted": [step.tree.num_draft for step in drafted_steps],
        "step_sizes": sizes,
    }
    return replace(answered, counts=counts)


def forecaster(lane: ScoredLane, samples: list[Sample], *, restarted: bool = False, repetitions: int = 1) -> Forecaster:
    """Forecasts the server "spec" as `lane`; `restarted`: it was started anew for each block of requests."""
    order = list(plan_blocks(["plain", "spec"], [1], repetitions))
    questions = [question(number) for number in range(20)]
    return Forecaster("spec", lane, CURVE, questions, samples, order, vocab_size=VOCAB, restarted=restarted)


def test_the_forecast_is_what_a_server_counts_that_drafts_as_the_lane_does() -> None:
    samples = [served(NGRAM, number, PastOutputs()) for number in range(20)]
    forecast, measured = forecaster(NGRAM, samples).forecast(samples, 1, seed=0), drafts(samples)
    assert measured["tau"] > 1.3, "the answers must have drafts"
    assert forecast["tau"] == measured["tau"] and forecast["rates"] == measured["rates"]
    assert (forecast["drafted"], forecast["accepted"]) == (measured["drafted"], measured["accepted"])
    assert forecast["tau_low"] < forecast["tau"] < forecast["tau_high"]


def test_more_requests_at_a_time_cost_more_rows_and_bring_less() -> None:
    samples = [served(NGRAM, number, PastOutputs()) for number in range(20)]
    one, many = (forecaster(NGRAM, samples).forecast(samples, count, seed=0) for count in (1, 16))
    assert one["tau"] == many["tau"] and one["speedup"] > many["speedup"]
    assert one["low"] < one["speedup"] < one["high"]


def test_a_forecast_drafts_from_the_answers_that_were_finished_before() -> None:
    past, samples = PastOutputs(max_outputs=100), list[Sample]()
    for turn, number in enumerate([0, 1, 0, 2, 0]):
        answered = served(SUFFIX, number, past, start_ms=1000.0 * turn)
        samples.append(replace(answered, number=number, block=Block("spec", 1, turn)))
        past.add(answer(number))
    counted = drafts(samples)
    assert forecaster(SUFFIX, samples, repetitions=5).forecast(samples, 1, seed=0)["tau"] == counted["tau"]
    # A server that was started anew for each block had no earlier answers.
    after_restarts = forecaster(SUFFIX, samples, restarted=True, repetitions=5).forecast(samples, 1, seed=0)
    assert after_restarts["tau"] < counted["tau"]


def tau_beside_another(start_ms: float) -> float:
    """The forecast tokens per step of an answer beside an equal one to the same question, begun `start_ms` earlier."""
    first = served(SUFFIX, 0, PastOutputs())
    second = replace(first, number=1, start_ms=first.start_ms + start_ms, end_ms=first.end_ms + start_ms)
    forecaster_of_two = Forecaster(
        "spec",
        SUFFIX,
        CURVE,
        [question(0), question(0)],
        [first, second],
        list(plan_blocks(["spec"], [1], 1)),
        vocab_size=VOCAB,
        restarted=False,
    )
    return float(forecaster_of_two.forecast([second], 1, seed=0)["tau"])


def test_of_an_unfinished_answer_only_what_it_had_printed_by_the_middle_of_the_other_is_known() -> None:
    first = served(SUFFIX, 0, PastOutputs())
    alone = drafts([first])["tau"]
    length = first.times_ms[-1] - first.times_ms[0]
    # An answer that begins a whole length later has printed nothing by the middle of the forecast one.
    assert tau_beside_another(-1.01 * length) == alone
    finished = tau_beside_another(first.end_ms)
    assert finished > alone
    assert tau_beside_another(0.51 * length) == finished, (
        "an answer that was whole by the middle must be known as a whole"
    )
    assert alone <= tau_beside_another(0.0) <= finished


def test_too_many_growing_answers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    length = served(SUFFIX, 0, PastOutputs()).decode_ms
    tau_with_growing_answers = tau_beside_another(0.51 * length)
    monkeypatch.setattr("specrace.lab.compare.forecasts.MAX_REBUILT", 0)
    assert tau_beside_another(0.51 * length) < tau_with_growing_answers
