"""The cost curve: the latency of a k-row forward relative to one row on a machine, and the draft size that pays."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text, write_whole

# Several times the largest draft; a race times and pads trees of up to the last row count of its curve.
MAX_ROWS = 4096
_MAX_BYTES = 4_000_000
_HINT = "give a file that calibrate wrote"


@dataclass(frozen=True)
class ContextCost:
    """Measured after one prompt of `context` tokens: the time of one row, and a ratio for each row count."""

    context: int
    row_ms: float
    ratio: tuple[float, ...]


@dataclass(frozen=True)
class CostCurve:
    """Latency of a k-row forward divided by that of one row, as measured on some machine.

    `contexts` has the ratios of each context length, of which `ratio` is the mean; `about` says what was measured.
    Raises InputError for rows and ratios that make no curve.
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
        if not all(0 < value < float("inf") for value in (*self.ratio, *(each.row_ms for each in self.contexts))):
            raise InputError("A cost curve's ratios and times are above 0; measure it again with calibrate.")

    def at(self, rows: int) -> float:
        """The ratio at `rows`, interpolated linearly; the last line is extended."""
        if len(self.rows) == 1:
            return 1.0
        right = min(max(1, bisect_left(self.rows, rows)), len(self.rows) - 1)
        (x0, x1), (y0, y1) = self.rows[right - 1 : right + 1], self.ratio[right - 1 : right + 1]
        value = y0 + (y1 - y0) * (rows - x0) / (x1 - x0)
        # A last line that falls is noise; further rows never cost less than the last that were measured.
        return (max(value, y1) if rows > x1 else value) / self.ratio[0]

    @property
    def row_ms(self) -> float | None:
        """Time of one row, the mean over the measured contexts; None where unknown."""
        return sum(each.row_ms for each in self.contexts) / len(self.contexts) if self.contexts else None

    def near(self, context: int) -> CostCurve:
        """The curve of the context length nearest to `context`; this one if there is but one."""
        if not self.contexts:
            return self
        nearest = min(self.contexts, key=lambda each: abs(each.context - context))
        return CostCurve(self.rows, nearest.ratio, (nearest,), self.about)

    def as_json(self) -> dict[str, Any]:
        """The curve as a JSON object: rows, ratio, contexts, and `about`."""
        contexts = [
            {"context": each.context, "row_ms": each.row_ms, "ratio": list(each.ratio)} for each in self.contexts
        ]
        return {"rows": list(self.rows), "ratio": list(self.ratio), "contexts": contexts, **self.about}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> CostCurve:
        """The reverse; rows and ratio are enough. Raises InputError, ValueError, TypeError or KeyError."""
        about = {key: value for key, value in found.items() if key not in ("rows", "ratio", "contexts")}
        rows = tuple(int(row) for row in found["rows"])
        contexts = tuple(
            ContextCost(int(each["context"]), float(each["row_ms"]), _ratios(each["ratio"]))
            for each in found.get("contexts", ())
        )
        for each in contexts:
            cls(rows, each.ratio)
        return cls(rows, _ratios(found["ratio"]), contexts, about)

    def save(self, path: Path) -> None:
        """Write a JSON file, whole or not at all. Raises OSError."""
        write_whole(path, (json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace"))

    @classmethod
    def load(cls, path: Path) -> CostCurve:
        """A curve from a JSON file that `save` wrote, or one with rows and ratio only. Raises InputError."""
        text = read_text(path, _MAX_BYTES, _HINT)
        try:
            return cls.from_json(json.loads(text))
        except InputError as error:
            raise InputError(f"{shorten(path)}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                f'{shorten(path)} is no cost curve; it needs {{"rows": [1, 2], "ratio": [1.0, 1.1]}}.'
            ) from error


# Before anything was measured. A GPU verifies 32 draft tokens for about a sixth more than one. For a CPU `calibrate`
# found, in float32 on packed weights, on one thread of a 2-core AMD EPYC without AVX-512 (bundled model, the dearest
# context of three runs, other work beside them), 1.3, 1.2, 1.4, 1.8, 2.6 and 4.4 for 2, 4, 8, 16, 32 and 64 rows, and
# no more for a shape of half a billion weights up to 32. What is assumed is about a tenth dearer, for other machines.
ASSUMED_GPU = CostCurve((1, 33), (1.0, 1.16))
ASSUMED_CPU = CostCurve((1, 2, 4, 8, 16, 32, 64), (1.0, 1.35, 1.35, 1.5, 2.0, 2.9, 5.0))
# A float32 model on a CPU whose forwards are not captured, and run on plain weights: on two threads there two and three
# rows took 1.7 and 2.1 times one row (SmolLM2-135M; 2.1 and 3.0 on another machine), four 1.8, and 32 2.8.
ASSUMED_EAGER_CPU = CostCurve((1, 2, 3, 4, 8, 16, 32, 64), (1.0, 2.1, 3.0, 2.0, 2.2, 2.4, 3.1, 5.2))


def assumed_curve(device: str) -> CostCurve:
    """The curve of a device ("cpu", "cuda") before one was measured."""
    return ASSUMED_CPU if device == "cpu" else ASSUMED_GPU


def _ratios(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def best_budget(curve: CostCurve, expected: Sequence[float], least: int = 0, price: float = 0.0) -> int:
    """The number of draft nodes, from `least` to all, that yields the most tokens for its cost; of equals the smallest.

    `expected`: the accepted tokens that the first, second, ... node is expected to yield. A step with k nodes yields
    1 + their sum and costs a forward over 1 + k rows, so a number of rows that costs more than a larger one is never
    chosen; where drafting is dear it costs k times `price` more, in forwards over one row. With `least` 0 the answer
    may be 0: no draft pays.
    """
    tokens = list(accumulate(expected, initial=1.0))
    return max(range(least, len(tokens)), key=lambda number: tokens[number] / (curve.at(1 + number) + price * number))


def row_counts(most: int) -> tuple[int, ...]:
    """The numbers of rows for which forwards are recorded where trees have 1 to `most`: 1, 9, 17, 33, 65, ... `most`.

    One above the powers of two, because k draft tokens are k + 1 rows.
    """
    between = takewhile(lambda rows: rows < most, (1 + (8 << doubling) for doubling in count()))
    return tuple(sorted({1, *between, most}))


def pad_rows(curve: CostCurve, rows: int, most: int | None = None) -> int:
    """The cheapest number of rows that is at least `rows`, within what was measured and `most`; of equals the smallest.

    Between two that were measured the cost is a straight line, so the cheapest is one of those or at either end.
    """
    last = curve.rows[-1] if most is None else min(most, curve.rows[-1])
    return min((rows, *(each for each in curve.rows if rows < each < last), max(rows, last)), key=curve.at)
