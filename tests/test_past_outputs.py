"""A sitting that keeps its answers: drafters may learn from them, the text stays vanilla's, by default none stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specrace.cli import app
from specrace.core.events import Finished, LaneResult, Repeated, Started, Step
from specrace.engine.generate import generate
from specrace.engine.spec import RaceSpec
from specrace.ngrams.past import MAX_INDEXES, PastOutputs
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import END
from specrace.retrieval.documents import Document
from specrace.ui.serve import loader
from specrace.workbench import Workbench
from tests.models import tiny_target

SPEC = RaceSpec(("suffix", "recycling"), max_new_tokens=40, num_draft=8, options={"recycling": {"warm": True}})
QUESTION, OTHER = "Why does bread rise?", "What causes the tides?"


def asked(workbench: Workbench, question: str = QUESTION) -> tuple[int, list[LaneResult], list[int]]:
    """How many past outputs the race had, its results, and vanilla's tokens."""
    started, *steps, finished = workbench.ask(question, SPEC, top=1)
    assert isinstance(started, Started) and isinstance(finished, Finished)
    said = [token for step in steps if isinstance(step, Step) and step.lane == "vanilla" for token in step.emitted]
    return started.about["past_outputs"], list(finished.lanes), said


def keeping(bundled: Workbench) -> Workbench:
    """The bundled workbench as `Workbench.open(keep_outputs=True)` makes it."""
    return replace(bundled, keep_outputs=True, outputs=PastOutputs())


def test_answers_are_kept_and_drafted_from(bundled: Workbench) -> None:
    workbench, fresh = keeping(bundled), bundled
    number, _, said = asked(workbench)
    assert number == 0 and list(workbench.outputs) == [tuple(said)]
    # The opening of an answer, which no document holds, can be drafted from the answers before.
    (_, alone, _), (number, after, _) = asked(fresh, OTHER), asked(workbench, OTHER)
    assert number == 1 and len(workbench.outputs) == 2
    assert after[1].steps < alone[1].steps and after[2].steps <= alone[2].steps
    assert all(lane.identical for lane in (*alone, *after))
    other = workbench.on([Document("own.md", "Own", "Robins sing at dawn.")], workbench.retriever.index)
    assert other.keep_outputs and not other.outputs, "a visitor's own documents share no past"


def test_an_answer_is_kept_once_and_after_the_repeated_runs(bundled: Workbench) -> None:
    """Also where the caller gives them up; where it gives up the race itself there is no answer to keep."""
    workbench, seen = keeping(bundled), list[int]()

    def again(_: Repeated) -> bool:
        seen.append(len(workbench.outputs))
        return len(seen) < 3

    *_, last = workbench.ask(QUESTION, SPEC, top=1, again=again)
    assert isinstance(last, Repeated) and seen == [0, 0, 0] and len(workbench.outputs) == 1
    events = workbench.ask(OTHER, SPEC, top=1, again=lambda _: True)
    while not isinstance(next(events), Repeated):
        pass
    events.close()  # type: ignore[attr-defined]
    assert len(workbench.outputs) == 2
    events = workbench.ask("Who built the first clock?", SPEC, top=1)
    assert isinstance(next(events), Started) and isinstance(next(events), Step)
    events.close()  # type: ignore[attr-defined]
    assert len(workbench.outputs) == 2


def test_no_answer_is_drafted_from_an_answer_to_the_same_question(bundled: Workbench) -> None:
    """Nor where the same question comes with more passages, or in other letters, so that its prompt is another."""
    workbench = keeping(bundled)
    first, second = asked(workbench), asked(workbench)
    assert (first[0], second[0]) == (0, 0) and second[2] == first[2] and len(workbench.outputs) == 2
    assert [lane.steps for lane in second[1]] == [lane.steps for lane in first[1]]
    started, *_ = workbench.ask(f"  {QUESTION.upper()} ", SPEC, top=2)
    assert isinstance(started, Started) and started.about["past_outputs"] == 0
    assert asked(workbench, OTHER)[0] == 3 and asked(workbench)[0] == 1


def test_what_was_asked_of_all_answers_is_ready_for_those_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first lane that asks would pay for it, and only where a question comes again."""
    past = PastOutputs()
    for number in range(3):
        past.add([7, 8, 9 + number], [1, number], f"Why {number}?")
    past.automaton(5)
    others = past.excluding([1, 1], "WHY  2?")
    monkeypatch.setattr("specrace.ngrams.past.SuffixAutomaton.extend", None)
    assert list(others) == [(7, 8, 9)] and others.automaton(5).tokens == [1, 0, 7, 8, 9, END]
    assert past.excluding([4], "Who?") is past and len(past) == 3


def test_by_default_nothing_is_kept(bundled: Workbench) -> None:
    assert [asked(bundled)[0], asked(bundled)[0], len(bundled.outputs)] == [0, 0, 0]


@pytest.mark.parametrize("method", ["suffix", "recycling"])
def test_generate_takes_past_outputs(method: str) -> None:
    target, prompt = tiny_target("llama"), (2, 3, 4, 5)
    options = {"warm": True} if method == "recycling" else {}

    def decode(past: list[list[int]]) -> tuple[list[int], int]:
        steps = list(
            generate(target, method, prompt, max_new_tokens=24, sources=Sources(past=past), num_draft=8, **options)
        )
        return [token for step in steps for token in step.emitted], len(steps)

    text, cold = decode([])
    same, warm = decode([[*prompt, *text]])
    other, _ = decode([[7, 7, 7], [], list(range(2, 30))])
    assert text == same == other and warm < cold


def test_the_page_keeps_them_if_it_is_told_to() -> None:
    assert not app.parse([]).keep_outputs
    options = app.parse(["--keep-outputs", "--model", "tiny"])
    app.check(options)
    assert options.draft_model is None and loader(options)(str).keep_outputs


def test_indexes_for_settings_of_long_ago_are_dropped() -> None:
    past = PastOutputs([(1, 2, 3)])
    first = past.automaton(1)
    for n in range(2, MAX_INDEXES + 1):
        past.automaton(n)
    assert past.automaton(1) is first
    past.automaton(MAX_INDEXES + 1)
    assert past.automaton(1) is first and len(past._indexes) == MAX_INDEXES
