"""What a visitor asks for, checked. The page's own sliders keep these bounds, but anybody may post any JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.errors import InputError
from specrace.core.rejection import MATCH
from specrace.drafters import METHODS, find_method
from specrace.engine.race import RaceSpec

MAX_LANES = 6
MAX_NEW_TOKENS = 512
MAX_NUM_DRAFT = 128
MAX_TEMPERATURE = 2.0
MAX_SEED = 2**31 - 1
MAX_PASSAGES = 12
MAX_QUESTION_CHARACTERS = 2000
MAX_WORD = 40
# A lane's options may make its tree large: lookahead's with N 16, W 64, G 64 has 1919 nodes.
MAX_TREE = 512
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
    "verifier": "verifier",
}


@dataclass(frozen=True)
class Asking:
    """A question, the race that answers it, how many passages it is given, and the model ("": the server's own)."""

    question: str
    spec: RaceSpec
    top: int
    model: str = ""
    dtype: str = ""


def read_asking(
    question: Any,
    lanes: Any,
    max_new_tokens: Any = 160,
    temperature: Any = 0.0,
    top_p: Any = 1.0,
    seed: Any = 0,
    num_draft: Any = "auto",
    top: Any = 4,
    verifier: Any = MATCH,
    options: Any = None,
    model: Any = "",
    dtype: Any = "",
) -> Asking:
    """A race from values that came over the wire. Raises InputError that names the first one that is wrong."""
    names = _lanes(lanes)
    spec = RaceSpec(
        lanes=names,
        max_new_tokens=_whole("The answer's length", max_new_tokens, 1, MAX_NEW_TOKENS),
        temperature=_number("The temperature", temperature, 0.0, MAX_TEMPERATURE),
        top_p=_number("Top-p", top_p, 0.01, 1.0),
        seed=_whole("The seed", seed, 0, MAX_SEED),
        num_draft=_num_draft(num_draft),
        verifier=str(verifier)[:MAX_WORD],
        options=_options(options, names),
    )
    _check_trees(spec)
    passages = _whole("The number of passages", top, 1, MAX_PASSAGES)
    return Asking(_question(question), spec, passages, _word("The model", model), _word("The dtype", dtype))


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


def _options(value: Any, lanes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Lane -> option -> value, of the lanes that race."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(each, Mapping) for each in value.values()):
        raise InputError('The options are not lanes with options; give {"trie": {"n": 13}}.')
    for lane, own in value.items():
        find_method(str(lane)[:MAX_WORD])
        for name, number in own.items():
            if not isinstance(number, bool | int | float | str) or len(str(number)[: MAX_WORD + 1]) > MAX_WORD:
                raise InputError(f"{lane}.{str(name)[:MAX_WORD]} is no number; give a whole one, or true or false.")
    return {lane: {name: _tidy(number) for name, number in value[lane].items()} for lane in lanes if lane in value}


def _tidy(number: Any) -> Any:
    """13.0 is 13; pages send any number as a float."""
    return int(number) if isinstance(number, float) and math.isfinite(number) and number == int(number) else number


def _check_trees(spec: RaceSpec) -> None:
    """Raises InputError for options that make a lane draft more than a shared machine should verify."""
    for lane in spec.lanes:
        size = spec.lane_budget(lane, "cuda")  # where defaults are larger
        if size > MAX_TREE:
            title = find_method(lane).title
            raise InputError(f"{title} would draft {size} tokens a step with these options; stay below {MAX_TREE}.")


def _word(label: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{label} is not a name; give one of those that are offered.")
    return value


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
        raise InputError(f"{label} is not a number; give one from {low:.12g} to {high:.12g}.")
    if not low <= value <= high:  # NaN compares false
        raise InputError(f"{label} is {str(value)[:20]}; give a number from {low:.12g} to {high:.12g}.")
    return float(value)


def _whole(label: str, value: Any, low: int, high: int) -> int:
    number = _number(label, value, low, high)
    if number != int(number):
        raise InputError(f"{label} is {number:g}; give a whole number from {low} to {high}.")
    return int(number)
