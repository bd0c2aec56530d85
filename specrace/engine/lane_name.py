"""A lane's name: its method, and the options that are set for this lane alone, as in "trie:n=3"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.drafters import METHODS, find_method
from specrace.drafters.base import Bounds, Method

# Maximum length of a name, in characters; a recording with a longer name is refused (`recording_check`).
MAX_LANE_NAME = 200


@dataclass(frozen=True)
class LaneName:
    """A method, and the options of its lane. `str` writes them as one name, which `parse_lane` reads."""

    method: Method
    options: dict[str, float | bool]

    @classmethod
    def of(cls, method: Method, values: Mapping[str, Any]) -> LaneName:
        """The name with these values, in the order of the method's options. Raises InputError for a wrong one."""
        checked = method.check(values)
        return cls(method, {option.name: checked[option.name] for option in method.options if option.name in checked})

    def __str__(self) -> str:
        return ":".join([self.method.name, *_pairs(self.options)])

    def with_shared(self, values: Mapping[str, Any]) -> LaneName:
        """The name with those of the method's shared `values` that differ from a default on a CPU or a GPU.

        The lane's own options take precedence. A value of "sampled" is always kept, because its default depends on the
        verifier. Raises InputError.
        """
        defaults = [self.method.defaults(device) for device in ("cpu", "cuda")]
        differing = {
            key: value
            for key, value in self.method.check(values).items()
            if key == "sampled" or any(value != device_defaults[key] for device_defaults in defaults)
        }
        return LaneName.of(self.method, differing | self.options)

    def title(self, options: Mapping[str, float | bool]) -> str:
        """The lane's title for people, with `options` in brackets: "N-gram trie (n=3, static=true)"."""
        return f"{self.method.title} ({', '.join(_pairs(options))})" if options else self.method.title


def parse_lane(text: str) -> LaneName:
    """Parse METHOD or METHOD:KEY=VALUE:KEY=VALUE. Raises InputError for anything else, and for bad values.

    >>> str(parse_lane("trie:static=yes:n=03"))
    'trie:n=3:static=true'
    """
    method_name, *pairs = text.split(":")
    method = find_method(method_name)
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals) or key in values:
            raise InputError(
                f"The lane {shorten(text)!r} is not of the form LANE:KEY=VALUE:KEY=VALUE with different keys; "
                "write for instance trie:n=5:prefix=2."
            )
        values[key] = value
    name = LaneName.of(method, values)
    if len(str(name)) > MAX_LANE_NAME:
        raise InputError(f"The lane {shorten(text)!r} has a name of more than {MAX_LANE_NAME} characters; shorten it.")
    return name


def method_of(name: str) -> Method:
    """The method of the lane called `name`. Raises InputError if there is no such lane."""
    return parse_lane(name).method


def names_other_method(name: str, title: str) -> bool:
    """Whether a lane has the name of one method and the title of another, which a recording must not have.

    >>> names_other_method("trie:n=3", "N-gram trie (n=3)"), names_other_method("trie:n=3", "Vanilla")
    (False, True)
    """
    try:
        method = method_of(name)
    except InputError:
        return False
    # The options are in brackets.
    titled = title.split(" (")[0]
    return titled != method.title and any(titled == other.title for other in METHODS.values())


def parse_lanes(texts: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The lanes' names, each written in one way. `options`: method -> options of all its lanes that lack them.

    Raises InputError for a name that is not a lane's, and for two lanes that are alike.
    """
    names: dict[tuple[str, frozenset[tuple[str, Any]]], str] = {}
    for text in texts:
        lane = parse_lane(text)
        method = lane.method
        merged = method.check(options.get(method.name, {})) | lane.options
        key = (method.name, frozenset(merged.items()))
        if key in names:
            raise InputError(_explain_alike(names[key], str(lane), method))
        names[key] = str(lane)
    return tuple(names.values())


def with_shared_options(names: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The lanes' names with the options that all lanes of a method share (method -> options). Raises InputError.

    >>> with_shared_options(["vanilla", "trie", "trie:n=3"], {"trie": {"prefix": 2}})
    ('vanilla', 'trie:prefix=2', 'trie:n=3:prefix=2')
    """
    lanes = map(parse_lane, names)
    return tuple(str(lane.with_shared(options.get(lane.method.name, {}))) for lane in lanes)


def _explain_alike(first: str, second: str, method: Method) -> str:
    """Why two lanes cannot both race, and what to write instead."""
    fault = f"The lane {first} is given twice" if first == second else f"The lanes {first} and {second} are alike"
    if not method.options:
        return f"{fault}; leave one out."
    option = method.options[0]
    value = _format(option.bounds.low if isinstance(option.bounds, Bounds) else not option.default)
    return f"{fault}; leave one out, or give one an option of its own, as {method.name}:{option.name}={value}."


def _pairs(options: Mapping[str, float | bool]) -> list[str]:
    return [f"{name}={_format(value)}" for name, value in options.items()]


def _format(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
