"""The one exception that a user may see."""

from __future__ import annotations


class InputError(Exception):
    """Something the user gave cannot be used.

    The message is one sentence that says what is wrong, where, and what to do. The command line prints it and
    exits with 2; the page shows it as a toast. Anything else that escapes is a fault of ours.
    """
