"""The summary and the verdict of comparisons whose result is known."""

from __future__ import annotations

import json

from specrace.lab.compare.samples import WARM_UP, Block, Question, Sample
from specrace.lab.compare.summary import Comparison, summarise
from specrace.lab.compare.verdict import notes, verdict
from tests.lab.compare.parts import sample

QUESTIONS = [Question(f"q{number}", "even" if number % 2 == 0 else "odd", (1, 2, 3)) for number in range(6)]
# The sizes of the steps of an answer of nine tokens: without drafts, and with two tokens in each step but the first.
PLAIN, PAIRS = [1] * 9, [1, 2, 2, 2, 2]


def side(server: str, concurrency: int, sizes: list[int], step_ms: float, repetition: int = 0) -> list[Sample]:
    """A server's answers to all questions, in steps of these sizes."""
    return [
        sample(server, number, sizes, step_ms=step_ms, concurrency=concurrency, repetition=repetition)
        for number in range(len(QUESTIONS))
    ]


def compared(
    *sides: list[Sample], repetitions: int = 1, failed: dict[tuple[Block, int], str] | None = None
) -> Comparison:
    """The comparison of the servers `plain` and `spec` by these answers."""
    samples = [answer for answers in sides for answer in answers]
    concurrencies = list(dict.fromkeys(answer.block.concurrency for answer in samples))
    return Comparison(
        ["plain", "spec"], concurrencies, repetitions, QUESTIONS, samples, failed or {}, {"plain": {"model": "m"}}
    )


def test_the_verdict_says_where_drafts_pay_and_where_they_cost() -> None:
    comparison = compared(
        side("plain", 1, PLAIN, 10.0),
        side("spec", 1, PAIRS, 10.0),
        side("plain", 4, PLAIN, 10.0),
        side("spec", 4, PAIRS, 30.0),
    )
    text = verdict(summarise(comparison, None, seed=0))
    assert text.startswith("spec pays at 1 request at a time, is slower at 4 requests at a time.")
    assert "measured 2.00x (2.00 to 2.00) at 1; measured 0.67x (0.67 to 0.67) at 4." in text
    assert "1.800 measured at 1; 1.800 measured at 4." in text and text.endswith("Texts equal: 12 of 12.")


def test_a_server_that_is_never_faster_does_not_pay() -> None:
    comparison = compared(side("plain", 1, PLAIN, 10.0), side("spec", 1, PAIRS, 30.0))
    assert verdict(summarise(comparison, None, seed=0)).startswith(
        "spec does not pay: it is slower than plain at 1 request"
    )


def test_a_difference_within_the_interval_is_not_certain() -> None:
    disturbed = [answer for turn, ms in enumerate((5.0, 20.0)) for answer in side("spec", 1, PLAIN, ms, turn)]
    steady = [answer for turn in range(2) for answer in side("plain", 1, PLAIN, 10.0, turn)]
    text = verdict(summarise(compared(steady, disturbed, repetitions=2), None, seed=0))
    assert text.startswith("spec is not certainly faster or slower at 1 request at a time.")


def test_there_is_no_verdict_on_a_server_that_found_its_earlier_answers() -> None:
    plain_answers = [answer for turn in range(2) for answer in side("plain", 1, PLAIN, 10.0, turn)]
    spec_answers = [*side("spec", 1, PLAIN, 10.0), *side("spec", 1, PAIRS, 10.0, 1)]
    comparison = compared(plain_answers, spec_answers, repetitions=2)
    summary = summarise(comparison, None, seed=0)
    assert summary["memory"] == {"spec": 9 / 5}
    assert verdict(summary).startswith("No verdict on spec: it drafts from earlier answers")
    restarted = Comparison(**{**vars(comparison), "restarted": frozenset({"spec"})})
    assert not verdict(summarise(restarted, None, seed=0)).startswith("No verdict")


def test_warm_ups_do_not_count_and_categories_have_rows() -> None:
    warm_up = sample("spec", WARM_UP, [1, 5], step_ms=1e6)
    comparison = compared(side("plain", 1, PLAIN, 10.0), [warm_up, *side("spec", 1, PAIRS, 10.0)])
    summary = summarise(comparison, None, seed=0)
    assert [row["requests"] for row in summary["rows"]] == [6, 6]
    assert [(row["server"], row["category"], row["requests"]) for row in summary["categories"]] == [
        ("plain", "even", 3), ("plain", "odd", 3), ("spec", "even", 3), ("spec", "odd", 3),
    ]  # fmt: skip
    json.dumps(summary)


def test_other_texts_failures_and_interruptions_are_mentioned() -> None:
    spec = side("spec", 1, PAIRS, 10.0)
    spec[2] = sample("spec", 2, PAIRS, output=[0, 1, 9, 3, 4, 5, 6, 7, 8], session=1)
    comparison = compared(
        side("plain", 1, PLAIN, 10.0), spec, failed={(Block("spec", 1, 0), 5): "The server spec hung up."}
    )
    summary = summarise(comparison, None, seed=0)
    assert "Texts equal: 5 of 6; the first other text: question q2, token 2." in verdict(summary)
    words = " ".join(notes(summary))
    assert "One block was interrupted" in words and "Failed, and not counted: The server spec hung up." in words
    assert [row["failed"] for row in summary["rows"]] == [0, 1]


def test_before_anything_is_measured_there_is_no_row_and_no_verdict() -> None:
    summary = summarise(Comparison(["plain", "spec"], [1], 1, QUESTIONS, [], {}, {}), None, seed=0)
    assert summary["rows"] == [] and verdict(summary) == ""
