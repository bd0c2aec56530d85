"""TensorRT-LLM's drafters: worked examples, and comparisons with naive versions of their rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.drafters.twins.tensorrt_llm import NGramPool
from specrace.ngrams.past import PastOutputs
from tests.drafters.test_vllm import TEXT, drafts
from tests.parts import inputs


def last_draft(
    name: str, *text: int, past: Sequence[Sequence[int]] | PastOutputs = (), **options: int
) -> tuple[int, ...]:
    """The draft after a text of which the last token is the output and the others are the prompt."""
    return [*drafts(name, text[:-1], text[-1:], past, **options)][-1]


def naive_repeat(text: Sequence[int], longest: int) -> tuple[int, int]:
    """The index after the first occurrence of the longest suffix that occurs earlier, and the suffix's length."""
    for size in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - size):
            if text[start : start + size] == text[-size:]:
                return start + size, size
    return 0, 0


# NGram: a pool that has, for each n-gram, lists of the tokens that followed it.


def test_the_oldest_or_newest_list_of_the_longest_ngram_is_drafted() -> None:
    text = (9, 1, 2, 3, 4, 8, 1, 2, 5, 6, 7, 2, 7, 7, 1, 2)
    assert last_draft("trtllm-ngram", *text) == (3, 4, 8)
    assert last_draft("trtllm-ngram", *text, is_use_oldest=False) == (5, 6, 7)
    assert last_draft("trtllm-ngram", *text, max_matching_ngram_size=1, is_use_oldest=False) == (7, 7, 1)
    assert last_draft("trtllm-ngram", *text, max_draft_len=1) == (3,)
    assert last_draft("trtllm-ngram", *text, max_matching_ngram_size=3) == (3, 4, 8), "no three tokens match"


def test_a_longer_list_replaces_a_shorter_one() -> None:
    """Near the text's end few tokens follow an n-gram. Once more follow, the longer list replaces the shorter one."""
    drafted = [*drafts("trtllm-ngram", (5, 1), (2, 1, 3, 1, 4, 1), max_matching_ngram_size=1)]
    assert drafted == [(), (), (2, 1), (), (2, 1, 3), (), (2, 1, 3)]
    # Without is_keep_all a full list stays, too, because no list is longer.
    pruned = [*drafts("trtllm-ngram", (5, 1), (2, 1, 3, 1, 4, 1), max_matching_ngram_size=1, is_keep_all=False)]
    assert pruned == drafted


def test_the_list_after_a_removed_list_is_skipped() -> None:
    """TensorRT-LLM removes from the list that it iterates over, so of two short lists in a row the second one stays."""
    pool = NGramPool(max_draft=3, longest=1, keep_all=True)
    for tokens in ((3,), (4,), (3, 5)):
        pool.add((2,), tokens)
    assert [*pool.lists((2,))] == [(4,), (3, 5)]
    pool.add((2,), (3, 5, 6))
    assert [*pool.lists((2,))] == [(3, 5), (3, 5, 6)]


def test_full_lists_are_not_searched_for_shorter_ones_again() -> None:
    """Otherwise the short lists at the end of each text would slow down all later texts."""
    pool = NGramPool(max_draft=3, longest=2, keep_all=True)
    pool.extend([1, 2])
    assert (1,) in pool._short
    pool.extend([1, 2, 3, 4])
    assert (1,) not in pool._short and list(pool.lists((1,))) == [(2, 3, 4)]


def test_the_public_pool_has_prompts_and_outputs_of_earlier_requests() -> None:
    past = PastOutputs()
    past.add((6, 7), prompt=(8, 9, 5))
    assert last_draft("trtllm-ngram", 3, 9, past=past) == (5, 6, 7)
    assert last_draft("trtllm-ngram", 3, 9, past=past, is_public_pool=False) == ()
    assert last_draft("trtllm-ngram", 9, 4, 9, past=past) == (5, 6, 7), "the oldest is the earlier request's"
    assert last_draft("trtllm-ngram", 9, 4, 9, past=past, is_use_oldest=False) == (4, 9)
    past.add((6, 2), prompt=(9, 1))
    assert last_draft("trtllm-ngram", 3, 9, past=past, is_use_oldest=False) == (1, 6, 2)
    assert last_draft("trtllm-ngram", 3, 9, past=past) == (5, 6, 7)


