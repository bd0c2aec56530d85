"""The cost curve: how much longer a forward over k rows takes than one over a single row, and which draft size pays.

A row is one token of a forward's input: verifying a draft of k tokens takes k + 1 rows.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text, write_atomically

# Twice the largest tree (1,920 nodes, lookahead's). A limit is needed because a race times forwards over as many rows
# as its curve has.
MAX_ROWS = 4096
# A guess; what `calibrate` writes has a few KB.
_MAX_BYTES = 4_000_000
_HINT = "give a file that calibrate wrote"


@dataclass(frozen=True)
class ContextCost:
    """What was measured after a prompt of `context` tokens: the time of one row, and a ratio for each row count."""

    context: int
    row_ms: float
    ratio: tuple[float, ...]


@dataclass(frozen=True)
class CostCurve:
    """The latency of a k-row forward over that of a one-row forward, on one machine.

    `ratio` has one entry for each entry of `rows`: the mean over `contexts`, which hold the ratios by context length.
    `about` describes the measurement. Raises InputError if rows and ratios do not form a curve.
    """

    rows: tuple[int, ...]
    ratio: tuple[float, ...]
    contexts: tuple[ContextCost, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.ratio) or self.rows[:1] != (1,) or sorted(set(self.rows)) != list(self.rows):
            raise InputError("A cost curve needs as many ratios as rows, and rows that rise from 1.")
        if self.rows[-1] > MAX_ROWS:
            raise InputError(f"A cost curve has at most {MAX_ROWS} rows, not {shorten(self.rows[-1], 20)}.")
        if not all(0 < value < float("inf") for value in (*self.ratio, *(context.row_ms for context in self.contexts))):
            raise InputError("A cost curve's ratios and times are above 0; measure it again with calibrate.")

    def at(self, rows: int) -> float:
        """The ratio at `rows`, interpolated linearly; beyond the last point, the last segment is extended."""
        if len(self.rows) == 1:
            return 1.0
        right = min(max(1, bisect_left(self.rows, rows)), len(self.rows) - 1)
        (x0, x1), (y0, y1) = self.rows[right - 1 : right + 1], self.ratio[right - 1 : right + 1]
        value = y0 + (y1 - y0) * (rows - x0) / (x1 - x0)
        # If the last segment falls, that is noise: more rows never cost less than the last measured point. Division by
        # the first ratio makes one row cost 1, also in a curve that was written by hand.
        return (max(value, y1) if rows > x1 else value) / self.ratio[0]

    @property
    def row_ms(self) -> float | None:
        """The time of one row, the mean over the measured contexts; None if nothing was measured."""
        return sum(context.row_ms for context in self.contexts) / len(self.contexts) if self.contexts else None

    def near(self, context: int) -> CostCurve:
        """The curve at the measured context length nearest to `context`; this curve if none was measured."""
        if not self.contexts:
            return self
        nearest = min(self.contexts, key=lambda measured: abs(measured.context - context))
        return CostCurve(self.rows, nearest.ratio, (nearest,), self.about)

    def in_batch(self, batch: int, max_rows: int) -> CostCurve:
        """The curve of one of `batch` requests that share each forward, with 1 to `max_rows` rows each.

        A row of one request then counts `batch` times, because the others are assumed to have as many. The measured
        `row_ms` becomes each request's share of a forward with one row of each. Compared with this shorter time, work
        that is done for one request after another, such as drafting, costs more, because it delays all of them.

        >>> CostCurve((1, 9), (1.0, 1.8)).in_batch(8, max_rows=2)
        CostCurve(rows=(1, 2), ratio=(1.0, 1.4705882352941175), contexts=(), about={})
        """
        if batch == 1:
            return self
        # The measured row counts, divided among the requests, rounded down and up.
        per_request = {count for row in self.rows for count in (row // batch, -(-row // batch))}
        rows = tuple(sorted({1, max_rows, *(count for count in per_request if 1 < count < max_rows)}))

        def ratios(curve: CostCurve) -> tuple[float, ...]:
            return tuple(curve.at(batch * count) / curve.at(batch) for count in rows)

        contexts = list[ContextCost]()
        for measured in self.contexts:
            curve = CostCurve(self.rows, measured.ratio)
            share_ms = measured.row_ms * curve.at(batch) / batch
            contexts.append(ContextCost(measured.context, share_ms, ratios(curve)))
        return CostCurve(rows, ratios(self), tuple(contexts), self.about)

    def as_json(self) -> dict[str, Any]:
        """The curve as a JSON object: rows, ratio, contexts, and `about`."""
        contexts = [
            {"context": measured.context, "row_ms": measured.row_ms, "ratio": list(measured.ratio)}
            for measured in self.contexts
        ]
        return {"rows": list(self.rows), "ratio": list(self.ratio), "contexts": contexts, **self.about}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CostCurve:
        """A curve from what `as_json` returns; only "rows" and "ratio" are required.

        Raises InputError, ValueError, TypeError or KeyError for anything else.
        """
        about = {key: value for key, value in values.items() if key not in ("rows", "ratio", "contexts")}
        rows = tuple(int(row) for row in values["rows"])
        contexts = tuple(
            ContextCost(int(measured["context"]), float(measured["row_ms"]), _ratios(measured["ratio"]))
            for measured in values.get("contexts", ())
        )
        for measured in contexts:
            # Checks that the ratios of this context form a curve, too.
            cls(rows, measured.ratio)
        return cls(rows, _ratios(values["ratio"]), contexts, about)

    def save(self, path: Path) -> None:
        """Write a JSON file, atomically. Raises OSError."""
        write_atomically(
            path, (json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        )

    @classmethod
    def load(cls, path: Path) -> CostCurve:
        """Read a JSON file that `save` wrote, or one with rows and ratio only. Raises InputError."""
        text = read_text(path, _MAX_BYTES, _HINT)
        try:
            return cls.from_json(json.loads(text))
        except InputError as error:
            raise InputError(f"{shorten(path)}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                f'{shorten(path)} is not a cost curve; give a file like {{"rows": [1, 2], "ratio": [1.0, 1.1]}}.'
            ) from error


# Curves to assume until one is measured. A GPU verifies 32 draft tokens in about a sixth more time than one token.
# On a CPU `calibrate` measured ratios of 1.3, 1.2, 1.4, 1.8, 2.6 and 4.4 for 2, 4, 8, 16, 32 and 64 rows. These are the
# ratios at the context where rows cost most, in three runs with the bundled model, in float32 with weights packed for
# products of a few rows, on one thread of a busy 2-core AMD EPYC without AVX-512. Up to 32 rows, a model of half a
# billion weights had no higher ratios. The assumed curve is about a tenth higher, to allow for other machines.
ASSUMED_GPU = CostCurve((1, 33), (1.0, 1.16))
ASSUMED_CPU = CostCurve((1, 2, 4, 8, 16, 32, 64), (1.0, 1.35, 1.35, 1.5, 2.0, 2.9, 5.0))
# For a float32 model on a CPU whose forwards run as plain calls of the model's modules ("eager"): without weights
# packed for products of a few rows, and without recorded ("captured") forwards. On two threads of the machine above,
# SmolLM2-135M took 1.7, 2.1, 1.8 and 2.8 times as long for 2, 3, 4 and 32 rows as for one; on another machine, 2.1 and
# 3.0 times as long for 2 and 3 rows.
ASSUMED_EAGER_CPU = CostCurve((1, 2, 3, 4, 8, 16, 32, 64), (1.0, 2.1, 3.0, 2.0, 2.2, 2.4, 3.1, 5.2))


def assumed_curve(device: str) -> CostCurve:
    """The curve to assume on a device type ("cpu", "cuda") until one is measured."""
    return ASSUMED_CPU if device == "cpu" else ASSUMED_GPU


def _ratios(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def best_budget(curve: CostCurve, expected: Sequence[float], min_draft: int = 0, price: float = 0.0) -> int:
    """The number of draft nodes, at least `min_draft`, that yields the most tokens for its cost.

    Ties go to the smallest. `expected`: the accepted tokens that the first, second, ... node is expected to yield. A
    step with k nodes yields 1 + the sum of the first k, and costs a forward over 1 + k rows plus k times `price`, the
    cost of drafting a node in one-row forwards. If drafting is free, a row count that costs more than a larger one is
    never chosen. With `min_draft` 0 the answer may be 0: no draft pays.
    """
    tokens = list(accumulate(expected, initial=1.0))
    return max(range(min_draft, len(tokens)), key=lambda size: tokens[size] / (curve.at(1 + size) + price * size))


def row_counts(max_rows: int) -> tuple[int, ...]:
    """The row counts to capture forwards for if trees have up to `max_rows` rows: 1, 9, 17, 33, 65, ... `max_rows`.

    They are one above the powers of two because k draft tokens make k + 1 rows.

    >>> row_counts(40)
    (1, 9, 17, 33, 40)
    """
    between = takewhile(lambda rows: rows < max_rows, (1 + (8 << doubling) for doubling in count()))
    return tuple(sorted({1, *between, max_rows}))


def pad_rows(curve: CostCurve, rows: int, max_rows: int | None = None) -> int:
    """The cheapest row count from `rows` to `max_rows`, within the measured range; ties go to the smallest.

    Between two measured counts the cost is a straight line, so the cheapest is a measured count or one of the two ends.

    >>> pad_rows(CostCurve((1, 2, 3, 4), (1.0, 2.1, 3.0, 2.0)), rows=2)
    4
    """
    last = curve.rows[-1] if max_rows is None else min(max_rows, curve.rows[-1])
    return min((rows, *(measured for measured in curve.rows if rows < measured < last), max(rows, last)), key=curve.at)
