"""What a visitor asks for, checked. The page's own sliders keep these bounds, but anybody may post any JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.errors import InputError
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS, find_method
from specrace.engine.spec import RaceSpec, plan_lane

MAX_LANES = 6
MAX_QUESTION_CHARACTERS = 2000
MAX_WORD = 40
# A lane's options may make its tree large: lookahead's with N 16, W 64, G 64 has 1919 nodes.
MAX_TREE = 512
# The settings that a visitor chooses, and the parameters of a link that set them.
OFFERED = tuple(name for name, setting in SETTINGS.items() if setting.link)
LINK = {"q": "question", "lanes": "lanes"} | {SETTINGS[name].link: name for name in OFFERED}


@dataclass(frozen=True)
class RaceRequest:
    """A question, the race that answers it, the passages (None: auto), and the model ("": the server's own)."""

    question: str
    spec: RaceSpec
    passages: int | None
    model: str = ""
    dtype: str = ""


def parse_request(
    question: Any, lanes: Any, settings: Mapping[str, Any], options: Any = None, model: Any = "", dtype: Any = ""
) -> RaceRequest:
    """A race from values that came over the wire; `settings` by name, those left out at their defaults.

    Raises InputError that names the first value that is wrong.
    """
    names = _lanes(lanes)
    checked = {name: SETTINGS[name].check(value, shared=True) for name, value in settings.items()}
    passages = checked.pop("passages", SETTINGS["passages"].default)
    spec = RaceSpec(names, options=read_options(options, names), **checked)
    _check_trees(spec)
    return RaceRequest(read_question(question), spec, passages, _word("The model", model), _word("The dtype", dtype))


def read_link(query: Mapping[str, str]) -> dict[str, Any]:
    """What a link's parameters set on the page, by name. Raises InputError that names the first wrong one.

    >>> read_link({"q": "Why?", "lanes": "trie", "seed": "3", "autorun": "1"})
    {'question': 'Why?', 'lanes': ['vanilla', 'trie'], 'seed': 3}
    """
    given: dict[str, Any] = {name: query[key] for key, name in LINK.items() if key in query}
    for name in set(given) & set(SETTINGS):
        number = SETTINGS[name].check(given[name], shared=True)
        given[name] = "auto" if number is None else number
    if "question" in given:
        read_question(given["question"])
    if "lanes" in given:
        given["lanes"] = list(_lanes([name.strip() for name in given["lanes"].split(",") if name.strip()]))
        if twins := [name for name in given["lanes"] if METHODS[name].twin_of]:
            raise InputError(f"The page has no lane {twins[0]!r}; race it on the command line.")
    return given


def read_question(value: Any) -> str:
    """A question of words that is not too long. Raises InputError."""
    if not isinstance(value, str) or not value.strip():
        raise InputError("Type a question first.")
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


def read_options(value: Any, lanes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Lane -> option -> value, of these lanes. Raises InputError for what is no such thing."""
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
        size = plan_lane(spec, lane, "cuda").num_draft  # where defaults are larger
        if size > MAX_TREE:
            title = find_method(lane).title
            raise InputError(f"{title} would draft {size} tokens a step with these options; stay below {MAX_TREE}.")


def _word(label: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{label} is not a name; give one of those that are offered.")
    return value
