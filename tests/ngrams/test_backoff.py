"""The back-off model: estimates worked out by hand, and against a brute-force reference."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specrace.ngrams.automaton import NO_MATCH, MatchState, SuffixAutomaton
from specrace.ngrams.backoff import ESCAPE, GROWTH, NUM_FREQUENT, REFRESH, BackoffModel, Estimate
from tests.growth import MAX_LINEAR_GROWTH, growth

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def estimate(model: BackoffModel, context: MatchState) -> Estimate:
    """The probabilities after a context, and the escape mass."""
    probs: dict[int, float] = {}
    return probs, model.blend(context, probs, 1.0)


def test_the_estimate_by_hand() -> None:
    """(1, 2) was followed by 3 once; (2,) by 3 twice and by 4 once.

    A context that was continued C times, by D different tokens, keeps C / (C + 2 D) of the mass.
    """
    model = BackoffModel(2, [1, 2, 3, 5, 2, 3, 6, 2, 4, 1, 2])
    probs, escape = estimate(model, model.automaton.suffix())
    longer, shorter = 1 / 3, 2 / 3 * 3 / 7
    assert probs == pytest.approx({3: longer + shorter * 2 / 3, 4: shorter / 3})
    assert escape == pytest.approx(2 / 3 * 4 / 7)


def test_without_a_match_there_is_no_estimate() -> None:
    model = BackoffModel(4, [1, 2, 3])
    assert model.automaton.suffix() == NO_MATCH
    assert estimate(model, NO_MATCH) == ({}, 1.0)
    model.automaton.extend([1])
    assert estimate(model, model.automaton.suffix()) == (pytest.approx({2: 1 / 3}), pytest.approx(2 / 3))


def test_frequent_tokens_come_in_the_order_of_their_counts() -> None:
    model = BackoffModel(2, [7, 8, 8, 9, 8, 7])
    assert model.frequent() == [(8, pytest.approx(3 / 12)), (7, pytest.approx(2 / 12)), (9, pytest.approx(1 / 12))]
    assert len(BackoffModel(2, range(100)).frequent()) == NUM_FREQUENT


@given(text=TOKENS, additions=st.lists(TOKENS, max_size=6))
def test_frequent_tokens_are_recounted_as_the_text_grows(text: list[int], additions: list[list[int]]) -> None:
    """Between recounts the result stays the same; ties go to the token that occurred first."""
    model, counted_up_to = BackoffModel(2, text), len(text)
    for tokens in [[], *additions]:
        model.automaton.extend(tokens)
        text = [*text, *tokens]
        if len(text) >= counted_up_to + max(REFRESH, GROWTH * counted_up_to):
            counted_up_to = len(text)
        counts = Counter(text[:counted_up_to])
        expected = [(token, count / (counted_up_to + ESCAPE * len(counts))) for token, count in counts.most_common()]
        assert model.frequent() == expected


def expected_estimate(text: Sequence[int], context: Sequence[int], longest: int) -> tuple[dict[int, float], float]:
    """The estimates and the escape mass, computed from the formula."""
    probs: dict[int, float] = {}
    escape = 1.0
    for length in range(min(longest, len(context)), 0, -1):
        ends = [i for i in range(length, len(text)) if list(text[i - length : i]) == list(context[-length:])]
        row = Counter(text[i] for i in ends)
        if not row:
            continue
        for token, count in row.items():
            probs[token] = probs.get(token, 0.0) + escape * count / (len(ends) + ESCAPE * len(row))
        escape *= ESCAPE * len(row) / (len(ends) + ESCAPE * len(row))
    return probs, escape


@given(text=TOKENS, path=st.lists(st.integers(0, 3), max_size=5), longest=st.integers(1, 6), split=st.integers(0, 30))
@example(text=[1, 2, 0, 1, 2, 3, 1, 2], path=[], longest=2, split=0)  # the tokens that followed 1 2 also followed 2
def test_estimates_follow_the_formula(text: list[int], path: list[int], longest: int, split: int) -> None:
    """The text is added in two parts, and any tokens follow it."""
    model = BackoffModel(longest, text[:split])
    model.automaton.extend(text[split:])
    state, context = model.automaton.suffix(), list(text)
    for token in [*path, None]:
        probs, escape = estimate(model, state)
        expected, expected_escape = expected_estimate(text, context, longest)
        assert probs == pytest.approx(expected) and escape == pytest.approx(expected_escape)
        assert sum(probs.values()) + escape == pytest.approx(1.0)
        if token is not None:
            state, context = model.automaton.follow(state, [token]), [*context, token]


@given(text=TOKENS, path=TOKENS, longest=st.integers(1, 6), min_mass=st.sampled_from([0.1, 0.3, 0.7, 1.0]))
def test_an_only_continuation_equals_the_blended_estimate(
    text: list[int], path: list[int], longest: int, min_mass: float
) -> None:
    model = BackoffModel(longest, text)
    automaton, context = model.automaton, model.automaton.suffix()
    for token in [*path, None]:
        probs: dict[int, float] = {}
        escape = model.blend(context, probs, 1.0, min_mass)
        only = model.only_continuation(context, min_mass)
        if only is not None:
            assert probs == pytest.approx({only[0]: 1.0 - only[1]}) and escape == pytest.approx(only[1])
        else:
            state, length = context
            shorter = automaton.lengths[automaton.links[state]] if length else 0
            longest_only: dict[int, float] = {}
            escape = model.blend(context, longest_only, 1.0, min_mass, min_length=shorter)
            assert not length or escape >= min_mass or len(longest_only) > 1
        if token is not None:
            context = model.automaton.follow(context, [token])


@given(text=TOKENS, other_text=TOKENS, longest=st.integers(1, 6))
def test_another_text_is_followed_token_by_token(text: list[int], other_text: list[int], longest: int) -> None:
    """The context is the longest suffix of the other text that occurs in the model's text."""
    model = BackoffModel(longest, text)
    state = NO_MATCH
    for token in other_text:
        state = model.automaton.follow(state, [token])
    probs, escape = estimate(model, state)
    expected, expected_escape = expected_estimate(text, other_text, longest)
    assert probs == pytest.approx(expected) and escape == pytest.approx(expected_escape)


