"""Races on a target that scores chains only: every method drafts without branches, or is refused in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Started
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.drafters import METHODS
from specrace.drafters.lookahead import LookaheadDrafter, PoolDrafter
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec, plan_lane
from tests.parts import TableSession, TableTarget, inputs

PROMPT = (2, 3, 4, 5, 2, 3, 6, 5, 2, 3, 4, 5, 2, 3)
NEED_BRANCHES = ("block", "eagle", "hybrid", "hydra", "medusa", "sglang-ngram", "space")
ON_CHAINS = tuple(name for name in METHODS if name not in NEED_BRANCHES)


class ChainSession(TableSession):
    """A session that fails if it gets a tree with branches."""

    def score(self, tree: TokenTree) -> Scores:
        assert tree.is_chain
        return super().score(tree)


class ChainTarget(TableTarget):
    """A target that scores chains only."""

    chains_only = True

    def session(
        self,
        prefix: Any,
        room: int,
        params: SamplingParams | None = None,
        num_top: int = 0,
        rows: Sequence[int] = (1,),
        head_session: Any = None,
    ) -> TableSession:
        return ChainSession(prefix.tokens, self.logits, params or SamplingParams(), num_top)


def tokens_of(target: TableTarget, name: str, **settings: Any) -> list[int]:
    steps = generate(target, name, PROMPT, max_new_tokens=60, **settings)
    return [token for step in steps for token in step.emitted]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", ON_CHAINS)
def test_every_method_drafts_chains_and_prints_vanillas_text(name: str, temperature: float) -> None:
    # A larger scale makes the model surer of its tokens.
    target = ChainTarget(scale=4.0)
    vanilla = tokens_of(target, "vanilla", temperature=temperature)
    assert tokens_of(target, name, temperature=temperature, num_draft=12) == vanilla


@pytest.mark.parametrize("name", ["trie", "recycling", "rest", "suffix", "fusion", "lookahead", "trigram"])
def test_a_method_that_could_branch_still_drafts(name: str) -> None:
    steps = generate(ChainTarget(scale=4.0), name, PROMPT, max_new_tokens=60, num_draft=12)
    assert sum(step.tree.num_draft for step in steps) > 0


@pytest.mark.parametrize("name", NEED_BRANCHES)
def test_a_method_that_needs_branches_is_refused_before_the_race(name: str) -> None:
    events = race(ChainTarget(), PROMPT, RaceSpec((name,)))
    with pytest.raises(
        InputError, match=rf"{name} needs branches \(.* (drafts a tree|are branches)\).*; leave out {name}"
    ):
        next(events)


def test_fusion_drafts_its_likeliest_path_whatever_its_option_says() -> None:
    spec = RaceSpec(("fusion",), options={"fusion": {"chain": False}})
    assert plan_lane(spec, "fusion", "cpu", chains_only=True).options["chain"] is True
    assert plan_lane(spec, "fusion", "cpu").options["chain"] is False


def test_lookahead_keeps_its_pool_and_drops_its_window() -> None:
    plan = plan_lane(RaceSpec(("lookahead",)), "lookahead", "cpu", chains_only=True)
    drafter = plan.build(inputs(PROMPT))
    assert type(drafter) is PoolDrafter and plan.options["pool_from_prompt"] is True
    # 4 was last followed by 5 2. With a window, the draft would also have rows for the window's tokens.
    assert drafter.propose((*PROMPT, 4), 12).tokens == (4, 5, 2)
    jacobi = RaceSpec(("lookahead",), options={"lookahead": {"n": 2}})
    assert type(plan_lane(jacobi, "lookahead", "cpu", chains_only=True).build(inputs(PROMPT))) is LookaheadDrafter


def test_a_race_reports_the_options_with_which_its_lanes_draft_chains() -> None:
    started = next(race(ChainTarget(), PROMPT, RaceSpec(("fusion", "lookahead"))))
    assert isinstance(started, Started)
    options = {info.lane: info.options for info in started.lanes}
    assert options["fusion"]["chain"] is True and options["lookahead"]["pool_from_prompt"] is True
