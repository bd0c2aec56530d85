"""What a lane's steps accepted: how many tokens they emitted, and how often each position of the draft was accepted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from specrace.core.events import Step


class Acceptance:
    """Counts of a lane's steps."""

    def __init__(self) -> None:
        self._emitted: Counter[int] = Counter()
        self._depths: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()

    def add(self, step: Step) -> None:
        """Count one step."""
        self._emitted[len(step.emitted)] += 1
        self._depths[max(step.tree.depths)] += 1
        self._accepted[step.accepted] += 1

    def merge(self, other: Acceptance) -> None:
        """Add the counts of other steps."""
        self._emitted.update(other._emitted)
        self._depths.update(other._depths)
        self._accepted.update(other._accepted)

    @property
    def steps(self) -> int:
        """How many were counted."""
        return self._emitted.total()

    def summary(self) -> dict[str, Any]:
        """`emitted`: steps that emitted 0, 1, 2, ... tokens; of each draft position from the first on `drafted`, the
        steps with a draft so long, and `accepted`, those of them that accepted it.
        """
        most = max(self._depths, default=0)
        return {
            "emitted": [self._emitted[number] for number in range(max(self._emitted, default=0) + 1)],
            "drafted": _at_least(self._depths, most),
            "accepted": _at_least(self._accepted, most),
        }


def _at_least(counts: Counter[int], most: int) -> list[int]:
    """The total of the counts of 1 and more, 2 and more, ..., `most` and more."""
    return [sum(count for number, count in counts.items() if number >= least) for least in range(1, most + 1)]
