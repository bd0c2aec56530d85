"""Counts what a lane's steps emitted, and how often each position of the draft was accepted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from specrace.core.events import Step


class Acceptance:
    """Counts over a lane's steps."""

    def __init__(self) -> None:
        # Tokens emitted, depth of the draft, and draft tokens accepted in a step -> number of such steps.
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
        """The number of steps counted."""
        return self._emitted.total()

    def summary(self) -> dict[str, Any]:
        """The counts as lists.

        `emitted`[i]: steps that emitted i tokens. `drafted`[i]: steps whose draft was deeper than i tokens.
        `accepted`[i]: steps that accepted more than i draft tokens.
        """
        max_depth = max(self._depths, default=0)
        return {
            "emitted": [self._emitted[number] for number in range(max(self._emitted, default=0) + 1)],
            "drafted": _at_least(self._depths, max_depth),
            "accepted": _at_least(self._accepted, max_depth),
        }


def _at_least(counts: Counter[int], maximum: int) -> list[int]:
    """For each bound from 1 to `maximum`, the total count of numbers that reach it."""
    return [sum(count for number, count in counts.items() if number >= bound) for bound in range(1, maximum + 1)]
