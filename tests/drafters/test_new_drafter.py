"""Another drafter is one class and one line in the registry: races, `score` and every test then take it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pytest

from specrace.core.events import Finished, Started
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters import METHODS, DrafterInputs, Method
from specrace.drafters.base import Bounds, DepthDrafter
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.lab.score import Scoreboard, ScoredLane, scorable_lanes
from specrace.lab.transcripts import Transcript
from tests.drafters import test_contract as contract
from tests.parts import TableTarget

LOOP = (2, 3, 4, 5) * 4


class EchoDrafter:
    """Expects what followed the pending token the last time, round and round."""

    def __init__(
        self, inputs: DrafterInputs, *, rounds: Annotated[int, Bounds(1, 9, "how often the echo comes")] = 2
    ) -> None:
        self.rounds = rounds

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        earlier = [position for position, token in enumerate(context[:-1]) if token == context[-1]]
        echo = list(context[earlier[-1] + 1 :]) * self.rounds if earlier else []
        return TokenTree.chain(context[-1], echo[: max(0, budget)])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the context has it all."""


ECHO = Method("echo", "Echo", "the last thing again", EchoDrafter, 6)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one registry entry."""
    monkeypatch.setitem(METHODS, "echo", ECHO)


def test_a_misspelt_capability_fails_at_construction() -> None:
    with pytest.raises(TypeError, match="needs_draft_modle"):
        Method("echo", "Echo", "", EchoDrafter, 6, needs_draft_modle=True)  # type: ignore[call-arg]

    class Misspelt(DepthDrafter):
        def propse(self, context: Sequence[int], budget: int, depth: int) -> TokenTree:
            return TokenTree.chain(context[-1])

    with pytest.raises(TypeError, match="abstract"):
        Misspelt()  # type: ignore[abstract]


def test_it_races_and_its_text_is_vanillas() -> None:
    started, *_, finished = race(TableTarget(order=1), LOOP, RaceSpec(("echo", "trie"), max_new_tokens=24, num_draft=6))
    assert isinstance(started, Started) and isinstance(finished, Finished)
    info, result = started.lanes[1], finished.lanes[1]
    assert (info.lane, info.title, info.num_draft, info.options) == ("echo", "Echo", 6, {"rounds": 2})
    assert result.identical and result.drafted_per_step > 1 and result.tau > 1


def test_it_scores() -> None:
    assert "echo" in scorable_lanes()
    board = Scoreboard([ScoredLane.of("echo", {"rounds": "1"}, 3)])
    # 3 | 4 5 2 | 3: the root is 2, then 3 4 5 are drafted and 2 is the bonus.
    board.add(Transcript("one", "none", (2, 3, 4, 5, 2), (3, 4, 5, 2, 3, 4, 5, 2), 9))
    row = board.groups()[0]
    assert (row["lane"], row["tokens"], row["steps"], row["tau"]) == ("echo", 8, 2, 4.0)


@pytest.mark.parametrize(
    "test",
    [
        contract.test_every_method_prints_what_the_target_says_within_its_budget,
        contract.test_every_drafter_gets_drafts_accepted,
        contract.test_the_same_seed_drafts_the_same,
        contract.test_everything_rejected_again_and_again,
        contract.test_nothing_leaks_between_generations,
        contract.test_options_are_listed_with_defaults_within_bounds,
        contract.test_every_option_at_either_bound_still_drafts,
    ],
)
def test_it_keeps_the_contract(test) -> None:
    test("echo")
