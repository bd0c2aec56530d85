"""The settings of a race, in one table for the library, the command line, the page, its links and its API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.errors import InputError

MATCH, REJECTION = "match", "rejection"
VERIFIERS = (MATCH, REJECTION)
OFF, ON = "off", "on"
MAX_QUESTION_CHARACTERS = 2000
# The maximum number of lanes in a race on the page, in a recording that the page plays, and in a poll of an audience.
MAX_PAGE_LANES = 6
# An error message quotes this many characters of a wrong value.
_MAX_QUOTED = 40


@dataclass(frozen=True)
class Setting:
    """A number or a choice: its default, bounds (both included), label and help.

    A number whose `low` is an int is an integer. `shared_low` and `shared_high`: the bounds on a public page. `step`:
    the step of the page's number field. `link`: the URL parameter. A `default` of None means "auto".
    """

    name: str
    default: Any
    label: str
    help: str
    low: float = 0
    high: float = 0
    shared_low: float | None = None
    shared_high: float | None = None
    step: float = 1
    link: str = ""
    choices: Sequence[str] = ()

    def bounds(self, *, shared: bool = False) -> tuple[float, float]:
        """The minimum and the maximum; `shared`: on a public page."""
        low, high = self.shared_low if shared else None, self.shared_high if shared else None
        return self.low if low is None else low, self.high if high is None else high

    def range(self, *, shared: bool = False) -> str:
        """The valid values in words."""
        if self.choices:
            return " or ".join(self.choices)
        low, high = self.bounds(shared=shared)
        auto = " or auto" if self.default is None else ""
        return f"{'a whole number' if isinstance(self.low, int) else 'a number'} from {low} to {high}{auto}"

    def check(self, value: Any, *, shared: bool = False) -> Any:
        """`value`, possibly a string, as this setting's int, float or choice. Raises InputError if it is invalid."""
        if self.default is None and (value is None or str(value)[:_MAX_QUOTED].strip().lower() in ("", "auto")):
            return None
        converted = self._convert(value)
        low, high = self.bounds(shared=shared)
        if converted is None or not (isinstance(converted, str) or low <= converted <= high):
            raise InputError(f"{self.label}: {_quote(value)} cannot be used; give {self.range(shared=shared)}.")
        return converted

    def _convert(self, value: Any) -> str | float | None:
        """`value` in this setting's type, or None if it cannot be converted."""
        if self.choices:
            return value if isinstance(value, str) and value in self.choices else None
        number = _number(value)
        if number is None or not isinstance(self.low, int):
            return number
        return int(number) if number == int(number) else None


def _number(value: Any) -> float | None:
    """`value` as a finite number, parsed if it is text from a link or a text field; None if it is not one."""
    try:
        if isinstance(value, str):
            value = int(value) if value.strip().isdecimal() else float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
    except (ValueError, OverflowError):
        return None
    return value


def _quote(value: Any) -> str:
    """A value for an error message, cut to a few characters."""
    # str() refuses an int of more than 4,300 digits.
    if isinstance(value, int) and value.bit_length() > 8 * _MAX_QUOTED:
        return "this number"
    text = str(value) if _number(value) is not None else repr(value)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


# The six values without a name: name, default, label, help, low, high. The bounds of public pages are guesses at what
# one visitor may ask of a shared machine. A seed goes through JavaScript, whose integers are exact up to 2**53.
_ALL = (
    Setting("max_new_tokens", 160, "New tokens", "Maximum answer length.", 1, 4096, shared_high=512, link="tokens"),
    Setting(
        "passages",
        None,
        "Passages",
        "Passages in the prompt; 0: none; auto is 4, or 2 for a small model.",
        0,
        12,
        link="passages",
    ),
    Setting("noise", 0.0, "Noise", "The share of the passages that are irrelevant on purpose.", 0.0, 0.9, step=0.1),
    Setting(
        "num_draft",
        None,
        "Draft tokens",
        "Maximum tokens of a draft; auto: what pays on this machine.",
        0,
        1024,
        shared_high=128,
        link="draft",
    ),
    Setting(
        "temperature",
        0.0,
        "Temperature",
        "0 is greedy.",
        0.0,
        10.0,
        shared_high=2.0,
        step=0.05,
        link="temperature",
    ),
    Setting(
        "top_p",
        1.0,
        "Top-p",
        "Draw from the likeliest tokens up to this share; 1: all.",
        1e-9,
        1.0,
        shared_low=0.05,
        step=0.05,
        link="top_p",
    ),
    Setting("top_k", 0, "Top-k", "Draw only from this many likeliest tokens; 0: from all.", 0, 2**31 - 1),
    Setting("seed", 0, "Seed", "The same draws in every lane.", 0, 2**53, shared_high=2**31 - 1, link="seed"),
    Setting(
        "verifier",
        MATCH,
        "Verifier",
        "Match prints vanilla's text; rejection keeps its distribution.",
        choices=VERIFIERS,
        link="verifier",
    ),
    Setting(
        "thinking",
        OFF,
        "Thinking",
        "On: the model thinks first, if it can; thoughts count as output.",
        choices=(OFF, ON),
        link="thinking",
    ),
)
SETTINGS = {setting.name: setting for setting in _ALL}
