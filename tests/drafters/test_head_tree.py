"""Trees grown with a head: what pays is drafted, probabilities are corrected, and a bad head is asked rarely."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, DrafterInputs
from specrace.drafters.head_tree import Confidence
from specrace.drafters.trained.eagle import EagleDrafter
from specrace.drafters.trained.hydra import HydraDrafter
from specrace.drafters.trained.medusa import MedusaDrafter
from tests.parts import inputs, step_verdict

# A cost curve has row counts, and what a forward over them costs, in one-row forwards. Here further rows cost nothing.
FREE_ROWS = CostCurve((1, 99), (1.0, 1.0))


class Guesser:
    """A head that guesses t + 1, t + 2, ... after a token t, with the probabilities `probs` at every depth.

    `forwards` counts how often it was asked. `depths_per_forward`: the depths that one forward is said to cover.
    """

    room = 1 << 20

    def __init__(self, *probs: float, depth: int = 99, depths_per_forward: int = 1) -> None:
        self.probs, self.depth, self.depths_per_forward = probs, depth, depths_per_forward
        self.forwards = 0
        self.root = 0

    def begin(self, root: int) -> None:
        self.root = root

    def likeliest(self, paths: Sequence[tuple[int, ...]], k: int) -> list[list[tuple[int, float]]]:
        self.forwards += 1
        last = [(self.root, *path)[-1] for path in paths]
        return [[(token + 1 + rank, prob) for rank, prob in enumerate(self.probs)][:k] for token in last]


def drafter_of(head: Guesser, *, price: float = 0.05, curve: CostCurve = FREE_ROWS, **options: int) -> EagleDrafter:
    """A drafter with this head, after the text 4 5; `price`: the cost of the head's forward, in one-row forwards."""
    return EagleDrafter(DrafterInputs((4, 5), vocab_size=99, head=head, head_price=price, curve=curve), **options)


def test_the_likeliest_nodes_are_kept_and_each_has_its_parent() -> None:
    tree = drafter_of(Guesser(0.7, 0.2)).propose((4, 5), budget=6, depth=3)
    assert tree.num_draft == 6 and max(tree.depths) <= 3
    # The path of a first and two second guesses, which is not among the six likeliest.
    dropped = 0.7 * 0.2 * 0.2
    assert all(prob > dropped for prob in tree.path_probs())
    assert tree.tokens[:2] == (5, 6) and tree.probs is not None and tree.probs[1] == pytest.approx(0.7)


@pytest.mark.parametrize(("budget", "depth", "expected"), [(0, 9, 0), (9, 0, 0), (9, 2, 2), (1, 9, 1), (9, 9, 4)])
def test_budget_depth_and_the_heads_own_depth_bound_the_tree(budget: int, depth: int, expected: int) -> None:
    tree = drafter_of(Guesser(0.9, depth=4), width=1).propose((4, 5), budget, depth)
    assert tree.num_draft == expected


def test_the_options_and_the_heads_room_bound_the_tree() -> None:
    assert drafter_of(Guesser(0.9), depth=2, width=1).propose((4, 5), 9).num_draft == 2
    tree = drafter_of(Guesser(0.4, 0.3, 0.2), depth=1, width=2).propose((4, 5), 9)
    assert tree.tokens == (5, 6, 7)
    head = Guesser(0.9)
    head.room = 3
    assert drafter_of(head, width=1).propose((4, 5), 9).num_draft == 3


@pytest.mark.parametrize(("build", "depth"), [(EagleDrafter, 6), (HydraDrafter, 4), (MedusaDrafter, 4)])
def test_by_default_four_guesses_are_drafted_after_each_token(build: type[EagleDrafter], depth: int) -> None:
    head = Guesser(0.9, 0.02, 0.02, 0.02, 0.02)
    tree = build(DrafterInputs((4, 5), vocab_size=99, head=head, head_price=0.0, curve=FREE_ROWS)).propose((4, 5), 500)
    assert len(tree.children[0]) == 4 and max(tree.depths) == depth


def test_the_likeliest_paths_are_continued() -> None:
    tree = drafter_of(Guesser(0.7, 0.2), price=0.001, width=2).propose((4, 5), budget=12, depth=3)
    # The likeliest path, 6 7 8, is continued to depth 3.
    assert (8, 3) in zip(tree.tokens, tree.depths, strict=True)


def test_levels_that_share_a_forward_cost_one() -> None:
    head = Guesser(0.6, depths_per_forward=2)
    drafter = drafter_of(head, price=2.0, width=1)
    tree = drafter.propose((4, 5), budget=4, depth=2)
    assert tree.num_draft == 2 and drafter.note(tree).facts["forwards of the head"] == 1
    assert drafter.rate(tree) == pytest.approx((1 + 0.6 + 0.36) / (1 + 2.0))
    # One level takes a forward, too, and three levels take two.
    for depth, forwards in ((1, 1), (3, 2)):
        drafter = drafter_of(Guesser(0.9, depths_per_forward=2), price=0.2, width=1)
        tree = drafter.propose((4, 5), budget=4, depth=depth)
        assert tree.num_draft == depth and drafter.note(tree).facts["forwards of the head"] == forwards


def test_padded_rows_count_as_many_as_this_steps_budget_allows() -> None:
    """Four rows cost less than two or three, so two draft tokens pay only if the tree may be padded to four rows."""
    cliff = CostCurve((1, 2, 3, 4, 8), (1.0, 1.5, 1.6, 1.2, 1.5))
    drafter = drafter_of(Guesser(0.3), curve=cliff, width=1)
    assert [drafter.propose((4, 5), budget).num_draft > 0 for budget in (3, 2, 3)] == [True, False, True]


