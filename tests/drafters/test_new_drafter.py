"""A new drafter is one class and one line in the registry; races, `score` and the contract tests then include it."""

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
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import Scoreboard, ScoredLane, scorable_lanes
from tests.drafters import test_contract as contract
from tests.parts import TableTarget

LOOP = (2, 3, 4, 5) * 4


class EchoDrafter:
    """Drafts what followed the last earlier occurrence of the pending token, repeated `rounds` times."""

    def __init__(
        self, inputs: DrafterInputs, *, rounds: Annotated[int, Bounds(1, 9, "number of repetitions")] = 2
    ) -> None:
        self.rounds = rounds

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        earlier = [position for position, token in enumerate(context[:-1]) if token == context[-1]]
        echo = list(context[earlier[-1] + 1 :]) * self.rounds if earlier else []
        return TokenTree.chain(context[-1], echo[: max(0, budget)])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the context holds the output."""


ECHO = Method("echo", "Echo", "repeats what followed the last token", EchoDrafter, 6)


@pytest.fixture(autouse=True)
def register_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the echo drafter."""
    monkeypatch.setitem(METHODS, "echo", ECHO)


def test_a_misspelt_capability_fails_at_construction() -> None:
    with pytest.raises(TypeError, match="needs_draft_modle"):
        Method("echo", "Echo", "", EchoDrafter, 6, needs_draft_modle=True)  # type: ignore[call-arg]

    class Misspelt(DepthDrafter):
        def propse(self, context: Sequence[int], budget: int, depth: int) -> TokenTree:
            return TokenTree.chain(context[-1])

    with pytest.raises(TypeError, match="abstract"):
        Misspelt()  # type: ignore[abstract]


def test_a_new_drafter_races_and_outputs_vanillas_text() -> None:
    started, *_, finished = race(TableTarget(order=1), LOOP, RaceSpec(("echo", "trie"), max_new_tokens=24, num_draft=6))
    assert isinstance(started, Started) and isinstance(finished, Finished)
    info, result = started.lanes[1], finished.lanes[1]
    assert (info.lane, info.title, info.num_draft, info.options) == ("echo", "Echo", 6, {"rounds": 2})
    assert result.identical and result.drafted_per_step > 1 and result.tau > 1


def test_a_new_drafter_is_scored() -> None:
    assert "echo" in scorable_lanes()
    board = Scoreboard([ScoredLane.of("echo", {"rounds": "1"}, 3)])
    # Each of the two steps has the root 2, drafts 3 4 5, and gets the bonus token 2.
    board.add(Transcript("one", "none", (2, 3, 4, 5, 2), (3, 4, 5, 2, 3, 4, 5, 2), 9))
    row = board.groups()[0]
    assert (row["lane"], row["tokens"], row["steps"], row["tau"]) == ("echo", 8, 2, 4.0)


@pytest.mark.parametrize(
    "contract_test",
    [
        contract.test_every_method_emits_the_targets_tokens_within_its_budget,
        contract.test_some_drafts_of_every_drafter_are_accepted,
        contract.test_the_same_seed_gives_the_same_drafts,
        contract.test_drafts_stay_valid_when_every_draft_is_rejected,
        contract.test_drafting_leaves_shared_inputs_unchanged,
        contract.test_options_are_listed_with_defaults_within_bounds,
        contract.test_output_is_unchanged_with_each_option_at_its_bounds,
    ],
)
def test_a_new_drafter_meets_the_contract(contract_test) -> None:
    contract_test("echo")
