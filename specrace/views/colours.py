"""Lane colours, for the page and the terminal (Okabe-Ito, used on borders and bars only)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

# A method's index in the registry determines its colour; after the last colour, the first is used again.
HUES = ("#767676", "#e69f00", "#cc79a7", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#a3a13a")

# The exceptions: with colours by index, some lanes that a preset of the page races together would have the same colour.
_OWN_HUES = {"bigram": 7, "jacobi": 7, "suffix": 3, "fusion": 1}


def hue_index(method: str, index: int) -> int:
    """The index in HUES of the colour of `method`, which is at `index` in the registry."""
    return _OWN_HUES.get(method, index % len(HUES))


def lane_hues(methods: Iterable[str]) -> Mapping[str, str]:
    """Lane -> colour, for the names of a registry in its order; any other lane gets the last colour."""
    hues = {name: HUES[hue_index(name, index)] for index, name in enumerate(methods)}
    return defaultdict(lambda: HUES[-1], hues)


def race_hues(lanes: Sequence[str], methods: Sequence[str]) -> Mapping[str, str]:
    """Lane -> colour in a race of these `lanes`: its method's, or a free one if an earlier lane has that colour.

    `methods`: the names of the registry in its order. The page's scripts do the same (`static/lib/lanes.js`).
    """
    by_method = lane_hues(methods)
    taken = {by_method[_method(lane)] for lane in lanes}
    hues: dict[str, str] = {}
    for lane in lanes:
        hue = by_method[_method(lane)]
        if hue in hues.values():
            # Not the first colour, which is vanilla's.
            hue = next((free for free in HUES[1:] if free not in taken), hue)
        hues[lane] = hue
        taken.add(hue)
    return hues


def _method(lane: str) -> str:
    """The name of a lane's method (`specrace.engine.lane_name`)."""
    return lane.partition(":")[0]


def hue_style(host: str) -> str:
    """CSS that sets --hue on elements with data-hue inside the selector `host`."""
    return "".join(f'{host} [data-hue="{number}"] {{ --hue: {hue}; }}\n' for number, hue in enumerate(HUES))
