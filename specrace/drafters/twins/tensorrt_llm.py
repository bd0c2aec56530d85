"""TensorRT-LLM's NGram and SA (suffix automaton) drafters, as on its main branch of 2026.

Source: NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/speculative/ngram.py (0249976), sa_worker.py (0260785) and
suffix_automaton.py, cpp/tensorrt_llm/kernels/speculativeDecoding/suffixAutomaton/ (suffixAutomaton.h, b120c7c),
tensorrt_llm/llmapi/llm_args.py after pull request 12130. The numbers in brackets are commits. `max_draft_len` has no
default in the engine; the defaults here are those of its documentation.
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

# The engine's values: the global pool is searched for at most this many of a request's last tokens.
GLOBAL_SUFFIX = 64
# The default number of requests in the global pool.
GLOBAL_SLOTS = 64
# Longer than any prompt.
UNLIMITED = 1 << 30


class NGramPool:
    """The lists of up to `max_draft` tokens that followed each n-gram of up to `longest` tokens, the oldest first.

    It starts from the lists of `shared`, another pool, which is not changed. Without `keep_all`, a list that is longer
    than the oldest replaces all lists of its n-gram.
    """

    def __init__(self, max_draft: int, longest: int, keep_all: bool, shared: NGramPool | None = None) -> None:
        self.max_draft = max_draft
        self.longest = longest
        self.keep_all = keep_all
        self.shared = shared
        # The lists of an n-gram are the keys of a dict, which keeps their order.
        self._lists: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
        # N-grams with a list of fewer than `max_draft` tokens.
        self._short: set[tuple[int, ...]] = set() if shared is None else shared._short.copy()

    def lists(self, ngram: tuple[int, ...]) -> dict[tuple[int, ...], None]:
        """The lists of tokens that followed `ngram`, the oldest first."""
        lists = self._lists.get(ngram)
        if lists is not None:
            return lists
        return {} if self.shared is None else self.shared.lists(ngram)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add every n-gram of `tokens` with the tokens that follow it, except a final END, which earlier texts have."""
        count = len(tokens) - 1 if tokens[-1] == END else len(tokens)
        for size in range(self.longest, 0, -1):
            for end in range(size, count):
                self.add(tuple(tokens[end - size : end]), tuple(tokens[end : min(end + self.max_draft, count)]))

    def add(self, ngram: tuple[int, ...], tokens: tuple[int, ...]) -> None:
        """Add the list `tokens` after `ngram`. A longer list replaces shorter ones."""
        lists = self.lists(ngram)
        if tokens in lists:
            return
        if not lists or (not self.keep_all and len(tokens) > len(next(iter(lists)))):
            lists = {}
        elif ngram not in self._lists:
            lists = lists.copy()
        if lists and ngram in self._short:
            _drop_shorter(lists, len(tokens))
            if all(len(following) == self.max_draft for following in lists):
                self._short.discard(ngram)
        lists[tokens] = None
        self._lists[ngram] = lists
        if len(tokens) < self.max_draft:
            self._short.add(ngram)


def _drop_shorter(lists: dict[tuple[int, ...], None], length: int) -> None:
    """Drop the lists shorter than `length`, except where the source keeps one.

    The source removes from a list while iterating over it, so it skips the entry after a removed one.
    """
    order = list(lists)
    index = 0
    while index < len(order):
        if len(order[index]) < length:
            del lists[order[index]]
            index += 1
        index += 1


