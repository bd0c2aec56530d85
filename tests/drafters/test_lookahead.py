"""Lookahead compared with the published layout, which is written here in the paper's terms.

The trunk is the pending token, whose position is base, and row 0. The token in row l, column i has position base + l +
i, and sees trunk tokens 0 to i and rows 1 to l of column i. A token of an n-gram sees the pending token and the n-gram
up to itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import verify
from specrace.drafters import METHODS
from specrace.drafters.jacobi import JacobiDrafter
from specrace.drafters.lookahead import (
    POOL_SCORING,
    LookaheadDrafter,
    NGramPool,
    PoolDrafter,
    build_on_chains,
    fitting_size,
    fitting_window,
    window_size,
)
from tests.parts import VOCAB, TableTarget, continuation, function_lane, inputs, markov, perturbed_logits, step_verdict

# Values of the paper's W (columns), N (tokens of an n-gram) and G (n-grams verified in a step).
SETTINGS = [(w, n, g) for w in (1, 2, 3, 5, 8, 15) for n in (3, 4, 5, 7) for g in (0, 1, 3, 7)]
# The tokens that a token sees, itself last, and its position relative to the base.
LayoutToken = tuple[tuple[int, ...], int]


def test_at_least_50_settings_are_tested() -> None:
    assert len(SETTINGS) >= 50


def make_drafter(w: int, n: int, g: int, seed: int = 0, **options: bool) -> LookaheadDrafter:
    """A drafter with the settings W, N and G on a random prompt."""
    prompt = random.Random(seed).sample(range(2, VOCAB), 20)
    return LookaheadDrafter(inputs(prompt, seed=seed), n=n, window=w, guesses=g, **options)


def random_targets(tree: TokenTree, rng: random.Random) -> list[int]:
    """Random target tokens, only seven different ones, so that branches often share nodes and pools fill up."""
    return [rng.randrange(2, 9) for _ in range(len(tree))]


def fill(drafter: LookaheadDrafter, rng: random.Random, steps: int | None = None) -> int:
    """Run the steps that fill the window (or `steps` steps), and return the pending token."""
    pending = 5
    for _ in range(drafter.n - 2 if steps is None else steps):
        tree = drafter.propose([pending], 10_000)
        verdict = step_verdict(tree, random_targets(tree, rng))
        drafter.observe(tree, verdict)
        pending = verdict.bonus
    return pending


def published_layout(rows: Sequence[Sequence[int]], pending: int, ngrams: Sequence[Sequence[int]]) -> set[LayoutToken]:
    """Every token of the published layout."""
    trunk = [pending, *rows[0]]
    layout: list[tuple[list[int], int]] = [(trunk[: k + 1], k) for k in range(len(trunk))]
    for row in range(1, len(rows)):
        for column in range(len(rows[row])):
            visible = trunk[: column + 1] + [rows[upper][column] for upper in range(1, row + 1)]
            layout.append((visible, row + column))
    for ngram in ngrams:
        layout += [([pending, *ngram[: j + 1]], 1 + j) for j in range(len(ngram))]
    return {(tuple(visible), position) for visible, position in layout}


def layout_of(tree: TokenTree) -> set[LayoutToken]:
    """A tree's tokens in the form of `published_layout`, from the ancestor mask and depths that the target uses."""
    mask = tree.ancestor_mask()
    return {
        (tuple(tree.tokens[ancestor] for ancestor in mask[node].nonzero()[0]), tree.depths[node])
        for node in range(len(tree))
    }


@pytest.mark.parametrize(("w", "n", "g"), SETTINGS)
def test_each_fill_step_adds_a_row_and_then_each_step_shifts_the_rows(w: int, n: int, g: int) -> None:
    rng = random.Random(w * 100 + n * 10 + g)
    drafter = make_drafter(w, n, g)
    assert [len(row) for row in drafter.rows] == [w + n - 3]
    for filled in range(n - 2):
        assert not drafter.is_filled and len(drafter.rows) == filled + 1
        fill(drafter, rng, steps=1)
    assert drafter.is_filled
    assert [len(row) for row in drafter.rows] == [w - 1, *[w] * (n - 2)]
    for _ in range(3):
        before = drafter.rows
        tree = drafter.propose([3], 10_000)
        drafter.observe(tree, step_verdict(tree, random_targets(tree, rng)))
        assert drafter.rows[:-1] == [before[1][1:], *before[2:]]
        assert [len(row) for row in drafter.rows] == [w - 1, *[w] * (n - 2)]


