"""The suffix automaton against lists, for texts built at once or in parts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.automaton import NO_MATCH, NO_STATE, ROOT, MatchState, SuffixAutomaton

TOKENS = st.lists(st.integers(-1, 2), max_size=30)


def state_of(known: SuffixAutomaton, part: Sequence[int]) -> int:
    state = ROOT
    for token in part:
        state = known.successor(state, token)
    return state


def ends_of(text: Sequence[int], part: Sequence[int]) -> list[int]:
    """The substring's end positions."""
    size = len(part)
    return [at + size - 1 for at in range(len(text) - size + 1) if list(text[at : at + size]) == list(part)]


def substrings(text: Sequence[int], longest: int) -> set[tuple[int, ...]]:
    return {tuple(text[at : at + size]) for size in range(1, longest + 1) for at in range(len(text) - size + 1)}


def longest_suffix(text: Sequence[int], context: Sequence[int], most: int) -> Sequence[int]:
    """The longest suffix of the context, of at most `most` tokens, that the text has before its last token."""
    for size in range(min(most, len(context)), 0, -1):
        part = context[-size:]
        if ends_of(text[:-1], part):
            return part
    return []


def built(text: Sequence[int], n: int, split: int) -> SuffixAutomaton:
    known = SuffixAutomaton(n, text[:split])
    known.extend(text[split:])
    return known


@given(text=TOKENS, n=st.integers(1, 6), split=st.integers(0, 30))
def test_every_substring_has_its_count_and_first_end(text: list[int], n: int, split: int) -> None:
    known = built(text, n, split)
    assert known.tokens == text and len(known.lengths) <= max(1, 2 * len(text))
    for part in substrings(text, n):
        state, ends = state_of(known, part), ends_of(text, part)
        assert (known.counts[state], known.firsts[state]) == (len(ends), ends[0])
        assert known.lengths[known.links[state]] < len(part) <= known.lengths[state]
        following = [text[end + 1] for end in ends if end + 1 < len(text)]
        assert [token for token, _ in known.successors(state)] == list(dict.fromkeys(following))


@given(text=TOKENS, split=st.integers(0, 30))
def test_substrings_with_the_same_end_positions_share_a_state(text: list[int], split: int) -> None:
    known = built(text, 3, split)
    states: dict[int, set[tuple[int, ...]]] = {}
    for part in substrings(text, len(text)):
        states.setdefault(state_of(known, part), set()).add(tuple(ends_of(text, part)))
    assert all(len(places) == 1 for places in states.values())
    assert len(states) == len({next(iter(places)) for places in states.values()}) == len(known.lengths) - 1


@given(text=TOKENS, other=TOKENS, n=st.integers(1, 6), split=st.integers(0, 30))
def test_the_longest_continued_suffix_is_followed(text: list[int], other: list[int], n: int, split: int) -> None:
    """From the text's own suffix, and from no match, along any tokens."""
    known = built(text, n, split)
    own = longest_suffix(text, text, n - 1)
    assert known.suffix() == (state_of(known, own), len(own))
    for match, context in ((known.suffix(), list(text)), (NO_MATCH, [])):
        for token in other:
            match, context = known.follow(match, [token]), [*context, token]
            expected = longest_suffix(text, context, n - 1)
            assert match == (state_of(known, expected), len(expected))


@given(text=TOKENS, part=TOKENS, token=st.integers(-1, 3))
def test_a_token_has_its_first_position_after_the_longest_suffix_it_followed(
    text: list[int], part: list[int], token: int
) -> None:
    known = SuffixAutomaton(4, text)
    context = NO_MATCH
    for each in part:
        context = known.follow(context, [each])
    ends = [part[-size:] for size in range(context[1], 0, -1)]
    places = [next(iter(ends_of(text, [*end, token])), None) for end in ends]
    assert known.trace(context, token)[1] == next((place for place in places if place is not None), -1)


@given(text=TOKENS, n=st.integers(2, 6), length=st.integers(0, 6))
def test_a_match_is_shortened_to_a_suffix(text: list[int], n: int, length: int) -> None:
    known = SuffixAutomaton(n, text)
    for part in substrings(text, n):
        shorter: MatchState = known.shortened((state_of(known, part), len(part)), length)
        end = part[len(part) - min(length, len(part)) :]
        assert shorter == (state_of(known, end), len(end))


def test_nothing_follows_in_an_empty_text() -> None:
    known = SuffixAutomaton(4)
    assert known.suffix() == NO_MATCH == known.follow(NO_MATCH, [7])
    assert known.successors(ROOT) == [] and known.successor(ROOT, 7) == NO_STATE
    assert (known.lengths, known.links, known.nexts, known.counts, known.firsts) == ([0], [-1], [NO_STATE], [0], [-1])


@pytest.mark.parametrize("n", [2, 9, 64])
def test_a_loop_costs_no_more_than_other_texts(n: int) -> None:
    """A loop has as many suffixes as tokens; only those of up to n tokens are counted."""
    known = SuffixAutomaton(n, [5] * 20_000)
    assert [known.counts[state_of(known, [5] * size)] for size in (1, 2, n)] == [20_000, 19_999, 20_001 - n]
    assert known.suffix()[1] == n - 1
