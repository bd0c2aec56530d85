"""llama.cpp's drafters: against plain references of their rules, and against examples worked out by hand."""

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
from specrace.lab.score import forced_steps
from specrace.ngrams.counts import NGramCounts
from tests.parts import inputs, step_verdict

Text = Sequence[int]
TEXTS = st.lists(st.integers(2, 4), min_size=1, max_size=60)
# What a rule drafts for a context, given the outputs of the steps so far.
Outputs = list[tuple[int, ...]]
Rule = Callable[[Text, Outputs], Text]


def follow(drafter: Drafter, prompt: Text, output: Text, rule: Rule | None = None) -> list[tuple[int, ...]]:
    """The draft of every step, compared with the rule's."""
    context, outputs, drafts = list(prompt), [], []
    for step in forced_steps(drafter, prompt, output, 100):
        draft = step.tree.tokens[1:]
        assert step.tree.is_chain
        if rule is not None:
            assert draft == tuple(rule(context, outputs) if outputs else ()), context
        outputs.append(step.emitted)
        drafts.append(draft)
        context += step.emitted
    return drafts


def refuse(drafter: Drafter, context: list[int], token: int) -> TokenTree:
    """Draft for `context`, accept nothing and append `token` to the context; return the draft."""
    tree = drafter.propose(context, 100)
    drafter.observe(tree, step_verdict(tree, [token] * len(tree)))
    context.append(token)
    return tree


def test_the_first_token_is_the_prompts() -> None:
    """Our lanes may draft after the prompt's last token; llama.cpp's prompt forward yields only the first token."""
    prompt = (2, 3, 4, 5) * 5
    for name in ("simple", "map-k", "map-k4v", "mod", "cache"):
        options = {"mod": {"n_match": 2, "n_min": 1}, "cache": {}}.get(name, {"size_n": 2, "size_m": 4})
        drafter = METHODS[f"llamacpp-{name}"].build(inputs(prompt), **options)
        assert drafter.propose(prompt, 9).tokens == (5,)
        assert drafter.propose((*prompt, 2), 9).tokens[:4] == (2, 3, 4, 5), name


def test_the_defaults_are_the_engines() -> None:
    sizes = {"size_n": 12, "size_m": 48}
    listed = {name: METHODS[f"llamacpp-{name}"].defaults("cuda") for name in ("simple", "map-k", "map-k4v", "mod")}
    assert listed == {
        "simple": sizes,
        "map-k": sizes,
        "map-k4v": {**sizes, "min_hits": 1},
        "mod": {"n_match": 24, "n_min": 48, "n_max": 64},
    }
    budgets = [METHODS[f"llamacpp-{name}"].budget("cpu", options) for name, options in listed.items()]
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

    follow(METHODS["llamacpp-simple"].build(inputs(prompt), size_n=n, size_m=m), prompt, output, rule)


