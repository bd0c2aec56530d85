"""The back-off model: estimates by hand, and against a version that counts n-grams in lists."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.automaton import NOWHERE, SuffixAutomaton
from specrace.ngrams.backoff import ESCAPE, GROWTH, NUM_COMMON, REFRESH, BackoffModel
from tests.growth import LINEAR, growth

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def test_the_estimate_by_hand() -> None:
    """After 1 2: 3 once. After 2: 3 twice, 4 once. A context of C sightings and D successors keeps C / (C + 2 D)."""
    model = BackoffModel(2, [1, 2, 3, 5, 2, 3, 6, 2, 4, 1, 2])
    probs, rest = model.successors(model.known.end())
    longer, shorter = 1 / 3, 2 / 3 * 3 / 7
    assert probs == pytest.approx({3: longer + shorter * 2 / 3, 4: shorter / 3})
    assert rest == pytest.approx(2 / 3 * 4 / 7)


def test_what_stands_nowhere_else_says_nothing() -> None:
    model = BackoffModel(4, [1, 2, 3])
    assert model.known.end() == NOWHERE
    assert model.successors(NOWHERE) == ({}, 1.0)
    model.known.extend([1])
    assert model.successors(model.known.end()) == (pytest.approx({2: 1 / 3}), pytest.approx(2 / 3))


def test_frequent_tokens_come_in_the_order_of_their_counts() -> None:
    model = BackoffModel(2, [7, 8, 8, 9, 8, 7])
    assert model.common() == [(8, pytest.approx(3 / 12)), (7, pytest.approx(2 / 12)), (9, pytest.approx(1 / 12))]
    assert len(BackoffModel(2, range(100)).common()) == NUM_COMMON


@given(text=TOKENS, more=st.lists(TOKENS, max_size=6))
def test_frequent_tokens_are_counted_anew_as_the_text_grows(text: list[int], more: list[list[int]]) -> None:
    """Those of the last count, which is at most so many tokens old; ties in the order of their first places."""
    model, at = BackoffModel(2, text), len(text)
    for tokens in [[], *more]:
        model.known.extend(tokens)
        text = [*text, *tokens]
        if len(text) >= at + max(REFRESH, GROWTH * at):
            at = len(text)
        counts = Counter(text[:at])
        expected = [(token, count / (at + ESCAPE * len(counts))) for token, count in counts.most_common()]
        assert model.common() == expected


def counted(text: Sequence[int], context: Sequence[int], longest: int) -> tuple[dict[int, float], float]:
    """By the formula: estimates, and what is left."""
    probs: dict[int, float] = {}
    rest = 1.0
    for length in range(min(longest, len(context)), 0, -1):
        ends = [i for i in range(length, len(text)) if list(text[i - length : i]) == list(context[-length:])]
        row = Counter(text[i] for i in ends)
        if not row:
            continue
        for token, count in row.items():
            probs[token] = probs.get(token, 0.0) + rest * count / (len(ends) + ESCAPE * len(row))
        rest *= ESCAPE * len(row) / (len(ends) + ESCAPE * len(row))
    return probs, rest


@given(text=TOKENS, path=st.lists(st.integers(0, 3), max_size=5), longest=st.integers(1, 6), split=st.integers(0, 30))
def test_estimates_are_those_of_lists(text: list[int], path: list[int], longest: int, split: int) -> None:
    """However the text came to be, and along any path after it."""
    model = BackoffModel(longest, text[:split])
    model.known.extend(text[split:])
    state, context = model.known.end(), list(text)
    for token in [*path, None]:
        probs, rest = model.successors(state)
        expected, left = counted(text, context, longest)
        assert probs == pytest.approx(expected) and rest == pytest.approx(left)
        assert sum(probs.values()) + rest == pytest.approx(1.0)
        if token is not None:
            state, context = model.known.follow(state, token), [*context, token]


@given(text=TOKENS, path=TOKENS, longest=st.integers(1, 6), least=st.sampled_from([0.1, 0.3, 0.7, 1.0]))
def test_what_is_sure_is_what_the_estimate_says(text: list[int], path: list[int], longest: int, least: float) -> None:
    model = BackoffModel(longest, text)
    context = model.known.end()
    for token in [*path, None]:
        probs: dict[int, float] = {}
        rest = model.blend(context, probs, 1.0, least)
        sure = model.sure(context, least)
        if sure is not None:
            assert probs == pytest.approx({sure[0]: 1.0 - sure[1]}) and rest == pytest.approx(sure[1])
        else:
            state, length = context
            shorter = model.known.lengths[model.known.links[state]] if length else 0
            first: dict[int, float] = {}
            assert not length or model.blend(context, first, 1.0, least, above=shorter) >= least or len(first) > 1
        if token is not None:
            context = model.known.follow(context, token)


@given(text=TOKENS, other=TOKENS, longest=st.integers(1, 6))
def test_a_text_of_another_model_is_followed_token_by_token(text: list[int], other: list[int], longest: int) -> None:
    """Contexts of a text that the model was not built from: as many of its last tokens as stand in the model's."""
    model = BackoffModel(longest, text)
    state = NOWHERE
    for token in other:
        state = model.known.follow(state, token)
    probs, rest = model.successors(state)
    expected, left = counted(text, other, longest)
    assert probs == pytest.approx(expected) and rest == pytest.approx(left)


@pytest.mark.parametrize("period", [1, 40, 32_000], ids=["one token", "a loop", "no repeat"])
def test_building_is_linear_and_small(period: int) -> None:
    """Up to 32,000 tokens, in less than 100 MB; loops too."""
    text = [index % period for index in range(32_000)]
    assert growth(lambda size: BackoffModel(8, text[:size]), 320) < LINEAR
    tracemalloc.start()
    BackoffModel(8, text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_what_leaves_as_much_as_is_asked_for_is_not_sure() -> None:
    model = BackoffModel(2, [1, 2, 1])
    context = model.known.end()
    assert model.sure(context, 1.0) == (2, 2 / 3)
    assert model.sure(context, 2 / 3) is None


def test_a_long_text_counts_its_frequent_tokens_more_seldom() -> None:
    model = BackoffModel(1, [7] * 160)
    before = model.common()
    model.known.extend([8] * 19)
    assert model.common() is before
    model.known.extend([8])
    assert [token for token, _ in model.common()] == [7, 8]


def test_a_known_text_is_not_built_again() -> None:
    known = SuffixAutomaton(4, [1, 2, 1])
    model = BackoffModel(3, known=known)
    assert model.known is known and model.longest == 3
    assert model.successors(known.end())[0] == {2: pytest.approx(1 / 3)}
