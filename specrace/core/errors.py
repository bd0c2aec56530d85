"""The one exception that a user may see."""

from __future__ import annotations

MAX_MESSAGE = 800


class InputError(Exception):
    """The user gave something that cannot be used.

    The message is one sentence: what is wrong, where, and what to do; an endless one is cut in its middle. The command
    line prints it and exits with 2; the page shows it as a toast. Anything else that escapes is a fault of ours.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message))


def shorten(text: str) -> str:
    """At most MAX_MESSAGE characters of `text`: its two ends."""
    half = MAX_MESSAGE // 2 - 1
    return text if len(text) <= MAX_MESSAGE else f"{text[:half]} … {text[-half + 1 :]}"