class NGramDrafter:
    """Drafts the oldest (or newest) of the token lists that followed the longest n-gram found in a pool.

    1 2 was first followed by 3 9, and later by 5:

    >>> drafter = NGramDrafter(DrafterInputs((1, 2, 3, 9, 1, 2, 5, 1), vocab_size=10), max_draft_len=2)
    >>> drafter.propose((1, 2, 3, 9, 1, 2, 5, 1, 2), budget=4).tokens
    (2, 3, 9)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        max_draft_len: Annotated[int, Bounds(1, 128, "maximum number of draft tokens")] = 3,
        max_matching_ngram_size: Annotated[int, Bounds(1, 32, "maximum number of tokens matched")] = 2,
        is_keep_all: Annotated[bool, Flag("keep all lists that followed an n-gram, not only the longest")] = True,
        is_use_oldest: Annotated[bool, Flag("draft an n-gram's oldest list, not its newest")] = True,
        is_public_pool: Annotated[bool, Flag("share the pool with earlier requests")] = True,
    ) -> None:
        self.num_prompt = len(inputs.prompt)
        self.use_oldest = is_use_oldest
        settings = max_draft_len, max_matching_ngram_size, is_keep_all
        shared = None
        if is_public_pool and inputs.past:
            shared = PastOutputs.of(inputs.past).index(NGramPool, *settings, prompt_tail=UNLIMITED)
        self.pool = NGramPool(*settings, shared)
        # The index in the context at which the next call starts to add n-grams.
        self._start = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain of up to `max_draft_len` tokens; the bare root if nothing matches."""
        if len(context) <= self.num_prompt:
            return TokenTree.chain(context[-1])
        self.pool.extend(context[self._start :])
        # The next call starts at the first n-gram that was followed by too few tokens to fill a list.
        self._start = max(0, len(context) - (self.pool.max_draft + self.pool.longest - 1))
        for size in range(min(self.pool.longest, len(context) - 1), 0, -1):
            lists = self.pool.lists(tuple(context[-size:]))
            if lists:
                tokens = next(iter(lists)) if self.use_oldest else next(reversed(lists))
                return TokenTree.chain(context[-1], tokens[:budget])
        return TokenTree.chain(context[-1])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to do: as in the source, the next `propose` adds the output tokens to the pool."""


class RepeatAutomaton(SuffixAutomaton):
    """An automaton that finds the longest suffix of its text that occurs earlier; its counts are not used."""

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__(1, tokens)

    def repeated_suffix(self, longest: int) -> tuple[int, int]:
        """The index after the first occurrence of the longest repeated suffix, and the suffix's length; 0 for none.

        The suffix is cut to its last `longest` tokens.
        """
        state = self.links[self._last]
        if state <= 0:
            # Only the empty suffix occurs earlier.
            return 0, 0
        state, length = self.shortened((state, self.lengths[state]), longest)
        return self.firsts[state] + 1, length


class SuffixAutomatonDrafter:
    """Copies what followed the first occurrence of the longest suffix that occurs earlier, however short it is.

    The prompt ends in 1 2, which also occurs at its start, followed by 3 9. After 3, the first output token, 9 2 is
    drafted:

    >>> from specrace.core.verify import Scores
    >>> drafter = SuffixAutomatonDrafter(DrafterInputs((1, 2, 3, 9, 2, 5, 1, 2), vocab_size=10), max_draft_len=2)
    >>> drafter.propose((1, 2, 3, 9, 2, 5, 1, 2), budget=4).tokens  # the forward over the prompt verifies no draft
    (2,)
    >>> drafter.observe(TokenTree.chain(2), Verdict((0,), 3, Scores((3,))))
    >>> drafter.propose((1, 2, 3, 9, 2, 5, 1, 2, 3), budget=4).tokens
    (3, 9, 2)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        max_draft_len: Annotated[int, Bounds(1, 128, "maximum number of draft tokens")] = 4,
        max_matching_ngram_size: Annotated[
            int, Bounds(-1, 64, "maximum number of tokens matched; -1: any number")
        ] = -1,
        enable_global_pool: Annotated[bool, Flag("also search the tokens of earlier requests")] = False,
        global_pool_size: Annotated[int, Bounds(0, 1024, "requests in the global pool, this one included; 0: 64")] = 0,
    ) -> None:
        if not max_matching_ngram_size:
            raise InputError("trtllm-sa.max_matching_ngram_size is 0; give 1 or more, or -1 for any length.")
        self.max_draft = max_draft_len
        self.num_prompt = len(inputs.prompt)
        if max_matching_ngram_size > 0:
            self.longest = max_matching_ngram_size
        else:
            self.longest = GLOBAL_SUFFIX if enable_global_pool else UNLIMITED
        self.text = RepeatAutomaton(inputs.prompt)
        slots = (global_pool_size or GLOBAL_SLOTS) - 1 if enable_global_pool else 0
        self.pool = GlobalPool(PastOutputs.of(inputs.past), slots, self.longest, inputs.prompt) if slots else None

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain of up to `max_draft_len` tokens; the bare root if nothing matches."""
        if len(context) <= self.num_prompt:
            return TokenTree.chain(context[-1])
        max_draft = min(self.max_draft, budget)
        start, length = self.text.repeated_suffix(self.longest)
        draft = self.text.tokens[start : start + max_draft] if length else []
        if self.pool is not None:
            draft = self.pool.draft(context, length, max_draft) or draft
        return TokenTree.chain(context[-1], draft)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens."""
        output = verdict.output(tree)
        self.text.extend(output)
        if self.pool is not None:
            self.pool.follow(output)


class GlobalPool:
    """The texts of earlier requests, an END after each, searched for a longer match than that in the request itself."""

    def __init__(self, past: PastOutputs, num_requests: int, longest: int, prompt: Sequence[int]) -> None:
        self.automaton = past.latest(num_requests).index(SuffixAutomaton, longest + 1, prompt_tail=UNLIMITED)
        self.match = self.automaton.follow(NO_MATCH, prompt[-longest:])
        self.text: Ints = np.asarray(self.automaton.tokens, np.int64)
        self.ends: Ints = np.flatnonzero(self.text == END)

    def follow(self, tokens: Sequence[int]) -> None:
        """Extend the match by `tokens`."""
        self.match = self.automaton.follow(self.match, tokens)

    def draft(self, context: Sequence[int], matched: int, max_draft: int) -> list[int]:
        """Up to `max_draft` tokens after the longest suffix of `context` in the pool, if longer than `matched` tokens.

        If several requests contain the suffix, the draft comes from the request with the most tokens after its first
        occurrence; ties go to the latest request.
        """
        for length in range(self.match[1], matched, -1):
            positions = _occurrences(self.text, context[-length:]) + length
            requests, first = np.unique(np.searchsorted(self.ends, positions), return_index=True)
            num_left = self.ends[requests] - positions[first]
            if len(num_left) and num_left.max() > 0:
                best = len(num_left) - 1 - int(num_left[::-1].argmax())
                start = int(positions[first[best]])
                return self.automaton.tokens[start : start + min(max_draft, int(num_left[best]))]
        return []


def _occurrences(text: Ints, tokens: Sequence[int]) -> Ints:
    """The positions at which `tokens` start in `text`, ascending."""
    starts: Ints = np.flatnonzero(text[: len(text) - len(tokens) + 1] == tokens[0])
    for offset, token in enumerate(tokens[1:], 1):
        starts = starts[text[starts + offset] == token]
    return starts


def _max_draft_len(options: Mapping[str, Any]) -> int:
    """The default draft size."""
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
