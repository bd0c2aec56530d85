"""Token recycling: tokens that were likely after a token are drafted when that token comes again.

Sources: Luo et al., "Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token Recycling"
(2024); with `copy`: Zhang et al., "RACER: Retrieval-Augmented Contextual Rapid Speculative Decoding" (2026, arXiv
2604.14885), following its code (hkr04/RACER at fc494a3).

An adjacency matrix holds, for each token, the target's 8 likeliest next tokens at the last node with that token,
rejected nodes included. A fixed template, a tree of 80 nodes that gives each node's rank among its parent's successors,
is filled from the matrix level by level; a smaller draft has the template's likeliest nodes.

With `copy`, nodes copied from prompt and output come first: what followed the last 2 or more tokens, in n-grams of up
to 10 tokens, the most frequent first. RACER's copy-logits (the logits at the last occurrence of a token) are the rows
of the matrix. RACER's code also has rows for the prompt. Here there are none, because a prefill that computes the
logits of all tokens would be on every lane's clock. RACER's automaton is limited to 10,000 nodes, this one is not, and
the template replaces RACER's breadth rule, which would spend a small draft on the 8 successors of the first token.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import DrafterInputs, Flag
from specrace.drafters.retrieval_tree import MAX_NGRAM, add_retrieved
from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.counts import NGramCounts

NUM_TOP = 8
Ranks = tuple[int, ...]
# The published template of 80 nodes ("2.2.2" in the authors' code), with levels of 8, 21, 25, 15, 8 and 3 nodes. Maps
# the ranks on a node's path to the number of the node's children; nodes that are not listed have none.
_PUBLISHED: Mapping[Ranks, int] = {
    (): 8,
    **{(rank,): count for rank, count in enumerate((8, 4, 3, 2, 1, 1, 1, 1))},
    **{(0, rank): count for rank, count in enumerate((8, 3, 2, 1, 1, 1, 1, 1))},
    **{(1, 0): 2, (1, 1): 1, (2, 0): 1, (3, 0): 1, (4, 0): 1, (5, 0): 1},
    **{(0, 0, rank): count for rank, count in enumerate((5, 2, 1, 1, 1))},
    **{(rank, 0, 0): 1 for rank in (1, 2, 3)},
    **{(0, rank, 0): 1 for rank in (1, 2)},
    **{(0, 0, 0, rank): count for rank, count in enumerate((3, 1, 1))},
    **{(0, 0, 1, 0): 1, (0, 1, 0, 0): 1, (1, 0, 0, 0): 1},
    **{(0, 0, 0, 0, 0): 2, (0, 0, 0, 1, 0): 1},
}


@lru_cache(maxsize=64)
def template(num_nodes: int) -> tuple[Ranks, ...]:
    """The template with `num_nodes` nodes, level by level; a node is the tuple of the ranks on its path.

    With 80 nodes it is the published template. A smaller template has the likeliest nodes of the published one; a
    larger one adds the likeliest other nodes. Rank r (0 is the likeliest) is assumed to have probability 2 ** -(r + 1),
    and a path the product over its ranks. Ties go to the shallower node, then to the lower ranks. Up to 31 nodes no
    other tree has a higher sum of path probabilities.

    >>> template(4)
    ((0,), (1,), (2,), (0, 0))
    """
    chosen: list[Ranks] = []
    # (not in the published template, bits, depth, ranks); the bits are -log2 of the path probability.
    frontier: list[tuple[bool, int, int, Ranks]] = []

    def push_children(parent: Ranks, bits: int) -> None:
        for rank in range(NUM_TOP):
            is_extra = rank >= _PUBLISHED.get(parent, 0)
            heapq.heappush(frontier, (is_extra, bits + rank + 1, len(parent) + 1, (*parent, rank)))

    push_children((), 0)
    while len(chosen) < num_nodes:
        _, bits, _, ranks = heapq.heappop(frontier)
        chosen.append(ranks)
        push_children(ranks, bits)
    return tuple(sorted(chosen, key=lambda ranks: (len(ranks), ranks)))


@lru_cache(maxsize=64)
def by_likelihood(num_nodes: int) -> tuple[Ranks, ...]:
    """The nodes of the template sorted by likelihood; a parent comes before its children."""
    # Rank r costs r + 1 bits, as in `template`.
    return tuple(sorted(template(num_nodes), key=lambda ranks: (sum(ranks) + len(ranks), len(ranks), ranks)))


class RecyclingDrafter:
    """Drafts nodes copied from prompt and output, then fills the template with the target's likely tokens.

    The matrix starts empty for each generation; the published code keeps it between requests. With `warm` it starts
    with the bigrams of the prompt and of past outputs. Without `copy` this is token recycling as published.

    After 5 the target found 6 and 7 likely, so these are drafted when 5 comes again:

    >>> from specrace.core.verify import Scores, verify
    >>> drafter = RecyclingDrafter(DrafterInputs((5,), vocab_size=10))
    >>> drafter.observe(TokenTree.chain(5), verify(TokenTree.chain(5), Scores(targets=(6,), top=((6, 7),))))
    >>> drafter.propose((5, 6, 5), budget=2).tokens
    (5, 6, 7)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        warm: Annotated[bool, Flag("start from the bigrams of the prompt and of past outputs")] = False,
        copy: Annotated[bool, Flag("RACER's copies: before all else, copy what followed an earlier match")] = True,
    ) -> None:
        self.successors: dict[int, Ranks] = {}
        self.text = SuffixAutomaton(MAX_NGRAM, inputs.prompt) if copy else None
        if warm:
            counts = NGramCounts()
            counts.extend_apart((inputs.prompt, *inputs.past))
            for context, row in counts.rows():
                if len(context) == 1:
                    # The sort is stable: ties stay in order of first occurrence.
                    self.successors[context[0]] = tuple(sorted(row, key=row.__getitem__, reverse=True)[:NUM_TOP])

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """Copied nodes, if any, then the template's nodes for which a token is known, up to `budget` in total."""
        builder = TreeBuilder(context[-1])
        budget = max(0, budget)
        if self.text is None:
            self._fill(builder, template(budget), budget)
        else:
            add_retrieved(builder, self.text, budget)
            # Template nodes that were already copied do not count again, so the likeliest others fill the budget.
            self._fill(builder, by_likelihood(budget), budget)
        return builder.build()

    def _fill(self, builder: TreeBuilder, chosen: Iterable[Ranks], budget: int) -> None:
        """Add the nodes `chosen`, parents first, where a token is known, until there are `budget` draft nodes."""
        nodes: dict[Ranks, int] = {(): 0}
        for ranks in chosen:
            if len(builder.tokens) > budget:
                break
            parent, rank = nodes.get(ranks[:-1]), ranks[-1]
            if parent is None:
                continue
            successors = self.successors.get(builder.tokens[parent], ())
            if rank < len(successors):
                nodes[ranks] = builder.add(parent, successors[rank], 0.5 ** (rank + 1))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Store the target's likeliest tokens at every node, accepted nodes last, so that they overwrite the others.

        If only the target's own token is known, it moves to the front of the old row.
        """
        scores = verdict.scores
        for node in (*range(len(tree)), *verdict.path):
            token = tree.tokens[node]
            if scores.top is not None:
                self.successors[token] = tuple(scores.top[node][:NUM_TOP])
            elif (target := scores.targets[node]) >= 0:  # -1: not known
                old = self.successors.get(token, ())
                self.successors[token] = (target, *(successor for successor in old if successor != target))[:NUM_TOP]
        if self.text is not None:
            self.text.extend(verdict.output(tree))