@pytest.mark.parametrize(("w", "n", "g"), SETTINGS)
def test_mask_and_positions_equal_the_published_layout(w: int, n: int, g: int) -> None:
    rng = random.Random(w + n + g)
    drafter = make_drafter(w, n, g, pool_from_prompt=bool(w % 2))
    pending, num_shared = fill(drafter, rng), 0
    for _ in range(8):
        rows, ngrams = drafter.rows, drafter.pool.after(pending)
        tree = drafter.propose([pending], 10_000)
        assert layout_of(tree) == published_layout(rows, pending, ngrams)
        num_shared += (n - 1) * (w + len(ngrams)) - len(tree)
        verdict = step_verdict(tree, random_targets(tree, rng))
        drafter.observe(tree, verdict)
        pending = verdict.bonus
    # Branches may share nodes, so a tree is never larger than the published layout.
    assert num_shared >= 0


@pytest.mark.parametrize(("w", "n", "g"), SETTINGS)
def test_each_fill_step_has_the_published_layout(w: int, n: int, g: int) -> None:
    """While the window is being filled, it is wider by a column for each missing row, and no n-grams are verified."""
    rng = random.Random(1)
    drafter = make_drafter(w, n, g, pool_from_prompt=True)
    pending = 5
    for stage in range(n - 2):
        rows = drafter.rows
        assert [len(row) for row in rows] == [w + n - 3 - stage, *[w + n - 2 - stage] * stage]
        tree = drafter.propose([pending], 10_000)
        assert layout_of(tree) == published_layout(rows, pending, [])
        verdict = step_verdict(tree, random_targets(tree, rng))
        drafter.observe(tree, verdict)
        pending = verdict.bonus


class RecordingPool(NGramPool):
    """A pool that records every insertion."""

    def __init__(self, guesses: int) -> None:
        super().__init__(guesses)
        self.inserted: list[tuple[int, tuple[int, ...]]] = []

    def insert(self, key: int, ngram: tuple[int, ...]) -> None:
        self.inserted.append((key, ngram))
        super().insert(key, ngram)


@pytest.mark.parametrize(("w", "n", "g"), SETTINGS)
def test_each_step_inserts_one_ngram_per_column(w: int, n: int, g: int) -> None:
    rng = random.Random(w * n + g)
    drafter = make_drafter(w, n, g)
    drafter.pool = pool = RecordingPool(g)
    pending = fill(drafter, rng)
    assert pool.inserted == []
    for _ in range(4):
        pool.inserted.clear()
        rows = drafter.rows
        tree = drafter.propose([pending], 10_000)
        targets = random_targets(tree, rng)
        target_after = dict(zip(node_paths(tree), targets, strict=True))
        drafter.observe(tree, step_verdict(tree, targets))
        expected = []
        for column in range(w):
            trunk = [pending, *rows[0][:column]]
            middle = [rows[row][column] for row in range(1, n - 1)]
            expected.append((trunk[-1], (*middle, target_after[(*trunk, *middle)])))
        assert pool.inserted == expected
        assert all(len(ngram) == n - 1 for _, ngram in pool.inserted)
        pending = step_verdict(tree, targets).bonus


def node_paths(tree: TokenTree) -> list[tuple[int, ...]]:
    """The tokens on the path to each node, in the order of the nodes."""
    return [tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)) for node in range(len(tree))]


