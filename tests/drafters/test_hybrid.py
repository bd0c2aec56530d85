"""The hybrid: it copies as fusion does, asks the head only where that may pay, and learns the same text either way.

A rate is a tree's expected tokens for its cost; `_sum_rates` and `_num_rates` hold those of the head's trees so far.
"""

from __future__ import annotations

import random

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.drafters import METHODS, DrafterInputs
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.fusion.sources import NUM_TOP
from specrace.drafters.hybrid import HybridDrafter
from specrace.ngrams.counts import NGramCounts
from tests.drafters.test_head_tree import Guesser
from tests.parts import step_verdict

COPIED = (1, 2, 3) * 4 + (1, 2)
# A text in which no token occurs twice, and one that ends in a new token: fusion has nothing to draft after either.
NEW = (*range(20, 60), 8)
UNKNOWN = (*range(20, 60), *COPIED, 9)
# A forward over 33 rows takes 1.6 times as long as one over a single row.
GENTLE = CostCurve((1, 33), (1.0, 1.6))


def hybrid_of(context: tuple[int, ...], head: Guesser, price: float = 0.3) -> HybridDrafter:
    """The drafter under test; `price`: the cost of the head's forward, in one-row forwards of the target."""
    return HybridDrafter(DrafterInputs(context, vocab_size=99, head=head, head_price=price, curve=GENTLE))


def test_the_head_is_asked_only_where_fusion_leaves_more_than_its_price() -> None:
    head = Guesser(0.9)
    assert hybrid_of(COPIED, head).propose(COPIED, 4).tokens[1:3] == (3, 1) and head.forwards == 0
    assert hybrid_of(NEW, head).propose(NEW, 4).tokens[1:3] == (9, 10) and head.forwards > 0


def test_a_step_in_which_the_head_is_left_out_says_nothing_about_its_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Guesser(0.9)
    hybrid = hybrid_of(NEW, head)
    monkeypatch.setattr(hybrid.head._cool_down, "skip_step", lambda: True)
    before = hybrid._sum_rates, hybrid._num_rates
    hybrid.propose(NEW, 4)
    assert head.forwards == 0 and (hybrid._sum_rates, hybrid._num_rates) == before


def test_the_mean_of_the_heads_trees_counts_each_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hybrid = hybrid_of(NEW, Guesser(0.9))
    monkeypatch.setattr(hybrid.head, "rate", lambda _: 1.5)
    before = hybrid._sum_rates, hybrid._num_rates
    for _ in range(3):
        hybrid.propose(NEW, 4)
    assert (hybrid._sum_rates, hybrid._num_rates) == (before[0] + 4.5, before[1] + 3)


