"""The exact note of each drafter on one draft; also the options, defaults and capabilities of the methods.

A note is what a drafter says about a draft, for the page: facts, rows of tokens, and a count for each node. A row has a
heading, a label, tokens, their counts, and (`after`) the context that they followed.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.multi_branch import Draws
from specrace.core.note import Note, NoteRow
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.drafters import METHODS, Method, native_methods
from specrace.drafters.base import Bounds, DrafterInputs, Flag, Option, Scoring
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.jacobi import JacobiDrafter
from specrace.drafters.lookahead import LookaheadDrafter, PoolDrafter, tree_size
from specrace.drafters.ngram_table import BigramDrafter, TrigramDrafter
from specrace.drafters.profile import COPYING, MODEL, NGRAM, Profile
from specrace.drafters.prompt_lookup import PromptLookupDrafter
from specrace.drafters.recycling import RecyclingDrafter
from specrace.drafters.rest import RestDrafter
from specrace.drafters.suffix import SuffixDrafter
from specrace.drafters.trie import TrieDrafter
from specrace.ngrams.suffix_index import SuffixIndex
from tests.parts import VOCAB, inputs, step_verdict


def test_note_of_the_trie() -> None:
    drafter = TrieDrafter(inputs((8, 9, 1, 2, 3, 1, 2, 4)))
    assert drafter.note(TokenTree.chain(4)) == Note({"matched tokens": 0})
    tree = drafter.propose((7, 1, 2), 2)
    row = NoteRow("Matched in the trie", "the last 2 of at most 3", (1, 2))
    # An n-gram of the prompt counts three times.
    assert drafter.note(tree) == Note({"matched tokens": 2}, (row,), (0, 3, 3))
    assert drafter.note(drafter.propose((7, 1, 2), 0)) == Note({"matched tokens": 0})


def test_note_of_prompt_lookup() -> None:
    drafter = PromptLookupDrafter(inputs((1, 2, 3, 1, 2)))
    assert drafter.note(TokenTree.chain(2)) == Note({"matched tokens": 0})
    assert drafter.note(drafter.propose((1, 2, 3, 1, 2), 2)) == Note({"matched tokens": 2})


def test_note_of_rest() -> None:
    drafter = RestDrafter(inputs((1, 2), corpus_index=SuffixIndex([(1, 2, 3), (1, 2, 4)])))
    assert drafter.note(TokenTree.chain(2)) == Note({"places that match": 0})
    assert drafter.note(drafter.propose((1, 2), 1)) == Note({"places that match": 2})
    assert drafter.note(drafter.propose((1, 2), 0)) == Note({"places that match": 0})


def test_note_of_jacobi() -> None:
    drafter = JacobiDrafter(inputs((5, 5)))
    assert drafter.note(drafter.propose((5, 5), 3)) == Note({}, (NoteRow("Trajectory", "draft", (5, 5, 5)),))


def test_note_of_lookahead() -> None:
    drafter = LookaheadDrafter(inputs((1, 2, 3, 1, 2, 4, 6)), n=3, window=2, guesses=2, pool_from_prompt=True)
    tree = drafter.propose((9, 1), 9)
    row = drafter.rows[0]
    pool = [
        NoteRow("Pool", "n-gram 1", (2, 4), after=(1,)),
        NoteRow("Pool", "n-gram 2", (2, 3), after=(1,)),
    ]
    facts = {"pool hits": 2, "tokens with n-grams in the pool": 3}
    assert drafter.note(tree) == Note(facts, (NoteRow("Window", "row 0", (1, *row)), *pool))
    drafter.observe(tree, step_verdict(tree, [7] * len(tree)))
    trunk, second_row = drafter.rows
    window = (NoteRow("Window", "row 0", (1, *trunk)), NoteRow("Window", "row 1", tuple(second_row)))
    assert drafter.note(drafter.propose((9, 1), 9)).rows == (*window, *pool)
    assert drafter.note(drafter.propose((9, 1), 0)).rows == tuple(pool)


def test_note_of_the_trigram_and_the_bigram() -> None:
    drafter = TrigramDrafter(inputs((1, 2, 3, 1, 2, 3, 2, 4)))
    note = drafter.note(drafter.propose((1, 2), 1))
    assert note.facts == {}
    assert note.rows[0] == NoteRow("Rows of the table", "trigram, seen 2×", (3,), (2,), (1, 2))
    assert drafter.note(drafter.propose((9, 3), 1)).rows[0] == NoteRow(
        "Rows of the table", "bigram, seen 2×; the trigram only 0×", (1, 2), (1, 1), (3,)
    )
    bigram = BigramDrafter(inputs((1, 2, 3, 1, 2, 3, 2, 4)))
    assert bigram.note(bigram.propose((1, 2), 0)).rows == (
        NoteRow("Rows of the table", "bigram, seen 3×", (3, 4), (2, 1), (2,)),
    )
    # A note has at most eight rows.
    assert len(bigram.note(bigram.propose((1, 2), 30)).rows) == 8


def test_note_of_a_table_has_at_most_six_continuations() -> None:
    prompt = [token for after in (2, 3, 4, 5, 6, 7, 8) for token in (1, after)]
    drafter = TrigramDrafter(inputs(prompt))
    row = drafter.note(drafter.propose((1,), 0)).rows[0]
    assert row == NoteRow("Rows of the table", "bigram, seen 7×", (2, 3, 4, 5, 6, 7), (1,) * 6, (1,))


def test_note_of_suffix_decoding() -> None:
    prompt = (7, 1, 3, 7, 1, 4, 7, 2, 9, 7)
    drafter = SuffixDrafter(inputs(prompt), factor=8, tree=True)
    assert drafter.note(TokenTree.chain(7)) == Note({"matched tokens": 0, "tokens expected": 0})
    # The path probabilities are 1/2, then 1/4 five times.
    assert drafter.note(drafter.propose(prompt, 6)) == Note({"matched tokens": 1, "tokens expected": 1.75})
    tree = TokenTree((7, 1, 2, 3), (-1, 0, 0, 1), (1.0, 1 / 3, 1 / 3, 1 / 2))
    assert drafter.note(tree).facts["tokens expected"] == 0.83
    assert drafter.note(TokenTree((7, 1, 2), (-1, 0, 0))).facts["tokens expected"] == 2.0


def test_note_of_the_draft_model() -> None:
    drafter = DraftModelDrafter(inputs((5, 6, 7, 5)))
    facts = {"drafted": 2, "each token": "the smaller model's likeliest", "probability of the whole": "25%"}
    assert drafter.note(drafter.propose((5, 6, 7, 5), 2)) == Note(facts | {"expected": "1.75 tokens"})
    assert drafter.note(TokenTree.chain(5)).facts["expected"] == "1.00 tokens"
    sampling = DraftModelDrafter(inputs((5, 6, 7, 5), params=SamplingParams(1.0)), sampled=True)
    assert sampling.note(TokenTree.chain(5)).facts["each token"] == "drawn at the race's temperature"


def test_drafters_have_the_listed_default_options() -> None:
    drafter_inputs = inputs((1, 2, 3))
    trie = TrieDrafter(drafter_inputs)
    assert (trie.trie.n, trie.prefix, trie.static) == (13, 3, False)
    lookup = PromptLookupDrafter(drafter_inputs)
    assert (lookup.text.longest, lookup.shortest, lookup.llma) == (3, 1, False)
    rest = RestDrafter(drafter_inputs)
    assert (rest.longest, rest.shortest, rest.length, rest.branches) == (16, 2, 10, 64)
    suffix = SuffixDrafter(drafter_inputs)
    assert (suffix.depth, suffix.factor, suffix.min_prob, suffix.tree) == (64, 1, 0.1, False)
    assert TrieDrafter(drafter_inputs, n=4, prefix=32).prefix == 3
    assert TrieDrafter(drafter_inputs, n=4, prefix=2).prefix == 2
    fusion = FusionDrafter(drafter_inputs)
    assert (fusion.text_model.longest, fusion.corpus, fusion.recycled) == (8, None, None)
    trigram = TrigramDrafter(drafter_inputs)
    assert (trigram.min_context_count, trigram.smoothing, trigram.rows) == (2, 1.0, None)
    assert (BigramDrafter(drafter_inputs).smoothing, BigramDrafter(drafter_inputs).rows) == (1.0, None)
    lookahead = LookaheadDrafter(drafter_inputs)
    assert (lookahead.n, len(lookahead.rows[0]), lookahead.pool.capacity) == (3, 5, 3)
    assert not lookahead.pool_from_prompt
    assert not PoolDrafter(drafter_inputs).pool_from_prompt
    assert DraftModelDrafter(drafter_inputs).random is None and RecyclingDrafter(drafter_inputs).successors == {}


def test_listed_defaults_and_bounds() -> None:
    options_by_method = {
        name: {option.name: (option.default, *_bounds(option.bounds)) for option in METHODS[name].options}
        for name in ("rest", "suffix", "recycling", "fusion", "draft-model", "bigram")
    }
    assert options_by_method == {
        "rest": {"longest": (16, 1, 16), "shortest": (2, 1, 16), "length": (10, 1, 16), "branches": (64, 1, 1024)},
        "suffix": {"depth": (64, 2, 64), "factor": (1, 1, 64), "min_percent": (10, 1, 100), "tree": (False,)},
        "recycling": {"warm": (False,), "copy": (True,)},
        "fusion": {
            "longest": (8, 1, 32),
            "corpus": (False,),
            "past": (True,),
            "recycling": (False,),
            "chain": (False,),
            "copy": (False,),
        },
        "draft-model": {"sampled": (False,)},
        "bigram": {"sampled": (False,), "smoothing_percent": (100, 1, 1000)},
    }


def _bounds(bounds: object) -> tuple[int, ...]:
    """The bounds of a number; nothing for a flag."""
    return (bounds.low, bounds.high) if isinstance(bounds, Bounds) else ()


def test_capabilities_and_budgets_of_methods() -> None:
    assert {name for name, method in METHODS.items() if method.samples} == {
        "bigram", "trigram", "draft-model", "specinfer",
    }  # fmt: skip
    assert {name for name, method in METHODS.items() if method.needs_draft_model} == {"draft-model", "specinfer"}
    num_top = {name: method.num_top_with(method.defaults("cuda")) for name, method in METHODS.items()}
    assert {name: count for name, count in num_top.items() if count} == {"recycling": 8, "fusion": 8, "hybrid": 8}
    assert METHODS["fusion"].num_top_with(METHODS["fusion"].defaults("cpu")) == 0
    assert METHODS["rest"].budget("cpu", {}) == 16 and METHODS["rest"].budget("cuda", {}) == 64
    assert METHODS["suffix"].budget("cuda", {}) == 32 and METHODS["bigram"].budget("cuda", {}) == 4
    simplest = Method("plain", "Plain", "drafts nothing", TrieDrafter, 3)
    assert simplest.budget("cuda", {}) == 3 and simplest.profile is COPYING and not simplest.samples


@pytest.mark.parametrize("value", [True, "true", "YES", " 1 ", "on", 1])
def test_values_that_turn_a_flag_on(value: object) -> None:
    assert METHODS["trie"].check({"static": value}) == {"static": True}


@pytest.mark.parametrize("value", [False, "false", "No", "0 ", "OFF", 0])
def test_values_that_turn_a_flag_off(value: object) -> None:
    assert METHODS["trie"].check({"static": value}) == {"static": False}


def test_numbers_at_their_bounds_are_accepted() -> None:
    assert METHODS["trie"].check({"n": 2, "prefix": 32}) == {"n": 2, "prefix": 32}
    assert METHODS["trie"].check({"n": 64, "prefix": 1}) == {"n": 64, "prefix": 1}


def test_an_option_without_an_annotation_is_a_flag() -> None:
    class Plain(TrieDrafter):
        def __init__(self, inputs: DrafterInputs, *, loud: bool = False) -> None:
            super().__init__(inputs)

    assert Method("plain", "Plain", "", Plain, 3).options == (Option("loud", False, Flag("loud")),)


def test_a_method_that_samples_needs_the_option_and_the_distributions() -> None:
    class OptionOnly(TrieDrafter):
        def __init__(self, inputs: DrafterInputs, *, sampled: bool = False) -> None:
            super().__init__(inputs)

    class DistributionsOnly(TrieDrafter):
        def distributions(self) -> np.ndarray:
            return np.zeros((0, VOCAB))

    for build in (OptionOnly, DistributionsOnly):
        with pytest.raises(ValueError, match="one samples, but lacks"):
            Method("one", "One", "", build, 3, samples=True)

    class Drawing(OptionOnly):
        def draws(self) -> Draws:
            return Draws((), (), np.zeros((0, VOCAB)))

    assert all(Method("one", "One", "", build, 3, samples=True).samples for build in (BigramDrafter, Drawing))


def test_native_methods_are_all_but_the_twins() -> None:
    names = [name for name in METHODS if not name.startswith(("vllm-", "sglang-", "trtllm-", "llamacpp-"))]
    assert list(native_methods()) == names and len(names) < len(METHODS)


def test_defaults_of_options_that_a_drafter_lacks_fail_at_registration() -> None:
    with pytest.raises(ValueError, match="one has no option prefx"):
        Method("one", "One", "", TrieDrafter, 3, {"num_draft": 5, "prefx": 2})
    with pytest.raises(ValueError, match="one has no option statick"):
        Method("one", "One", "", TrieDrafter, 3, scoring=Scoring("prompt only", options={"statick": True}))


def test_proposals_fit_small_budgets() -> None:
    prompt = (1, 2, 3, 1, 2)
    for budget in (0, -1):
        assert PromptLookupDrafter(inputs(prompt)).propose(prompt, budget).tokens == (2,)
    jacobi = JacobiDrafter(inputs(prompt))
    assert jacobi.propose(prompt, 3).num_draft == 3 and len(jacobi.block) == 3


def test_a_window_that_just_fits_is_drafted() -> None:
    lookahead = LookaheadDrafter(inputs((1, 2, 3)), n=3, window=5, guesses=0)
    assert lookahead.propose((1, 2, 3), 9).num_draft == 5
    narrow = LookaheadDrafter(inputs((1, 2, 3)), n=3, window=5, guesses=0)
    assert narrow.propose((1, 2, 3), 4).num_draft == 2
    assert tree_size({"n": 3, "window": 5, "guesses": 0}) == 9


def test_recycling_drafts_below_the_second_child_if_nothing_follows_the_first() -> None:
    drafter = RecyclingDrafter(inputs((5,)), copy=False)
    for token, likely in ((5, (6, 7)), (7, (8,)), (8, (9,))):
        bare = TokenTree.chain(token)
        drafter.observe(bare, verify(bare, Scores(targets=(0,), top=(likely,))))
    tree = drafter.propose((5,), 30)
    assert tree.tokens == (5, 6, 7, 8, 9) and tree.parents == (-1, 0, 0, 2, 3)
    assert tree.probs == (1.0, 0.5, 0.25, 0.5, 0.5)


def test_recycling_learns_token_0_but_no_unknown_token() -> None:
    drafter = RecyclingDrafter(inputs((5,)))
    for token, target_token in ((5, 0), (6, -1), (5, 1)):
        drafter.observe(TokenTree.chain(token), step_verdict(TokenTree.chain(token), (target_token,)))
    assert drafter.successors == {5: (1, 0)}


def test_gains_of_a_profile_decay() -> None:
    assert Profile(0.5, 0.8).gains(4) == pytest.approx((0.5, 0.4, 0.32, 0.256))
    assert Profile(0.5, 0.8).gains(0) == () and Profile(0.5, 0.8).price == 0.0
    assert (NGRAM.gains(1), MODEL.price) == ((0.4,), 0.2)


def test_a_sampled_draft_has_a_distribution_for_each_token() -> None:
    for make in (BigramDrafter, TrigramDrafter, DraftModelDrafter):
        drafter = make(inputs((1, 2, 3), params=SamplingParams(1.0)), sampled=True)
        assert drafter.distributions().shape == (0, VOCAB)
        for budget in (3, 1, 0):
            tree = drafter.propose((1, 2, 3), budget)
            rows = drafter.distributions()
            assert rows.shape == (tree.num_draft, VOCAB) and tree.probs is not None
            assert tree.probs == (1.0, *(rows[index, token] for index, token in enumerate(tree.tokens[1:])))
            assert np.allclose(rows.sum(axis=1), 1.0)


@pytest.mark.parametrize("make", [BigramDrafter, TrigramDrafter, DraftModelDrafter])
def test_sampled_drafts_depend_on_the_seed(make: type) -> None:
    drafts = []
    for seed in (1, 1, 2):
        drafter = make(inputs((1, 2, 3), params=SamplingParams(1.0), seed=seed), sampled=True)
        drafts.append(drafter.propose((1, 2, 3), 12).tokens)
    assert drafts[0] == drafts[1] != drafts[2]


def test_a_smoothed_row_is_a_distribution() -> None:
    """1 was followed by 2 twice and by 3 once; smoothing adds 1 to the count of every token of the vocabulary."""
    drafter = BigramDrafter(inputs((1, 2, 1, 2, 1, 3), params=SamplingParams(1.0)), sampled=True)
    assert drafter.rows is not None
    row = drafter.rows.smoothed((1,))
    assert row[[2, 3, 4]] == pytest.approx(np.array([3, 2, 1]) / (3 + VOCAB)) and row.sum() == pytest.approx(1.0)


class ShareDrafter(TrieDrafter):
    """A drafter with a decimal option."""

    def __init__(self, inputs: DrafterInputs, *, share: Annotated[float, Bounds(0.0, 1.0, "a share")] = 0.5) -> None:
        super().__init__(inputs)


@pytest.mark.parametrize("value", [0.25, "0.25", " .25 "])
def test_an_option_with_decimal_bounds_is_a_decimal_number(value: object) -> None:
    assert Method("one", "One", "", ShareDrafter, 3).check({"share": value}) == {"share": 0.25}


@pytest.mark.parametrize("value", ["nan", "inf", -0.1, 1.5, "1,5", True, None, "9" * 5000])
def test_a_decimal_option_out_of_bounds_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"one\.share is .*; give a number from 0\.0 to 1\.0"):
        Method("one", "One", "", ShareDrafter, 3).check({"share": value})