def test_worked_example_of_a_step() -> None:
    """One step of a full window with W = 3 and N = 4."""
    drafter = make_drafter(3, 4, 2)
    drafter.rows = [[11, 12], [21, 22, 23], [31, 32, 33]]
    tree = drafter.propose([9], 100)
    #  9 - 11 - 12
    #  |    |    23 - 33
    #  |   22 - 32
    # 21 - 31
    assert tree.tokens == (9, 11, 12, 21, 22, 23, 31, 32, 33)
    assert tree.parents == (-1, 0, 1, 0, 1, 2, 3, 4, 5)
    assert tree.depths == (0, 1, 2, 1, 2, 3, 2, 3, 4)
    drafter.observe(tree, step_verdict(tree, [70, 0, 0, 0, 0, 0, 41, 42, 43]))
    assert drafter.rows == [[22, 23], [31, 32, 33], [41, 42, 43]]
    assert drafter.pool.after(9) == [(21, 31, 41)]
    assert drafter.pool.after(11) == [(22, 32, 42)]
    assert drafter.pool.after(12) == [(23, 33, 43)]


@pytest.mark.parametrize("depth", range(8))
@pytest.mark.parametrize(("w", "n"), [(1, 3), (3, 4), (5, 3), (4, 5)])
def test_near_the_length_limit_the_window_loses_columns(w: int, n: int, depth: int) -> None:
    """A column is dropped once its deepest token is past the limit; the other columns do not change."""
    drafter, unlimited = make_drafter(w, n, 3), make_drafter(w, n, 3)
    pending = fill(drafter, random.Random(5))
    assert fill(unlimited, random.Random(5)) == pending and drafter.rows == unlimited.rows
    drafter.pool = pool = RecordingPool(3)
    unlimited.pool = unlimited_pool = RecordingPool(3)
    rows, columns = drafter.rows, max(0, min(w, depth - (n - 2) + 1))
    tree, unlimited_tree = drafter.propose([pending], 10_000, depth), unlimited.propose([pending], 10_000)
    cut_rows = [rows[0][: max(0, columns - 1)], *(row[:columns] for row in rows[1:])]
    assert layout_of(tree) == (published_layout(cut_rows, pending, []) if columns else {((pending,), 0)})
    targets = random_targets(unlimited_tree, random.Random(1))
    target_after = dict(zip(node_paths(unlimited_tree), targets, strict=True))
    for observer, observed in ((drafter, tree), (unlimited, unlimited_tree)):
        observer.observe(observed, step_verdict(observed, [target_after[path] for path in node_paths(observed)]))
    assert pool.inserted == unlimited_pool.inserted[:columns]
    if columns:
        assert drafter.rows == [unlimited.rows[0][: columns - 1], *(row[:columns] for row in unlimited.rows[1:])]
    else:
        assert drafter.rows == rows


@pytest.mark.parametrize("limit", range(1, 12))
@pytest.mark.parametrize(("w", "n"), [(1, 3), (2, 6), (5, 3), (4, 5)])
def test_outputs_shorter_than_the_window_are_the_targets(w: int, n: int, limit: int) -> None:
    for seed in range(3):
        prompt = tuple(random.Random(seed).randrange(2, 9) for _ in range(12))
        drafter = LookaheadDrafter(inputs(prompt, seed=seed), n=n, window=w, guesses=2, pool_from_prompt=seed == 1)
        lane = function_lane(prompt, drafter, markov(seed, vocab=9, order=2), num_draft=200, max_new_tokens=limit)
        while not lane.end:
            lane.step()
        assert lane.tokens == continuation(prompt, markov(seed, vocab=9, order=2), limit)


def test_the_pool_drops_the_least_recently_inserted() -> None:
    pool = NGramPool(3)
    for ngram in ((1, 1), (2, 2), (3, 3)):
        pool.insert(7, ngram)
    pool.insert(7, (1, 1))  # inserted again, so (2, 2) is the oldest now
    pool.insert(7, (4, 4))
    assert pool.after(7) == [(4, 4), (1, 1), (3, 3)]
    pool.insert(7, (1, 1))  # already in the pool, so nothing is dropped
    assert pool.after(7) == [(1, 1), (4, 4), (3, 3)]
    pool.insert(7, (5, 5))
    assert pool.after(7) == [(5, 5), (1, 1), (4, 4)]
    assert pool.after(8) == []


