"""TensorRT-LLM's NGram and SA (suffix automaton) drafters, as on its main branch of 2026.

Source: NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/speculative/ngram.py (0249976), sa_worker.py and suffix_automaton.py,
cpp/tensorrt_llm/kernels/speculativeDecoding/suffixAutomaton/ (suffixAutomaton.h, b120c7c), tensorrt_llm/llmapi/
llm_args.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs, Flag, Method
from specrace.ngrams.automaton import NO_MATCH, SuffixAutomaton
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END, Ints

# The most tokens of a request that are looked up in the global pool, and its slots where their number is not given.
GLOBAL_SUFFIX, GLOBAL_SLOTS = 64, 64
# Longer than any prompt.
WHOLE = 1 << 30


class NGramPool:
    """The lists of at most `most` tokens that followed each n-gram of up to `longest`, as keys in order.

    Those of `shared` precede its own; that pool stays as it is.
    """

    def __init__(self, most: int, longest: int, keep_all: bool, shared: NGramPool | None = None) -> None:
        self.most, self.longest, self.keep_all, self.shared = most, longest, keep_all, shared
        self._lists: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
        # N-grams with a list of fewer than `most` tokens.
        self._short: set[tuple[int, ...]] = set() if shared is None else shared._short.copy()

    def lists(self, ngram: tuple[int, ...]) -> dict[tuple[int, ...], None]:
        """What followed `ngram`, the oldest first."""
        found = self._lists.get(ngram)
        return self.shared.lists(ngram) if found is None and self.shared is not None else found or {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Add every n-gram of `tokens` with what follows it; an END at their end is no token."""
        count = len(tokens) - (tokens[-1] == END)
        for size in range(self.longest, 0, -1):
            for end in range(size, count):
                self.add(tuple(tokens[end - size : end]), tuple(tokens[end : min(end + self.most, count)]))

    def add(self, ngram: tuple[int, ...], tokens: tuple[int, ...]) -> None:
        """Add a list. A longer one replaces shorter ones."""
        lists = self.lists(ngram)
        if tokens in lists:
            return
        if not lists or (not self.keep_all and len(tokens) > len(next(iter(lists)))):
            lists = {}
        elif ngram not in self._lists:
            lists = lists.copy()
        if lists and ngram in self._short:
            _drop_shorter(lists, len(tokens))
            if all(len(each) == self.most for each in lists):
                self._short.discard(ngram)
        lists[tokens] = None
        self._lists[ngram] = lists
        if len(tokens) < self.most:
            self._short.add(ngram)


def _drop_shorter(lists: dict[tuple[int, ...], None], length: int) -> None:
    """Drop shorter lists. The source removes while it iterates, so it passes over the list after a removed one."""
    order, place = [*lists], 0
    while place < len(order):
        dropped = len(order[place]) < length
        if dropped:
            del lists[order[place]]
        place += 1 + dropped


