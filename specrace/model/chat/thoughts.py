"""Where the thoughts in an answer begin and end, so that a page or a terminal can fold them."""

from __future__ import annotations

from typing import Any

from specrace.model.chat.answer import find_marks


def find_thoughts(tokenizer: Any, template: str, prompt: str) -> tuple[str, str] | None:
    """The marks before and after the thoughts of an answer to a rendered `prompt`; they may be control tokens.

    The first is "" if the answer begins with thoughts without a mark, because the prompt opens them. None if the prompt
    has closed them, or if the template knows no thoughts.
    """
    if not template:
        return None

    def is_token(text: str) -> bool:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1

    marks = find_marks(template, is_token)
    if marks.answer:
        return "", marks.answer
    begin, end = marks.begin.strip(), marks.end.strip()
    if not end or marks.are_closed(prompt):
        return None
    return "" if marks.are_opened(prompt) else begin, end
