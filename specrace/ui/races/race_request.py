"""Checks a visitor's request for a race. The page keeps its fields within bounds, but a client may send any JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specrace.core.errors import InputError
from specrace.core.settings import MAX_PAGE_LANES, SETTINGS
from specrace.drafters import METHODS, find_method
from specrace.engine.lane_name import method_of, parse_lanes
from specrace.engine.request import RaceRequest, check_question
from specrace.engine.spec import RaceSpec, plan_lane

# Maximum number of characters of a lane's name or an option's value.
MAX_WORD = 40
# Maximum number of draft tokens in a step, for the sake of other visitors; a guess. A method's options allow more:
# lookahead with N 16, W 64, G 64 drafts 1919.
MAX_TREE = 512
# The settings that a visitor may choose: those with a parameter in links to the page.
OFFERED = tuple(name for name, setting in SETTINGS.items() if setting.link)
# The parameters of a link to the page, each with the name of the value that it sets.
LINK = {"q": "question", "lanes": "lanes"} | {SETTINGS[name].link: name for name in OFFERED}


@dataclass(frozen=True)
class VisitorRequest:
    """A race as a visitor requested it, and the names of the model and dtype to race with ("": the server's own).

    `servers`: the names of the operator's servers that race beside the lanes. `reference`: the one of them that the
    others are compared with; "" for vanilla.
    """

    race: RaceRequest
    model: str = ""
    dtype: str = ""
    servers: tuple[str, ...] = ()
    reference: str = ""

    def with_options_in_names(self) -> VisitorRequest:
        """Return the same request with all options in the lanes' names (`RaceSpec.with_options_in_names`)."""
        return replace(self, race=replace(self.race, spec=self.race.spec.with_options_in_names()))


def parse_request(
    question: Any, lanes: Any, settings: Mapping[str, Any], options: Any = None, model: Any = "", dtype: Any = ""
) -> VisitorRequest:
    """Check the values of a race that a client sent. `settings`: name -> value; missing ones get their defaults.

    Raises InputError about the first wrong value.
    """
    names = check_lanes(lanes)
    checked = {name: SETTINGS[name].check(value, shared=True) for name, value in settings.items()}
    passages = checked.pop("passages", SETTINGS["passages"].default)
    thinking = checked.pop("thinking", SETTINGS["thinking"].default)
    spec = RaceSpec(names, options=read_options(options, names), **checked)
    _check_trees(spec)
    race = RaceRequest(question, spec, passages, thinking=thinking)
    return VisitorRequest(race, _read_name("The model", model), _read_name("The dtype", dtype))


def read_link(query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The values that a link's parameters set on the page, by name, and what is wrong with the first wrong parameter.

    A wrong parameter sets nothing, and the others are kept. The second result is "" if no parameter is wrong.

    >>> read_link({"q": "Why?", "lanes": "trie", "seed": "3", "tokens": "99999", "autorun": "1"})[0]
    {'question': 'Why?', 'lanes': ['vanilla', 'trie'], 'seed': 3}
    """
    values: dict[str, Any] = {}
    problem = ""
    for key, name in LINK.items():
        if key not in query:
            continue
        try:
            values[name] = _read_parameter(name, query[key])
        except InputError as error:
            problem = problem or str(error)
    return values, problem


def _read_parameter(name: str, text: str) -> Any:
    """The value that a link's parameter sets. Raises InputError."""
    if name in SETTINGS:
        value = SETTINGS[name].check(text, shared=True)
        return "auto" if value is None else value
    if name == "lanes":
        return list(check_lanes([lane.strip() for lane in text.split(",") if lane.strip()]))
    if name == "question":
        check_question(text)
    return text


def check_lanes(value: Any) -> tuple[str, ...]:
    """Check the names of lanes. Returns them, and vanilla, in the registry's order. Raises InputError."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise InputError("The lanes are not a list of names; tick one to six of them.")
    names = parse_lanes([*(() if "vanilla" in value else ("vanilla",)), *value], {})
    if not value or len(names) > MAX_PAGE_LANES:
        raise InputError(f"{len(value)} lanes were chosen; choose 1 to {MAX_PAGE_LANES}, vanilla included.")
    order = list(METHODS)
    return tuple(sorted(names, key=lambda name: order.index(method_of(name).name)))


def read_options(value: Any, lanes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Check options (method -> option -> value), and return those of the methods of `lanes`. Raises InputError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(options, Mapping) for options in value.values()):
        raise InputError('The options are not lanes with options; give {"trie": {"n": 13}}.')
    for lane, options in value.items():
        find_method(str(lane)[:MAX_WORD])
        for name, number in options.items():
            if not isinstance(number, bool | int | float | str) or len(str(number)) > MAX_WORD:
                raise InputError(
                    f"{lane}.{str(name)[:MAX_WORD]} is not a number; give a whole number, or true or false."
                )
    raced = dict.fromkeys(method_of(lane).name for lane in lanes)
    return {lane: {name: _to_int(number) for name, number in value[lane].items()} for lane in raced if lane in value}


def _to_int(number: Any) -> Any:
    """Turn 13.0 into 13, because pages send every number as a float. Other values are returned unchanged."""
    return int(number) if isinstance(number, float) and math.isfinite(number) and number == int(number) else number


def _check_trees(spec: RaceSpec) -> None:
    """Raise InputError if a lane would draft more than MAX_TREE tokens in a step, for the sake of other visitors."""
    for lane in spec.lanes:
        plan = plan_lane(spec, lane, "cuda")  # defaults are larger on a GPU than on a CPU
        if plan.num_draft > MAX_TREE:
            raise InputError(
                f"{plan.title} would draft {plan.num_draft} tokens a step with these options; stay below {MAX_TREE}."
            )


def _read_name(label: str, value: Any) -> str:
    """Check that a model or a dtype is a string; None becomes "". `label` names it in the error."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{label} is not a name; give one of those on offer.")
    return value