def test_each_token_has_its_ngrams_and_capacity_0_stores_none() -> None:
    pool = NGramPool(1)
    pool.insert(1, (5,))
    pool.insert(2, (6,))
    assert pool.after(1) == [(5,)] and pool.after(2) == [(6,)]
    pool_of_none = NGramPool(0)
    pool_of_none.insert(1, (5,))
    assert pool_of_none.after(1) == []


@pytest.mark.parametrize(("n", "w"), [(3, 1), (3, 5), (5, 4), (7, 2)])
def test_a_full_match_emits_n_tokens(n: int, w: int) -> None:
    """N-1 tokens are accepted; the last token is the bonus token, which the reference code drops."""
    prompt = list(range(10, 10 + n))
    text = prompt + [prompt[0]]
    drafter = LookaheadDrafter(inputs(text), n=n, window=w, guesses=2, pool_from_prompt=True)
    fill(drafter, random.Random(2))
    # The pool has prompt[1:] after prompt[0], and the target repeats the prompt.
    following = dict(zip(prompt, [*prompt[1:], prompt[0]], strict=True))
    lane = function_lane(text, drafter, lambda tokens: following.get(tokens[-1], 0), num_draft=500)
    step = lane.step()
    assert step.verdict.accepted == n - 1
    assert list(step.emitted) == [*prompt[1:], prompt[0]] and len(step.emitted) == n


def test_ngrams_with_a_common_prefix_share_nodes() -> None:
    drafter = make_drafter(1, 4, 5)
    fill(drafter, random.Random(0))
    drafter.rows = [[], [20], [21]]
    for ngram in ((30, 31, 32), (30, 31, 33), (30, 34, 35), (20, 21, 36)):
        drafter.pool.insert(9, ngram)
    tree = drafter.propose([9], 100)
    # 36 extends the window's branch 20-21; the other n-grams form one tree of 6 nodes below the root.
    assert tree.num_draft == 2 + 1 + 6


def test_the_most_recent_ngram_is_drafted_first() -> None:
    """So a small budget cuts off the oldest n-grams."""
    drafter = make_drafter(2, 3, 3)
    fill(drafter, random.Random(0))
    for ngram in ((30, 31), (40, 41), (50, 51)):
        drafter.pool.insert(9, ngram)
    tree = drafter.propose([9], 7)
    assert [token for token in tree.tokens if token >= 30][::2] == [50, 40, 30]


def test_a_budget_too_small_for_the_window_leaves_it_unchanged() -> None:
    drafter = make_drafter(5, 4, 2)
    fill(drafter, random.Random(0))
    drafter.pool.insert(9, (30, 31, 32))
    rows = drafter.rows
    tree = drafter.propose([9], 3)
    assert tree.tokens == (9, 30, 31, 32)
    drafter.observe(tree, step_verdict(tree, [30, 31, 32, 33]))
    assert drafter.rows == rows
    drafter.propose([33], 10_000)
    assert len(drafter.propose([33], 10_000)) > 10


@pytest.mark.parametrize(("n", "w", "g"), [(3, 5, 3), (5, 15, 15), (4, 6, 0), (6, 9, 2)])
@pytest.mark.parametrize("budget", [5, 8, 12, 30])
def test_a_budget_below_the_full_size_narrows_the_window(n: int, w: int, g: int, budget: int) -> None:
    """The narrowed window fills, collects n-grams, and drafts within the budget."""
    drafter = make_drafter(w, n, g)
    lane = function_lane([9, 8, 7], drafter, markov(3, vocab=6, order=1), num_draft=budget, max_new_tokens=400)
    sizes = [lane.step().tree.num_draft for _ in range(12)]
    used_n, columns = fitting_size(n, w, g, budget)
    assert columns and drafter.n == used_n and (used_n == n) == (fitting_window(n, w, g, budget) > 0)
    assert drafter.is_filled and len(drafter.rows[1]) == columns and bool(len(drafter.pool)) == bool(g)
    assert all(sizes) and max(sizes) <= budget


