"""vLLM 0.33's n-gram and suffix proposers.

Source: vllm-project/vllm, vllm/v1/spec_decode/ngram_proposer.py and suffix_decoding.py, vllm/config/speculative.py. The
suffix trees are Arctic Inference's (0.1.0 to 0.3.0): snowflakedb/ArcticInference at 9d46438,
csrc/suffix_decoding/suffix_tree.cc, arctic_inference/suffix_decoding/cache.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs, Method
from specrace.ngrams.automaton import NO_MATCH, NO_STATE, SEVERAL, SuffixAutomaton
from specrace.ngrams.occurrences import FirstOccurrences
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

# The number of tokens that vLLM matches if neither length is given.
DEFAULT_MATCH = 5


class NgramDrafter:
    """Copies what followed the first occurrence of the longest suffix that occurs earlier, in prompt and output.

    Exactly two tokens have to match here. The context ends in 1 2, which also occurs at the start, followed by 3 9 4:

    >>> from specrace.core.verify import Scores
    >>> drafter = NgramDrafter(DrafterInputs((1, 2, 3, 9, 4, 1), vocab_size=10), prompt_lookup_max=2)
    >>> drafter.observe(TokenTree.chain(1), Verdict((0,), 2, Scores((2,))))  # the first output token is 2
    >>> drafter.propose((1, 2, 3, 9, 4, 1, 2), budget=3).tokens
    (2, 3, 9, 4)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        num_speculative_tokens: Annotated[int, Bounds(1, 128, "maximum number of draft tokens")] = 5,
        prompt_lookup_min: Annotated[int, Bounds(0, 32, "minimum number of tokens matched; 0: prompt_lookup_max")] = 0,
        prompt_lookup_max: Annotated[
            int, Bounds(0, 32, "maximum number of tokens matched; 0: prompt_lookup_min, or 5")
        ] = 0,
    ) -> None:
        longest = prompt_lookup_max or prompt_lookup_min or DEFAULT_MATCH
        self.shortest = prompt_lookup_min or longest
        if self.shortest > longest:
            raise InputError(
                f"vllm-ngram.prompt_lookup_min is {self.shortest}; give at most prompt_lookup_max, {longest}."
            )
        self.max_draft = num_speculative_tokens
        self.num_prompt = len(inputs.prompt)
        self.text = FirstOccurrences(longest)
        self.text.extend(inputs.prompt)

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain of up to `num_speculative_tokens`; the bare root if nothing matches."""
        index, matched = self.text.match_suffix(self.shortest)
        if not matched or len(context) <= self.num_prompt:
            return TokenTree.chain(context[-1])
        return TokenTree.chain(context[-1], self.text.tokens[index : index + min(self.max_draft, budget)])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens."""
        self.text.extend(verdict.output(tree))


class SuffixTree(SuffixAutomaton):
    """An automaton that stores continuations in Arctic's order, which decides between equally frequent ones.

    `siblings` lists, for each state with SEVERAL continuations, those other than END (the mark after each output) by
    descending count. When a token's count rises, the token moves to the tokens with its new count: to their front if it
    was the first token with its old count, else to their end.
    """

    def __init__(self, n: int, tokens: Iterable[int] = ()) -> None:
        self.siblings: dict[int, list[int]] = {}
        super().__init__(n, tokens)

    def copy(self) -> SuffixTree:
        """A copy that can be extended without changing this tree."""
        copied = SuffixTree(self.n)
        copied.tokens = self.tokens.copy()
        copied.lengths = self.lengths.copy()
        copied.links = self.links.copy()
        copied.nexts = self.nexts.copy()
        copied.counts = self.counts.copy()
        copied.firsts = self.firsts.copy()
        copied._last = self._last
        copied._suffix = self._suffix
        copied.branches = {state: targets.copy() for state, targets in self.branches.items()}
        copied.siblings = {state: tokens.copy() for state, tokens in self.siblings.items()}
        return copied

    def likeliest(self, state: int) -> int:
        """The state after the first continuation in Arctic's order; NO_STATE if there is none."""
        target = self.nexts[state]
        if target == SEVERAL:
            targets = self.branches[state]
            tokens = self.siblings.get(state) or [token for token in targets if token != END]
            return targets[tokens[0]]
        if target == NO_STATE or self.tokens[self.firsts[target]] == END:
            return NO_STATE
        return target

    def _count(self, state: int, token: int) -> None:
        context = self._suffix
        super()._count(state, token)
        while context and token != END:
            if self.nexts[context] == SEVERAL:
                self._reorder(context, token)
            context = self.links[context]

    def _clone(self, target: int, state: int, token: int) -> int:
        clone = super()._clone(target, state, token)
        if target in self.siblings:
            self.siblings[clone] = self.siblings[target].copy()
        return clone

    def _reorder(self, state: int, token: int) -> None:
        """Move `token`, which has just been counted after `state`, to its new position among the siblings."""
        targets, counts = self.branches[state], self.counts
        tokens = self.siblings.setdefault(state, [sibling for sibling in targets if sibling not in (END, token)])
        if token not in tokens:
            tokens.append(token)
            return
        index = tokens.index(token)
        if not index:
            return
        count_before = counts[targets[tokens[index - 1]]]
        if count_before <= counts[targets[token]]:
            del tokens[index]
            while index and counts[targets[tokens[index - 1]]] == count_before:
                index -= 1
            tokens.insert(index, token)


