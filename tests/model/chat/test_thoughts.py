"""The marks around an answer's thoughts, by which a page folds them."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken

from specrace.model.chat.thoughts import find_thoughts
from tests.models import byte_tokenizer

SHOWN = "{% if enable_thinking %}<think>{% endif %}"


@pytest.mark.parametrize(
    ("template", "prompt", "thinks", "thoughts"),
    [
        (SHOWN, "user: Why? assistant:", True, ("<think>", "</think>")),
        (SHOWN, "user: Why? assistant: <think>\n", True, ("", "</think>")),
        # The template opens the thoughts although they are switched off: its model always thinks.
        (SHOWN, "user: Why? assistant: <think>\n", False, ("", "</think>")),
        (SHOWN, "user: Why? assistant: <think>\n\n</think>\n\n", False, None),
        (SHOWN, "user: Why? assistant:", False, None),
        ("{{ messages }}", "user: Why? assistant:", True, None),
        ("", "Why?", True, None),
        ("[THINK]", "user: Why?", True, None),
    ],
)
def test_marks_are_those_that_the_answer_shows(
    template: str, prompt: str, thinks: bool, thoughts: tuple[str, str] | None
) -> None:
    tokenizer = byte_tokenizer()
    # Mistral's marks are control tokens, which are not part of a text.
    tokenizer.add_tokens([AddedToken("[THINK]", special=True), AddedToken("[/THINK]", special=True)], True)
    assert find_thoughts(tokenizer, template, prompt, thinks=thinks) == thoughts
