"""Decides whether drafting pays: the cost of a step by draft size, and a cool-down after losses."""

from __future__ import annotations

from functools import lru_cache

from specrace.core.cost_curve import CostCurve


class StepCosts:
    """The costs of steps with 0 to `max_draft` draft tokens, in units of a step without a draft.

    `costs[k]`: the cost with k draft tokens, the drafter's time included. It never falls as k grows, because a lane
    adds padding rows where more rows are cheaper. `floor`: the lowest cost of a draft token, and so the lowest
    probability with which a draft token may pay.
    """

    # The lowest `floor`: even on a curve that is flat, or that noise makes fall, very unlikely tokens do not pay.
    MIN_FLOOR = 0.002
    # The time of this drafter's Python code in milliseconds, measured once: per draft, and per node of the draft.
    DRAFT_MS, NODE_MS = 0.1, 0.02

    def __init__(self, curve: CostCurve, max_draft: int) -> None:
        draft_cost, node_cost = 0.0, 0.0
        if curve.row_ms:
            draft_cost, node_cost = self.DRAFT_MS / curve.row_ms, self.NODE_MS / curve.row_ms
        # The costs of forwards over 1, 2, ... rows. A lane pads its tree where more rows are cheaper.
        rows = [curve.at(1 + count) for count in range(max_draft + 1)]
        for count in range(max_draft - 1, -1, -1):
            rows[count] = min(rows[count], rows[count + 1])
        self.costs = [1.0]
        self.costs += [rows[count] / rows[0] + (draft_cost + node_cost * count) for count in range(1, max_draft + 1)]
        # The curve is linear between measured row counts, so `may_pay` only tries draft sizes at the measured counts.
        knots = {row - 1 for row in curve.rows if 1 < row <= max_draft}
        self.knots = sorted(knots | {max_draft}) if max_draft else []
        self.floor = max(self.MIN_FLOOR, min(((self.costs[count] - 1.0) / count for count in self.knots), default=1.0))

    def may_pay(self, count: int, tokens: float, prob: float, best: float) -> bool:
        """Whether a step with more than `count` draft tokens could yield more than `best` tokens per unit of cost.

        A step with the first `count` draft tokens yields `tokens`. No further token is likelier than `prob`.
        """
        costs = self.costs
        for knot in self.knots:  # noqa: SIM110 - a generator takes twice as long
            if knot > count and tokens + prob * (knot - count) > best * costs[knot]:
                return True
        return False


@lru_cache(maxsize=32)
def step_costs(curve: CostCurve, max_draft: int) -> StepCosts:
    """`StepCosts`, computed once and shared by all drafters."""
    return StepCosts(curve, max_draft)


class CoolDown:
    """Pauses drafting after a loss of more than one and a half tokens; each further pause is twice as long.

    The balance of gains and losses is the sum of tokens minus cost, in units of a step without a draft. It is capped at
    `MAX_BALANCE`, so that a change of the text shows soon. At the longest pause, drafts that are never accepted cost
    2 % of the speed. A pause of k steps ends early once the predicted token came in k / 2 consecutive steps, because
    then the output copies again.
    """

    MAX_BALANCE, MIN_BALANCE = 1.0, -1.5
    # The lengths of pauses, in steps; no record says why the shortest is 4.
    SHORTEST, LONGEST = 4, 192

    def __init__(self) -> None:
        self.balance = 0.0
        self.pause = 0
        self.next_pause = self.SHORTEST
        # The number of correct predictions in a row, and the number that ends the pause.
        self._hits_in_a_row = 0
        self._hits_to_resume = 0

    def skip_step(self) -> bool:
        """Whether this step must not draft. If so, it counts as one step of the pause."""
        if not self.pause:
            return False
        self.pause -= 1
        return True

    def watch(self, hit: bool) -> None:
        """Record whether the likeliest token was the target's (a `hit`). To be called in each step of a pause."""
        self._hits_in_a_row = self._hits_in_a_row + 1 if hit else 0
        if self._hits_in_a_row >= self._hits_to_resume:
            self.pause = 0

    def record(self, tokens: int, cost: float) -> None:
        """Record that a step with a draft emitted `tokens` tokens at `cost`."""
        self.balance = min(self.MAX_BALANCE, self.balance + tokens - cost)
        if self.balance < self.MIN_BALANCE:
            self.pause = self.next_pause
            self.balance = 0.0
            self._hits_to_resume = self.pause // 2
            self._hits_in_a_row = 0
            self.next_pause = min(self.LONGEST, 2 * self.next_pause)
        elif self.balance > 0.0:
            self.next_pause = self.SHORTEST