@pytest.mark.parametrize(("rates", "asked"), [((), False), ((3.0,) * 9, True), ((1.0,) * 9, False)])
def test_the_head_is_not_asked_where_its_good_trees_yield_less_than_fusions(
    rates: tuple[float, ...], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fusion's tree is expected to yield 1.5 tokens at the cost of one; the head's earlier trees yielded `rates`.

    The head is asked if 1.1 times the mean rate of its trees is more than that. Without any, the mean is 1.25.
    """
    builder = TreeBuilder(8)
    builder.add(0, 3, 0.5)
    copied = builder.build()
    head = Guesser(0.9)
    free_rows = CostCurve((1, 9), (1.0, 1.0))
    hybrid = HybridDrafter(DrafterInputs(NEW, vocab_size=99, head=head, head_price=0.3, curve=free_rows))
    monkeypatch.setattr(hybrid.fusion, "propose", lambda *_: TokenTree.chain(8))
    monkeypatch.setattr(hybrid.head, "rate", lambda _: rates[0])
    for _ in rates:
        hybrid.propose(NEW, 4)
    before = head.forwards
    monkeypatch.setattr(hybrid.fusion, "propose", lambda *_: copied)
    hybrid.propose(NEW, 4)
    assert (head.forwards > before) == asked


def test_the_tree_that_should_yield_more_for_its_cost_is_verified() -> None:
    """A head that is asked and knows nothing does not replace a copy."""
    context = (1, 2, 3, 1, 2, 4, 1, 2)
    head = Guesser(0.01)
    hybrid = hybrid_of(context, head)
    # The head's trees have yielded much so far.
    hybrid._sum_rates = 99.0
    tree = hybrid.propose(context, 4)
    assert head.forwards == 1 and tree.num_draft and set(tree.tokens) <= set(context)


def test_after_the_heads_steps_fusion_knows_the_text() -> None:
    """Its automaton is that of a fusion drafter that observed the same text in its own steps."""
    rng = random.Random(4)
    context = (5, 9)
    hybrid = hybrid_of(context, Guesser(0.9))
    # The head's trees have yielded much so far.
    hybrid._sum_rates = 1e6
    fusion = FusionDrafter(DrafterInputs(context, vocab_size=99, curve=GENTLE))
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
    copying, guessing = hybrid_of(COPIED, head), hybrid_of(UNKNOWN, head)
    copied = copying.note(copying.propose(COPIED, 2))
    guessed = guessing.note(guessing.propose(UNKNOWN, 2))
    assert "hybrid head, depth 1, 90% likely" in [row.label for row in guessed.rows]
    assert not any("head" in row.label for row in copied.rows) and copied.rows


@pytest.mark.parametrize("price", [0.0, 2.0])
def test_a_free_head_is_always_asked_and_a_dear_one_never(price: float) -> None:
    head = Guesser(0.9)
    hybrid_of(COPIED, head, price).propose(COPIED, 4)
    hybrid_of(NEW, head, price).propose(NEW, 4)
    assert (head.forwards > 0) == (price == 0.0)


def test_options_reach_fusion_and_the_head() -> None:
    drafter_inputs = DrafterInputs((5, 6), vocab_size=99, corpus=NGramCounts(), past=((1, 2),), head=Guesser(0.9))
    default = HybridDrafter(drafter_inputs)
    assert (default.head.depth, default.head.width) == (6, 4)
    sources = default.fusion.corpus, default.fusion.past, default.fusion.recycled
    assert [source is not None for source in sources] == [False, True, False]
    changed = HybridDrafter(drafter_inputs, depth=3, width=2, corpus=True, past=False, recycling=True)
    assert (changed.head.depth, changed.head.width) == (3, 2)
    sources = changed.fusion.corpus, changed.fusion.past, changed.fusion.recycled
    assert [source is not None for source in sources] == [True, False, True]
    method = METHODS["hybrid"]
    assert [method.num_top_with({"recycling": recycling}) for recycling in (True, False)] == [NUM_TOP, 0]


def test_budget_and_depth_bound_both_trees() -> None:
    head = Guesser(0.9)
    assert max(hybrid_of(COPIED, head).propose(COPIED, 4, depth=1).depths) == 1 and head.forwards == 0
    context = UNKNOWN
    assert max(hybrid_of(context, head).propose(context, 4, depth=1).depths) == 1 and head.forwards == 1
    assert hybrid_of(context, head).propose(context, 1).tokens == (9, 10)


@pytest.mark.parametrize(("first", "second", "asked"), [(0.2, 0.9, True), (0.9, 0.2, False)])
def test_what_counts_is_the_mass_that_fusion_leaves_at_the_next_token(
    first: float, second: float, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Fusion's tree: 3 with probability `first`, and after it 4 with probability `second`.
    builder = TreeBuilder(8)
    builder.add(builder.add(0, 3, first), 4, second)
    copied = builder.build()
    head = Guesser(0.9)
    hybrid = hybrid_of(NEW, head, price=0.5)
    # The head's trees have yielded much so far.
    hybrid._sum_rates = 99.0
    monkeypatch.setattr(hybrid.fusion, "propose", lambda *_: copied)
    hybrid.propose(NEW, 4)
    assert (head.forwards > 0) == asked


def test_a_head_as_dear_as_a_step_is_not_asked_and_one_without_guesses_does_not_describe_the_draft() -> None:
    steep = CostCurve((1, 2), (1.0, 9.0))
    head = Guesser()
    for price, forwards in ((1.0, 0), (0.3, 1)):
        hybrid = HybridDrafter(DrafterInputs(NEW, vocab_size=99, head=head, head_price=price, curve=steep))
        tree = hybrid.propose(NEW, 4)
        assert tree.num_draft == 0 and head.forwards == forwards
        assert "forwards of the head" not in hybrid.note(tree).facts
