"""The lane of similar states: what it says about a draft, and where it refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.drafters.base import DrafterInputs
from specrace.drafters.states import StatesDrafter
from tests.parts import inputs

TEXT = (4, 5, 8, 9, 5, 7, 2, 5)


class TwoPlaces:
    """A head session that matches two places: the first 5 was followed by 8 9, and the second by 7.

    `nearest`: the place with the most similar state, its similarity, and whether the pending token follows it.
    """

    depth = room = depths_per_forward = 100
    nearest: tuple[int, float, bool] | None = (0, 0.93, True)

    def begin(self, root: int) -> None:
        assert root == 5

    def likeliest(self, paths: Sequence[tuple[int, ...]], k: int) -> list[list[tuple[int, float]]]:
        known = {(): [(8, 0.7), (7, 0.2)], (8,): [(9, 0.8)]}
        return [known.get(path, [])[:k] for path in paths]

    def position(self, path: tuple[int, ...]) -> int:
        return {(8,): 2, (8, 9): 3, (7,): 5}[path]


def drafter_of(places: TwoPlaces, budget_cost: float = 1.0) -> StatesDrafter:
    """The drafter under test; `budget_cost`: what a forward over nine rows costs, in one-row forwards."""
    curve = CostCurve((1, 9), (1.0, budget_cost))
    return StatesDrafter(DrafterInputs(TEXT, vocab_size=99, head=places, head_price=0.0, curve=curve))


def test_a_note_names_the_places_and_the_nearest_state() -> None:
    drafter = drafter_of(TwoPlaces())
    tree = drafter.propose(TEXT, 8)
    assert tree.tokens == (5, 8, 9, 7) and tree.positions == (-1, 2, 3, 5)
    note = drafter.note(tree)
    assert note.facts == {
        "drafted": 3,
        "nearest state": "0.93 similar",
        "followed by": "the pending token",
        "likeliest first token": "70%",
        "expected": "2.46 tokens",
    }
    assert [(row.group, row.label, row.tokens) for row in note.rows] == [
        ("Copied", "from token 3 on", (8, 9)),
        ("Copied", "from token 6 on", (7,)),
    ]


def test_a_step_without_a_place_is_explained() -> None:
    places = TwoPlaces()
    places.nearest = None
    drafter = drafter_of(places)
    note = drafter.note(drafter.propose(TEXT, 0))
    assert note.facts == {"drafted": 0, "why": "the states were not compared: earlier copies did not pay"}


def test_a_note_without_a_draft_says_so() -> None:
    places = TwoPlaces()
    places.nearest = (0, 0.5, False)
    drafter = drafter_of(places, budget_cost=99.0)
    note = drafter.note(drafter.propose(TEXT, 8))
    assert (note.facts["followed by"], note.facts["likeliest first token"]) == ("another token", "none")


def test_the_depth_of_a_request_bounds_the_tree() -> None:
    assert drafter_of(TwoPlaces()).propose(TEXT, 8, depth=1).tokens == (5, 8, 7)


def test_by_default_four_continuations_of_up_to_sixteen_tokens_are_drafted() -> None:
    drafter = drafter_of(TwoPlaces())
    assert (drafter.depth, drafter.width) == (16, 4)


def test_rows_that_do_not_pay_are_left_out() -> None:
    tree = drafter_of(TwoPlaces(), budget_cost=4.0).propose(TEXT, 8)
    assert tree.tokens == (5, 8, 9)


def test_without_states_the_lane_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^The lane states compares .* cannot be read here; leave it out\.$"):
        METHODS["states"].build(inputs((3, 4), head=None))
