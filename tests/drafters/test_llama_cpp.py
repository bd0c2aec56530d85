"""llama.cpp's drafters: worked examples, and comparisons with plain versions of their rules.

A map looks up a key, the last `size_n` tokens, and drafts a value, the `size_m` tokens that followed it. A lookup that
finds the key is a hit. `mod` has a pool instead: the token after each n-gram, by the n-gram's hash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, Drafter
from specrace.drafters.twins import llama_cpp
from specrace.lab.scoring.score import forced_steps
from specrace.ngrams.counts import NGramCounts
from tests.parts import inputs, step_verdict

Text = Sequence[int]
TEXTS = st.lists(st.integers(2, 4), min_size=1, max_size=60)
# The tokens that each step so far emitted.
Outputs = list[tuple[int, ...]]
# A plain version of a drafter: the draft for a context.
Rule = Callable[[Text, Outputs], Text]


def checked_drafts(drafter: Drafter, prompt: Text, output: Text, rule: Rule | None = None) -> list[tuple[int, ...]]:
    """The draft of every step if the target prints `output`. Asserts that each equals the draft of `rule`, if given."""
    context, outputs, drafts = list(prompt), [], []
    for step in forced_steps(drafter, prompt, output, num_draft=100):
        draft = step.tree.tokens[1:]
        assert step.tree.is_chain
        if rule is not None:
            # Before the first output token nothing is drafted.
            assert draft == tuple(rule(context, outputs) if outputs else ()), context
        outputs.append(step.emitted)
        drafts.append(draft)
        context += step.emitted
    return drafts


def reject_draft(drafter: Drafter, context: list[int], token: int) -> TokenTree:
    """Draft for `context`, accept nothing, and append `token` to the context. Return the draft."""
    tree = drafter.propose(context, 100)
    drafter.observe(tree, step_verdict(tree, [token] * len(tree)))
    context.append(token)
    return tree


def test_nothing_is_drafted_before_the_first_output_token() -> None:
    """Our lanes may draft after the prompt's last token, but llama.cpp's forward over the prompt verifies no draft."""
    prompt = (2, 3, 4, 5) * 5
    sizes = {"size_n": 2, "size_m": 4}
    options_by_name = {
        "simple": sizes,
        "map-k": sizes,
        "map-k4v": sizes,
        "mod": {"n_match": 2, "n_min": 1},
        "cache": {},
    }
    for name, options in options_by_name.items():
        drafter = METHODS[f"llamacpp-{name}"].build(inputs(prompt), **options)
        assert drafter.propose(prompt, 9).tokens == (5,)
        assert drafter.propose((*prompt, 2), 9).tokens[:4] == (2, 3, 4, 5), name


def test_defaults_are_those_of_llama_cpp() -> None:
    sizes = {"size_n": 12, "size_m": 48}
    defaults = {name: METHODS[f"llamacpp-{name}"].defaults("cuda") for name in ("simple", "map-k", "map-k4v", "mod")}
    assert defaults == {
        "simple": sizes,
        "map-k": sizes,
        "map-k4v": {**sizes, "min_hits": 1},
        "mod": {"n_match": 24, "n_min": 48, "n_max": 64},
    }
    budgets = [METHODS[f"llamacpp-{name}"].budget("cpu", options) for name, options in defaults.items()]
    assert [*budgets, METHODS["llamacpp-cache"].budget("cpu", {})] == [48, 48, 48, 64, 8]


# ngram-simple.


@given(TEXTS, TEXTS, st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=60)
def test_simple_copies_what_followed_the_latest_occurrence(prompt: Text, output: Text, n: int, m: int) -> None:
    def rule(context: Text, _outputs: Outputs) -> Text:
        text = context[:-1]
        if len(text) <= n + m + 1:
            return ()
        for start in range(len(text) - n - 1, 0, -1):
            if context[start : start + n] == context[-n:]:
                draft = text[start + n : start + n + m]
                return draft if len(draft) >= n else ()
        return ()

    # This asserts that every draft is the rule's.
    checked_drafts(METHODS["llamacpp-simple"].build(inputs(prompt), size_n=n, size_m=m), prompt, output, rule)


def test_simple_drafts_at_least_as_many_tokens_as_the_key_has() -> None:
    """In the second prompt, only two tokens follow the latest occurrence of the key of three, so nothing is drafted."""
    prompt = [9, 1, 2, 3, 4, 5, 6, 1, 2, 3, 8]
    drafter = METHODS["llamacpp-simple"].build(inputs(prompt), size_n=3, size_m=4)
    assert drafter.propose([*prompt, 1, 2, 3], 9).tokens == (3, 8, 1, 2)
    prompt = [9, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    drafter = METHODS["llamacpp-simple"].build(inputs(prompt), size_n=3, size_m=4)
    assert drafter.propose([*prompt, 1, 2, 3], 9).tokens == (3,)


# ngram-map-k and ngram-map-k4v.


def test_map_k_copies_after_the_latest_key_with_enough_tokens() -> None:
    #         1 2 -> 5 6 7       1 2 -> 6 7 8
    prompt = [0, 1, 2, 5, 6, 7, 0, 1, 2, 6, 7, 8, 9, 0, 1, 2]
    drafter = METHODS["llamacpp-map-k"].build(inputs(prompt), size_n=2, size_m=3)
    assert drafter.propose([*prompt, 3], 9).tokens == (3,)
    assert drafter.propose([*prompt, 3, 1, 2], 9).tokens == (2, 6, 7, 8)


def test_map_k_drafts_as_many_tokens_as_were_accepted_last_time() -> None:
    prompt = [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
    drafter = METHODS["llamacpp-map-k"].build(inputs(prompt), size_n=2, size_m=4)
    context = [*prompt, 1, 2]
    tree = drafter.propose(context, 9)
    assert tree.tokens == (2, 5, 6, 7, 8)
    drafter.observe(tree, step_verdict(tree, [5, 6, 0, 0, 0]))
    context += [5, 6, 0, 1, 2]
    assert reject_draft(drafter, context, 0).tokens == (2, 5, 6)
    context += [1, 2]
    assert reject_draft(drafter, context, 0).tokens == (2,)


def test_map_k_ignores_ngrams_at_the_end_of_the_prompt() -> None:
    """N-grams that reach the prompt's end are never entered. The output's are, once enough tokens follow them."""
    prompt = [*range(10, 30), 1, 2, 3]
    drafter = METHODS["llamacpp-map-k"].build(inputs(prompt), size_n=2, size_m=3)
    context = [*prompt, *range(30, 60)]
    for size in range(len(prompt) + 1, len(context)):
        assert drafter.propose(context[:size], 9).num_draft == 0
    assert drafter.propose([*context, 1, 2], 9).num_draft == 0
    assert drafter.propose([*context, 1, 2, 29, 1], 9).num_draft == 0
    assert drafter.propose([*context, 1, 2, 29, 1, 40, 41], 9).tokens == (41, 42, 43, 44)


def prompt_with_values(*following: int) -> list[int]:
    """A prompt in which the key 1 2 is followed by each token of `following`, written twice."""
    return [0, *(token for follower in following for token in (1, 2, follower, follower, 0)), 7, 8, 9, 7, 8, 9]


@pytest.mark.parametrize(
    ("following", "is_drafted"), [((5, 5, 6), True), ((5, 6), False), ((5, 6, 7, 8), False), ((6, 5, 5), True)]
)
def test_map_k4v_drafts_a_value_twice_as_frequent_as_all_others(following: tuple[int, ...], is_drafted: bool) -> None:
    prompt = prompt_with_values(*following)
    drafter = METHODS["llamacpp-map-k4v"].build(inputs(prompt), size_n=2, size_m=2)
    tree = drafter.propose([*prompt, 1, 2], 9)
    # The draft is copied from the latest occurrence of the key, even if the most frequent value is another one.
    latest = following[-1]
    assert tree.tokens == ((2, latest, latest) if is_drafted else (2,))


def test_map_k4v_drafts_once_a_key_has_min_hits() -> None:
    prompt = prompt_with_values(5, 5, 5)
    drafter = METHODS["llamacpp-map-k4v"].build(inputs(prompt), size_n=2, size_m=2, min_hits=3)
    context = [*prompt, 1, 2]
    for expected in ((2,), (2,), (2, 5, 5)):
        assert reject_draft(drafter, context, 0).tokens == expected
        context += [1, 2]


def test_map_k4v_counts_the_matched_occurrence_at_every_lookup() -> None:
    """1 2 was followed by 5 once and then by 6 once. The second lookup counts the 6 again, so 6 has twice the count."""
    prompt = prompt_with_values(5, 6)
    drafter = METHODS["llamacpp-map-k4v"].build(inputs(prompt), size_n=2, size_m=2)
    context = [*prompt, 1, 2]
    assert reject_draft(drafter, context, 0).tokens == (2,)
    context += [1, 2]
    assert reject_draft(drafter, context, 0).tokens == (2, 6, 6)


# ngram-mod.


@given(TEXTS, TEXTS, st.integers(1, 3), st.integers(0, 4), st.integers(1, 6))
@settings(max_examples=60)
def test_mod_follows_the_latest_continuations(prompt: Text, output: Text, n: int, n_min: int, n_max: int) -> None:
    """The rule's table has no hashes. Like the pool, it gets the prompt, and new tokens once there are more than 32.

    After five drafts in a row of which less than a quarter was accepted, it is emptied.
    """
    added = max(0, len(prompt) - n)
    table = {tuple(prompt[start : start + n]): prompt[start + n] for start in range(len(prompt) - n)}
    low_drafts, length = 0, 0

    def rule(context: Text, outputs: Outputs) -> Text:
        nonlocal added, low_drafts, length
        if length:
            # A step emits the accepted draft tokens and the bonus token.
            low_drafts = low_drafts + 1 if (len(outputs[-1]) - 1) / length < 0.25 else 0
            if low_drafts == 5:
                table.clear()
                low_drafts = added = 0
        num_known = len(context) - 1
        length = 0
        if num_known < n:
            return ()
        if added + 32 < num_known:
            table.update(
                {tuple(context[start : start + n]): context[start + n] for start in range(added, num_known - n)}
            )
            added = num_known - n
        text = list(context[-n:])
        while len(text) - n < n_max and (token := table.get(tuple(text[-n:]))) is not None:
            text.append(token)
        length = len(text) - n
        if length < n_min and length < n_max:
            length = 0
        return text[n : n + length]

    options = {"n_match": n, "n_min": n_min, "n_max": n_max}
    # This asserts that every draft is the rule's.
    checked_drafts(METHODS["llamacpp-mod"].build(inputs(prompt), **options), prompt, output, rule)


def test_mod_with_defaults_drafts_nothing_after_short_repetitions() -> None:
    """An answer that quotes 20 tokens of its prompt gets no draft, because 24 tokens must match and 48 must follow."""
    rng = random.Random(1)
    prompt = [rng.randrange(100, 5000) for _ in range(400)]
    new = [rng.randrange(100, 5000) for _ in range(30)]

    def longest_draft(quoted: list[int], **options: int) -> int:
        drafter = METHODS["llamacpp-mod"].build(inputs(prompt), **options)
        return max(len(draft) for draft in checked_drafts(drafter, prompt, [*new, *quoted, *new[::-1]]))

    assert longest_draft(prompt[200:220]) == 0
    assert longest_draft(prompt[200:220], n_match=12) == longest_draft(prompt[200:230]) == 64


def test_mod_drafts_from_earlier_outputs() -> None:
    prompt, past = (2, 3, 4), ((5, 6, 7, 8),)
    drafter = METHODS["llamacpp-mod"].build(inputs(prompt, past=past), n_match=2, n_min=1)
    assert drafter.propose((*prompt, 5, 6), 9).tokens == (6, 7, 8)


def test_mod_ngrams_with_the_same_hash_share_a_slot() -> None:
    """Two n-grams have the same hash, so the continuation of the later one is drafted after both."""
    multiplier = llama_cpp.POOL_FACTOR % llama_cpp.POOL_SLOTS
    prompt = (0, multiplier, 7, 1, 0, 8, 9, 9)
    drafter = METHODS["llamacpp-mod"].build(inputs(prompt), n_match=2, n_min=1, n_max=1)
    assert drafter.propose((*prompt, 0, multiplier), 9).tokens == (multiplier, 8)


# ngram-cache.


@given(TEXTS, TEXTS)
@settings(max_examples=60)
def test_cache_counts_within_the_prompt_and_within_each_step(prompt: Text, output: Text) -> None:
    def rule(context: Text, outputs: Outputs) -> Text:
        chunks, text = [[*prompt, *outputs[0]], *outputs[1:]], list(context)
        while len(text) < len(context) + 8:
            # llama.cpp's thresholds for contexts of four tokens and fewer.
            for size, min_count, percent in ((4, 1, 50), (3, 1, 50), (2, 2, 50), (1, 2, 66)):
                ngram = tuple(text[-size:])
                followers = [
                    chunk[end]
                    for chunk in chunks
                    for end in range(size, len(chunk))
                    if len(ngram) == size and tuple(chunk[end - size : end]) == ngram
                ]
                # Of equally frequent tokens, the one whose first occurrence is latest.
                best = max(
                    dict.fromkeys(followers),
                    key=lambda token: (followers.count(token), followers.index(token)),
                    default=0,
                )
                if len(followers) >= min_count and 100 * followers.count(best) >= percent * len(followers):
                    text.append(best)
                    break
            else:
                break
        return text[len(context) :]

    # This asserts that every draft is the rule's.
    checked_drafts(METHODS["llamacpp-cache"].build(inputs(prompt)), prompt, output, rule)


def test_cache_reads_static_bigram_counts_of_the_documents() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[5, 6, 7, 8], [5, 6, 7, 9], [6, 7, 9]])
    prompt = (2, 3)
    without_documents = METHODS["llamacpp-cache"].build(inputs(prompt, corpus=corpus))
    with_documents = METHODS["llamacpp-cache"].build(inputs(prompt, corpus=corpus), lookup_cache_static=True)
    assert without_documents.propose((*prompt, 5, 6), 9).tokens == (6,)
    assert with_documents.propose((*prompt, 5, 6), 9).tokens == (6, 7, 9)


@pytest.mark.parametrize("name", ["simple", "map-k", "map-k4v", "mod"])
def test_the_budget_cuts_a_draft_after_the_rule_checked_its_length(name: str) -> None:
    """A draft that is cut below the minimum length is not discarded."""
    prompt = [*range(2, 30), 2]
    options: dict[str, Any] = {"n_match": 2, "n_min": 8} if name == "mod" else {"size_n": 2, "size_m": 9}
    drafter = METHODS[f"llamacpp-{name}"].build(inputs(prompt), **options)
    assert drafter.propose([*prompt, 3, 4], 3).tokens == (4, 5, 6, 7)


ALL_OFF = dict.fromkeys(("simple", "map_k", "map_k4v", "mod", "cache"), False)
SHORT_SIZES = {"size_n": 2, "size_m": 3, "n_match": 2, "n_min": 1, "n_max": 3}


@given(st.lists(st.integers(2, 4), min_size=1, max_size=30), TEXTS)
@settings(deadline=None)
def test_a_list_of_one_drafter_drafts_what_that_drafter_drafts_alone(prompt: Text, output: Text) -> None:
    sizes = {"size_n": 2, "size_m": 3}
    options_by_name = {
        "simple": sizes,
        "map-k": sizes,
        "map-k4v": sizes,
        "mod": {"n_match": 2, "n_min": 1, "n_max": 3},
        "cache": {},
    }
    for name, options in options_by_name.items():
        list_drafter = METHODS["llamacpp-list"].build(
            inputs(prompt), **ALL_OFF | SHORT_SIZES | {name.replace("-", "_"): True}
        )
        drafter = METHODS[f"llamacpp-{name}"].build(inputs(prompt), **options)
        assert checked_drafts(list_drafter, prompt, output) == checked_drafts(drafter, prompt, output), name


@given(st.lists(st.integers(2, 4), min_size=1, max_size=30), TEXTS)
@settings(deadline=None)
def test_a_list_verifies_the_draft_of_the_first_drafter_that_has_one(prompt: Text, output: Text) -> None:
    """`mod` is asked for a draft, and told what was accepted, only if `simple` has no draft."""
    simple = METHODS["llamacpp-simple"].build(inputs(prompt), size_n=3, size_m=3)
    mod = METHODS["llamacpp-mod"].build(inputs(prompt), n_match=2, n_min=1, n_max=3)
    asked_last = ""
    drafted: Text = ()

    def rule(context: Text, outputs: Outputs) -> Text:
        nonlocal asked_last, drafted
        if asked_last == "mod" and drafted:
            mod.accept(len(outputs[-1]) - 1)
        drafted, asked_last = simple.draft(context), "simple"
        if not drafted:
            drafted, asked_last = mod.draft(context), "mod"
        return drafted

    list_drafter = METHODS["llamacpp-list"].build(
        inputs(prompt), **ALL_OFF | SHORT_SIZES | {"simple": True, "mod": True, "size_n": 3}
    )
    # This asserts that every draft is the rule's.
    checked_drafts(list_drafter, prompt, output, rule)


def test_only_the_drafter_that_made_the_draft_learns_the_verdict() -> None:
    """Five drafts of `mod` that are rejected empty its pool; rejected drafts of `simple` do not count."""
    prompt = [*range(10, 18), 50]
    options = ALL_OFF | SHORT_SIZES | {"simple": True, "mod": True, "size_n": 3}
    list_drafter = METHODS["llamacpp-list"].build(inputs(prompt), **options)
    _, mod = list_drafter.drafters
    assert reject_draft(list_drafter, [*prompt, 10, 11], 99).tokens == (11, 12, 13, 14)
    for _ in range(5):
        assert reject_draft(list_drafter, [*prompt, 12, 13, 14], 99).tokens == (14, 15, 16, 17)
    assert mod.draft([*prompt, 10, 11]) == [12, 13, 14]
    for _ in range(5):
        reject_draft(list_drafter, [*prompt, 10, 11], 99)
    assert not mod.draft([*prompt, 10, 11])


def test_a_list_drafts_as_long_as_its_longest_drafter_and_an_empty_list_nothing() -> None:
    method = METHODS["llamacpp-list"]
    defaults = method.defaults("cuda")
    budgets = [
        method.budget("cuda", defaults | ALL_OFF | chosen)
        for chosen in ({}, {"cache": True}, {"map_k": True, "cache": True})
    ]
    assert budgets == [0, 8, 48]
    assert method.budget("cuda", defaults) == 64
    assert method.build(inputs((2, 3, 2)), **ALL_OFF).propose((2, 3, 2, 3), 8).num_draft == 0
