"""What drafting pays: the cost of a step by draft size, and a cool-down after losses."""

from __future__ import annotations

from functools import lru_cache

from specrace.core.cost_curve import CostCurve


class StepCosts:
    """Costs of a step with 0 to `most` draft tokens, in steps without a draft.

    `costs`: never falling, for a lane pads its rows where more are cheaper, and with the drafter's own time. `floor`:
    the least cost of a draft token, so the least probability that may pay.
    """

    # The least `floor`: on a curve that is flat, or falls by noise, tokens that are hardly ever right still do not pay.
    MIN_FLOOR = 0.002
    # Measured times of this drafter's Python: for a draft, and for each node in it.
    DRAFT_MS, NODE_MS = 0.1, 0.02

    def __init__(self, curve: CostCurve, most: int) -> None:
        first, each = (self.DRAFT_MS / curve.row_ms, self.NODE_MS / curve.row_ms) if curve.row_ms else (0.0, 0.0)
        rows = [curve.at(1 + count) for count in range(most + 1)]
        for count in range(most - 1, -1, -1):
            rows[count] = min(rows[count], rows[count + 1])
        self.costs = [cost / rows[0] + (first + each * count if count else 0.0) for count, cost in enumerate(rows)]
        # The curve is linear between measured rows, so sizes between these need no look.
        self.knots = sorted({row - 1 for row in curve.rows if 1 < row <= most} | ({most} if most else set()))
        self.floor = max(self.MIN_FLOOR, min(((self.costs[count] - 1.0) / count for count in self.knots), default=1.0))

    def may_pay(self, count: int, tokens: float, prob: float, best: float) -> bool:
        """Whether more than `count` draft tokens could yield more than `best` tokens per cost.

        The first `count` yield `tokens`, and none of the others is likelier than `prob`.
        """
        costs = self.costs
        for knot in self.knots:  # noqa: SIM110 - a generator takes twice as long
            if knot > count and tokens + prob * (knot - count) > best * costs[knot]:
                return True
        return False


@lru_cache(maxsize=32)
def step_costs(curve: CostCurve, most: int) -> StepCosts:
    """`StepCosts`, computed once and shared by drafters."""
    return StepCosts(curve, most)


class CoolDown:
    """Suspends drafting after a loss of more than one and a half tokens, for twice as many steps each time.

    Gains and losses are tokens minus cost, in steps without a draft; gains count up to `MAX_BALANCE`, so that a change
    of the text shows soon. At the longest pause, drafts that are never accepted cost 2 % of the speed. A pause ends
    early once the text copies again: half as many tokens in a row as it has steps were those that were likeliest.
    """

    MAX_BALANCE, MIN_BALANCE = 1.0, -1.5
    SHORTEST, LONGEST = 4, 192

    def __init__(self) -> None:
        self.balance = 0.0
        self.pause = 0
        self.next_pause = self.SHORTEST
        self._wake = self._in_a_row = 0

    def skip_step(self) -> bool:
        """Whether this step is to have no draft; it counts as one of the pause."""
        if not self.pause:
            return False
        self.pause -= 1
        return True

    def watch(self, hit: bool) -> None:
        """In a step without a draft the likeliest token was the target's, or not."""
        self._in_a_row = self._in_a_row + 1 if hit else 0
        if self._in_a_row >= self._wake:
            self.pause = 0

    def record(self, tokens: int, cost: float) -> None:
        """A step with a draft yielded `tokens` at `cost`."""
        self.balance = min(self.MAX_BALANCE, self.balance + tokens - cost)
        if self.balance < self.MIN_BALANCE:
            self.pause, self.balance = self.next_pause, 0.0
            self._wake, self._in_a_row = self.pause // 2, 0
            self.next_pause = min(self.LONGEST, 2 * self.next_pause)
        elif self.balance > 0.0:
            self.next_pause = self.SHORTEST
