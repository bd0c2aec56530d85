"""Rejection sampling has the target's distribution; four rules that are slightly wrong do not.

The target and the drafter are two Markov chains over four letters with known transition matrices. The test calls the
`walk` that lanes use, on 200,000 drafts at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from specrace.core import rejection
from specrace.core.rejection import draw, walk, warp_probs
from specrace.core.sampling_params import SamplingParams

LETTERS = 4
NUM_DRAFT = 2
# The numbers of texts in which first letters and pairs are counted.
FIRST, PAIRS = 200_000, 100_000
# With this many fair draws the mean distance is at most 0.002 for one letter and 0.005 for two.
BOUND = 0.007

# Row a: what follows the letter a. Every text begins after letter 0.
TARGET = np.array([[0.4, 0.3, 0.2, 0.1], [0.05, 0.15, 0.7, 0.1], [0.25, 0.3, 0.05, 0.4], [0.6, 0.1, 0.1, 0.2]])
DRAFTERS = {
    "sharp": np.array([[0.9, 0.06, 0.03, 0.01], [0.02, 0.03, 0.9, 0.05], [0.05, 0.05, 0.8, 0.1], [0.1, 0.7, 0.1, 0.1]]),
    "flat": np.array([[0.25, 0.27, 0.23, 0.25], [0.3, 0.2, 0.25, 0.25], [0.22, 0.26, 0.26, 0.26], [0.25] * 4]),
    "nearly disjoint": np.array(
        [[0.01, 0.02, 0.05, 0.92], [0.6, 0.35, 0.01, 0.04], [0.03, 0.02, 0.93, 0.02], [0.01, 0.5, 0.48, 0.01]]
    ),
}


@dataclass(frozen=True)
class Rule:
    """A drafter and a verifier; each flag makes one deliberate mistake."""

    temperature: float
    q: np.ndarray
    recomputes_q: bool = False
    reports_unscaled_q: bool = False
    one_coin_per_path: bool = False

    def rows(self, table: np.ndarray) -> np.ndarray:
        """The distributions of a transition matrix at the rule's temperature."""
        return warp_probs(table, SamplingParams(self.temperature))

    def step(self, last: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step after the letters `last` [B]: drafts, numbers of accepted letters, and the letter after these."""
        drawn_from = self.rows(self.q)
        drafts = np.empty((len(last), NUM_DRAFT), dtype=int)
        contexts = [last]
        for depth in range(NUM_DRAFT):
            drafts[:, depth] = draw(drawn_from[contexts[-1]], random.random(len(last)))
            contexts.append(drafts[:, depth])
        reported = self.q if self.reports_unscaled_q else drawn_from
        # The mutant looks q up again in the context from before the step, although the chain has moved on since.
        q_contexts = [last] * NUM_DRAFT if self.recomputes_q else contexts[:-1]
        q = reported[np.stack(q_contexts, axis=1)]
        p = self.rows(TARGET)[np.stack(contexts, axis=1)]
        coins = random.random((len(last), NUM_DRAFT))
        if self.one_coin_per_path:
            coins[:, 1:] = coins[:, :1]
        return drafts, *walk(drafts, p, q, coins, random.random((len(last), NUM_DRAFT + 1)))

    def first_two(self, count: int) -> np.ndarray:
        """The first two letters of `count` texts, [count, 2]; a second step completes texts of one letter."""
        random = np.random.default_rng(20240)
        drafts, accepted, after = self.step(np.zeros(count, dtype=int), random)
        texts = np.stack([np.where(accepted > 0, drafts[:, 0], after), np.where(accepted > 1, drafts[:, 1], after)], 1)
        one_letter_texts = np.flatnonzero(accepted == 0)
        drafts, accepted, after = self.step(texts[one_letter_texts, 0], random)
        texts[one_letter_texts, 1] = np.where(accepted > 0, drafts[:, 0], after)
        return texts

    def distances(self) -> tuple[float, float]:
        """Total variation distance from the target's distribution, of the first letter and of the first two."""
        rows = self.rows(TARGET)
        texts = self.first_two(FIRST)
        first = np.bincount(texts[:, 0], minlength=LETTERS) / FIRST
        pairs = texts[:PAIRS] @ [LETTERS, 1]
        pair_shares = np.bincount(pairs, minlength=LETTERS**2).reshape(LETTERS, LETTERS) / PAIRS
        exact = rows[0][:, None] * rows
        return float(np.abs(first - rows[0]).sum() / 2), float(np.abs(pair_shares - exact).sum() / 2)


def redrawn_from_all_of_p(p: np.ndarray, q: np.ndarray) -> np.ndarray:  # noqa: ARG001  stands in for `residual`
    """A wrong `residual` that returns p unchanged."""
    return p


RULES = {
    f"{name}, T = {temperature}": Rule(temperature, q) for name, q in DRAFTERS.items() for temperature in (0.7, 1.3)
}
MUTANTS = {
    "q recomputed after another context": {"recomputes_q": True},
    "q without the temperature": {"reports_unscaled_q": True},
    "one coin for the whole path": {"one_coin_per_path": True},
    "after a rejection drawn from all of p": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_the_distribution_is_the_targets(name: str) -> None:
    first, pairs = RULES[name].distances()
    assert first < BOUND and pairs < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_same_bound_catches_a_wrong_rule(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least half of the drafters reveal a wrong rule; with the others it happens to be almost right."""
    if not MUTANTS[mutant]:
        monkeypatch.setattr(rejection, "residual", redrawn_from_all_of_p)
    rules = [replace(rule, **MUTANTS[mutant]) for name, rule in RULES.items() if name.endswith("0.7")]
    worst = [max(rule.distances()) for rule in rules]
    assert sum(distance > BOUND for distance in worst) >= len(rules) // 2
    assert max(worst) > 4 * BOUND


def test_the_drafters_are_as_sharp_flat_and_disjoint_as_their_names_say() -> None:
    """Otherwise the tests could pass because the drafters are too similar to the target."""
    agreement = {name: np.minimum(TARGET, q).sum(axis=1).mean() for name, q in DRAFTERS.items()}
    assert agreement["nearly disjoint"] < 0.3
    assert DRAFTERS["sharp"].max(axis=1).mean() > 0.8 and DRAFTERS["flat"].max() < 0.31


def test_acceptance_is_the_overlap_of_p_and_q() -> None:
    rule = RULES["flat, T = 0.7"]
    _, accepted, _ = rule.step(np.zeros(200_000, dtype=int), np.random.default_rng(1))
    overlap = np.minimum(rule.rows(TARGET)[0], rule.rows(rule.q)[0]).sum()
    assert (accepted > 0).mean() == pytest.approx(overlap, abs=0.005)
