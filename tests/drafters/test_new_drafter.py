"""An eighth decoder is one class and one line in the registry: every face and every test then takes it up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import pytest

from specrace.cli.main import main
from specrace.core.events import Finished, Started
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters import METHODS, DrafterInputs, Method
from specrace.drafters.base import Bounds, DepthDrafter
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.lab.score import Scoreboard, ScoredLane, scorable_lanes
from specrace.lab.transcripts import Transcript
from specrace.ui.page import build_page
from specrace.ui.race_request import parse_request
from specrace.ui.worker import Worker
from tests.drafters import test_contract as contract
from tests.engine import test_lossless as lossless
from tests.models import ARCHITECTURES, tiny_target

LOOP = (2, 3, 4, 5) * 4


class EchoDrafter:
    """Expects what followed the pending token the last time, round and round."""

    def __init__(
        self, inputs: DrafterInputs, *, rounds: Annotated[int, Bounds(1, 9, "how often the echo comes")] = 2
    ) -> None:
        self.rounds = rounds

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        earlier = [place for place, token in enumerate(context[:-1]) if token == context[-1]]
        echo = list(context[earlier[-1] + 1 :]) * self.rounds if earlier else []
        return TokenTree.chain(context[-1], echo[: max(0, budget)])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing: the context has it."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one registry entry."""
    monkeypatch.setitem(METHODS, "echo", Method("echo", "Echo", "the last thing again", EchoDrafter, 6))


def test_a_misspelt_capability_fails_at_construction() -> None:
    with pytest.raises(TypeError, match="needs_draft_modle"):
        Method("echo", "Echo", "", EchoDrafter, 6, needs_draft_modle=True)  # type: ignore[call-arg]

    class Wider(DepthDrafter):
        def propse(self, context: Sequence[int], budget: int, depth: int) -> TokenTree:
            return TokenTree.chain(context[-1])

    with pytest.raises(TypeError, match="abstract"):
        Wider()  # type: ignore[abstract]


def test_it_races_and_its_text_is_vanillas() -> None:
    started, *_, finished = race(tiny_target("llama"), LOOP, RaceSpec(("echo", "trie"), max_new_tokens=24, num_draft=6))
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


@pytest.mark.parametrize("params", lossless.RULES.values(), ids=lossless.RULES)
def test_it_is_lossless_on_every_architecture(params) -> None:
    accepted = 0
    for name in ARCHITECTURES:
        target = lossless.target_of(name)
        for prompt in lossless.prompts_of(name, 4):
            prefix = target.prefill(prompt)
            drafter = METHODS["echo"].build(lossless.inputs(prompt))
            lane = lossless.run_lane(target, prefix, prompt, drafter, params=params, eos_ids=lossless.NO_END)
            assert lane.tokens == lossless.vanilla(target, prefix, prompt, params)
            accepted += len(lane.tokens) - lane.num_steps
    assert accepted > 0


def test_the_page_lists_it() -> None:
    page = build_page(Worker(lambda _: pytest.fail("nothing loads before the worker starts")), ["Why?"])
    components = page.get_config_file()["components"]
    lanes = next(each["props"] for each in components if each["props"].get("label") == "Lanes")
    assert ["Echo", "echo"] in [list(choice) for choice in lanes["choices"]]
    methods = [each["props"]["props"]["methods"] for each in components if "methods" in str(each["props"].get("props"))]
    assert [method["title"] for method in methods[0]][-1] == "Echo" and len(methods[0]) == len(METHODS)
    assert parse_request("Why?", ["echo", "trie"], {}).spec.lanes == ("vanilla", "trie", "echo")


def test_the_command_line_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lanes", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["lanes"][-1]
    assert (row["lane"], row["options"][0]["name"], row["options"][0]["high"]) == ("echo", "echo.rounds", 9)
