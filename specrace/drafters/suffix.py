"""Suffix decoding: the best of the drafts after matches of every length.

Source: Oliaro et al., "SuffixDecoding" (2024), and Arctic Inference.

Matches are searched in two texts: this request's prompt and output, and past outputs, which are stored with the last
four tokens of their prompts, and with an END after each, which is never drafted. A token's probability is its count
over the count of the matched substring. As in Arctic's code, that count includes the occurrence at the end of the text,
which has no continuation. So a token that followed the only earlier occurrence has probability 1/2. A suffix automaton
replaces the suffix tree, and suffixes that share a state are tried at once; otherwise the drafts are those of Arctic's
code. The drafts of `vllm-suffix` are always those of Arctic's code.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs, Flag
from specrace.ngrams.automaton import NO_MATCH, NO_STATE, SuffixAutomaton
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

# (parent, token, probability given the parent, position)
DraftNode = tuple[int, int, float, int]
# The sum of the path probabilities, the number of tokens matched, and the nodes.
Draft = tuple[float, int, list[DraftNode]]
NO_DRAFT: Draft = (0.0, 0, [])


class SuffixDrafter:
    """Drafts the path (or tree) with the highest sum of path probabilities; a longer match may draft more tokens.

    The last two tokens, 1 2, also occur at the start, followed by 3 9, so these two are drafted. 1 2 occurs twice, the
    second time without a continuation, so 3 has probability 1/2. 9 always followed 3:

    >>> context = (1, 2, 3, 9, 5, 1, 2)
    >>> tree = SuffixDrafter(DrafterInputs(context, vocab_size=10)).propose(context, budget=8)
    >>> tree.tokens, tree.probs
    ((2, 3, 9), (1.0, 0.5, 1.0))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(2, 64, "longest n-gram, match and draft together, in tokens")] = 64,
        factor: Annotated[int, Bounds(1, 64, "draft tokens for each matched token")] = 1,
        min_percent: Annotated[int, Bounds(1, 100, "minimum path probability of a draft token, in percent")] = 10,
        tree: Annotated[bool, Flag("draft the likeliest tree, not the likeliest path")] = False,
    ) -> None:
        self.depth = depth
        self.factor = factor
        self.min_prob = min_percent / 100
        self.tree = tree
        self.text = SuffixAutomaton(depth, inputs.prompt)
        self.past = PastOutputs.of(inputs.past).automaton(depth)
        # At most the last `depth` - 1 tokens match, because an n-gram of `depth` tokens includes a draft token.
        self._past_match = self.past.follow(NO_MATCH, inputs.prompt[1 - depth :])
        self._matched = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The better of the drafts from the two texts; ties go to the request's text, and in it to the longer match."""
        best = NO_DRAFT
        find_draft = self._likeliest_tree if self.tree else self._likeliest_path
        for automaton, (state, longest) in ((self.text, self.text.suffix()), (self.past, self._past_match)):
            # The sum is at most the number of draft tokens, so a shorter match may be too short to win.
            while min(budget, longest * self.factor) > best[0]:
                link = automaton.links[state]
                shorter = automaton.lengths[link]
                draft = find_draft(automaton, state, range(longest, shorter, -1), budget)
                if draft[0] > best[0]:
                    best = draft
                state, longest = link, shorter
        _, self._matched, nodes = best
        parents, tokens, probs, positions = zip((-1, context[-1], 1.0, -1), *nodes, strict=True)
        return TokenTree(tokens, parents, probs, positions)

    def _likeliest_path(self, automaton: SuffixAutomaton, state: int, lengths: range, budget: int) -> Draft:
        """The draft that continues from `state` with the likeliest token, then the likeliest after that, and so on.

        Matches of all `lengths`, the longest first, share `state` and so have the same continuations. `factor` allows
        more tokens after a longer match, `depth` after a shorter one. The length that allows the most tokens is used.
        """
        counts = automaton.counts
        has_positions = automaton is self.text
        nodes: list[DraftNode] = []
        score, prob, matched = 0.0, 1.0, 0
        while (size := len(nodes)) < budget:
            length = min(lengths.start, self.depth - 1 - size)
            if length <= lengths.stop or length * self.factor <= size:
                break
            target = _likeliest(automaton, state)
            if target == NO_STATE:
                break
            share = counts[target] / counts[state]
            prob *= share
            if prob < self.min_prob:
                break
            first = automaton.firsts[target]
            nodes.append((size, automaton.tokens[first], share, first if has_positions else -1))
            score += prob
            state, matched = target, length
        return score, matched, nodes

    def _likeliest_tree(self, automaton: SuffixAutomaton, state: int, lengths: range, budget: int) -> Draft:
        """The best of the trees after `state`, one for each match length in `lengths`, the longest first."""
        best = NO_DRAFT
        for length in lengths:
            limit, max_depth = min(budget, length * self.factor), self.depth - length
            if limit <= best[0]:
                break
            score, deepest, nodes = self._best_first(automaton, state, limit, max_depth)
            if score > best[0]:
                best = score, length, nodes
            if deepest < max_depth:
                # The depth did not limit this tree, and the factor lets a shorter match draft no more.
                break
        return best

    def _best_first(
        self, automaton: SuffixAutomaton, state: int, limit: int, max_depth: int
    ) -> tuple[float, int, list[DraftNode]]:
        """The `limit` likeliest nodes after `state`: the sum of their path probabilities, their depth, and the nodes.

        Ties go to the shallower node, then to the earlier in the text.
        """
        counts, firsts = automaton.counts, automaton.firsts
        has_positions = automaton is self.text
        nodes: list[DraftNode] = []
        score = 0.0
        deepest = 0
        # The node whose continuations come next; at first the root.
        node, depth, prob = 0, 0, 1.0
        # No two nodes have the same depth and first position, so the fields after these are never compared.
        frontier: list[tuple[float, int, int, int, int, float, int]] = []
        while True:
            for token, target in automaton.successors(state) if depth < max_depth else ():
                share = counts[target] / counts[state]
                if token != END and prob * share >= self.min_prob:
                    heapq.heappush(frontier, (-prob * share, depth + 1, firsts[target], node, token, share, target))
            if not frontier or node == limit:
                return score, deepest, nodes
            negative_prob, depth, first, parent, token, share, state = heapq.heappop(frontier)
            nodes.append((parent, token, share, first if has_positions else -1))
            node += 1
            deepest = max(deepest, depth)
            prob = -negative_prob
            score += prob

    def note(self, tree: TokenTree) -> Note:
        """The number of last tokens that matched, and the sum of the path probabilities."""
        expected = sum(tree.path_probs()[1:])
        return Note({"matched tokens": self._matched, "tokens expected": round(expected, 2)})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens."""
        output = verdict.output(tree)
        self.text.extend(output)
        self._past_match = self.past.follow(self._past_match, output)


def _likeliest(automaton: SuffixAutomaton, state: int) -> int:
    """The most frequent successor other than END; ties go to the first seen. NO_STATE if there is none."""
    target, counts = automaton.nexts[state], automaton.counts
    # `nexts` holds the only successor, or a negative code if there is none, or several in `branches`.
    if target >= 0:
        return NO_STATE if automaton.tokens[automaton.firsts[target]] == END else target
    if target == NO_STATE:
        return NO_STATE
    branches = automaton.branches[state]
    target = max(branches.values(), key=counts.__getitem__)
    if target == branches.get(END):
        target = max((other for other in branches.values() if other != target), key=counts.__getitem__)
    return target
