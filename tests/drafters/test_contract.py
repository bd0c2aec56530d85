"""The contract of all drafters; worked examples of some drafters' rules; the registry and its options.

A `function_lane` decodes with a function as its target, for instance one that `markov` makes. `step_verdict` is the
verdict on a tree if the target's tokens at its nodes are those given.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import Step
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters import METHODS, DrafterInputs, find_method
from specrace.drafters.base import Bounds, Flag
from specrace.drafters.lookahead import LookaheadDrafter
from specrace.ngrams.counts import NGramCounts
from tests.parts import VOCAB, continuation, function_lane, inputs, markov, random_prompt, step_verdict

NAMES = tuple(METHODS)
DRAFTING = tuple(name for name in METHODS if name != "vanilla")
# By default these drafters match 12 tokens and draft 48, too many for the short texts of these tests.
SHORT_TEXT_OPTIONS = {f"llamacpp-{mode}": {"size_n": 1, "size_m": 4} for mode in ("simple", "map-k", "map-k4v")}


def decode(
    name: str, prompt: tuple[int, ...], seed: int, num_draft: int, **options: Any
) -> tuple[list[int], list[Step]]:
    """Output and steps of a method that decodes a random Markov text."""
    drafter = METHODS[name].build(inputs(prompt, seed=seed), **SHORT_TEXT_OPTIONS.get(name, {}) | options)
    lane = function_lane(prompt, drafter, markov(seed, vocab=6, order=1), max_new_tokens=40, num_draft=num_draft)
    steps = []
    while not lane.end:
        context = list(lane.context)
        steps.append(lane.step())
        assert steps[-1].tree.tokens[0] == context[-1]
    return lane.tokens, steps


@pytest.mark.parametrize("name", NAMES)
def test_every_method_emits_the_targets_tokens_within_its_budget(name: str) -> None:
    rng = random.Random(7)
    for seed in range(30):
        prompt, num_draft = random_prompt(rng), rng.choice([0, 1, 2, 5, 16, 40])
        tokens, steps = decode(name, prompt, seed, num_draft)
        assert tokens == continuation(prompt, markov(seed, vocab=6, order=1), 40)
        assert all(step.tree.num_draft <= num_draft for step in steps)
        assert sum(len(step.emitted) for step in steps) == 40


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_draft_token_is_too_deep_to_be_emitted(name: str, device: str) -> None:
    """The last of the remaining tokens is the bonus token, so a node has at most depth `remaining` - 1."""
    method, deepest = METHODS[name], 0
    options = method.defaults(device) | SHORT_TEXT_OPTIONS.get(name, {})
    for prompt in ((2, 3, 4, 5) * 6, random_prompt(random.Random(1))):
        drafter = method.build(inputs(prompt, curve=CostCurve((1, 99), (1.0, 1.0))), **options)
        num_draft = method.budget(device, method.defaults(device))
        lane = function_lane(prompt, drafter, markov(4, vocab=6, order=1), max_new_tokens=31, num_draft=num_draft)
        while not lane.end:
            remaining = lane.remaining
            step = lane.step()
            assert max(step.tree.depths) < remaining and len(step.emitted) <= remaining
            assert len(step.tree) == len(step.verdict.scores.targets)
            deepest = max(deepest, *step.tree.depths)
        assert lane.tokens == continuation(prompt, markov(4, vocab=6, order=1), 31)
    assert deepest > 1 or name == "vanilla"


class TooDeepDrafter:
    """A user's drafter that ignores the depth limit: it drafts a wrong branch, then the target's text, too deep."""

    def __init__(self, following: list[int]) -> None:
        self.following = following
        self.observed: list[TokenTree] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        builder = TreeBuilder(context[-1])
        wrong, *_ = builder.add_path([99, 98, 97])
        builder.add(wrong, 96)
        builder.add_path(self.following[len(context) - 1 :][:budget])
        return builder.build()

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        assert len(verdict.scores.targets) == len(tree)
        self.observed.append(tree)


@pytest.mark.parametrize("remaining", range(1, 7))
def test_trees_of_a_drafter_that_ignores_depth_are_pruned(remaining: int) -> None:
    """Nodes that are too deep are pruned before scoring, and the drafter observes the pruned tree."""
    text = [*range(2, 2 + remaining)]
    drafter = TooDeepDrafter(text)
    lane = function_lane((1,), drafter, lambda tokens: tokens[-1] + 1, max_new_tokens=remaining, num_draft=20)
    step = lane.step()
    assert (lane.tokens, lane.end, drafter.observed) == (text, "length", [step.tree])
    wrong = [99, 98, 97][: remaining - 1]
    paths = {tuple(step.tree.tokens[node] for node in step.tree.path_to(end)) for end in range(len(step.tree))}
    expected = {(1, *branch[:size]) for branch in (text, wrong) for size in range(remaining)}
    # 96, a second child of 99, has depth 2.
    assert paths == expected | ({(1, 99, 96)} if remaining > 2 else set())


@pytest.mark.parametrize("name", DRAFTING)
def test_some_drafts_of_every_drafter_are_accepted(name: str) -> None:
    """Without accepted drafts, the tests of equal output would only test vanilla."""
    prompt = (2, 3, 4, 5) * 4
    accepted = [step.verdict.accepted for seed in range(8) for step in decode(name, prompt, seed, 16)[1]]
    assert sum(accepted) > 0 and max(accepted) > 1


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_drafts(name: str) -> None:
    prompt = random_prompt(random.Random(3))
    first, second = decode(name, prompt, 5, 12)[1], decode(name, prompt, 5, 12)[1]
    assert [step.tree for step in first] == [step.tree for step in second]


@pytest.mark.parametrize("name", ["jacobi", "lookahead"])
def test_different_seeds_give_different_drafts(name: str) -> None:
    prompt = tuple(range(2, 30))
    trees = {METHODS[name].build(inputs(prompt, seed=seed)).propose(prompt, 12) for seed in range(5)}
    assert len(trees) > 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prompt", [(4,), (4, 4), (4, 5, 6)])
def test_short_texts_and_small_budgets_give_valid_trees(name: str, prompt: tuple[int, ...]) -> None:
    drafter = METHODS[name].build(inputs(prompt))
    for budget in (0, 1, 2, 0, 50):
        tree = drafter.propose(prompt, budget).cut(budget)
        assert tree.tokens[0] == prompt[-1] and tree.num_draft <= budget
        drafter.observe(tree, step_verdict(tree, [9] * len(tree)))
        prompt = (*prompt, 9)


@pytest.mark.parametrize("name", NAMES)
def test_drafts_stay_valid_when_every_draft_is_rejected(name: str) -> None:
    """The target rejects every draft token, so each step emits one token."""
    prompt, context = (2, 3, 2, 3), [2, 3, 2, 3]
    drafter = METHODS[name].build(inputs(prompt))
    for step in range(30):
        tree = drafter.propose(context, 9).cut(9)
        assert tree.tokens[0] == context[-1]
        token = next(token for token in range(step % 5, VOCAB) if token not in tree.children[0])
        verdict = step_verdict(tree, [token] * len(tree))
        assert verdict.accepted == 0
        drafter.observe(tree, verdict)
        context.append(token)


@pytest.mark.parametrize("name", NAMES)
def test_drafting_leaves_shared_inputs_unchanged(name: str) -> None:
    """Two drafters share a corpus and a prompt; what the first drafts changes neither."""
    corpus = NGramCounts()
    corpus.extend_apart([[2, 3, 4, 2, 3]])
    shared_inputs = inputs((2, 3, 4, 2), corpus=corpus)
    before = METHODS[name].build(shared_inputs).propose(shared_inputs.prompt, 8)
    first_drafter = METHODS[name].build(shared_inputs)
    for _ in range(6):
        tree = first_drafter.propose((2, 3, 4, 2), 8)
        first_drafter.observe(tree, step_verdict(tree, [7] * len(tree)))
    assert corpus.row((2,)) == {3: 2} and corpus.row((2, 3)) == {4: 1}
    assert METHODS[name].build(shared_inputs).propose(shared_inputs.prompt, 8) == before


# Bigram and trigram.


def test_bigram_drafts_the_most_frequent_then_the_first_seen_token() -> None:
    drafter = METHODS["bigram"].build(inputs([5, 6, 5, 7, 5, 7, 8, 6]))
    tree = drafter.propose([5], 3)
    # 5 was followed by 6 once and by 7 twice, and 7 by 5 and then by 8, once each.
    assert tree == TokenTree((5, 7, 5, 7), (-1, 0, 1, 2), tree.probs)
    assert tree.probs == (1.0, 2 / 3, 1 / 2, 2 / 3)


def test_bigram_stops_at_a_token_without_successors() -> None:
    assert METHODS["bigram"].build(inputs([5, 6])).propose([5], 4).tokens == (5, 6)
    assert METHODS["bigram"].build(inputs([5, 6])).propose([6], 4).tokens == (6,)


def test_trigram_row_needs_a_context_seen_twice() -> None:
    seen_once = inputs([1, 2, 3, 9, 2, 4, 8, 2, 4])
    # (1, 2) was seen once, so the bigram row is used.
    assert METHODS["trigram"].build(seen_once).propose([1, 2], 1).tokens == (2, 4)
    assert METHODS["trigram"].build(seen_once, min_context_count=1).propose([1, 2], 1).tokens == (2, 3)
    seen_twice = inputs([1, 2, 3, 9, 2, 4, 8, 2, 4, 1, 2, 3, 2, 4])
    assert METHODS["trigram"].build(seen_twice).propose([1, 2], 1).tokens == (2, 3)
    assert METHODS["trigram"].build(seen_twice, min_context_count=3).propose([1, 2], 1).tokens == (2, 4)


def test_trigram_context_count_sums_all_continuations() -> None:
    drafter_inputs = inputs([1, 2, 3, 1, 2, 5, 2, 7, 2, 7, 2, 7])
    # (1, 2) was seen twice, once before 3 and once before 5. So its row is used, although no count in it is 2.
    assert METHODS["trigram"].build(drafter_inputs).propose([1, 2], 1).tokens == (2, 3)


def test_trigram_without_a_previous_token_uses_the_bigram_row() -> None:
    assert METHODS["trigram"].build(inputs([2, 4, 2, 4])).propose([2], 1).tokens == (2, 4)


def test_trigram_context_advances_along_the_draft() -> None:
    text = [1, 2, 3, 4, 1, 2, 3, 4, 9, 3, 5, 9, 3, 5, 9, 3, 5]
    # (2, 3) was followed by 4, and 3 alone most often by 5.
    assert METHODS["trigram"].build(inputs(text)).propose([1, 2], 2).tokens == (2, 3, 4)
    assert METHODS["bigram"].build(inputs(text)).propose([1, 2], 2).tokens == (2, 3, 5)


def test_after_a_rejection_the_context_ends_in_the_bonus_token() -> None:
    drafter = METHODS["trigram"].build(inputs([2, 6, 7, 2, 6, 7, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2]))
    tree = drafter.propose([1, 2], 3)
    assert tree.tokens == (2, 3, 4, 1)
    drafter.observe(tree, step_verdict(tree, [6, 0, 0, 0]))  # 3 is rejected, the target's token is 6
    tree = drafter.propose([1, 2, 6], 1)
    assert tree.tokens == (6, 7)
    drafter.observe(tree, step_verdict(tree, [7, 0]))
    counts = drafter.counts  # type: ignore[attr-defined]
    assert (counts.row((1, 2)), counts.row((2, 6)), counts.row((6, 7))) == ({3: 2, 6: 1}, {7: 3}, {2: 1, 1: 1, 0: 1})


def test_bigram_counts_the_corpus_and_the_text() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[5, 6], [5, 6], [8, 9]])
    drafter = METHODS["bigram"].build(DrafterInputs((5, 7, 8), VOCAB, corpus=corpus))
    assert drafter.propose([5], 1).tokens == (5, 6)
    assert drafter.propose([8], 1).tokens == (8, 9)


# Jacobi.


def test_jacobi_block_becomes_the_targets_tokens_after_the_accepted_path() -> None:
    prompt = (11, 12, 13)
    drafter = METHODS["jacobi"].build(inputs(prompt))
    tree = drafter.propose(prompt, 5)
    assert tree.is_chain and len(tree) == 6 and set(tree.tokens[1:]) <= set(prompt)
    # Nothing is accepted: the bonus token is 20, and the targets from node 1 on are the next draft.
    assert tree.tokens[1] != 20
    drafter.observe(tree, step_verdict(tree, [20, 21, 22, 23, 24, 25]))
    tree = drafter.propose((*prompt, 20), 5)
    assert tree.tokens == (20, 21, 22, 23, 24, 25)
    # 21 and 22 are accepted, and 30 is the bonus token. The targets from node 3 on are the next draft, which is filled
    # up with tokens of the prompt.
    drafter.observe(tree, step_verdict(tree, [21, 22, 30, 33, 34, 35]))
    tree = drafter.propose((*prompt, 20, 21, 22, 30), 5)
    assert tree.tokens[:4] == (30, 33, 34, 35)
    assert len(tree) == 6 and set(tree.tokens[4:]) <= set(prompt)


def test_jacobi_converges_in_one_step_if_the_target_ignores_the_text() -> None:
    prompt = tuple(range(2, 10))
    for seed in range(10):
        drafter = METHODS["jacobi"].build(inputs(prompt, seed=seed))
        lane = function_lane(prompt, drafter, lambda tokens: len(tokens) % VOCAB, num_draft=6, max_new_tokens=60)
        first = lane.step()
        # Now every draft token is right, except those that filled up the block.
        assert lane.step().verdict.accepted >= 6 - first.verdict.accepted


def test_jacobi_starts_a_new_block_after_full_acceptance() -> None:
    drafter = METHODS["jacobi"].build(inputs((4,)))
    tree = drafter.propose((4,), 3)
    drafter.observe(tree, step_verdict(tree, [4, 4, 4, 9]))
    assert drafter.propose((4, 4, 4, 4, 9), 3).tokens == (9, 4, 4, 4)


# Prompt lookup.


def lookup(prompt: list[int], budget: int = 10, **options: int) -> TokenTree:
    """The draft of prompt lookup after `prompt`."""
    return METHODS["prompt-lookup"].build(inputs(prompt), **options).propose(prompt, budget)


def test_prompt_lookup_prefers_the_longest_match() -> None:
    # 3 was first followed by 6, 2 3 by 8, and 1 2 3 by 7.
    prompt = [3, 6, 9, 2, 3, 8, 1, 2, 3, 7, 1, 2, 3]
    assert lookup(prompt).tokens == (3, 7, 1, 2, 3)  # three tokens
    assert lookup(prompt, longest=2).tokens[1] == 8  # two tokens: the first occurrence of 2 3
    assert lookup(prompt, longest=1).tokens[1] == 6  # one token: the first occurrence of 3
    assert lookup(prompt, 2) == TokenTree((3, 7, 1), (-1, 0, 1), None, (-1, 9, 10))


def test_prompt_lookup_prefers_the_first_of_equally_long_matches() -> None:
    assert lookup([1, 2, 5, 1, 2, 6, 1, 2]).tokens[1] == 5


def test_prompt_lookup_without_a_match_drafts_nothing() -> None:
    assert lookup([1, 2, 3]).tokens == (3,)
    assert lookup([1, 2, 9, 2], shortest=2, longest=3).tokens == (2,)
    assert lookup([4]).tokens == (4,)


def test_prompt_lookup_copies_from_the_output() -> None:
    drafter = METHODS["prompt-lookup"].build(inputs([1, 2, 3]))
    tree = drafter.propose([1, 2, 3], 10)
    drafter.observe(tree, step_verdict(tree, [8]))
    drafter.observe(TokenTree.chain(8), step_verdict(TokenTree.chain(8), [3]))
    assert drafter.propose([1, 2, 3, 8, 3], 10).tokens == (3, 8, 3)


# The trie.


def test_the_trie_drafts_from_the_prompt_and_by_default_from_the_output() -> None:
    prompt = [1, 2, 3, 4]
    static = METHODS["trie"].build(inputs(prompt), static=True)
    growing = METHODS["trie"].build(inputs(prompt))
    for drafter in (static, growing):
        for root, target_token in ((4, 8), (8, 9), (9, 4)):
            tree = TokenTree.chain(root)
            drafter.observe(tree, step_verdict(tree, [target_token]))
    context = [*prompt, 8, 9, 4]
    assert static.propose(context, 8).tokens == (4,)
    assert growing.propose(context, 8).tokens == (4, 8, 9, 4)
    assert static.propose([9, 2], 8).tokens == (2, 3, 4)


def test_the_trie_matches_at_most_prefix_tokens() -> None:
    """7 1 2 was followed by 5; 1 2 by 5 once and by 6 twice."""
    prompt = [7, 1, 2, 5, 9, 1, 2, 6, 1, 2, 6]
    assert METHODS["trie"].build(inputs(prompt)).propose([7, 1, 2], 1).tokens == (2, 5)
    assert METHODS["trie"].build(inputs(prompt), prefix=2).propose([7, 1, 2], 1).tokens == (2, 6)


def test_a_prefix_longer_than_the_trie_depth_still_drafts() -> None:
    drafter = METHODS["trie"].build(inputs([1, 2, 3, 1, 2]), n=2, prefix=32)
    assert drafter.propose([1, 2, 3, 1, 2], 8).tokens == (2, 3)


# The registry and options.


@pytest.mark.parametrize("name", NAMES)
def test_options_are_listed_with_defaults_within_bounds(name: str) -> None:
    method = METHODS[name]
    for option in method.options:
        assert option.bounds.help
        for device in ("cpu", "cuda"):
            value = method.defaults(device)[option.name]
            if isinstance(option.bounds, Bounds):
                assert option.bounds.low <= value <= option.bounds.high
            else:
                assert isinstance(option.bounds, Flag) and isinstance(value, bool)
    assert method.title and method.summary
    assert method.budget("cpu", method.defaults("cpu")) <= method.budget("cuda", method.defaults("cuda"))


def test_options_and_defaults_of_five_methods() -> None:
    assert [option.name for option in METHODS["trie"].options] == ["n", "prefix", "static"]
    assert METHODS["trie"].defaults("cpu") == {"n": 13, "prefix": 3, "static": False}
    assert METHODS["trie"].budget("cuda", {}) == 32
    assert METHODS["trigram"].defaults("cpu") == {"min_context_count": 2, "sampled": False, "smoothing_percent": 100}
    assert METHODS["prompt-lookup"].defaults("cpu") == {"longest": 3, "shortest": 1, "llma": False}
    assert METHODS["prompt-lookup"].budget("cpu", {}) == 10
    expected = {"n": 3, "window": 5, "guesses": 3, "pool_from_prompt": False}
    assert METHODS["lookahead"].defaults("cpu") == expected
    assert METHODS["lookahead"].defaults("cuda") == expected | {"n": 5, "window": 15, "guesses": 15}
    assert METHODS["vanilla"].options == () and METHODS["vanilla"].budget("cuda", {}) == 0


@pytest.mark.parametrize("name", DRAFTING)
def test_output_is_unchanged_with_each_option_at_its_bounds(name: str) -> None:
    method = METHODS[name]
    for option in method.options:
        values = (option.bounds.low, option.bounds.high) if isinstance(option.bounds, Bounds) else (False, True)
        for value in values:
            tokens, _ = decode(name, (2, 3, 4, 2, 3), 1, 12, **{option.name: value})
            assert tokens == continuation((2, 3, 4, 2, 3), markov(1, vocab=6, order=1), 40)


@pytest.mark.parametrize("value", ["13", 13, " 13 "])
def test_option_values_may_be_text(value: Any) -> None:
    assert METHODS["trie"].check({"n": value, "static": "Yes"}) == {"n": 13, "static": True}


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 1), ("n", 65), ("n", "x"), ("n", 2.5), ("n", None), ("n", ""), ("n", True), ("n", "9" * 5000)]
    + [("prefix", 0), ("prefix", -3), ("static", "maybe"), ("static", 2), ("static", None)],
)
def test_invalid_option_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"trie\.{name} is "):
        METHODS["trie"].check({name: value})


def test_errors_for_unknown_names_list_the_known_names() -> None:
    with pytest.raises(InputError, match=r"trie\.n, trie\.prefix, trie\.static"):
        METHODS["trie"].check({"depth": 3})
    with pytest.raises(InputError, match=r"vanilla has no option 'n'; it has: none"):
        METHODS["vanilla"].check({"n": 3})
    with pytest.raises(InputError, match=r"'mamba'; choose from vanilla, bigram"):
        find_method("mamba")


@pytest.mark.parametrize(
    ("n", "window", "guesses"), [(3, 5, 3), (5, 15, 15), (3, 1, 0), (16, 1, 0), (7, 4, 0), (4, 2, 9)]
)
def test_lookaheads_budget_is_its_largest_draft(n: int, window: int, guesses: int) -> None:
    """A larger budget would refuse prompts that fit, and warm up lanes for trees that never occur."""
    # The first n - 2 steps fill the window; the steps after them draft n-grams from the pool as well.
    max_filling, first_row = 0, window + n - 3
    for stage in range(n - 2):
        max_filling = max(max_filling, (first_row - stage) + stage * (first_row - stage + 1))
    full = (n - 1) * window - 1 + guesses * (n - 1)
    budget = METHODS["lookahead"].budget("cpu", {"n": n, "window": window, "guesses": guesses})
    assert budget == max(max_filling, full)
    drafter = LookaheadDrafter(inputs(range(2, 30)), n=n, window=window, guesses=guesses)
    drafted = []
    for step in range(n + 3):
        tree = drafter.propose([step], 10_000)
        drafted.append(tree.num_draft)
        drafter.observe(tree, step_verdict(tree, [(7 * step + 3 * node) % 101 for node in range(len(tree))]))
    assert max(drafted) <= budget
