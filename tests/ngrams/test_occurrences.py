"""First occurrences of the longest suffix, against a brute-force search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.occurrences import FirstOccurrences


def search(text: list[int], longest: int, shortest: int) -> tuple[int, int]:
    """The index after the first earlier occurrence of the longest suffix, and its length; (-1, 0) without one."""
    for length in range(min(longest, len(text)), shortest - 1, -1):
        suffix = text[len(text) - length :]
        for start in range(len(text) - length):
            if text[start : start + length] == suffix:
                return start + length, length
    return -1, 0


@given(
    st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5), st.integers(1, 5), st.integers(0, 40), st.booleans()
)
def test_the_match_is_the_first_occurrence_of_the_longest_suffix(
    text: list[int], longest: int, shortest: int, split: int, in_two_parts: bool
) -> None:
    occurrences = FirstOccurrences(longest)
    occurrences.extend(text[:split] if in_two_parts else text)
    occurrences.extend(text[split:] if in_two_parts else [])
    assert occurrences.tokens == text
    assert occurrences.match_suffix(shortest) == search(text, longest, shortest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([], (-1, 0)),
        ([1], (-1, 0)),
        ([1, 1], (1, 1)),
        ([1, 1, 1], (2, 2)),
        ([1, 2, 3, 9, 1, 2, 3], (3, 3)),
        ([3, 5, 2, 3, 6, 2, 3], (4, 2)),
    ],
)
def test_matches_by_hand(text: list[int], expected: tuple[int, int]) -> None:
    occurrences = FirstOccurrences(3)
    occurrences.extend(text)
    assert occurrences.match_suffix() == expected


def test_a_query_is_looked_up_without_being_added() -> None:
    occurrences = FirstOccurrences(3)
    occurrences.extend([1, 2, 3, 4, 2, 3])
    assert occurrences.match_suffix(query=[9, 2, 3]) == (3, 2)
    assert occurrences.match_suffix(query=[7, 1]) == (1, 1)
    assert occurrences.match_suffix(query=[7, 9]) == (-1, 0)
    assert occurrences.match_suffix(query=[]) == (-1, 0)
    assert occurrences.match_suffix(shortest=2, query=[9, 3]) == (-1, 0)
    assert occurrences.tokens == [1, 2, 3, 4, 2, 3]
