"""The lanes (drafting methods) and the settings of these that are tried for each engine by default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.exports.llama_cpp import LIST, LISTED
from specrace.lab.advice.forecast import is_twin
from specrace.lab.scoring.score import ScoredLane, scorable_lanes
from specrace.lab.scoring.sweep import grid_lanes

# The draft sizes, and the options, that are tried in addition to every lane's defaults. Neither is tuned. llama.cpp's
# own match lengths, 12 and 24 tokens, are rarely reached in short answers, so 3 is tried as well.
NUM_DRAFTS = (4, 8, 16, 32)
GRID: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "fusion": {"chain": (False, True)},
    "vllm-ngram": {"prompt_lookup_min": (2,), "prompt_lookup_max": (3, 5)},
    "sglang-ngram": {"match_type_prob": (False, True)},
    "trtllm-ngram": {"max_matching_ngram_size": (2, 4)},
    "llamacpp-simple": {"size_n": (3, 12)},
    "llamacpp-map-k": {"size_n": (3, 12)},
    "llamacpp-map-k4v": {"size_n": (3, 12)},
    "llamacpp-mod": {"n_match": (3, 24), "n_min": (1,)},
}
# llama.cpp takes a list of drafters, which it asks in turn; these lists are tried. All are pairs, because the three
# n-gram maps look up the same n-grams, so longer lists add little.
_PAIRS = (("simple", "cache"), ("map_k", "cache"), ("map_k4v", "cache"), ("mod", "cache"), ("map_k4v", "mod"))


def engine_lanes(engine: str) -> tuple[str, ...]:
    """The twins of an engine's drafters (our copies of them), or the lanes most like them if it has no twin."""
    prefix = ENGINES[engine].prefix
    twins = tuple(name for name in scorable_lanes() if prefix and name.startswith(prefix))
    return twins or tuple(name for name in ENGINES[engine].nearest if name in own_lanes())


def own_lanes() -> list[str]:
    """The lanes that can be scored and are not twins."""
    return [name for name in scorable_lanes() if not is_twin(name)]


def candidates(names: Iterable[str]) -> list[ScoredLane]:
    """Vanilla, and each of these lanes with its defaults and with the settings in GRID and NUM_DRAFTS."""
    names = list(dict.fromkeys(("vanilla", *names)))
    lanes = grid_lanes(names, {}, ())
    grid = {name: dict(values) for name, values in GRID.items() if name in names}
    lanes += _list_lanes() if LIST in names else []
    other_names = [name for name in names if name != LIST]
    return lanes + [lane for lane in grid_lanes(other_names, grid, NUM_DRAFTS) if lane not in lanes]


def _list_lanes() -> Iterator[ScoredLane]:
    """Yield a lane for each pair in _PAIRS and each size in NUM_DRAFTS, with n-grams of 3 tokens."""
    for pair in _PAIRS:
        drafters = {name: name in pair for name in LISTED}
        for size in NUM_DRAFTS:
            sizes = {"size_n": 3, "size_m": size, "n_match": 3, "n_min": 1, "n_max": size}
            yield ScoredLane.of(LIST, drafters | sizes)


def pools(lanes: Sequence[ScoredLane], engines: Iterable[str]) -> dict[str, list[int]]:
    """Engine -> the numbers of the lanes that it may choose from, which never include lane 0, vanilla.

    Within such a pool, settings compete (`halving`).
    """
    names = {engine: engine_lanes(engine) for engine in engines}
    return {
        engine: [number for number, lane in enumerate(lanes) if number and lane.name in allowed]
        for engine, allowed in names.items()
    }
