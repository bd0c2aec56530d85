"""A race's request: which questions and numbers of passages it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.settings import MAX_QUESTION_CHARACTERS
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec

SPEC = RaceSpec(("trie",))


def test_the_longest_question_and_the_default_values_are_accepted() -> None:
    request = RaceRequest("x" * MAX_QUESTION_CHARACTERS, SPEC)
    assert (request.passages, request.noise, request.thinking) == (None, 0.0, "off")


@pytest.mark.parametrize(("passages", "expected"), [("auto", None), ("3", 3), (0, 0), (12, 12)])
def test_passages_are_a_number_or_auto(passages: Any, expected: int | None) -> None:
    assert RaceRequest("Why?", SPEC, passages).passages == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"question": " \n"}, r"^Type a question first\.$"),
        ({"question": None}, r"^Type a question first\.$"),
        ({"question": "  \u200b "}, r"^Type a question first\.$"),
        ({"question": 5}, "The question is not text; give a string"),
        ({"question": {"a": 1}}, "The question is not text; give a string"),
        ({"question": "x" * (MAX_QUESTION_CHARACTERS + 1)}, "2001 characters; ask one of at most 2000"),
        ({"passages": 13}, "Passages"),
        ({"passages": -1}, "Passages"),
        ({"noise": 0.95}, "Noise"),
        ({"thinking": "maybe"}, "Thinking: 'maybe' cannot be used; give off or on"),
    ],
)
def test_invalid_values_get_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RaceRequest(**{"question": "Why?", "spec": SPEC, **values})