class SuffixDrafter:
    """Drafts the likeliest path after the best match, in this request's tree or in the global tree of all outputs.

    1 2 occurred before, followed by 3 9. Two tokens matched, so two are drafted:

    >>> from specrace.core.verify import Scores
    >>> drafter = SuffixDrafter(DrafterInputs((1, 2, 3, 9, 4, 1), vocab_size=10))
    >>> drafter.observe(TokenTree.chain(1), Verdict((0,), 2, Scores((2,))))  # the first output token is 2
    >>> drafter.propose((1, 2, 3, 9, 4, 1, 2), budget=8).tokens
    (2, 3, 9)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        num_speculative_tokens: Annotated[int, Bounds(0, 128, "maximum number of draft tokens; 0: the tree depth")] = 0,
        suffix_decoding_max_tree_depth: Annotated[int, Bounds(2, 64, "longest n-gram, match and draft together")] = 24,
        suffix_decoding_max_cached_requests: Annotated[
            int, Bounds(0, 1_000_000, "outputs in the global tree, this request's included; 0: no global tree")
        ] = 10_000,
        suffix_decoding_max_spec_factor: Annotated[
            float, Bounds(0.0, 64.0, "draft tokens for each matched token")
        ] = 1.0,
        suffix_decoding_min_token_prob: Annotated[float, Bounds(0.0, 1.0, "minimum path probability of a token")] = 0.1,
    ) -> None:
        self.depth = suffix_decoding_max_tree_depth
        self.max_draft = num_speculative_tokens or self.depth
        self.num_prompt = len(inputs.prompt)
        # Arctic computes in single precision.
        self.factor = np.float32(suffix_decoding_max_spec_factor)
        self.min_prob = np.float32(suffix_decoding_min_token_prob)
        self.trees = [SuffixTree(self.depth, inputs.prompt)]
        if suffix_decoding_max_cached_requests:
            self.trees.append(_global_tree(inputs, self.depth, suffix_decoding_max_cached_requests - 1))

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain; ties go to the request's tree, and within a tree to the longer match."""
        if len(context) <= self.num_prompt:
            return TokenTree.chain(context[-1])
        best = np.float32(0)
        draft: list[int] = []
        for tree in self.trees:
            score, tokens = self._best_path(tree, context, min(budget, self.max_draft))
            if score > best:
                best, draft = score, tokens
        return TokenTree.chain(context[-1], draft)

    def _best_path(self, tree: SuffixTree, context: Sequence[int], max_size: int) -> tuple[np.float32, list[int]]:
        """The best of the likeliest paths after all matches of `context`: its sum of probabilities and its tokens."""
        best = np.float32(0)
        draft: list[int] = []
        # As in Arctic's code, at most depth - 1 tokens are matched, and never the whole context.
        state, longest = tree.follow(NO_MATCH, context[max(1, len(context) - self.depth + 1) :])
        for length in range(longest, 0, -1):
            state, _ = tree.shortened((state, longest), length)
            longest = length
            # Arctic, too, adds 1e-6 before it rounds down.
            size = min(max_size, self.depth - length, int(float(np.float32(length) * self.factor) + 1e-6))
            if size > best:
                score, tokens = self._path(tree, state, size)
                if score > best:
                    best, draft = score, tokens
        return best, draft

    def _path(self, tree: SuffixTree, state: int, size: int) -> tuple[np.float32, list[int]]:
        """The likeliest path of at most `size` tokens after `state`: its sum of path probabilities and its tokens."""
        score, prob = np.float32(0), np.float32(1)
        tokens: list[int] = []
        while len(tokens) < size and (target := tree.likeliest(state)) != NO_STATE:
            prob *= np.float32(tree.counts[target]) / np.float32(tree.counts[state])
            if prob < self.min_prob:
                break
            score += prob
            tokens.append(tree.tokens[tree.firsts[target]])
            state = target
        return score, tokens

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens to both trees."""
        output = verdict.output(tree)
        for suffix_tree in self.trees:
            suffix_tree.extend(output)


def _global_tree(inputs: DrafterInputs, depth: int, num_outputs: int) -> SuffixTree:
    """A tree of the latest `num_outputs` outputs, to which this request's output can be appended."""
    past = PastOutputs.of(inputs.past).latest(num_outputs)
    return past.index(SuffixTree, depth, prompt_tail=0).copy()


def _suffix_length(options: Mapping[str, Any]) -> int:
    """The default draft size of suffix decoding."""
    return int(options["num_speculative_tokens"] or options["suffix_decoding_max_tree_depth"])


METHODS = (
    Method(
        "vllm-ngram",
        "vLLM ngram",
        "vLLM's prompt lookup: copies what followed the first occurrence of the last tokens",
        NgramDrafter,
        lambda options: int(options["num_speculative_tokens"]),
        profile=None,
        twin_of="vLLM",
    ),
    Method(
        "vllm-suffix",
        "vLLM suffix",
        "vLLM's suffix decoding: the likeliest path in the suffix tree of the request or of all outputs",
        SuffixDrafter,
        _suffix_length,
        profile=None,
        twin_of="vLLM",
    ),
)
