"""The one exception that a user may see."""

from __future__ import annotations


class InputError(Exception):
    """Something the user gave cannot be used.

    The message is one sentence that says what is wrong, where, and what to do. The command line prints it and
    exits with 2; the page shows it as a toast. Anything else that escapes is a fault of ours.
    """


def shorten(value: object, most: int = 200) -> str:
    """`value` as a message shows it: a name, path or number of the user's loses its middle if it is too long."""
    text = str(value).encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"
