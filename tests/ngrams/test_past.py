"""Past outputs: the latest are kept, each with the end of its prompt, and their indexes are shared."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.past import MAX_INDEXES, PROMPT_TAIL, PastOutputs
from specrace.ngrams.suffix_index import END


def test_the_latest_outputs_are_kept_the_oldest_first() -> None:
    past = PastOutputs(max_outputs=4)
    for output in range(4):
        past.add([output])
    assert list(past) == [(0,), (1,), (2,), (3,)] and len(past) == 4
    # A full list drops its older half.
    past.add([4])
    assert list(past) == [(2,), (3,), (4,)] and len(past) == 3


def test_the_older_half_can_be_dropped() -> None:
    past = PastOutputs([[1], [2, 2], [3], [4], [5]])
    past.add([6], prompt=[7, 7, 7])
    assert past.num_tokens == 10
    past.drop_older_half()
    assert list(past) == [(3,), (4,), (5,), (6,)] and past.num_tokens == 7
    for remaining in ([(4,), (5,), (6,)], [(5,), (6,)], [(6,)], []):
        past.drop_older_half()
        assert list(past) == remaining


def test_64_outputs_are_kept_by_default() -> None:
    assert len(PastOutputs([[1]] * 64)) == 64 and len(PastOutputs([[1]] * 65)) == 33


def test_an_automaton_reads_the_end_of_the_prompt_before_each_output() -> None:
    past = PastOutputs([[5, 6]])
    automaton = past.automaton(3)
    assert (automaton.n, automaton.tokens) == (3, [5, 6, END])
    past.add([7], prompt=range(10, 20))
    assert automaton.tokens == [5, 6, END, *range(20 - PROMPT_TAIL, 20), 7, END]
    assert past.automaton(3) is automaton
    assert past.automaton(4).tokens == automaton.tokens


def test_dropped_outputs_are_in_no_automaton() -> None:
    past = PastOutputs([[1], [2]], max_outputs=2)
    before = past.automaton(3)
    past.add([3])
    assert past.automaton(3) is not before
    assert past.automaton(3).tokens == [2, END, 3, END]
    past.add([4], prompt=[8])
    assert past.automaton(3).tokens == [3, END, 8, 4, END]


def test_plain_outputs_are_wrapped_once() -> None:
    past = PastOutputs.of([[1, 2]])
    assert list(past) == [(1, 2)] and PastOutputs.of(past) is past


def test_outputs_of_the_same_prompt_are_excluded() -> None:
    past = PastOutputs(max_outputs=3)
    past.add([1], prompt=[7, 8])
    past.add([2], prompt=[9])
    past.add([3])
    remaining = past.excluding([7, 8])
    assert list(remaining) == [(2,), (3,)] and remaining.max_outputs == 3
    assert remaining.automaton(2).tokens == [9, 2, END, 3, END]
    assert past.excluding([8]) is past
    assert list(past.excluding([])) == [(1,), (2,)]


def test_outputs_of_the_same_question_are_excluded_whatever_its_case_and_spaces() -> None:
    past = PastOutputs()
    past.add([1], prompt=[7], question="Who is\nit?")
    past.add([2], prompt=[8], question="Who else is it?")
    past.add([3], prompt=[9])
    assert list(past.excluding([0], question="  who IS it? ")) == [(2,), (3,)]
    assert list(past.excluding([8], question="Who is it?")) == [(3,)]
    assert past.excluding([0], question="Whois it?") is past and past.excluding([0]) is past


def test_a_copy_shares_built_indexes_but_not_later_changes() -> None:
    past = PastOutputs([[1], [2]], max_outputs=3)
    automaton = past.automaton(3)
    copied = past.copy()
    assert copied.max_outputs == 3 and copied.automaton(3) is automaton
    copied.add([3])
    assert (list(copied), list(past)) == ([(1,), (2,), (3,)], [(1,), (2,)])
    assert copied.automaton(4) is not past.automaton(4)


class RecordingIndex:
    """Keeps a list of the prompts and outputs that it was given."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.added: list[tuple[Sequence[int], Sequence[int]]] = []

    def add(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.added.append((prompt, output))


def test_an_index_of_answers_gets_prompt_and_output_separately() -> None:
    past = PastOutputs([[1]])
    answers = past.answers(RecordingIndex, "mine")
    past.add([2], prompt=range(6))
    past.add([3], prompt=[9])
    assert answers.name == "mine" and past.answers(RecordingIndex, "mine") is answers
    assert answers.added == [((), (1,)), (tuple(range(6)), (2,)), ((9,), (3,))]


def test_the_most_recently_used_indexes_are_kept() -> None:
    past = PastOutputs([[1]])
    automata = [past.automaton(n) for n in range(1, MAX_INDEXES + 1)]
    assert past.automaton(1) is automata[0]
    past.automaton(MAX_INDEXES + 1)
    assert past.automaton(1) is automata[0] and past.automaton(3) is automata[2]
    assert past.automaton(2) is not automata[1]


def test_indexes_of_another_class_or_prompt_tail_are_separate() -> None:
    class OtherAutomaton(SuffixAutomaton):
        pass

    past = PastOutputs()
    past.add([5], prompt=range(10))
    long_tail, no_tail = (
        past.index(OtherAutomaton, 3, prompt_tail=99),
        past.index(SuffixAutomaton, 3, prompt_tail=0),
    )
    assert (type(long_tail), long_tail.tokens) == (
        OtherAutomaton,
        [*range(10), 5, END],
    ) and no_tail.tokens == [5, END]
    past.add([6], prompt=[7])
    assert long_tail.tokens[-3:] == [7, 6, END] and no_tail.tokens == [5, END, 6, END]
    assert past.excluding([7]).index(OtherAutomaton, 3, prompt_tail=99).tokens == [*range(10), 5, END]


def test_a_meter_counts_the_time_of_the_indexes_that_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to build an index is in `built_ms` too, but only of the first meter that used the index."""
    clock = SimpleNamespace(ms=0.0)
    monkeypatch.setattr("specrace.ngrams.past.thread_ms", lambda: clock.ms)
    monkeypatch.setattr("specrace.ngrams.past.since_ms", lambda began: clock.ms - began)

    class SlowIndex:
        """An index that takes `ms_per_token` for each token on the test's clock."""

        def __init__(self, ms_per_token: float) -> None:
            self.ms_per_token = ms_per_token

        def extend(self, tokens: Sequence[int]) -> None:
            clock.ms += self.ms_per_token * len(tokens)

    past = PastOutputs([[1, 2], [3]], max_outputs=7)  # five tokens with their ENDs
    first = past.metered()
    first.index(SlowIndex, 1.0)
    first.index(SlowIndex, 10.0)
    assert list(first.meter.used_ms.values()) == [5.0, 50.0] and first.meter.built_ms == 55.0
    past.add([4])
    past.add([5])
    second = past.metered()
    second.index(SlowIndex, 10.0)
    # The two new outputs add four tokens, with their ENDs, at 10 ms each.
    assert list(second.meter.used_ms.values()) == [90.0] and second.meter.built_ms == 0.0
    assert second.max_outputs == 7 and second.latest(1).meter is second.meter


def test_latest_returns_that_many_outputs_or_all() -> None:
    past = PastOutputs([[1], [2], [3]])
    assert list(past.latest(2)) == [(2,), (3,)] and list(past.latest(0)) == [] and past.latest(3) is past
    assert PastOutputs([[1], [2]], max_outputs=7).latest(1).max_outputs == 7
