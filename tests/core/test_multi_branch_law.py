"""Trees of draws have the target's distribution; three rules that are slightly wrong do not.

The target and two drafters are Markov chains over five letters with known transition matrices. The first drafter is so
sharp that it often draws a letter twice. The test calls the `choose` that lanes use, for 100,000 texts at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from specrace.core import multi_branch
from specrace.core.multi_branch import choose
from specrace.core.rejection import draw

LETTERS, TEXTS = 5, 100_000
# Row a: what follows the letter a. Every text begins after letter 0.
TARGET = np.array(
    [
        [0.35, 0.25, 0.2, 0.15, 0.05],
        [0.1, 0.4, 0.1, 0.1, 0.3],
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.05, 0.05, 0.5, 0.3, 0.1],
        [0.6, 0.1, 0.1, 0.1, 0.1],
    ]
)
SHARP = np.array(
    [
        [0.7, 0.1, 0.1, 0.05, 0.05],
        [0.05, 0.05, 0.75, 0.1, 0.05],
        [0.02, 0.9, 0.03, 0.03, 0.02],
        [0.1, 0.1, 0.1, 0.6, 0.1],
        [0.1, 0.2, 0.1, 0.55, 0.05],
    ]
)
BROAD = np.array(
    [
        [0.1, 0.45, 0.25, 0.1, 0.1],
        [0.3, 0.1, 0.2, 0.2, 0.2],
        [0.15, 0.25, 0.2, 0.3, 0.1],
        [0.4, 0.2, 0.2, 0.1, 0.1],
        [0.05, 0.05, 0.3, 0.3, 0.3],
    ]
)
# The drafters whose draws are tried for each letter, in this order.
ORDERS = {
    "three of one drafter": (SHARP, SHARP, SHARP),
    "two and one": (SHARP, SHARP, BROAD),
    "one and two": (BROAD, SHARP, SHARP),
}


@dataclass(frozen=True)
class Rule:
    """The order of the draws; a flag makes a deliberate mistake."""

    drafters: tuple[np.ndarray, ...]
    drops_duplicates: bool = False

    def step(self, last: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The letter chosen after each of the letters `last` [B], by draws from all drafters."""
        count = len(self.drafters)
        q = np.stack([drafter[last] for drafter in self.drafters], axis=1)
        drafts = draw(q, random.random((len(last), count)))
        if self.drops_duplicates:
            for index in range(1, count):
                is_repeated = (drafts[:, :index] == drafts[:, index, None]).any(axis=1)
                # Nothing is subtracted for this draw, and after a refusal its letter has the probability 0.
                q[is_repeated, index] = 0.0
        _, tokens, _ = choose(drafts, TARGET[last], q, random.random(drafts.shape), random.random(len(last)))
        return tokens

    def p_values(self) -> tuple[float, float]:
        """The p of chi-squared tests of the first letters, and of the pairs of first and second letters."""
        random = np.random.default_rng(40)
        first = self.step(np.zeros(TEXTS, dtype=int), random)
        second = self.step(first, random)
        pairs = np.bincount(first * LETTERS + second, minlength=LETTERS**2)
        return p_value(np.bincount(first, minlength=LETTERS), TARGET[0]), p_value(
            pairs, (TARGET[0][:, None] * TARGET).ravel()
        )


def p_value(counts: np.ndarray, probs: np.ndarray) -> float:
    """The chance of counts that are at least as far from `probs`, by Pearson's test; their number must be odd."""
    half = (((counts - counts.sum() * probs) ** 2 / (counts.sum() * probs)).sum()) / 2
    terms = np.cumprod([1.0, *(half / number for number in range(1, (len(counts) - 1) // 2))])
    return float(math.exp(-half) * terms.sum())


def unchanged(p: np.ndarray, q: np.ndarray) -> np.ndarray:  # noqa: ARG001  stands in for `residual`
    """A wrong `residual`: a refusal changes nothing."""
    return p


def not_normalised(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """A wrong `residual` that does not add up to 1, so that later draws are accepted too rarely."""
    return np.maximum(p - q, 1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_letters_and_pairs_have_the_targets_distribution(order: str) -> None:
    assert min(Rule(ORDERS[order]).p_values()) > 0.001


@pytest.mark.parametrize("order", ORDERS)
def test_a_rule_that_drops_duplicates_fails_the_same_tests(order: str) -> None:
    assert max(Rule(ORDERS[order], drops_duplicates=True).p_values()) < 1e-6


@pytest.mark.parametrize("wrong", [unchanged, not_normalised])
def test_a_wrong_residual_fails_the_same_tests(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_branch, "residual", wrong)
    for drafters in ORDERS.values():
        assert max(Rule(drafters).p_values()) < 1e-6


def test_draws_are_often_repeated_and_every_place_in_the_order_is_used() -> None:
    """Otherwise the tests would say nothing about duplicates, or about later draws."""
    random = np.random.default_rng(4)
    q = np.broadcast_to(SHARP[0], (TEXTS, 3, LETTERS))
    drafts = draw(q, random.random((TEXTS, 3)))
    p = np.broadcast_to(TARGET[0], (TEXTS, LETTERS))
    chosen, _, _ = choose(drafts, p, q, random.random((TEXTS, 3)), random.random(TEXTS))
    assert (drafts[:, 0] == drafts[:, 1]).mean() > 0.5
    assert np.bincount(chosen, minlength=4).min() > 0.01 * TEXTS


def test_the_p_value_is_that_of_published_tables() -> None:
    """9.488 for four degrees of freedom and 36.415 for 24 are the values of p = 0.05."""
    for degrees, value in ((4, 9.488), (24, 36.415)):
        probs = np.full(degrees + 1, 1 / (degrees + 1))
        total, shift = 1e6, np.sqrt(value * 1e6 / (degrees + 1) / 2)
        counts = total * probs
        counts[0] += shift
        counts[1] -= shift
        assert p_value(counts, probs) == pytest.approx(0.05, rel=1e-3)