def test_a_budget_that_falls_while_the_window_fills_narrows_it() -> None:
    drafter, rng = make_drafter(8, 5, 0), random.Random(2)
    pending = fill(drafter, rng, steps=2)
    wide = drafter.propose([pending], 10_000).num_draft
    drafter, rng = make_drafter(8, 5, 0), random.Random(2)
    tree = drafter.propose([fill(drafter, rng, steps=2)], 15)
    assert 0 < tree.num_draft <= 15 < wide


@pytest.mark.parametrize(("n", "w", "g"), [*SETTINGS, (5, 15, 15)])
def test_every_draft_size_is_used_for_drafts(n: int, w: int, g: int) -> None:
    """If no window of N rows fits into the draft size, N is reduced, so the lane never becomes a second vanilla."""
    for budget in range(1, 2 * n):
        drafter = make_drafter(w, n, g)
        lane = function_lane([9, 8, 7], drafter, markov(3, vocab=6, order=1), num_draft=budget, max_new_tokens=24)
        steps = []
        while not lane.end:
            steps.append(lane.step())
        assert all(1 <= step.tree.num_draft <= budget for step in steps[:8])
        assert lane.tokens == continuation([9, 8, 7], markov(3, vocab=6, order=1), 24)
        facts = [step.note.facts.get("N", "") for step in steps if step.note is not None]
        assert all(bool(fact) == (drafter.n != n) for fact in facts)


def test_the_note_says_that_n_was_reduced() -> None:
    drafter = make_drafter(15, 5, 15)
    tree = drafter.propose([9], 4)
    assert drafter.note(tree).facts["N"] == "3, not 5, whose window does not fit into 4 draft tokens"


@pytest.mark.parametrize("w", [2, 3, 5, 15])
@pytest.mark.parametrize("pool_from_prompt", [False, True])
def test_with_n_2_lookahead_is_jacobi(w: int, pool_from_prompt: bool) -> None:
    """The only row is Jacobi's trajectory. The pending token is its first column, so the draft has W-1 tokens."""
    for seed in range(6):
        prompt = tuple(random.Random(seed).randrange(2, 9) for _ in range(12))
        drafters = (
            LookaheadDrafter(inputs(prompt, seed=seed), n=2, window=w, guesses=7, pool_from_prompt=pool_from_prompt),
            JacobiDrafter(inputs(prompt, seed=seed)),
        )
        next_token = markov(seed, vocab=9, order=1)
        lanes = [function_lane(prompt, drafter, next_token, num_draft=w - 1, max_new_tokens=40) for drafter in drafters]
        trees: list[list[TokenTree]] = [[], []]
        for lane, seen in zip(lanes, trees, strict=True):
            while not lane.end:
                seen.append(lane.step().tree)
        assert [(tree.tokens, tree.parents) for tree in trees[0]] == [(tree.tokens, tree.parents) for tree in trees[1]]
        assert lanes[0].tokens == lanes[1].tokens and trees[0][0].num_draft == w - 1


def test_a_row_of_one_column_is_refused_with_n_2() -> None:
    with pytest.raises(InputError, match=r"lookahead\.window of 2 or more"):
        LookaheadDrafter(inputs([2, 3]), n=2, window=1)
    assert METHODS["lookahead"].budget("cpu", {"n": 2, "window": 5, "guesses": 3}) == 4


@pytest.mark.parametrize("n", [3, 4, 6])
def test_pool_from_prompt_has_every_ngram_of_prompt_and_output(n: int) -> None:
    prompt = [random.Random(n).randrange(2, 6) for _ in range(30)]
    drafter = LookaheadDrafter(inputs(prompt), n=n, window=2, guesses=64, pool_from_prompt=True)
    drafter.rows = [[3] * (2 + n - 3)]
    lane = function_lane(prompt, drafter, markov(3, vocab=6, order=1), num_draft=0, max_new_tokens=12)
    while not lane.end:
        lane.step()
    text = lane.context
    expected: dict[int, set[tuple[int, ...]]] = {}
    for start in range(len(text) - n + 1):
        expected.setdefault(text[start], set()).add(tuple(text[start + 1 : start + n]))
    for token in range(VOCAB):
        assert set(drafter.pool.after(token)) == expected.get(token, set())


