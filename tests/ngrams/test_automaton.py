"""The suffix automaton: against lists, whatever the text and however it came to be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.automaton import NOTHING, NOWHERE, ROOT, Run, SuffixAutomaton

TOKENS = st.lists(st.integers(-1, 2), max_size=30)


def state_of(known: SuffixAutomaton, run: Sequence[int]) -> int:
    state = ROOT
    for token in run:
        state = known.after(state, token)
    return state


def ends_of(text: Sequence[int], run: Sequence[int]) -> list[int]:
    """Where the run's last token stands."""
    size = len(run)
    return [at + size - 1 for at in range(len(text) - size + 1) if list(text[at : at + size]) == list(run)]


def runs(text: Sequence[int], longest: int) -> set[tuple[int, ...]]:
    return {tuple(text[at : at + size]) for size in range(1, longest + 1) for at in range(len(text) - size + 1)}


def longest_end(text: Sequence[int], context: Sequence[int], most: int) -> Sequence[int]:
    """The longest end of the context, of at most so many tokens, that the text has before its own end."""
    for size in range(min(most, len(context)), 0, -1):
        run = context[-size:]
        if ends_of(text[:-1], run):
            return run
    return []


def built(text: Sequence[int], n: int, split: int) -> SuffixAutomaton:
    known = SuffixAutomaton(n, text[:split])
    known.extend(text[split:])
    return known


@given(text=TOKENS, n=st.integers(1, 6), split=st.integers(0, 30))
def test_every_run_is_counted_and_found_where_it_stands_first(text: list[int], n: int, split: int) -> None:
    known = built(text, n, split)
    assert known.tokens == text and len(known.lengths) <= max(1, 2 * len(text))
    for run in runs(text, n):
        state, ends = state_of(known, run), ends_of(text, run)
        assert (known.counts[state], known.firsts[state]) == (len(ends), ends[0])
        assert known.lengths[known.links[state]] < len(run) <= known.lengths[state]
        following = [text[end + 1] for end in ends if end + 1 < len(text)]
        assert [token for token, _ in known.successors(state)] == list(dict.fromkeys(following))


@given(text=TOKENS, split=st.integers(0, 30))
def test_runs_that_end_at_the_same_places_are_one_state(text: list[int], split: int) -> None:
    known = built(text, 3, split)
    states: dict[int, set[tuple[int, ...]]] = {}
    for run in runs(text, len(text)):
        states.setdefault(state_of(known, run), set()).add(tuple(ends_of(text, run)))
    assert all(len(places) == 1 for places in states.values())
    assert len(states) == len({next(iter(places)) for places in states.values()}) == len(known.lengths) - 1


@given(text=TOKENS, other=TOKENS, n=st.integers(1, 6), split=st.integers(0, 30))
def test_the_longest_end_that_goes_on_is_followed(text: list[int], other: list[int], n: int, split: int) -> None:
    """Of the text's own end, and along any tokens from there or from nowhere."""
    known = built(text, n, split)
    own = longest_end(text, text, n - 1)
    assert known.end() == (state_of(known, own), len(own))
    for run, context in ((known.end(), list(text)), (NOWHERE, [])):
        for token in other:
            run, context = known.follow(run, token), [*context, token]
            expected = longest_end(text, context, n - 1)
            assert run == (state_of(known, expected), len(expected))


@given(text=TOKENS, run=TOKENS, token=st.integers(-1, 3))
def test_a_token_has_its_place_after_the_longest_end_that_it_follows(
    text: list[int], run: list[int], token: int
) -> None:
    known = SuffixAutomaton(4, text)
    context = NOWHERE
    for each in run:
        context = known.follow(context, each)
    ends = [run[-size:] for size in range(context[1], 0, -1)]
    places = [next(iter(ends_of(text, [*end, token])), None) for end in ends]
    assert known.trace(context, token)[1] == next((place for place in places if place is not None), -1)


@given(text=TOKENS, n=st.integers(2, 6), length=st.integers(0, 6))
def test_a_run_is_shortened_to_its_end(text: list[int], n: int, length: int) -> None:
    known = SuffixAutomaton(n, text)
    for run in runs(text, n):
        shorter: Run = known.shortened((state_of(known, run), len(run)), length)
        end = run[len(run) - min(length, len(run)) :]
        assert shorter == (state_of(known, end), len(end))


def test_nothing_follows_in_an_empty_text() -> None:
    known = SuffixAutomaton(4)
    assert known.end() == NOWHERE == known.follow(NOWHERE, 7)
    assert known.successors(ROOT) == [] and known.after(ROOT, 7) == NOTHING
    assert (known.lengths, known.links, known.nexts, known.counts, known.firsts) == ([0], [-1], [NOTHING], [0], [-1])


@pytest.mark.parametrize("n", [2, 9, 64])
def test_a_loop_costs_no_more_than_other_texts(n: int) -> None:
    """The ends of a loop are as many as its tokens; only the last few are counted."""
    known = SuffixAutomaton(n, [5] * 20_000)
    assert [known.counts[state_of(known, [5] * size)] for size in (1, 2, n)] == [20_000, 19_999, 20_001 - n]
    assert known.end()[1] == n - 1
