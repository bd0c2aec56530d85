"""Sampled bigram and trigram drafts: their distributions q, smoothing, back-off, and dense counts.

Dense counts are arrays over the vocabulary; they are kept for up to `MAX_VOCABULARY` tokens only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, DrafterInputs
from specrace.drafters.sampled_rows import SampledRows
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.dense import MAX_VOCABULARY, DenseCounts
from tests.parts import step_verdict

TEXT = (1, 2, 3, 1, 2, 3, 1, 2, 0, 4, 2, 0, 3, 3, 1, 2)
SMALL, LARGE = 5, MAX_VOCABULARY + 1
ORDERS = ("bigram", "trigram")


def sampled_drafter(name: str, vocab: int = SMALL, seed: int = 0, prompt: tuple[int, ...] = TEXT, **values: Any) -> Any:
    """A sampling drafter, by default at temperature 1. `values` are its options, and `params` and `corpus`."""
    params = values.pop("params", SamplingParams(1.0))
    corpus = values.pop("corpus", None)
    return METHODS[name].build(DrafterInputs(prompt, vocab, seed, corpus, params=params), sampled=True, **values)


def smoothed(counts: dict[int, int], vocab: int = SMALL, added: float = 1.0) -> np.ndarray:
    """The distribution of add-k smoothed counts, where k is `added`."""
    row = np.array([counts.get(token, 0) + added for token in range(vocab)])
    return row / row.sum()


@pytest.mark.parametrize("vocab", [SMALL, LARGE])
@pytest.mark.parametrize("name", ORDERS)
def test_q_has_a_distribution_for_each_draft_token(name: str, vocab: int) -> None:
    drafter = sampled_drafter(name, vocab)
    for budget in (0, 1, 6):
        tree = drafter.propose(TEXT, budget)
        q = drafter.distributions()
        assert tree.is_chain and tree.num_draft == budget and q.shape == (budget, vocab)
        assert q.sum(axis=1) == pytest.approx(1.0) and (q > 0).all()
        assert tree.probs == (1.0, *(q[index, token] for index, token in enumerate(tree.tokens[1:])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "vocab", "params"),
    [  # pairwise: any two values occur together in some case
        ("bigram", SMALL, SamplingParams(1.0)),
        ("trigram", LARGE, SamplingParams(1.0)),
        ("bigram", LARGE, SamplingParams(0.5)),
        ("trigram", SMALL, SamplingParams(0.5)),
        ("bigram", LARGE, SamplingParams(1.3, top_p=0.9, top_k=3)),
        ("trigram", SMALL, SamplingParams(1.3, top_p=0.9, top_k=3)),
    ],
)
def test_draft_tokens_are_drawn_from_q(name: str, vocab: int, params: SamplingParams) -> None:
    """The second draft token has the frequencies of q, given the first token, which is its context."""
    drafter = sampled_drafter(name, vocab, params=params)
    seconds_after: dict[int, list[int]] = {}
    rows: dict[int, np.ndarray] = {}
    for _ in range(3000):
        first, second = drafter.propose(TEXT, 2).tokens[1:]
        seconds_after.setdefault(first, []).append(second)
        row = rows.setdefault(first, drafter.distributions()[1])
        assert (drafter.distributions()[1] == row).all()
    first, seconds = max(seconds_after.items(), key=lambda pair: len(pair[1]))
    assert len(seconds) > (500 if vocab == SMALL else 30)
    frequencies = np.bincount(seconds, minlength=vocab) / len(seconds)
    # The total variation distance to be expected from this number of draws; the bound below leaves room for chance.
    expected_noise = np.sqrt(2 * rows[first] / np.pi / len(seconds)).sum() / 2
    assert np.abs(frequencies - rows[first]).sum() / 2 < 1.6 * expected_noise + 0.01


def test_q_is_the_smoothed_row() -> None:
    """1 2 was followed by 3 twice and by 0 once, and 4 2 by 0. So 2 alone was followed by 3 and by 0 twice each."""
    bigram, trigram = ({3: 2, 0: 2}, {3: 2, 0: 1})
    for name, counts in (("bigram", bigram), ("trigram", trigram)):
        drafter = sampled_drafter(name)
        drafter.propose(TEXT, 1)
        assert drafter.distributions()[0] == pytest.approx(smoothed(counts))


def test_back_off_uses_raw_counts_before_the_temperature() -> None:
    """(4, 2) was seen once, so the bigram row is used. A context that was never seen has a uniform row.

    The temperature of 0.5 squares the probabilities.
    """
    text = (*TEXT, 4, 2)
    params = SamplingParams(0.5)
    drafter = sampled_drafter("trigram", prompt=text, params=params)
    drafter.propose(text, 1)
    squares = smoothed({3: 2, 0: 2, 4: 1}) ** 2
    assert drafter.distributions()[0] == pytest.approx(squares / squares.sum())
    low_threshold = sampled_drafter("trigram", prompt=text, params=params, min_context_count=1)
    low_threshold.propose(text, 1)
    squares = smoothed({0: 1}) ** 2
    assert low_threshold.distributions()[0] == pytest.approx(squares / squares.sum())
    unseen = sampled_drafter("trigram", prompt=(4,))
    unseen.propose((4,), 1)
    assert unseen.distributions()[0] == pytest.approx(np.full(SMALL, 0.2))


def test_smoothing_is_an_option() -> None:
    drafter = sampled_drafter("bigram", smoothing_percent=25)
    drafter.propose(TEXT, 1)
    assert drafter.distributions()[0] == pytest.approx(smoothed({3: 2, 0: 2}, added=0.25))


@pytest.mark.parametrize("name", ORDERS)
def test_dense_and_sparse_tables_give_the_same_rows(name: str) -> None:
    """The rows stay equal while the text grows; both tables include a corpus."""
    corpus = NGramCounts()
    corpus.extend_apart([[4, 4, 1, 2, 2], [1, 2]])
    small, large = (sampled_drafter(name, vocab, corpus=corpus, smoothing_percent=1) for vocab in (SMALL, LARGE))
    context = list(TEXT)
    for target_token in (2, 4, 1, 2, 3, 0, 2, 4):
        rows = []
        for drafter in (small, large):
            drafter.propose(context, 1)
            row = drafter.distributions()[0, :SMALL]
            rows.append(row / row.sum())
            tree = TokenTree.chain(context[-1])
            drafter.observe(tree, step_verdict(tree, [target_token]))
        assert rows[0] == pytest.approx(rows[1])
        context.append(target_token)
    assert corpus.row((1, 2)) == {2: 1}


def test_the_targets_token_enters_the_context_and_the_counts() -> None:
    drafter = sampled_drafter("trigram", smoothing_percent=1)
    tree = drafter.propose(TEXT, 3)
    target_token = next(token for token in range(SMALL) if token != tree.tokens[1])
    verdict = step_verdict(tree, [target_token] * len(tree))
    assert verdict.accepted == 0
    drafter.observe(tree, verdict)
    drafter.propose((*TEXT, target_token), 1)
    counts = NGramCounts()
    counts.extend((*TEXT, target_token))
    context = (2, target_token) if counts.total((2, target_token)) >= 2 else (target_token,)
    assert drafter.distributions()[0] == pytest.approx(smoothed(counts.row(context), added=0.01))


def test_dense_counts_are_arrays_of_every_pair_and_triple() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[0, 1], [1, 0, 1]])
    counts = NGramCounts(below=corpus)
    counts.extend([1, 0])
    dense = DenseCounts(3, counts)
    dense.extend([1, 2])
    assert dense.bigrams.tolist() == [[0, 3, 0], [2, 0, 1], [0, 0, 0]]
    assert dense.trigrams.sum() == 3 and dense.trigrams[1, 0, 1] == 2 and dense.trigrams[0, 1, 2] == 1
    assert dense.row((1, 0)).tolist() == [0, 2, 0] and counts.row((0,)) == {1: 2}


def test_counts_of_small_vocabularies_are_dense() -> None:
    random = np.random.default_rng(0)
    for size, is_dense in ((MAX_VOCABULARY, True), (LARGE, False)):
        rows = SampledRows(NGramCounts(), size, 1.0, SamplingParams(1.0), random)
        assert (rows._dense is not None) == is_dense


def test_different_seeds_draw_different_drafts() -> None:
    assert len({sampled_drafter("bigram", seed=seed).propose(TEXT, 8).tokens for seed in range(6)}) > 3
    assert sampled_drafter("bigram", seed=2).propose(TEXT, 8) == sampled_drafter("bigram", seed=2).propose(TEXT, 8)


def test_methods_say_whether_they_can_sample() -> None:
    assert [name for name, method in METHODS.items() if method.samples] == [
        "bigram",
        "trigram",
        "draft-model",
        "specinfer",
    ]