@settings(max_examples=60, deadline=None)
@given(text=TEXT, longest=st.integers(1, 4), max_draft=st.integers(1, 5))
def test_the_first_draft_follows_the_first_occurrence(text: list[int], longest: int, max_draft: int) -> None:
    text = [9, *text]
    start, size = naive_repeat(text, longest)
    draft = last_draft("trtllm-ngram", *text, max_draft_len=max_draft, max_matching_ngram_size=longest)
    assert draft == (tuple(text[start:][:max_draft]) if size else ())


# SA: a suffix automaton.


@settings(max_examples=80, deadline=None)
@given(prompt=TEXT, output=TEXT, longest=st.sampled_from([-1, 1, 2, 5]), max_draft=st.integers(1, 6))
def test_sa_copies_after_the_first_occurrence_of_the_longest_suffix(
    prompt: list[int], output: list[int], longest: int, max_draft: int
) -> None:
    options = {"max_draft_len": max_draft, "max_matching_ngram_size": longest}
    for count, draft in enumerate(drafts("trtllm-sa", prompt, output, **options)):
        text = [*prompt, *output[:count]]
        start, size = naive_repeat(text, longest if longest > 0 else 999)
        assert draft == (tuple(text[start:][:max_draft]) if count and size else ())


@settings(max_examples=60, deadline=None)
@given(
    prompt=TEXT, output=TEXT, requests=st.lists(TEXT, min_size=1, max_size=4), longest=st.sampled_from([-1, 1, 3]),
    pool=st.sampled_from([0, 1, 2, 3]),
)  # fmt: skip
def test_sa_searches_the_global_pool(
    prompt: list[int], output: list[int], requests: list[list[int]], longest: int, pool: int
) -> None:
    options = {"enable_global_pool": True, "global_pool_size": pool, "max_matching_ngram_size": longest}
    past = PastOutputs()
    for request in requests:
        past.add(request[1:], prompt=request[:1])
    # This request takes one of the pool's places, which are 64 if the size is 0.
    pooled = requests[len(requests) - min(len(requests), (pool or 64) - 1) :]
    for count, draft in enumerate(drafts("trtllm-sa", prompt, output, past, **options)):
        text = [*prompt, *output[:count]]
        start, size = naive_repeat(text, longest if longest > 0 else 64)
        # Preferred in this order: longest match, the request itself, most tokens after the match, latest request.
        candidates = [(size, True, 0, 0, text[start:])] if size else []
        for number, earlier in enumerate(pooled):
            for length in range(min(len(text), longest if longest > 0 else 64), 0, -1):
                ends = [end for end in range(length, len(earlier)) if earlier[end - length : end] == text[-length:]]
                if ends:
                    candidates.append((length, False, len(earlier) - ends[0], number, earlier[ends[0] :]))
                    break
        # By default at most four tokens are drafted.
        expected = max(candidates, key=lambda candidate: candidate[:4])[4][:4] if count and candidates else []
        assert draft == tuple(expected)


def test_minus_one_allows_any_length_and_zero_is_refused() -> None:
    assert last_draft("trtllm-sa", 3, 4, 5, 9, 4, 5, 8, 3, 4, 5) == (9, 4, 5, 8)
    assert last_draft("trtllm-sa", 3, 4, 5, 9, 7, 5, 8, 3, 4, 5, max_matching_ngram_size=1, max_draft_len=1) == (9,)
    with pytest.raises(InputError, match="max_matching_ngram_size is 0; give 1 or more, or -1"):
        METHODS["trtllm-sa"].build(inputs((1, 2)), max_matching_ngram_size=0)


def test_a_draft_is_cut_to_the_budget() -> None:
    for name in ("vllm-ngram", "trtllm-ngram", "trtllm-sa"):
        drafter = METHODS[name].build(inputs((2, 3, 4, 5, 6, 7, 8) * 2))
        tree = drafter.propose((2, 3, 4, 5, 6, 7, 8) * 2, 2)
        assert tree == TokenTree.chain(8), "no draft before the first output token"
        assert drafter.propose([*(2, 3, 4, 5, 6, 7, 8) * 2, 2], 2).num_draft <= 2
