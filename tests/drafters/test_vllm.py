"""vLLM's drafters: worked examples, and comparisons with naive versions and, if installed, Arctic Inference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.drafters.twins.vllm import SuffixTree
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END
from tests.parts import inputs, step_verdict

TEXT = st.lists(st.integers(2, 5), min_size=1, max_size=40)


def drafts(
    name: str, prompt: Sequence[int], output: Sequence[int], past: Any = (), **options: Any
) -> Iterator[tuple[int, ...]]:
    """The draft after the prompt, and after each token of the output."""
    drafter, context = METHODS[name].build(inputs(prompt, past=past), **options), list(prompt)
    yield drafter.propose(context, 99).tokens[1:]
    for token in output:
        tree = TokenTree.chain(context[-1])
        drafter.observe(tree, step_verdict(tree, [token]))
        context.append(token)
        yield drafter.propose(context, 99).tokens[1:]


def lookup(*text: int, **options: int) -> tuple[int, ...]:
    """The n-gram draft after a text of which the last token is the output and the others are the prompt."""
    return [*drafts("vllm-ngram", text[:-1], text[-1:], **options)][-1]


# N-grams.


def test_the_longest_match_wins_then_the_earliest() -> None:
    options = {"prompt_lookup_min": 1, "prompt_lookup_max": 3, "num_speculative_tokens": 2}
    assert lookup(3, 6, 9, 2, 3, 8, 1, 2, 3, 7, 1, 2, 3, **options) == (7, 1)
    assert lookup(3, 6, 9, 2, 3, 8, 4, 2, 3, 7, 1, 2, 3, **options) == (8, 4)
    # The example in vLLM's code: no three tokens match, two do, and three tokens follow.
    assert lookup(1, 2, 3, 4, 2, 3, prompt_lookup_min=2, prompt_lookup_max=3, num_speculative_tokens=4) == (4, 2, 3)


def test_one_given_length_sets_minimum_and_maximum_and_the_default_is_five() -> None:
    text = (1, 2, 3, 4, 5, 9, 2, 3, 4, 5, 8, 1, 2, 3, 4, 5)
    assert lookup(*text) == lookup(*text, prompt_lookup_max=5) == (9, 2, 3, 4, 5)
    # In this shorter text only four tokens match.
    text = text[:-6]
    assert lookup(*text) == lookup(*text, prompt_lookup_max=9) == ()
    assert lookup(*text, prompt_lookup_min=2) == lookup(*text, prompt_lookup_max=2) == (9, 2, 3, 4, 5)


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(InputError, match=r"prompt_lookup_min is 6; give at most prompt_lookup_max, 4"):
        METHODS["vllm-ngram"].build(inputs((1, 2)), prompt_lookup_min=6, prompt_lookup_max=4)


@settings(max_examples=60, deadline=None)
@given(prompt=TEXT, output=TEXT, low=st.integers(1, 4), more=st.integers(0, 4), max_draft=st.integers(1, 6))
def test_ngrams_follow_the_naive_rule(
    prompt: list[int], output: list[int], low: int, more: int, max_draft: int
) -> None:
    options = {"prompt_lookup_min": low, "prompt_lookup_max": low + more, "num_speculative_tokens": max_draft}
    first, *drafts_after = drafts("vllm-ngram", prompt, output, **options)
    assert first == (), "the forward over the prompt verifies no draft"
    for count, draft in enumerate(drafts_after, 1):
        text = [*prompt, *output[:count]]
        matches = (
            text[start + size :][:max_draft]
            for size in range(low + more, low - 1, -1)
            for start in range(len(text) - size)
            if text[start : start + size] == text[-size:]
        )
        assert draft == tuple(next(matches, ()))


# Suffix trees.


class NaiveTree:
    """The count of every n-gram, and its continuations grouped by count, each group in Arctic's order."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.counts = Counter[tuple[int, ...]]()
        self.groups: dict[tuple[int, ...], dict[int, list[int]]] = {}

    def append(self, text: Sequence[int], token: int) -> None:
        """Count `token` after every suffix of `text`."""
        for size in range(1, min(self.depth, len(text) + 1)):
            context = tuple(text[len(text) - size :])
            groups, count = self.groups.setdefault(context, {}), self.counts[*context, token]
            was_first = count > 0 and groups[count][0] == token
            if count:
                groups[count].remove(token)
            group = groups.setdefault(count + 1, [])
            group.insert(0 if was_first else len(group), token)
            self.counts[*context, token] += 1
        self.counts[(token,)] += 1

    def best(self, context: Sequence[int], max_draft: int, factor: float, min_prob: float) -> tuple[float, list[int]]:
        """The score and tokens of the best path, over all match lengths."""
        best_path: tuple[float, list[int]] = (0.0, [])
        for size in range(1, min(self.depth, len(context))):
            node = tuple(context[-size:])
            path: list[int] = []
            prob, score = np.float32(1), np.float32(0)
            # Arctic adds 1e-6, too, so that a product just below a whole number is not rounded down.
            while len(path) < min(max_draft, int(size * factor + 1e-6)):
                groups = {count: tokens for count, tokens in self.groups.get(node, {}).items() if tokens}
                if not groups or len(node) >= self.depth:
                    break
                count = max(groups)
                prob *= np.float32(count) / np.float32(self.counts[node])
                if prob < np.float32(min_prob):
                    break
                score += prob
                path.append(groups[count][0])
                node = (*node, path[-1])
            if score >= best_path[0]:
                best_path = float(score), path
        return best_path


