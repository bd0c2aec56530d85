"""Token recycling (Luo et al., 2024): the target's likely tokens after a token are drafted when it comes again.

An adjacency matrix holds the target's k likeliest tokens after each token at its last node, rejected ones included. A
fixed template of ranks is filled from it level by level.

With `copy` it is RACER (Zhang et al., 2026): a tree copied from prompt and output comes first, and the template, its
likeliest nodes first, takes the room that is left. RACER's copy-logits, the logits seen where a token last stood, are
the rows of that matrix. Unlike RACER's code it has no rows of the prompt: a prefill that computes the logits of all
tokens would be on every lane's clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import DrafterInputs, Flag
from specrace.drafters.retrieval_tree import NGRAM, add_retrieved
from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.counts import NGramCounts

NUM_TOP = 8
Ranks = tuple[int, ...]
# The published template of 80 nodes ("2.2.2" in the authors' code), its levels 8, 21, 25, 15, 8 and 3 wide: the number
# of children of each node, by the ranks on its path; others have none.
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
    """A tree of `num_nodes` ranks, level by level; a node is the ranks on its path.

    80 nodes are the published template, fewer the likeliest part of it, more add the likeliest nodes beside it. Rank r
    (0 is the likeliest) has probability 2 ** -(r + 1), a path the product. Ties: the shallower, then the lower ranks.
    Up to 31 nodes it is the likeliest of all trees.
    """
    chosen: list[Ranks] = []
    # (not published, -log2 of the path probability, depth, ranks)
    frontier: list[tuple[bool, int, int, Ranks]] = []

    def push(parent: Ranks, halvings: int) -> None:
        for rank in range(NUM_TOP):
            added = rank >= _PUBLISHED.get(parent, 0)
            heapq.heappush(frontier, (added, halvings + rank + 1, len(parent) + 1, (*parent, rank)))

    push((), 0)
    while len(chosen) < num_nodes:
        _, halvings, _, ranks = heapq.heappop(frontier)
        chosen.append(ranks)
        push(ranks, halvings)
    return tuple(sorted(chosen, key=lambda ranks: (len(ranks), ranks)))


@lru_cache(maxsize=64)
def by_likelihood(num_nodes: int) -> tuple[Ranks, ...]:
    """The nodes of the template, the likeliest first; a parent comes before its children."""
    return tuple(sorted(template(num_nodes), key=lambda ranks: (sum(ranks) + len(ranks), len(ranks), ranks)))


class RecyclingDrafter:
    """Starts empty for each generation, where the published code keeps its adjacency between requests.

    `warm` starts from the bigrams of prompt and past outputs, for lack of the model's likely tokens in these; without
    `copy` it is the published token recycling.
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        warm: Annotated[bool, Flag("start from the bigrams of the prompt and of past outputs")] = False,
        copy: Annotated[bool, Flag("RACER's: first copy what followed the last tokens in prompt and output")] = True,
    ) -> None:
        self.successors: dict[int, Ranks] = {}
        self.text = SuffixAutomaton(NGRAM, inputs.prompt) if copy else None
        if warm:
            counts = NGramCounts()
            counts.extend_apart((inputs.prompt, *inputs.past))
            for context, row in counts.rows():
                if len(context) == 1:
                    # The sort is stable: equals stay in order of first occurrence.
                    self.successors[context[0]] = tuple(sorted(row, key=row.__getitem__, reverse=True)[:NUM_TOP])

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """Copied nodes, if any, and the template's, up to `budget`; without those for which no successor is known."""
        builder, budget = TreeBuilder(context[-1]), max(0, budget)
        if self.text is None:
            self._fill(builder, template(budget), budget)
        else:
            add_retrieved(builder, self.text, budget)
            # Nodes of the template that were copied take no room, so others follow, the likeliest first.
            self._fill(builder, by_likelihood(budget), budget)
        return builder.build()

    def _fill(self, builder: TreeBuilder, chosen: Iterable[Ranks], budget: int) -> None:
        """Add the successors of these ranks, parents first, until there are `budget` draft nodes."""
        nodes: dict[Ranks, int] = {(): 0}
        for ranks in chosen:
            if len(builder.tokens) > budget:
                break
            parent, rank = nodes.get(ranks[:-1]), ranks[-1]
            if parent is None:
                continue
            known = self.successors.get(builder.tokens[parent], ())
            if rank < len(known):
                nodes[ranks] = builder.add(parent, known[rank], 0.5 ** (rank + 1))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Take the target's likeliest tokens at every node; accepted nodes last, so that they overwrite the others.

        Where only the target's own token is known, it moves to the front of the old row.
        """
        scores = verdict.scores
        for node in (*range(len(tree)), *verdict.path):
            token = tree.tokens[node]
            if scores.top is not None:
                self.successors[token] = tuple(scores.top[node][:NUM_TOP])
            elif (target := scores.targets[node]) >= 0:
                old = self.successors.get(token, ())
                self.successors[token] = (target, *(each for each in old if each != target))[:NUM_TOP]
        if self.text is not None:
            self.text.extend(verdict.output(tree))
