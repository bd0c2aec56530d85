"""Whether anything of a text can be seen."""

from __future__ import annotations

import re
import unicodedata

# Control and formatting characters, such as the zero-width space.
_CATEGORIES = ("Cc", "Cf")
# Letters and marks that Unicode defines as invisible.
_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def is_blank(text: str) -> bool:
    """Whether a text has only spaces, line ends and invisible characters, or none at all.

    >>> is_blank(" \\u200b\\ufeff"), is_blank("a")
    (True, False)
    """
    return all(
        letter.isspace() or unicodedata.category(letter) in _CATEGORIES or _INVISIBLE.match(letter) for letter in text
    )