def naive_drafts(
    prompt: list[int], output: list[int], past: Sequence[Sequence[int]], depth: int, factor: float, min_prob: float
) -> Iterator[tuple[int, ...]]:
    """The draft after each token of the output."""
    request_tree, global_tree, context = NaiveTree(depth), NaiveTree(depth), list(prompt)
    for index, token in enumerate(prompt):
        request_tree.append(prompt[:index], token)
    for past_output in past:
        for index, token in enumerate(past_output):
            global_tree.append(past_output[:index], token)
    for index, token in enumerate(output):
        request_tree.append(context, token)
        global_tree.append(output[:index], token)
        context.append(token)
        request_score, request_draft = request_tree.best(context, depth, factor, min_prob)
        global_score, global_draft = global_tree.best(context, depth, factor, min_prob)
        yield tuple(request_draft if request_score >= global_score else global_draft)


@settings(max_examples=40, deadline=None)
@given(
    prompt=TEXT,
    output=TEXT,
    past=st.lists(TEXT, max_size=3),
    depth=st.integers(2, 10),
    factor=st.sampled_from([0.5, 1.0, 2.5]),
    min_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_suffix_trees_follow_the_naive_rule(
    prompt: list[int], output: list[int], past: list[list[int]], depth: int, factor: float, min_prob: float
) -> None:
    drafted = drafts("vllm-suffix", prompt, output, past, **suffix_options(depth, factor, min_prob))
    assert [*drafted] == [(), *naive_drafts(prompt, output, past, depth, factor, min_prob)]


def suffix_options(depth: int, factor: float, min_prob: float) -> dict[str, float]:
    """The options of `vllm-suffix`, by vLLM's names."""
    return {
        "suffix_decoding_max_tree_depth": depth,
        "suffix_decoding_max_spec_factor": factor,
        "suffix_decoding_min_token_prob": min_prob,
    }


def test_order_of_equally_frequent_tokens() -> None:
    def order(*followers: int) -> list[int]:
        tree = SuffixTree(8, [token for follower in followers for token in (1, follower)])
        # The state after the token 1; state 0 is the root.
        return tree.siblings[tree.successor(0, 1)]

    assert order(2, 3) == [2, 3] and order(2, 3, 3) == [3, 2]
    # 3 reaches 2's count of two. It was the first token with its old count, so it moves before 2.
    assert order(2, 2, 3, 3) == [3, 2]
    # 4 was not the first token with its old count, so it moves after 2.
    assert order(2, 2, 3, 4, 4) == [2, 4, 3]


def test_matches_do_not_cross_outputs_and_the_oldest_are_dropped() -> None:
    past = PastOutputs([[7, 8, 9, 4], [7, 8, 9, 6]])
    assert [*drafts("vllm-suffix", (2, 7), (8,), past)][-1] == (9, 4)
    assert [*drafts("vllm-suffix", (2, 7), (8,), past, suffix_decoding_max_cached_requests=2)][-1] == (9, 6)
    for max_requests in (0, 1):
        assert [*drafts("vllm-suffix", (2, 7), (8,), past, suffix_decoding_max_cached_requests=max_requests)][-1] == ()
    # The request's output was appended to a copy of the shared tree.
    assert list(past) == [(7, 8, 9, 4), (7, 8, 9, 6)]
    assert past.index(SuffixTree, 24, prompt_tail=0).tokens.count(END) == 2


def arctic_drafts(make_cache: Callable[..., Any], prompt: list[int], output: list[int], past: Any) -> Iterator[Any]:
    """The drafts of Arctic Inference, called as in vLLM's proposer with its defaults."""
    cache = make_cache(max_tree_depth=24, max_cached_requests=10_000)
    for number, past_output in enumerate(past):
        cache.start_request(number, [])
        cache.add_active_response(number, past_output)
        cache.stop_request(number)
    cache.start_request("own", prompt)
    context = list(prompt)
    for token in output:
        cache.add_active_response("own", [token])
        context.append(token)
        yield tuple(cache.speculate("own", context[-24:], max_spec_tokens=24).token_ids)


def test_drafts_equal_those_of_arctic_inference_on_200_prompts() -> None:
    arctic = pytest.importorskip("arctic_inference.suffix_decoding", reason="arctic-inference is not installed")
    rng = random.Random(5)
    for number in range(200):
        vocab = rng.choice((2, 3, 5, 12))
        prompt, output, *past = (
            [rng.randrange(2, 2 + vocab) for _ in range(rng.randrange(1, 60))] for _ in range(2 + number % 4)
        )
        expected = arctic_drafts(arctic.SuffixDecodingCache, prompt, output, past)
        assert [*drafts("vllm-suffix", prompt, output, past)][1:] == [*expected], (prompt, output, past)