def test_without_pool_from_prompt_the_pool_starts_empty() -> None:
    drafter = LookaheadDrafter(inputs([2, 3, 4] * 5), n=3, window=2, guesses=5)
    assert all(drafter.pool.after(token) == [] for token in range(VOCAB))


@pytest.mark.parametrize(("n", "w", "g", "budget"), [(3, 5, 0, 40), (4, 5, 3, 40), (5, 15, 7, 40), (5, 8, 7, 9)])
def test_a_scored_lookahead_pays_for_the_window_that_it_would_draft(n: int, w: int, g: int, budget: int) -> None:
    """With an empty pool, the draft is the full window alone."""
    drafter, rng, pending = make_drafter(w, n, g), random.Random(1), 5
    for _ in range(n - 1):
        drafter.pool = NGramPool(0)
        tree = drafter.propose([pending], budget)
        verdict = step_verdict(tree, random_targets(tree, rng))
        drafter.observe(tree, verdict)
        pending = verdict.bonus
    options = {"n": n, "window": w, "guesses": g}
    assert drafter.is_filled and window_size(options, budget) == tree.num_draft > 0
    assert window_size(options, 0) == 0


def test_only_jacobi_is_refused_by_score_and_keeps_its_window_on_chains() -> None:
    assert POOL_SCORING.refuses is not None
    assert POOL_SCORING.refuses({"n": 3}) == "" and POOL_SCORING.refuses({"n": 2}).startswith("n=2 is Jacobi,")
    for n, kind in ((2, LookaheadDrafter), (3, PoolDrafter)):
        drafter = build_on_chains(inputs((4, 5, 6)), n=n, window=7)
        assert type(drafter) is kind and drafter.window == 7


def test_the_first_row_is_drawn_from_the_prompt() -> None:
    drafter = LookaheadDrafter(inputs([8, 9], seed=4), n=6, window=12, guesses=1)
    # W + N - 3 tokens.
    assert len(drafter.rows[0]) == 15 and set(drafter.rows[0]) == {8, 9}


def test_under_sampling_the_window_holds_drawn_tokens() -> None:
    """The noise of a position does not change, so if a trajectory is right, its tokens are those of the output."""
    target, prompt, params = TableTarget(), (3, 4, 5, 6), SamplingParams(1.5, seed=2)
    drafter = LookaheadDrafter(inputs(prompt), n=3, window=4, guesses=2)
    session = target.session(target.prefill(prompt), 40, params)
    tree = drafter.propose(prompt, 40)
    logits = np.stack([target.logits(text) for text in session.texts(tree)])
    drafter.observe(tree, verify(tree, session.score(tree)))
    # The window is the chain of its first row, whose node at depth d is drawn for position 4 + d.
    expected = perturbed_logits(logits, params, range(4, 4 + len(tree))).argmax(axis=1).tolist()
    assert drafter.rows[-1] == expected[1:] != logits.argmax(axis=1).tolist()[1:]


@pytest.mark.parametrize(("w", "n", "g"), SETTINGS[::7])
def test_lookahead_never_changes_the_output(w: int, n: int, g: int) -> None:
    for seed in range(4):
        prompt = tuple(random.Random(seed).randrange(2, 9) for _ in range(12))
        drafter = LookaheadDrafter(inputs(prompt, seed=seed), n=n, window=w, guesses=g, pool_from_prompt=seed % 2 == 0)
        lane = function_lane(prompt, drafter, markov(seed, vocab=9, order=2), num_draft=200, max_new_tokens=30)
        while not lane.end:
            lane.step()
        assert lane.tokens == continuation(prompt, markov(seed, vocab=9, order=2), 30)
