"""Refits a cost curve to the machine's present speed, before a race.

A curve was measured at another time, or is an assumption. Other programs slow forwards over many rows, which are
compute-bound, more than forwards over one row, which are memory-bound. Drafts sized by the old curve would then be too
large to pay.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from specrace.core.cost_curve import CostCurve, assumed_curve
from specrace.core.tree import TokenTree
from specrace.engine.pace import timed
from specrace.engine.setup import RaceSetup, RaceTarget
from specrace.engine.spec import largest_draft

# The forwards of smaller models are so short that a change could be noise, and so cheap that it matters little.
MIN_PARAMETERS = 50_000_000
# The row counts that are measured: few, because each takes time before the race. Without a measured curve it is one
# more, because less is known about the target.
ROWS = (4, 8)
ROWS_WITHOUT_CURVE = (4, 8, 16)
# ROUNDS rounds are measured, but only MIN_ROUNDS if they take longer than LIMIT_S. No record
# says how these were chosen.
ROUNDS, MIN_ROUNDS, LIMIT_S = 5, 2, 0.7
# A smaller change could be noise.
MIN_SCALE = 1.1


def refit(setup: RaceSetup) -> CostCurve | None:
    """The setup's curve, raised where forwards after its prompt cost more now, but never lowered.

    If the setup has none, the assumed curve is fitted to what forwards cost now. On a GPU, for small models, and if the
    spec has a `num_draft`, nothing is measured and the curve is returned unchanged.
    """
    target, spec, curve = setup.target, setup.spec, setup.curve
    max_rows = largest_draft(spec, target.device_type, curve, chains_only=target.chains_only) + 1
    rows = [count for count in (ROWS if curve else ROWS_WITHOUT_CURVE) if count <= max_rows]
    if spec.num_draft is not None or not rows or not _worth_measuring(target):
        return curve
    measured = [max(1.0, ratio) for ratio in measure(setup, rows)]
    base = curve or assumed_curve(target.device_type)
    scales = [ratio / base.at(count) for count, ratio in zip(rows, measured, strict=True)]
    if curve is None:
        return scaled(base, rows, scales)
    scales = [max(1.0, scale) for scale in scales]
    return curve if max(scales) < MIN_SCALE else scaled(base, rows, scales)


def _worth_measuring(target: RaceTarget) -> bool:
    return target.device_type == "cpu" and target.describe().get("parameters", 0) >= MIN_PARAMETERS


def measure(setup: RaceSetup, rows: Sequence[int]) -> list[float]:
    """For each row count in `rows`, the time of a forward relative to one over a single row; the median of rounds."""
    session = setup.target.session(setup.prefix, max(rows) + 1, rows=(1, *rows))
    token = setup.prompt[-1]
    trees = [TokenTree.chain(token, [token] * (count - 1)) for count in (1, *rows)]
    rounds: list[list[float]] = []
    end_s = time.monotonic() + LIMIT_S
    while len(rounds) < MIN_ROUNDS or (len(rounds) < ROUNDS and time.monotonic() < end_s):
        single_ms, *times_ms = [timed(partial(session.score, tree))[1] for tree in trees]
        rounds.append([ms / single_ms for ms in times_ms])
    # A session must keep a path after a forward; here it is the root.
    session.keep((0,))
    return [median(ratios) for ratios in zip(*rounds, strict=True)]


def scaled(curve: CostCurve, rows: Sequence[int], scales: Sequence[float]) -> CostCurve:
    """The curve, multiplied by `scales` at `rows`.

    Between these row counts, and from one row (scale 1) on, the scale is interpolated linearly. Beyond the last row
    count, the last scale is used.
    """
    factors = np.interp(curve.rows, (1, *rows), (1.0, *scales))

    def times_factors(ratio: Sequence[float]) -> tuple[float, ...]:
        return tuple(float(value * factor) for value, factor in zip(ratio, factors, strict=True))

    contexts = tuple(replace(cost, ratio=times_factors(cost.ratio)) for cost in curve.contexts)
    return replace(curve, ratio=times_factors(curve.ratio), contexts=contexts)
