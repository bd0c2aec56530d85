"""Lane colours (Okabe-Ito, on borders and bars only): the same on the page and in a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

# A method's place in the registry is its colour; they come round again after the last.
HUES = ("#767676", "#56b4e9", "#cc79a7", "#e69f00", "#009e73", "#0072b2", "#d55e00", "#a3a13a")


def hue_number(place: int) -> int:
    """The number in HUES of the method at `place` in the registry."""
    return place % len(HUES)


def lane_hues(methods: Iterable[str]) -> Mapping[str, str]:
    """Lane -> colour, for the names of a registry; a lane that is not in it has the last one."""
    known = {name: HUES[hue_number(place)] for place, name in enumerate(methods)}
    return defaultdict(lambda: HUES[-1], known)


def hue_style(host: str) -> str:
    """CSS that sets --hue on elements with data-hue inside `host`."""
    return "".join(f'{host} [data-hue="{number}"] {{ --hue: {hue}; }}\n' for number, hue in enumerate(HUES))