def test_simple_drafts_nothing_shorter_than_the_key() -> None:
    """The latest occurrence has two tokens after it; an earlier one would have more."""
    prompt = [9, 1, 2, 3, 4, 5, 6, 1, 2, 3, 8]
    drafter = METHODS["llamacpp-simple"].build(inputs(prompt), size_n=3, size_m=4)
    assert drafter.propose([*prompt, 1, 2, 3], 9).tokens == (3, 8, 1, 2)
    prompt = [9, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    drafter = METHODS["llamacpp-simple"].build(inputs(prompt), size_n=3, size_m=4)
    assert drafter.propose([*prompt, 1, 2, 3], 9).tokens == (3,)


# ngram-map-k and ngram-map-k4v.


def test_map_k_takes_the_latest_in_the_prompt_that_has_all_its_tokens() -> None:
    #         1 2 -> 5 6 7       1 2 -> 6 7 8
    prompt = [0, 1, 2, 5, 6, 7, 0, 1, 2, 6, 7, 8, 9, 0, 1, 2]
    drafter = METHODS["llamacpp-map-k"].build(inputs(prompt), size_n=2, size_m=3)
    assert drafter.propose([*prompt, 3], 9).tokens == (3,)
    assert drafter.propose([*prompt, 3, 1, 2], 9).tokens == (2, 6, 7, 8)


def test_map_k_drafts_as_much_as_was_accepted_last_time_and_then_no_more() -> None:
    prompt = [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
    drafter = METHODS["llamacpp-map-k"].build(inputs(prompt), size_n=2, size_m=4)
    context = [*prompt, 1, 2]
    tree = drafter.propose(context, 9)
    assert tree.tokens == (2, 5, 6, 7, 8)
    drafter.observe(tree, step_verdict(tree, [5, 6, 0, 0, 0]))
    context += [5, 6, 0, 1, 2]
    assert refuse(drafter, context, 0).tokens == (2, 5, 6)
    context += [1, 2]
    assert refuse(drafter, context, 0).tokens == (2,)


def test_map_k_never_finds_what_reaches_the_prompts_end() -> None:
    """N-grams at the prompt's end or across it are not entered; the output's are, once they are old enough."""
    prompt = [*range(10, 30), 1, 2, 3]
    drafter = METHODS["llamacpp-map-k"].build(inputs(prompt), size_n=2, size_m=3)
    context = [*prompt, *range(30, 60)]
    for size in range(len(prompt) + 1, len(context)):
        assert drafter.propose(context[:size], 9).num_draft == 0
    assert drafter.propose([*context, 1, 2], 9).num_draft == 0
    assert drafter.propose([*context, 1, 2, 29, 1], 9).num_draft == 0
    assert drafter.propose([*context, 1, 2, 29, 1, 40, 41], 9).tokens == (41, 42, 43, 44)


def values(*following: int) -> list[int]:
    """A prompt in which the key (1, 2) was followed by each of these, twice over."""
    return [0, *(token for follower in following for token in (1, 2, follower, follower, 0)), 7, 8, 9, 7, 8, 9]


@pytest.mark.parametrize(
    ("prompt", "drafted"), [(values(5, 5, 6), 5), (values(5, 6), 0), (values(5, 6, 7, 8), 0), (values(6, 5, 5), 5)]
)
def test_map_k4v_drafts_what_is_twice_as_frequent_as_the_rest(prompt: list[int], drafted: int) -> None:
    drafter = METHODS["llamacpp-map-k4v"].build(inputs(prompt), size_n=2, size_m=2)
    tree = drafter.propose([*prompt, 1, 2], 9)
    # The draft follows the latest occurrence, not the most frequent one.
    latest = prompt[len(prompt) - 9]
    assert tree.tokens == ((2, latest, latest) if drafted else (2,))


def test_map_k4v_waits_for_its_hits() -> None:
    prompt = values(5, 5, 5)
    drafter = METHODS["llamacpp-map-k4v"].build(inputs(prompt), size_n=2, size_m=2, min_hits=3)
    context = [*prompt, 1, 2]
    for expected in ((2,), (2,), (2, 5, 5)):
        assert refuse(drafter, context, 0).tokens == expected
        context += [1, 2]


def test_map_k4v_counts_the_occurrence_it_found_at_every_lookup() -> None:
    """(1, 2) was followed by 5 once and then by 6 once: after one more lookup of the latter 6 has twice as many."""
    prompt = values(5, 6)
    drafter = METHODS["llamacpp-map-k4v"].build(inputs(prompt), size_n=2, size_m=2)
    context = [*prompt, 1, 2]
    assert refuse(drafter, context, 0).tokens == (2,)
    context += [1, 2]
    assert refuse(drafter, context, 0).tokens == (2, 6, 6)


# ngram-mod.


@given(TEXTS, TEXTS, st.integers(1, 3), st.integers(0, 4), st.integers(1, 6))
@settings(max_examples=60)
def test_mod_follows_the_latest_continuations(prompt: Text, output: Text, n: int, n_min: int, n_max: int) -> None:
    """A table without hashes, filled like the pool: with the prompt, then whenever 32 tokens are new."""
    added = max(0, len(prompt) - n)
    table = {tuple(prompt[start : start + n]): prompt[start + n] for start in range(len(prompt) - n)}
    low, length = 0, 0

    def rule(context: Text, outputs: Outputs) -> Text:
        nonlocal added, low, length
        if length:
            low = low + 1 if (len(outputs[-1]) - 1) / length < 0.25 else 0
            if low == 5:
                table.clear()
                low = added = 0
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
    follow(METHODS["llamacpp-mod"].build(inputs(prompt), **options), prompt, output, rule)


def test_mods_defaults_draft_nothing_where_repetitions_are_short() -> None:
    """For an answer that quotes 20 tokens of its prompt: a draft needs 24 that match and 48 that follow."""
    chance = random.Random(1)
    prompt = [chance.randrange(100, 5000) for _ in range(400)]
    new = [chance.randrange(100, 5000) for _ in range(30)]

    def longest(quoted: list[int], **options: int) -> int:
        drafter = METHODS["llamacpp-mod"].build(inputs(prompt), **options)
        return max(len(draft) for draft in follow(drafter, prompt, [*new, *quoted, *new[::-1]]))

    assert longest(prompt[200:220]) == 0
    assert longest(prompt[200:220], n_match=12) == longest(prompt[200:230]) == 64


def test_mod_drafts_from_earlier_outputs() -> None:
    prompt, past = (2, 3, 4), ((5, 6, 7, 8),)
    drafter = METHODS["llamacpp-mod"].build(inputs(prompt, past=past), n_match=2, n_min=1)
    assert drafter.propose((*prompt, 5, 6), 9).tokens == (6, 7, 8)


def test_mods_pool_has_slots_for_hashes() -> None:
    """Two n-grams with one hash: the later one's continuation is drafted for both."""
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
            for size, min_count, percent in ((4, 1, 50), (3, 1, 50), (2, 2, 50), (1, 2, 66)):
                ngram = tuple(text[-size:])
                followers = [
                    chunk[end]
                    for chunk in chunks
                    for end in range(size, len(chunk))
                    if len(ngram) == size and tuple(chunk[end - size : end]) == ngram
                ]
                # Among equals, the token whose first occurrence is latest.
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

    follow(METHODS["llamacpp-cache"].build(inputs(prompt)), prompt, output, rule)


def test_caches_static_counts_are_the_documents_bigrams() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[5, 6, 7, 8], [5, 6, 7, 9], [6, 7, 9]])
    prompt = (2, 3)
    plain = METHODS["llamacpp-cache"].build(inputs(prompt, corpus=corpus))
    static = METHODS["llamacpp-cache"].build(inputs(prompt, corpus=corpus), lookup_cache_static=True)
    assert plain.propose((*prompt, 5, 6), 9).tokens == (6,)
    assert static.propose((*prompt, 5, 6), 9).tokens == (6, 7, 9)


@pytest.mark.parametrize("name", ["simple", "map-k", "map-k4v", "mod"])
def test_the_budget_cuts_a_draft_after_the_rule_made_it(name: str) -> None:
    """Its share of accepted tokens is of the whole draft, and a cut draft is not refused as too short."""
    prompt = [*range(2, 30), 2]
    options: dict[str, Any] = {"n_match": 2, "n_min": 8} if name == "mod" else {"size_n": 2, "size_m": 9}
    drafter = METHODS[f"llamacpp-{name}"].build(inputs(prompt), **options)
    assert drafter.propose([*prompt, 3, 4], 3).tokens == (4, 5, 6, 7)
