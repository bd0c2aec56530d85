"""Measures a target's cost curve, and caches it in the user's cache folder.

The curve tells how much longer a forward over k rows, one for each token, takes than one over a single row.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

from specrace.core.clock import since_ms, thread_ms
from specrace.core.cost_curve import ContextCost, CostCurve, row_counts
from specrace.core.errors import InputError
from specrace.core.files import user_cache_folder
from specrace.core.tree import TokenTree
from specrace.engine.setup import RaceTarget

# Numbers of rows, and numbers of tokens before them, for which forwards are timed.
ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
CONTEXTS = (32, 256, 1024)
# None of these three numbers is tuned; an odd number of rounds makes each median a measured value.
ROUNDS = 9
MAX_ROUNDS = 1000
WARM_UP_ROUNDS = 2
# How curves are measured; part of the cache's key, so that a curve measured in another way is not read.
KIND = "pairs"


class CalibrateTarget(RaceTarget, Protocol):
    """A race's target with a known context length."""

    @property
    def max_context(self) -> int:
        """The largest number of tokens that fit the model's context."""


def measure(
    target: CalibrateTarget,
    *,
    rows: Sequence[int] = ROWS,
    contexts: Sequence[int] = CONTEXTS,
    rounds: int = ROUNDS,
    on_progress: Callable[[str], object] | None = None,
) -> CostCurve:
    """Measure time(k rows) / time(1 row) through the race's own `ModelSession.score`, at several context lengths.

    Row counts that do not fit the model are left out, and contexts are shortened to fit. `on_progress` gets a line
    before each context. Raises InputError for `rounds` out of bounds.
    """
    if not 1 <= rounds <= MAX_ROUNDS:
        raise InputError(f"The number of rounds is {rounds}; give 1 to {MAX_ROUNDS}.")
    # At least half of the model's context stays free for the tokens before the rows.
    rows = tuple(number for number in rows if number == 1 or 2 * number <= target.max_context)
    costs = []
    for context in sorted({min(context, target.max_context - rows[-1]) for context in contexts}):
        if on_progress is not None:
            on_progress(f"Measuring {rows[0]} to {rows[-1]} rows after {context} tokens")
        costs.append(measure_context(target, context, rows, rounds))
    ratio = tuple(fmean(ratios) for ratios in zip(*(cost.ratio for cost in costs), strict=True))
    about = {**target.describe(), "rounds": rounds, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    return CostCurve(rows, ratio, tuple(costs), about)


def measure_context(target: RaceTarget, context: int, rows: Sequence[int], rounds: int) -> ContextCost:
    """Measure one context length. Every round times each number of rows once, in random order.

    In a race a step often follows one of another size, and is slower then than after one of its own size. So each
    number of rows is timed right after a single row, and its ratio is over that row, which also cancels the machine's
    pace. The median of the rounds counts, not the minimum: a size with one lucky time would be drafted too often.
    """
    rng = random.Random(0)
    # Use random tokens: with identical ones, a mixture of experts would run fewer experts.
    prompt = [rng.randrange(target.vocab_size) for _ in range(context)]
    draft = [rng.randrange(target.vocab_size) for _ in range(rows[-1])]
    # Use a lane's row counts: a CUDA graph runs a fixed number of rows, to which smaller trees are padded.
    session = target.session(target.prefill(prompt), rows[-1], rows=row_counts(rows[-1]))

    def timed(number: int) -> float:
        tree = TokenTree.chain(prompt[-1], draft[: number - 1])
        while True:
            began = thread_ms()
            session.score(tree)
            # The thread's clock is the wall clock less the time spent waiting for a processor. The two drift apart by
            # as much as a small forward takes; `since_ms` may then be 0, and the forward is timed again.
            if (passed := since_ms(began)) > 0:
                return passed

    single_row_ms: list[float] = []
    ratios: dict[int, list[float]] = {number: [] for number in rows}
    for round_number in range(WARM_UP_ROUNDS + rounds):
        for number in rng.sample(list(rows), len(rows)):
            one_row_ms = timed(1)
            ratio = timed(number) / one_row_ms if number > 1 else 1.0
            if round_number >= WARM_UP_ROUNDS:
                single_row_ms.append(one_row_ms)
                ratios[number].append(ratio)
    return ContextCost(context, median(single_row_ms), tuple(median(ratios[number]) for number in rows))


def cache_file(about: Mapping[str, Any]) -> Path | None:
    """The cache file for a target with this description; None if the user has no cache folder.

    Several machines may share the folder's disk, so the processor's name is in the key. So are the versions of torch
    and of the compiled decoder, because a change of either changes how long a forward takes.
    """
    names = ("model", "parameters", "dtype", "device", "processor", "threads")
    # `engine` says how forwards run. Drop the text in parentheses, which says why this way was chosen.
    engine = about["engine"].partition(" (")[0] if "engine" in about else None
    versions = [about.get("versions", {}).get(name) for name in ("torch", "decoder")]
    key = json.dumps([*(about.get(name) for name in names), engine, *versions, KIND])
    folder = user_cache_folder()
    return folder / f"cost-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json" if folder else None


def load_cached(about: Mapping[str, Any]) -> CostCurve | None:
    """The cached curve for a target with this description; None if it is missing or broken."""
    file = cache_file(about)
    if file is None:
        return None
    try:
        return CostCurve.load(file)
    except InputError:
        return None


def calibrate(
    target: CalibrateTarget,
    *,
    refresh: bool = False,
    rounds: int = ROUNDS,
    on_progress: Callable[[str], object] | None = None,
) -> CostCurve:
    """The cached curve; it is measured and cached if there is none, or with `refresh`. Failure to cache is ignored."""
    about = target.describe()
    cached = None if refresh else load_cached(about)
    if cached is not None:
        return cached
    curve = measure(target, rounds=rounds, on_progress=on_progress)
    file = cache_file(about)
    if file is not None:
        with contextlib.suppress(OSError):
            curve.save(file)
    return curve