@pytest.mark.slow
@pytest.mark.parametrize("period", [1, 40, 32_000], ids=["one token", "a loop", "no repetition"])
def test_building_takes_linear_time_and_little_memory(period: int) -> None:
    """32,000 tokens take less than 100 MB, even if the text loops."""
    text = [index % period for index in range(32_000)]
    # 320 tokens are compared with a hundred times as many.
    assert growth(lambda size: BackoffModel(8, text[:size]), 320) < MAX_LINEAR_GROWTH
    tracemalloc.start()
    BackoffModel(8, text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_a_context_with_too_much_escape_mass_has_no_only_continuation() -> None:
    model = BackoffModel(2, [1, 2, 1])
    context = model.automaton.suffix()
    assert model.only_continuation(context, 1.0) == (2, 2 / 3)
    assert model.only_continuation(context, 2 / 3) is None


def test_a_long_text_recounts_its_frequent_tokens_less_often() -> None:
    # 160 tokens are recounted after 20 more, an eighth.
    model = BackoffModel(1, [7] * 160)
    before = model.frequent()
    model.automaton.extend([8] * 19)
    assert model.frequent() is before
    model.automaton.extend([8])
    assert [token for token, _ in model.frequent()] == [7, 8]


def test_a_given_automaton_is_not_built_again() -> None:
    automaton = SuffixAutomaton(4, [1, 2, 1])
    model = BackoffModel(3, automaton=automaton)
    assert model.automaton is automaton and model.longest == 3
    assert estimate(model, automaton.suffix())[0] == {2: pytest.approx(1 / 3)}


def test_worked_example_of_contexts_with_several_continuations() -> None:
    """1 2 was followed by 3 and 4, which leaves 4/6 of the mass; 2 also by 6, which leaves 6/9 of that."""
    model = BackoffModel(2, [1, 2, 3, 1, 2, 4, 5, 2, 6, 1, 2])
    probs: dict[int, float] = {}
    assert model.blend(model.automaton.suffix(), probs, 1.0) == pytest.approx(4 / 6 * 6 / 9)
    share = 4 / 6 * (1 - 6 / 9) / 3
    assert probs == pytest.approx({3: 1 / 6 + share, 4: 1 / 6 + share, 6: share})
