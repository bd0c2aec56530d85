"""Where the thoughts in an answer begin and end, so that a page can fold them."""

from __future__ import annotations

from typing import Any

from specrace.model.chat.answer import find_marks


def find_thoughts(tokenizer: Any, template: str, prompt: str, *, thinks: bool) -> tuple[str, str] | None:
    """The marks before and after the thoughts of an answer to a rendered `prompt`, as they stand in the answer's text.

    The first is "" if the prompt itself opens the thoughts. None if the model is not to think (`thinks`) and the prompt
    opens no thoughts, and if the marks are control tokens, which no text shows.
    """
    if not template:
        return None

    def is_token(text: str) -> bool:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1

    marks = find_marks(template, is_token)
    is_open, begin, end = marks.are_opened(prompt), marks.begin.strip(), marks.end.strip()
    if not end or not (thinks or is_open):
        return None
    ids = tokenizer(begin + end, add_special_tokens=False)["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return ("" if is_open else begin, end) if begin in text and end in text else None
