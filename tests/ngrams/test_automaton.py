"""The suffix automaton against a brute-force search, for texts added at once or in two parts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.automaton import NO_MATCH, NO_STATE, ROOT, MatchState, SuffixAutomaton

# -1 is END, which drafters put between the texts of one automaton.
TOKENS = st.lists(st.integers(-1, 2), max_size=30)


def state_of(automaton: SuffixAutomaton, substring: Sequence[int]) -> int:
    """The state that the automaton reaches by reading `substring`."""
    state = ROOT
    for token in substring:
        state = automaton.successor(state, token)
    return state


def ends_of(text: Sequence[int], substring: Sequence[int]) -> list[int]:
    """The substring's end positions."""
    size = len(substring)
    return [
        start + size - 1 for start in range(len(text) - size + 1) if list(text[start : start + size]) == list(substring)
    ]


def substrings(text: Sequence[int], longest: int) -> set[tuple[int, ...]]:
    """All substrings of up to `longest` tokens."""
    return {
        tuple(text[start : start + size]) for size in range(1, longest + 1) for start in range(len(text) - size + 1)
    }


def longest_suffix(text: Sequence[int], context: Sequence[int], max_length: int) -> Sequence[int]:
    """The longest suffix of `context`, up to `max_length` tokens, that occurs in `text` before its last token."""
    for size in range(min(max_length, len(context)), 0, -1):
        suffix = context[-size:]
        if ends_of(text[:-1], suffix):
            return suffix
    return []


def build(text: Sequence[int], n: int, split: int) -> SuffixAutomaton:
    """An automaton that got the text in two parts."""
    automaton = SuffixAutomaton(n, text[:split])
    automaton.extend(text[split:])
    return automaton


@given(text=TOKENS, n=st.integers(1, 6), split=st.integers(0, 30))
def test_every_substring_has_its_count_and_first_end(text: list[int], n: int, split: int) -> None:
    automaton = build(text, n, split)
    assert automaton.tokens == text and len(automaton.lengths) <= max(1, 2 * len(text))
    for substring in substrings(text, n):
        state, ends = state_of(automaton, substring), ends_of(text, substring)
        assert (automaton.counts[state], automaton.firsts[state]) == (len(ends), ends[0])
        assert automaton.lengths[automaton.links[state]] < len(substring) <= automaton.lengths[state]
        following = [text[end + 1] for end in ends if end + 1 < len(text)]
        assert [token for token, _ in automaton.successors(state)] == list(dict.fromkeys(following))


@given(text=TOKENS, split=st.integers(0, 30))
def test_substrings_with_the_same_end_positions_share_a_state(text: list[int], split: int) -> None:
    automaton = build(text, 3, split)
    states: dict[int, set[tuple[int, ...]]] = {}
    for substring in substrings(text, len(text)):
        states.setdefault(state_of(automaton, substring), set()).add(tuple(ends_of(text, substring)))
    assert all(len(end_sets) == 1 for end_sets in states.values())
    assert len(states) == len({next(iter(end_sets)) for end_sets in states.values()}) == len(automaton.lengths) - 1


@given(text=TOKENS, tokens=TOKENS, n=st.integers(1, 6), split=st.integers(0, 30))
def test_a_match_is_the_longest_continued_suffix(text: list[int], tokens: list[int], n: int, split: int) -> None:
    """The match is correct whatever tokens follow, from the text's own suffix on or from no match on."""
    automaton = build(text, n, split)
    suffix = longest_suffix(text, text, n - 1)
    assert automaton.suffix() == (state_of(automaton, suffix), len(suffix))
    for match, context in ((automaton.suffix(), list(text)), (NO_MATCH, [])):
        for token in tokens:
            match, context = automaton.follow(match, [token]), [*context, token]
            expected = longest_suffix(text, context, n - 1)
            assert match == (state_of(automaton, expected), len(expected))


@given(text=TOKENS, context=TOKENS, token=st.integers(-1, 3))
def test_trace_returns_the_first_position_after_the_longest_suffix_that_the_token_followed(
    text: list[int], context: list[int], token: int
) -> None:
    automaton = SuffixAutomaton(4, text)
    match = NO_MATCH
    for previous in context:
        match = automaton.follow(match, [previous])
    suffixes = [context[-size:] for size in range(match[1], 0, -1)]
    positions = [next(iter(ends_of(text, [*suffix, token])), None) for suffix in suffixes]
    assert automaton.trace(match, token)[1] == next((position for position in positions if position is not None), -1)


@given(text=TOKENS, n=st.integers(2, 6), length=st.integers(0, 6))
def test_a_match_is_shortened_to_a_suffix(text: list[int], n: int, length: int) -> None:
    automaton = SuffixAutomaton(n, text)
    for substring in substrings(text, n):
        shorter: MatchState = automaton.shortened((state_of(automaton, substring), len(substring)), length)
        suffix = substring[len(substring) - min(length, len(substring)) :]
        assert shorter == (state_of(automaton, suffix), len(suffix))


def test_an_empty_text_has_no_matches_and_no_successors() -> None:
    automaton = SuffixAutomaton(4)
    assert automaton.suffix() == NO_MATCH == automaton.follow(NO_MATCH, [7])
    assert automaton.successors(ROOT) == [] and automaton.successor(ROOT, 7) == NO_STATE
    # The root is the only state.
    assert (automaton.lengths, automaton.links, automaton.nexts, automaton.counts, automaton.firsts) == (
        [0],
        [-1],
        [NO_STATE],
        [0],
        [-1],
    )


@pytest.mark.parametrize("n", [2, 9, 64])
def test_a_long_loop_is_counted_up_to_n_tokens(n: int) -> None:
    """Every suffix of a repeated token occurs earlier, but only suffixes of up to n tokens are counted."""
    automaton = SuffixAutomaton(n, [5] * 20_000)
    assert [automaton.counts[state_of(automaton, [5] * size)] for size in (1, 2, n)] == [20_000, 19_999, 20_001 - n]
    assert automaton.suffix()[1] == n - 1
