"""What drafting pays: the price of rows, how far estimates can be trusted, and whether drafts earned their cost."""

from __future__ import annotations

from functools import lru_cache

from specrace.core.cost_curve import CostCurve


class StepCosts:
    """What a step with 0, 1, ... guesses costs, in steps without any, up to a number of guesses.

    A lane runs a few rows more where that is cheaper, so the cost never falls; and a guess takes time to make.
    `floor` is the price of a guess where they are cheapest: one that is less likely than that never pays. `measured`
    are the rows alone, as the curve has them.
    """

    # On a curve that is flat, or falls by a noise, what is hardly ever right is left out all the same.
    CHEAPEST = 0.002
    # What Python takes to make any draft, and more for each guess, on the machines that this was written on.
    DRAFT_MS, NODE_MS = 0.1, 0.02

    def __init__(self, curve: CostCurve, most: int) -> None:
        first, each = (self.DRAFT_MS / curve.row_ms, self.NODE_MS / curve.row_ms) if curve.row_ms else (0.0, 0.0)
        self.measured = [curve.at(1 + count) for count in range(most + 1)]
        rows = self.measured.copy()
        for count in range(most - 1, -1, -1):
            rows[count] = min(rows[count], rows[count + 1])
        self.costs = [cost / rows[0] + (first + each * count if count else 0.0) for count, cost in enumerate(rows)]
        # Between measured rows costs run straight, so whether more guesses can pay is decided at these.
        self.corners = sorted({row - 1 for row in curve.rows if 1 < row <= most} | ({most} if most else set()))
        prices = ((self.costs[count] - 1.0) / count for count in self.corners)
        self.floor = max(self.CHEAPEST, min(prices, default=1.0))

    def may_pay(self, count: int, tokens: float, prob: float, best: float) -> bool:
        """Whether more than `count` guesses, none likelier than `prob`, could beat `best` tokens for their cost.

        `tokens` is what `count` guesses bring.
        """
        costs = self.costs
        for corner in self.corners:
            if corner > count and tokens + prob * (corner - count) > best * costs[corner]:
                return True
        return False


@lru_cache(maxsize=32)
def step_costs(curve: CostCurve, most: int) -> StepCosts:
    """The prices of a machine's rows, worked out once and not for every drafter."""
    return StepCosts(curve, most)


class Calibration:
    """How far the estimates after contexts of each length have come true: right over expected, near 1 at first.

    Every real token judges the estimate that was made for its place, so there is no bias from what was drafted. Length
    0 stands for no context at all, and up to `longest` more for contexts in earlier outputs.
    """

    # As if a few estimates had been judged before and nine in ten of what was expected had come.
    SEEN, CAME = 4.0, 0.9
    # No copy is sure.
    MOST = 0.98

    def __init__(self, longest: int) -> None:
        self.right = [self.SEEN * self.CAME] * (2 * longest + 1)
        self.expected = [self.SEEN] * (2 * longest + 1)

    def factor(self, length: int, top: float) -> float:
        """What to multiply estimates with after a context of `length` tokens, the likeliest of which is `top`."""
        return min(self.right[length] / self.expected[length], self.MOST / top)

    def judge(self, length: int, top: float, came: bool) -> None:
        """The likeliest token was estimated with `top`, and `came` or not."""
        self.right[length] += came
        self.expected[length] += top


class CoolDown:
    """The cool-down: once drafts have lost more than two tokens they are put off, for longer each time.

    A draft brings its tokens and costs its rows, both in steps of one token. Gains count up to `MOST`, so that a text
    which changes is noticed soon. At the longest pause drafts that are never right cost 2 % of the speed.
    """

    MOST, LEAST = 1.0, -2.0
    SHORTEST, LONGEST = 4, 192

    def __init__(self) -> None:
        self.balance = 0.0
        self.pause = 0
        self.next_pause = self.SHORTEST

    def rests(self) -> bool:
        """Whether this step goes without a draft, because the last ones did not pay."""
        if not self.pause:
            return False
        self.pause -= 1
        return True

    def book(self, tokens: int, cost: float) -> None:
        """A step with a draft brought `tokens` for `cost`."""
        self.balance = min(self.MOST, self.balance + tokens - cost)
        if self.balance < self.LEAST:
            self.pause, self.balance = self.next_pause, 0.0
            self.next_pause = min(self.LONGEST, 2 * self.next_pause)
        elif self.balance > 0.0:
            self.next_pause = self.SHORTEST
