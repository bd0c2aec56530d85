"""A cost curve at this moment: what wide forwards cost on a machine that others use, too, or that was not measured yet.

A curve was measured at some other time, or is an assumption. What shares the processor's arithmetic slows forwards over
many rows, which multiply, more than forwards over one, which wait for memory; drafts sized by the old curve then lose.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Protocol

import numpy as np

from specrace.core.cost_curve import CostCurve, assumed_curve
from specrace.core.tree import TokenTree
from specrace.engine.pace import timed
from specrace.engine.spec import RaceSpec, largest_draft

# Smaller models' forwards are too short to be told from noise, and cost little.
MIN_PARAMETERS = 50_000_000
ROWS = (4, 8)
# Before a curve was measured, what kind of forward the target has is not known either.
ROWS_WITHOUT_CURVE = (4, 8, 16)
ROUNDS, MIN_ROUNDS, LIMIT_S = 5, 2, 0.7
# Below it noise could be the reason.
MIN_SCALE = 1.1


class MeasuredTarget(Protocol):
    """What of a target is needed here."""

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""

    def describe(self) -> dict[str, Any]:
        """Model, its number of parameters, dtype, device, versions."""

    def session(self, prefix: Any, room: int, *, rows: Sequence[int] = (1,)) -> Any:
        """A session on a clone of the prefix, for forwards over `rows`."""


def refit(
    target: MeasuredTarget, prefix: Any, prompt: Sequence[int], spec: RaceSpec, curve: CostCurve | None
) -> CostCurve | None:
    """`curve`, made dearer where forwards after this prompt are now, never cheaper; without one the assumed curve, made
    as dear as they are.

    It is left as it is on a GPU, for small models, and where the spec says how many tokens are drafted.
    """
    known = curve or assumed_curve(target.device_type)
    tried = ROWS if curve else ROWS_WITHOUT_CURVE
    rows = [each for each in tried if each <= largest_draft(spec, target.device_type, curve) + 1]
    if spec.num_draft is not None or not rows or not _counts(target):
        return curve
    measured = [max(1.0, ratio) for ratio in measure(target, prefix, prompt, rows)]
    scales = [ratio / known.at(each) for each, ratio in zip(rows, measured, strict=True)]
    if curve is None:
        return scaled(known, rows, scales)
    scales = [max(1.0, each) for each in scales]
    return curve if max(scales) < MIN_SCALE else scaled(known, rows, scales)


def _counts(target: MeasuredTarget) -> bool:
    return target.device_type == "cpu" and target.describe().get("parameters", 0) >= MIN_PARAMETERS


def measure(target: MeasuredTarget, prefix: Any, prompt: Sequence[int], rows: Sequence[int]) -> list[float]:
    """For each of `rows` the median time of a forward over so many, divided by that of one row beside it."""
    session = target.session(prefix, max(rows) + 1, rows=(1, *rows))
    trees = [TokenTree.chain(prompt[-1], [prompt[-1]] * (each - 1)) for each in (1, *rows)]
    found: list[list[float]] = []
    until = time.monotonic() + LIMIT_S
    while len(found) < MIN_ROUNDS or (len(found) < ROUNDS and time.monotonic() < until):
        one, *others = [timed(lambda tree=tree: session.score(tree))[1] for tree in trees]  # type: ignore[misc]
        found.append([other / one for other in others])
    session.keep((0,))
    return [median(ratios) for ratios in zip(*found, strict=True)]


def scaled(curve: CostCurve, rows: Sequence[int], scales: Sequence[float]) -> CostCurve:
    """`curve` times `scales` at `rows`: between them, and down to one row, linear; beyond them as at the last."""
    factors = np.interp(curve.rows, (1, *rows), (1.0, *scales))

    def times_factors(ratio: Sequence[float]) -> tuple[float, ...]:
        return tuple(float(value * factor) for value, factor in zip(ratio, factors, strict=True))

    contexts = tuple(replace(each, ratio=times_factors(each.ratio)) for each in curve.contexts)
    return replace(curve, ratio=times_factors(curve.ratio), contexts=contexts)
