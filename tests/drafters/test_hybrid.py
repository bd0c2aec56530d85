"""The hybrid: it copies as fusion does, asks the head only where that may pay, and learns the same text either way."""

from __future__ import annotations

import random

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.tree import TokenTree
from specrace.drafters import DrafterInputs
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.hybrid import HybridDrafter
from tests.drafters.test_head_tree import Guesser
from tests.parts import step_verdict

COPIED = (1, 2, 3) * 4 + (1, 2)
GENTLE = CostCurve((1, 33), (1.0, 1.6))


def hybrid_of(context: tuple[int, ...], head: Guesser, price: float = 0.3) -> HybridDrafter:
    return HybridDrafter(DrafterInputs(context, 99, head=head, head_price=price, curve=GENTLE))


def test_the_head_is_asked_only_where_fusion_leaves_more_than_its_price() -> None:
    head = Guesser(0.9)
    assert hybrid_of(COPIED, head).propose(COPIED, 4).tokens[1:3] == (3, 1) and head.forwards == 0
    assert hybrid_of((*COPIED, 9), head).propose((*COPIED, 9), 4).tokens[1:3] == (10, 11) and head.forwards > 0


def test_the_tree_that_should_yield_more_for_its_cost_is_verified() -> None:
    """A head that is asked and knows nothing does not replace a copy."""
    context = (1, 2, 3, 1, 2, 4, 1, 2)
    head = Guesser(0.01)
    tree = hybrid_of(context, head).propose(context, 4)
    assert head.forwards == 1 and tree.num_draft and set(tree.tokens) <= set(context)


def test_after_the_heads_steps_fusion_knows_the_text() -> None:
    """A fusion that is told the same text in its own steps drafts the same next."""
    rng = random.Random(4)
    context = (5, 9)
    hybrid = hybrid_of(context, Guesser(0.9))
    fusion = FusionDrafter(DrafterInputs(context, 99, curve=GENTLE))
    asked = 0
    for _ in range(40):
        tree = hybrid.propose(context, 3)
        asked += hybrid.head.head.forwards > 0 and tree.num_draft > 0
        targets = [rng.randrange(1, 6) for _ in range(len(tree))]
        verdict = step_verdict(tree, targets)
        hybrid.observe(tree, verdict)
        for token in verdict.output(tree):
            bare = TokenTree.chain(context[-1])
            fusion.observe(bare, step_verdict(bare, (token,)))
            context = (*context, token)
    assert asked > 5
    assert hybrid.fusion.text_model.automaton.tokens == fusion.text_model.automaton.tokens
    assert hybrid.fusion.text_model.automaton.suffix() == fusion.text_model.automaton.suffix()


def test_a_note_names_the_drafter_of_each_token() -> None:
    head = Guesser(0.9)
    copying, guessing = hybrid_of(COPIED, head), hybrid_of((*COPIED, 9), head)
    copied = copying.note(copying.propose(COPIED, 2))
    guessed = guessing.note(guessing.propose((*COPIED, 9), 2))
    assert "hybrid head, depth 1, 90% likely" in [row.label for row in guessed.rows]
    assert not any("head" in row.label for row in copied.rows) and copied.rows


@pytest.mark.parametrize("price", [0.0, 2.0])
def test_a_free_head_is_always_asked_and_a_dear_one_never(price: float) -> None:
    head = Guesser(0.9)
    hybrid_of(COPIED, head, price).propose(COPIED, 4)
    hybrid_of((7, 8), head, price).propose((7, 8), 4)
    assert (head.forwards > 0) == (price == 0.0)
