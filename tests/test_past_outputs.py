"""A workbench that keeps its answers: drafters copy from them, and texts stay vanilla's. By default it keeps none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specrace.cli import app
from specrace.core.events import Finished, LaneResult, Repeated, Started, Step
from specrace.engine.generate import generate
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.ngrams.past import MAX_INDEXES, PastOutputs
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import END
from specrace.retrieval.documents import Document
from specrace.ui.loading import loader
from specrace.workbench import Workbench
from tests.models import tiny_target

# With `warm`, recycling's table starts from the bigrams of the prompt and of past outputs, else it starts empty.
SPEC = RaceSpec(("suffix", "recycling"), max_new_tokens=12, num_draft=8, options={"recycling": {"warm": True}})
QUESTION, OTHER_QUESTION = "Why does bread rise?", "What causes the tides?"


def ask(workbench: Workbench, question: str = QUESTION) -> tuple[int, list[LaneResult], list[int]]:
    """Race once, with one passage; return how many past outputs the race had, its results, and vanilla's tokens."""
    started, *steps, finished = workbench.ask(RaceRequest(question, SPEC, passages=1))
    assert isinstance(started, Started) and isinstance(finished, Finished)
    tokens = [token for step in steps if isinstance(step, Step) and step.lane == "vanilla" for token in step.emitted]
    return started.about["past_outputs"], list(finished.lanes), tokens


def with_kept_outputs(bundled: Workbench) -> Workbench:
    """The bundled workbench as `Workbench.open(keep_outputs=True)` makes it."""
    return replace(bundled, keep_outputs=True, outputs=PastOutputs())


def test_answers_are_kept_and_drafted_from(bundled: Workbench) -> None:
    workbench = with_kept_outputs(bundled)
    num_past, _, answer = ask(workbench)
    assert num_past == 0 and list(workbench.outputs) == [tuple(answer)]
    # The opening of an answer is in no document, but can be drafted from earlier answers.
    num_past, without_past, _ = ask(bundled, OTHER_QUESTION)
    assert num_past == 0 and not bundled.outputs, "by default no answer is kept"
    num_past, with_past, _ = ask(workbench, OTHER_QUESTION)
    assert num_past == 1 and len(workbench.outputs) == 2
    # Lane 1 is suffix, lane 2 recycling.
    assert with_past[1].steps < without_past[1].steps and with_past[2].steps <= without_past[2].steps
    assert all(lane.identical for lane in (*without_past, *with_past))
    visitor = workbench.with_documents([Document("own.md", "Own", "Robins sing at dawn.")], workbench.retriever.index)
    assert visitor.keep_outputs and not visitor.outputs, "a visitor's own documents share no past"


def test_an_answer_is_kept_once_and_after_the_repeated_runs(bundled: Workbench) -> None:
    """A caller may abandon the repeated runs, and the answer is kept; if it abandons the race, no answer is kept."""
    workbench, num_kept = with_kept_outputs(bundled), list[int]()
    spec = RaceSpec(("suffix",), max_new_tokens=4, num_draft=4)

    # Called after each repetition; whether there is to be another.
    def again(_: Repeated) -> bool:
        num_kept.append(len(workbench.outputs))
        return len(num_kept) < 2

    *_, last = workbench.ask(RaceRequest(QUESTION, spec, 1), again=again)
    assert isinstance(last, Repeated) and num_kept == [0, 0] and len(workbench.outputs) == 1
    # This caller leaves after the first repetition, and the next one in mid-race.
    events = workbench.ask(RaceRequest(OTHER_QUESTION, spec, 1), again=lambda _: True)
    while not isinstance(next(events), Repeated):
        pass
    events.close()  # type: ignore[attr-defined]
    assert len(workbench.outputs) == 2
    events = workbench.ask(RaceRequest("Who built the first clock?", spec, 1))
    assert isinstance(next(events), Started) and isinstance(next(events), Step)
    events.close()  # type: ignore[attr-defined]
    assert len(workbench.outputs) == 2


def test_no_answer_is_drafted_from_an_answer_to_the_same_question(bundled: Workbench) -> None:
    """The same question may come with more passages or in capitals, which makes another prompt."""
    workbench = with_kept_outputs(bundled)
    first, second = ask(workbench), ask(workbench)
    assert (first[0], second[0]) == (0, 0) and second[2] == first[2] and len(workbench.outputs) == 2
    assert [lane.steps for lane in second[1]] == [lane.steps for lane in first[1]]
    started, *_ = workbench.ask(RaceRequest(f"  {QUESTION.upper()} ", SPEC, passages=2))
    assert isinstance(started, Started) and started.about["past_outputs"] == 0
    # Another question drafts from all three answers, and then the first question from the other one's.
    assert ask(workbench, OTHER_QUESTION)[0] == 3
    started = next(iter(workbench.ask(RaceRequest(QUESTION, SPEC, 1))))
    assert isinstance(started, Started) and started.about["past_outputs"] == 1


def test_an_index_of_all_answers_also_serves_a_repeated_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first lane that needs an automaton would spend time on it whenever a question is repeated."""
    past = PastOutputs()
    for number in range(3):
        past.add(output=[7, 8, 9 + number], prompt=[1, number], question=f"Why {number}?")
    # An automaton of substrings of up to 5 tokens.
    past.automaton(5)
    # Excluded are the output of this prompt (number 1) and that of this question (number 2).
    remaining = past.excluding([1, 1], "WHY  2?")
    # From now on a new automaton cannot be built.
    monkeypatch.setattr("specrace.ngrams.past.SuffixAutomaton.extend", None)
    # An output is indexed after the end of its prompt, and before an END.
    assert list(remaining) == [(7, 8, 9)] and remaining.automaton(5).tokens == [1, 0, 7, 8, 9, END]
    assert past.excluding([4], "Who?") is past and len(past) == 3


@pytest.mark.parametrize("method", ["suffix", "recycling"])
def test_generate_drafts_from_past_outputs(method: str) -> None:
    target, prompt = tiny_target("llama"), (2, 3, 4, 5)
    options = {"warm": True} if method == "recycling" else {}

    def decode(past: list[list[int]]) -> tuple[list[int], int]:
        steps = list(
            generate(target, method, prompt, max_new_tokens=24, sources=Sources(past=past), num_draft=8, **options)
        )
        return [token for step in steps for token in step.emitted], len(steps)

    text, num_steps = decode([])
    text_after_itself, num_steps_after_itself = decode([[*prompt, *text]])
    text_after_others, _ = decode([[7, 7, 7], [], list(range(2, 30))])
    assert text == text_after_itself == text_after_others and num_steps_after_itself < num_steps


def test_the_flag_keep_outputs_makes_the_page_keep_answers(bundled: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"load_choice": bundled.target, "load_embedder": bundled.embedder, "open_index": bundled.retriever.index}
    for name, part in parts.items():
        monkeypatch.setattr(f"specrace.workbench.{name}", lambda *_, part=part, **__: part)
    assert not app.parse([]).keep_outputs
    config = app.read_config(app.parse(["--keep-outputs", "--model", "tiny"]))
    assert config.model.draft is None and loader(config)(str).keep_outputs


def test_the_indexes_used_longest_ago_are_dropped() -> None:
    past = PastOutputs([(1, 2, 3)])
    first = past.automaton(1)
    for n in range(2, MAX_INDEXES + 1):
        past.automaton(n)
    assert past.automaton(1) is first
    past.automaton(MAX_INDEXES + 1)
    assert past.automaton(1) is first and len(past._indexes) == MAX_INDEXES
