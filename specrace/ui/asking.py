"""What a visitor asks for, checked. The page's own sliders keep these bounds, but anybody may post any JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.drafters import METHODS, find_method
from specrace.errors import InputError
from specrace.race import RaceSpec
from specrace.rejection import MATCH

MAX_LANES = 6
MAX_NEW_TOKENS = 512
MAX_NUM_DRAFT = 128
MAX_TEMPERATURE = 2.0
MAX_SEED = 2**31 - 1
MAX_PASSAGES = 12
MAX_QUESTION_CHARACTERS = 2000
MAX_RULE_CHARACTERS = 40
# What a link may set: its parameters, by the names of `read_asking`.
LINK = {
    "q": "question",
    "lanes": "lanes",
    "tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "draft": "num_draft",
    "passages": "top",
    "rule": "sampling_rule",
}


@dataclass(frozen=True)
class Asking:
    """A question, the race that answers it, and how many passages it is given."""

    question: str
    spec: RaceSpec
    top: int


def read_asking(
    question: Any,
    lanes: Any,
    max_new_tokens: Any = 160,
    temperature: Any = 0.0,
    top_p: Any = 1.0,
    seed: Any = 0,
    num_draft: Any = "auto",
    top: Any = 4,
    sampling_rule: Any = MATCH,
) -> Asking:
    """A race from values that came over the wire. Raises InputError that names the first one that is wrong."""
    spec = RaceSpec(
        lanes=_lanes(lanes),
        max_new_tokens=_whole("The answer's length", max_new_tokens, 1, MAX_NEW_TOKENS),
        temperature=_number("The temperature", temperature, 0.0, MAX_TEMPERATURE),
        top_p=_number("Top-p", top_p, 0.01, 1.0),
        seed=_whole("The seed", seed, 0, MAX_SEED),
        num_draft=_num_draft(num_draft),
        sampling_rule=str(sampling_rule)[:MAX_RULE_CHARACTERS],
    )
    return Asking(_question(question), spec, _whole("The number of passages", top, 1, MAX_PASSAGES))


def read_link(query: Mapping[str, str]) -> dict[str, Any]:
    """What a link's parameters set, by the names of `read_asking`. Raises InputError that names the first wrong one.

    >>> read_link({"q": "Why?", "lanes": "trie", "seed": "3", "autorun": "1"})
    {'question': 'Why?', 'lanes': ['vanilla', 'trie'], 'seed': 3.0}
    """
    given: dict[str, Any] = {name: query[key] for key, name in LINK.items() if key in query}
    if "lanes" in given:
        given["lanes"] = [name.strip() for name in given["lanes"].split(",") if name.strip()]
    for name in ("max_new_tokens", "temperature", "top_p", "seed", "top"):
        if name in given:
            given[name] = _parsed(name, given[name])
    asked = read_asking(**{"question": "?", "lanes": ["vanilla"], **given})
    return given | ({"lanes": list(asked.spec.lanes)} if "lanes" in given else {})


def _parsed(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        key = next(key for key, full in LINK.items() if full == name)
        raise InputError(f"The link's {key} is {value[:40]!r}; give a number.") from None


def _question(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError("There is no question; type one.")
    if len(value) > MAX_QUESTION_CHARACTERS:
        raise InputError(f"The question has {len(value)} characters; ask one of at most {MAX_QUESTION_CHARACTERS}.")
    return value


def _lanes(value: Any) -> tuple[str, ...]:
    """Lane names in the registry's order; vanilla is always among them."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise InputError("The lanes are not a list of names; tick one to six of them.")
    for name in value:
        find_method(name)
    names = tuple(name for name in METHODS if name == "vanilla" or name in value)
    if not value or len(names) > MAX_LANES:
        raise InputError(f"{len(set(value))} lanes were chosen; choose 1 to {MAX_LANES}, vanilla included.")
    return names


def _num_draft(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "auto")):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"The number of draft tokens is {value[:40]!r}; give a number, or auto.") from None
    return _whole("The number of draft tokens", value, 0, MAX_NUM_DRAFT)


def _number(label: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{label} is not a number; give one from {low:g} to {high:g}.")
    if not (math.isfinite(value) and low <= value <= high):
        raise InputError(f"{label} is {value:g}; give a number from {low:g} to {high:g}.")
    return float(value)


def _whole(label: str, value: Any, low: int, high: int) -> int:
    number = _number(label, value, low, high)
    if number != int(number):
        raise InputError(f"{label} is {number:g}; give a whole number from {low} to {high}.")
    return int(number)