class NGramDrafter:
    """Drafts the oldest, or newest, of the token lists that followed the longest n-gram in a pool."""

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        max_draft_len: Annotated[int, Bounds(1, 128, "most draft tokens")] = 3,
        max_matching_ngram_size: Annotated[int, Bounds(1, 32, "most tokens matched")] = 2,
        is_keep_all: Annotated[bool, Flag("keep all that followed an n-gram, not only the longest")] = True,
        is_use_oldest: Annotated[bool, Flag("draft the oldest of them, not the newest")] = True,
        is_public_pool: Annotated[bool, Flag("share the pool with earlier requests")] = True,
    ) -> None:
        self.prompt_tokens, self.choose = len(inputs.prompt), iter if is_use_oldest else reversed
        settings = max_draft_len, max_matching_ngram_size, is_keep_all
        past = PastOutputs.of(inputs.past) if is_public_pool else ()
        self.pool = NGramPool(*settings, past.index(NGramPool, *settings, prompt_tail=WHOLE) if past else None)
        self._start = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain of up to `max_draft_len`; the bare root without a match."""
        if len(context) <= self.prompt_tokens:
            return TokenTree.chain(context[-1])
        self.pool.extend(context[self._start :])
        # From here on too few tokens followed to fill a list.
        self._start = max(0, len(context) - (self.pool.most + self.pool.longest - 1))
        for size in range(min(self.pool.longest, len(context) - 1), 0, -1):
            lists = self.pool.lists(tuple(context[-size:]))
            if lists:
                return TokenTree.chain(context[-1], next(self.choose(lists))[:budget])
        return TokenTree.chain(context[-1])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """The next draft adds the output tokens to the pool, as in the source."""


class RepeatAutomaton(SuffixAutomaton):
    """An automaton that finds the longest suffix of its own tokens that occurs earlier; it counts nothing."""

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__(1, tokens)

    def repeated_suffix(self, longest: int) -> tuple[int, int]:
        """That suffix, or its last `longest` tokens: the index after its first occurrence, and its length."""
        state = self.links[self._last]
        if state <= 0:
            return 0, 0
        state, length = self.shortened((state, self.lengths[state]), longest)
        return self.firsts[state] + 1, length


class SuffixAutomatonDrafter:
    """Copies what followed the first occurrence of the longest suffix that occurs earlier, however short."""

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        max_draft_len: Annotated[int, Bounds(1, 128, "most draft tokens")] = 4,
        max_matching_ngram_size: Annotated[int, Bounds(-1, 64, "most tokens matched; -1: any number")] = -1,
        enable_global_pool: Annotated[bool, Flag("search the tokens of earlier requests, too")] = False,
        global_pool_size: Annotated[int, Bounds(0, 1024, "requests in that pool, this one included; 0: 64")] = 0,
    ) -> None:
        if not max_matching_ngram_size:
            raise InputError("trtllm-sa.max_matching_ngram_size is 0; give 1 or more, or -1 for any length.")
        self.most, self.prompt_tokens = max_draft_len, len(inputs.prompt)
        given = max_matching_ngram_size if max_matching_ngram_size > 0 else 0
        self.longest = given or (GLOBAL_SUFFIX if enable_global_pool else WHOLE)
        self.text = RepeatAutomaton(inputs.prompt)
        slots = (global_pool_size or GLOBAL_SLOTS) - 1 if enable_global_pool else 0
        self.pool = GlobalPool(PastOutputs.of(inputs.past), slots, self.longest, inputs.prompt) if slots else None

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain of up to `max_draft_len`; the bare root without a match."""
        if len(context) <= self.prompt_tokens:
            return TokenTree.chain(context[-1])
        most = min(self.most, budget)
        start, length = self.text.repeated_suffix(self.longest)
        draft = self.text.tokens[start : start + most] if length else []
        if self.pool is not None:
            draft = self.pool.draft(context, length, most) or draft
        return TokenTree.chain(context[-1], draft)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens."""
        output = verdict.output(tree)
        self.text.extend(output)
        if self.pool is not None:
            self.pool.follow(output)


class GlobalPool:
    """The tokens of earlier requests, in which a longer match than a request's own is looked for."""

    def __init__(self, past: PastOutputs, most: int, longest: int, prompt: Sequence[int]) -> None:
        self.automaton = past.latest(most).index(SuffixAutomaton, longest + 1, prompt_tail=WHOLE)
        self.match = self.automaton.follow(NO_MATCH, prompt[-longest:])
        self.text: Ints = np.asarray(self.automaton.tokens, np.int64)
        self.ends: Ints = np.flatnonzero(self.text == END)

    def follow(self, tokens: Sequence[int]) -> None:
        """Go on by `tokens`."""
        self.match = self.automaton.follow(self.match, tokens)

    def draft(self, context: Sequence[int], matched: int, most: int) -> list[int]:
        """Up to `most` tokens after the longest suffix of `context` here, if longer than `matched`; else none.

        Of several requests the one with the most tokens left after its first occurrence, then the latest.
        """
        for length in range(self.match[1], matched, -1):
            places = _occurrences(self.text, context[-length:]) + length
            requests, first = np.unique(np.searchsorted(self.ends, places), return_index=True)
            left = self.ends[requests] - places[first]
            if len(left) and left.max() > 0:
                best = len(left) - 1 - int(left[::-1].argmax())
                start = int(places[first[best]])
                return self.automaton.tokens[start : start + min(most, int(left[best]))]
        return []


def _occurrences(text: Ints, tokens: Sequence[int]) -> Ints:
    """Where `tokens` start in `text`, ascending."""
    found: Ints = np.flatnonzero(text[: len(text) - len(tokens) + 1] == tokens[0])
    for offset, token in enumerate(tokens[1:], 1):
        found = found[text[found + offset] == token]
    return found


def _max_draft_len(options: Mapping[str, Any]) -> int:
    return int(options["max_draft_len"])


METHODS = (
    Method(
        "trtllm-ngram",
        "TensorRT-LLM NGram",
        "TensorRT-LLM's pool of n-grams: drafts what first followed the last tokens",
        NGramDrafter,
        _max_draft_len,
        profile=None,
        twin_of="TensorRT-LLM",
        padded=True,
    ),
    Method(
        "trtllm-sa",
        "TensorRT-LLM SA",
        "TensorRT-LLM's suffix automaton: copies what followed the longest earlier match",
        SuffixAutomatonDrafter,
        _max_draft_len,
        profile=None,
        twin_of="TensorRT-LLM",
        padded=True,
    ),
)
