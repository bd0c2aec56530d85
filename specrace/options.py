"""Lanes and their options as the command line writes them."""

from __future__ import annotations

from collections.abc import Iterable

from specrace.drafters import METHODS, find_method
from specrace.errors import InputError

LaneOptions = dict[str, dict[str, str]]


def lane_names(given: str) -> tuple[str, ...]:
    """The names in "trie, rest": ("trie", "rest"), each once. Raises InputError for an unknown lane or none at all."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise InputError(f"--lanes names no lane; choose from {', '.join(METHODS)}.")
    for name in names:
        find_method(name)
    return names


def lane_options(given: Iterable[str]) -> LaneOptions:
    """["trie.n=13"] as {"trie": {"n": "13"}}. Raises InputError for another form or an unknown lane."""
    found: LaneOptions = {}
    for text in given:
        key, equals, value = text.partition("=")
        lane, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise InputError(f"--option {text!r} is not of the form LANE.KEY=VALUE, for instance trie.n=13.")
        find_method(lane)
        found.setdefault(lane, {})[name] = value
    return found
