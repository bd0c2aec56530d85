"""Prepares a race: reads the prompt, and runs everything once that the lanes will use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from specrace.core.cost_curve import CostCurve, row_counts
from specrace.core.settings import REJECTION
from specrace.core.tree import TokenTree
from specrace.drafters.sessions import HeadSession
from specrace.engine.lane import Lane
from specrace.engine.pace import timed
from specrace.engine.refit import refit
from specrace.engine.setup import RaceSetup, RaceTarget, max_draft, read_prompt
from specrace.engine.spec import RaceSpec
from specrace.ngrams.sources import Sources

# A head's price is the median time of a forward in this many runs, with up to this many paths.
_PRICE_RUNS, _PRICE_WIDTH = 5, 4
# After this time only the lanes' largest trees are still warmed up; no record says why 2 s.
WARM_UP_S = 2.0


def prepare(
    target: RaceTarget, prompt: Sequence[int], spec: RaceSpec, sources: Sources, curve: CostCurve | None
) -> RaceSetup:
    """Read the prompt, warm up, and refit the `curve` to the machine's present speed."""
    # The caller has already read the prompt to measure the pace. The race reports the time of this second prefill,
    # which is warm.
    setup = RaceSetup(target, tuple(prompt), read_prompt(target, prompt, spec), spec, curve, sources)
    warm_up(setup)
    setup = replace(setup, curve=refit(setup))
    for name, plan in setup.plans.items():
        if plan.method.needs_draft_model:
            warm_up_draft_model(setup.make_lane(name))
    prices = warm_up_heads(setup)
    # A new setup would read the prompt once more for its drafters.
    return replace(setup, head_prices=prices) if prices else setup


def warm_up(setup: RaceSetup) -> None:
    """Run everything that the lanes will use before any clock starts, because a first use takes longer.

    That is a forward for every tree size up to the largest, with the sampler, and the draft model if a lane needs it.
    After `WARM_UP_S`, only the lanes' largest trees are still run: the slower the model, the less a first use matters.
    """
    target, prompt, plans = setup.target, setup.prompt, setup.plans.values()
    num_top = max(plan.method.num_top_with(plan.options) for plan in plans)
    budgets = [plan.num_draft for plan in plans]
    rows_to_capture = row_counts(max(budgets) + 1)
    # Room for the largest tree and one token more.
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
    # A session must keep a path after a forward; here it is the root.
    session.keep((0,))
    for draft_model in setup.draft_models:
        draft_model.after(prompt)


def warm_up_rows(budgets: Sequence[int]) -> list[int]:
    """The sizes of the lanes' largest trees in descending order, then all other sizes in descending order."""
    largest = {budget + 1 for budget in budgets}
    return [*sorted(largest, reverse=True), *sorted(set(range(1, max(largest))) - largest, reverse=True)]


def warm_up_heads(setup: RaceSetup) -> dict[str, float]:
    """Run what lanes with heads will run, and measure what a forward of a head costs.

    That is: the target's forwards with hidden states, in the sizes of `warm_up`, and the head's forwards after the
    prompt, after accepted tokens and at depths 1 and 2. Returns lane -> the cost in one-row forwards of the target.
    """
    prices = {}
    for name in setup.heads:
        plan = setup.plans[name]
        head = setup.open_head(name, plan.num_draft + 2)
        budget = max_draft(head, plan)
        # 0: the target's likeliest tokens are not needed.
        session = setup.target.session(
            setup.prefix, budget + 2, setup.spec.sampling_params(), 0, row_counts(budget + 1), head_session=head
        )
        root = setup.prompt[-1]
        end_s = time.monotonic() + WARM_UP_S
        for rows in warm_up_rows([budget]):
            for _ in range(2):
                session.score(TokenTree.chain(root, [root] * (rows - 1)))
            if time.monotonic() > end_s and rows <= budget:
                break
        row_ms = median(timed(partial(session.score, TokenTree.chain(root)))[1] for _ in range(_PRICE_RUNS))
        session.score(TokenTree.chain(root))
        session.keep((0,))
        head_ms = [ms for _ in range(_PRICE_RUNS) for ms in _time_two_depths(head, root)]
        # The clock may not advance during a tiny model's forward.
        prices[name] = median(head_ms) / max(row_ms, 1e-6)
    return prices


def _time_two_depths(head: HeadSession, root: int) -> list[float]:
    """The times of the forwards in which a head drafts depths 1 and 2, in ms: one forward for both, or one for each."""
    head.begin(root)
    guesses: list[list[tuple[int, float]]] = []
    times = [timed(lambda: guesses.extend(head.likeliest([()], _PRICE_WIDTH)))[1]]
    paths = [(token,) for token, _ in guesses[0]]
    if paths and head.depths_per_forward == 1:
        times.append(timed(lambda: head.likeliest(paths, _PRICE_WIDTH))[1])
    return times


def warm_up_draft_model(lane: Lane) -> None:
    """Draft twice with a lane that is not used afterwards: after the prompt, and after a fully accepted draft.

    In the second case the draft model reads two tokens at once: its last draft token and the bonus token.
    """
    for _ in range(2):
        tree = lane.drafter.propose(lane.context, lane.num_draft)
        lane.context += [*tree.tokens[1:], tree.tokens[-1]]
