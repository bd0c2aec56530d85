"""The request for a race: a question about documents, and how it is raced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specrace.core.blank import is_blank
from specrace.core.errors import InputError
from specrace.core.settings import MAX_QUESTION_CHARACTERS, SETTINGS
from specrace.engine.spec import RaceSpec


@dataclass(frozen=True)
class RaceRequest:
    """A question and how it is raced. It is made once, where the question enters the program.

    `passages`: how many passages go into the prompt; None: the number that suits the model. `noise`: the share of them
    that are irrelevant. `thinking`: "on" if the model is to think before it answers, else "off". Raises InputError for
    a blank or overlong question, and for values out of bounds.
    """

    question: str
    spec: RaceSpec
    passages: int | None = SETTINGS["passages"].default
    noise: float = SETTINGS["noise"].default
    thinking: str = SETTINGS["thinking"].default

    def __post_init__(self) -> None:
        check_question(self.question)
        for name in ("passages", "noise", "thinking"):
            object.__setattr__(self, name, SETTINGS[name].check(getattr(self, name)))


def check_question(value: Any) -> str:
    """Return `value` if it is a question: text that can be seen and is not too long. Raises InputError otherwise."""
    if value is not None and not isinstance(value, str):
        raise InputError('The question is not text; give a string, such as "Why?".')
    # The page and JSON give None for an empty field.
    if value is None or is_blank(value):
        raise InputError("Type a question first.")
    if len(value) > MAX_QUESTION_CHARACTERS:
        raise InputError(f"The question has {len(value)} characters; ask one of at most {MAX_QUESTION_CHARACTERS}.")
    return value