def test_a_rate_is_tokens_over_the_cost_of_rows_and_forwards() -> None:
    drafter = drafter_of(Guesser(0.9), price=0.25, curve=CostCurve((1, 2, 9), (1.0, 1.25, 3.0)), width=1)
    tree = drafter.propose((4, 5), 1)
    assert tree.num_draft == 1 and drafter.rate(tree) == pytest.approx(1.9 / (1.25 + 0.25))
    assert drafter.rate_unasked(tree, 1) == pytest.approx(1.9 / 1.25)
    # A tree larger than this step's budget costs what one of that budget does.
    assert drafter.rate(drafter_of(Guesser(0.9), width=1).propose((4, 5), 2)) == pytest.approx(2.71 / 1.5)


def test_rows_that_cost_more_than_they_yield_are_not_drafted() -> None:
    steep = CostCurve((1, 9), (1.0, 9.0))
    assert drafter_of(Guesser(0.5, 0.3), curve=steep).propose((4, 5), 1).num_draft == 0
    assert drafter_of(Guesser(0.5, 0.3), curve=steep).propose((4, 5), 8).num_draft == 0
    assert drafter_of(Guesser(0.5, 0.3)).propose((4, 5), 8).num_draft > 3


def test_another_level_is_asked_for_only_if_it_may_pay() -> None:
    cheap, expensive = Guesser(0.6), Guesser(0.6)
    drafter_of(cheap, price=0.01).propose((4, 5), 8)
    drafter_of(expensive, price=0.4).propose((4, 5), 8)
    assert cheap.forwards > expensive.forwards == 1


def test_probabilities_are_corrected_by_how_often_they_came_true() -> None:
    confidence = Confidence()
    # The factor for probabilities at a depth.
    assert confidence.at(1) == confidence.at(40) == 1.0
    for _ in range(200):
        confidence.record(1, 0.9, accepted=False)
        confidence.record(2, 0.5, accepted=True)
    assert confidence.at(1) < 0.05 and confidence.at(2) > 1.8 and confidence.at(3) == 1.0


def test_only_children_of_accepted_nodes_count() -> None:
    drafter = drafter_of(Guesser(0.9), width=1)
    tree = drafter.propose((4, 5), 3)
    assert tree.tokens == (5, 6, 7, 8)
    # The first draft token is right, the second wrong; nothing is known of the third.
    drafter.observe(tree, step_verdict(tree, (6, 0, 0, 0)))
    assert drafter.confidence.at(1) > 1.0 > drafter.confidence.at(2) and drafter.confidence.at(3) == 1.0


def test_a_correction_is_the_share_of_what_the_head_expected() -> None:
    drafter = drafter_of(Guesser(0.9), width=1)
    for count in (1, 2):
        tree = drafter.propose((4, 5), 1)
        assert tree.probs is not None and tree.probs[1] <= 1.0
        drafter.observe(tree, step_verdict(tree, (6, 7)))
        # Hits and expected hits start at 4; expected is what the head gave, 0.9, before the correction.
        assert drafter.confidence.at(1) == pytest.approx((4 + count) / (4 + 0.9 * count))
    sure = drafter_of(Guesser(0.99), width=1)
    sure.confidence = drafter.confidence
    assert sure.propose((4, 5), 1).probs == (1.0, 1.0)


def test_a_head_that_is_always_wrong_is_soon_asked_rarely() -> None:
    head = Guesser(0.9)
    drafter = drafter_of(head, price=0.3, width=1)
    for _ in range(300):
        tree = drafter.propose((4, 5), 4)
        drafter.observe(tree, step_verdict(tree, (0,) * len(tree)))
    assert 0 < head.forwards < 100


def test_a_head_that_is_right_is_asked_at_every_step() -> None:
    head = Guesser(0.9)
    drafter = drafter_of(head, price=0.3, width=1)
    for _ in range(50):
        tree = drafter.propose((4, 5), 2)
        assert tree.num_draft == 2
        drafter.observe(tree, step_verdict(tree, (6, 7, 8)))
    assert head.forwards == 100


@pytest.mark.parametrize("lane", ["block", "eagle", "hybrid", "hydra", "medusa"])
def test_a_lane_without_a_head_is_refused_in_one_sentence(lane: str) -> None:
    with pytest.raises(InputError, match=rf"^The lane {lane} has no head .* \(--head {lane}=FOLDER\)\.$"):
        METHODS[lane].build(inputs((3, 4), head=None))


def test_a_note_names_what_was_asked_and_expected() -> None:
    drafter = drafter_of(Guesser(0.9), width=1)
    note = drafter.note(drafter.propose((4, 5), 2))
    assert note.facts == {
        "drafted": 2,
        "depth": 2,
        "forwards of the head": 2,
        "likeliest first token": "90%",
        "expected": "2.71 tokens",
    }
    assert [(row.label, row.tokens) for row in note.rows] == [
        ("eagle head, depth 1, 90% likely", (6,)),
        ("eagle head, depth 2, 90% likely", (7,)),
    ]
    bare = drafter.note(TokenTree.chain(5))
    unlikely = drafter_of(Guesser(0.1), curve=CostCurve((1, 2), (1.0, 2.0)))
    assert unlikely.note(unlikely.propose((4, 5), 1)).facts["likeliest first token"] == "none"
    assert bare.facts["likeliest first token"] == "none" and not bare.rows
