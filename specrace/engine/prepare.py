"""Prepares a race: reads the prompt, and runs once everything that the lanes will use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from specrace.core.cost_curve import CostCurve, row_counts
from specrace.core.settings import REJECTION
from specrace.core.tree import TokenTree
from specrace.engine.lane import Lane
from specrace.engine.refit import refit
from specrace.engine.setup import RaceSetup, RaceTarget
from specrace.engine.spec import RaceSpec
from specrace.ngrams.sources import Sources

# After this time only the lanes' largest trees are still warmed up.
WARM_UP_S = 2.0


def prepare(
    target: RaceTarget, prompt: Sequence[int], spec: RaceSpec, sources: Sources, curve: CostCurve | None
) -> RaceSetup:
    """Read the prompt, warm up, and refit the `curve` to the machine's present speed."""
    # The caller has already read the prompt to measure the pace. The race reports the time of this second prefill,
    # which is warm.
    setup = RaceSetup(target, tuple(prompt), target.prefill(prompt), spec, curve, sources)
    warm_up(setup)
    setup = replace(setup, curve=refit(setup))
    for name, plan in setup.plans.items():
        if plan.method.needs_draft_model:
            warm_up_draft_model(setup.make_lane(name))
    return setup


def warm_up(setup: RaceSetup) -> None:
    """Run everything that the lanes will use before any clock starts, because a first use takes longer.

    That is a forward for every tree size up to the largest, with the sampler, and the draft model if a lane needs it.
    After `WARM_UP_S`, only the lanes' largest trees are still run: the slower the model, the less a first use matters.
    """
    target, prompt, plans = setup.target, setup.prompt, setup.plans.values()
    num_top = max(plan.method.num_top_with(plan.options) for plan in plans)
    budgets = [plan.num_draft for plan in plans]
    rows_to_capture = row_counts(max(budgets) + 1)
    session = target.session(setup.prefix, max(budgets) + 2, setup.spec.sampling_params(), num_top, rows_to_capture)
    rejects = any(plan.verifier == REJECTION for plan in plans)
    end_s = time.monotonic() + WARM_UP_S
    for rows in warm_up_rows(budgets):
        tree = TokenTree.chain(prompt[-1], [prompt[-1]] * (rows - 1))
        for _ in range(2):
            session.score(tree)
            if rejects:
                session.score_distributions(tree)
        if time.monotonic() > end_s and rows - 1 not in budgets:
            break
    session.keep((0,))
    draft_model = target.draft_model() if setup.needs_draft_model else None
    if draft_model is not None:
        draft_model.after(prompt)


def warm_up_rows(budgets: Sequence[int]) -> list[int]:
    """The sizes of the lanes' largest trees in descending order, then all other sizes in descending order."""
    largest = {budget + 1 for budget in budgets}
    return [*sorted(largest, reverse=True), *sorted(set(range(1, max(largest))) - largest, reverse=True)]


def warm_up_draft_model(lane: Lane) -> None:
    """Draft twice with a lane that is not used afterwards: after the prompt, and after a fully accepted draft.

    In the second case the draft model reads two tokens at once: its last draft token and the bonus token.
    """
    for _ in range(2):
        tree = lane.drafter.propose(lane.context, lane.num_draft)
        lane.context += [*tree.tokens[1:], tree.tokens[-1]]
