"""What counts as a text in which nothing can be seen."""

from __future__ import annotations

import pytest

from specrace.core.blank import is_blank


# Spaces, characters of no width, control characters, blanks of Braille and Hangul, and marks of direction.
@pytest.mark.parametrize(
    "text", ["", " \n\t\u3000", "\u200b\u200d\ufeff", "\x00\x1f", "\u2800", "\u3164\ufe0f", "\u00ad\u202e"]
)
def test_spaces_and_invisible_characters_are_blank(text: str) -> None:
    assert is_blank(text)


# Among others an accent without its letter, an emoji, a private character, and half a surrogate pair.
@pytest.mark.parametrize("text", ["a", "\u200b?", "\u0301", "\u65e5", "\U0001f600\ufe0f", "\ue000", "\ud800"])
def test_anything_else_is_not(text: str) -> None:
    assert not is_blank(text)
