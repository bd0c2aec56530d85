"""Forecasts a trained head from its acceptance by depth. This is no replay: a log does not tell what a head drafts.

A step with a chain of d draft tokens yields 1 + a1 + a1 a2 + ... + a1 ... ad tokens on average, where ai is the share
of i-th draft tokens that are accepted if those before them were. It costs a forward of the target over 1 + d rows and d
passes of the head.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any, TypeGuard

from specrace.core.cost_curve import CostCurve, best_budget
from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text

# Refuses lists that are hardly a head's acceptance; the number is a guess.
MAX_DEPTH = 64
# Larger files are refused: MAX_DEPTH shares need far less.
_MAX_BYTES = 100_000
_HINT = 'give a file like {"by_depth": [0.7, 0.6], "pass_cost": 0.1}'


@dataclass(frozen=True)
class HeadProfile:
    """A head's acceptance: `by_depth` has a1, a2, ... as above, which model cards and papers state.

    `pass_cost`: the time of one pass of the head, in forwards of the target over as many rows.
    """

    by_depth: tuple[float, ...]
    pass_cost: float

    @classmethod
    def load(cls, path: Path) -> HeadProfile:
        """Read a JSON file {"by_depth": [...], "pass_cost": ...}. Raises InputError."""
        text = read_text(path, _MAX_BYTES, f"{_HINT}.")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{shorten(path)} is not JSON; {_HINT}.") from error
        if not isinstance(values, Mapping):
            raise InputError(f"{shorten(path)} is not a head's profile; {_HINT}.")
        shares, cost = values.get("by_depth"), values.get("pass_cost")
        if not isinstance(shares, list) or not 1 <= len(shares) <= MAX_DEPTH or not all(map(_is_share, shares)):
            raise InputError(
                f"{shorten(path)}: by_depth is not a list of 1 to {MAX_DEPTH} shares from 0 to 1; {_HINT}."
            )
        if not _is_number(cost) or not 0 <= cost < math.inf:
            raise InputError(
                f"{shorten(path)}: pass_cost, the time of a pass of the head in forwards of its target, is not a "
                f"number of 0 or more; {_HINT}."
            )
        return cls(tuple(map(float, shares)), float(cost))

    def forecast(self, curve: CostCurve, batch: int = 1) -> HeadForecast:
        """The forecast with the chain length that pays best when `batch` requests are decoded together."""
        # The share of all steps in which each draft token is accepted: a1, a1 a2, ...
        expected = list(accumulate(self.by_depth, mul))
        batch_curve = curve.in_batch(batch, max_rows=1 + len(expected))
        size = best_budget(batch_curve, expected, price=self.pass_cost)
        tau = 1.0 + sum(expected[:size])
        return HeadForecast(
            num_draft=size,
            tau=tau,
            speedup=tau / (batch_curve.at(1 + size) + size * self.pass_cost),
            break_even=batch_curve.at(2) + self.pass_cost - 1.0,
        )


@dataclass(frozen=True)
class HeadForecast:
    """Tokens a step (`tau`) and the speedup with drafts of `num_draft` tokens, which pay best; 0: none pays.

    `break_even`: the share of first draft tokens that must be accepted for a draft of one token to pay; at 1 or more,
    it never does.
    """

    num_draft: int
    tau: float
    speedup: float
    break_even: float

    def as_json(self) -> dict[str, Any]:
        """The forecast as a JSON object."""
        return asdict(self)

    def sentence(self) -> str:
        """The forecast in words, and what it is not."""
        outcome = (
            f"yields {self.tau:.2f} tokens a step with drafts of {self.num_draft}, a forecast speedup of "
            f"{self.speedup:.2f}x"
            if self.num_draft
            else "does not pay at any draft size"
        )
        pays = (
            f"one draft token pays if more than {100 * max(0.0, self.break_even):.0f} % are accepted"
            if self.break_even < 1
            else "a draft of one token cannot pay"
        )
        return (
            f"A head with the acceptance of --head-profile {outcome}; {pays}. This is no replay of these requests: "
            "their log does not tell what a head would have drafted."
        )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_share(value: object) -> bool:
    return _is_number(value) and 0 <= value <= 1
