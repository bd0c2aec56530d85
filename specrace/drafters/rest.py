"""REST (He et al., 2023): the draft is what follows the last tokens in a corpus.

Unlike the published code, no match means no draft, and ties go to the first place, not by hash order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from specrace.core.note import Note
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs
from specrace.ngrams.suffix_index import END, count_continuations, matches_in_itself

MAX_MATCHES = 5000


class RestDrafter:
    """The most frequent continuations of the longest match in all documents, or in prompt and output without any."""

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        longest: Annotated[int, Bounds(1, 16, "most tokens matched")] = 16,
        shortest: Annotated[int, Bounds(1, 16, "fewest tokens matched")] = 2,
        length: Annotated[int, Bounds(1, 16, "most tokens of a continuation")] = 10,
        branches: Annotated[int, Bounds(1, 1024, "most continuations, their prefixes counted")] = 64,
    ) -> None:
        self.index = inputs.corpus_index
        self.shortest, self.longest = min(shortest, longest), longest
        self.length, self.branches = length, branches
        self._num_places = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The most frequent prefixes of the continuations, at most `branches` and `budget`."""
        self._num_places = 0
        if budget < 1:
            return TokenTree.chain(context[-1])
        text: Sequence[int]
        if self.index is None:
            places = matches_in_itself(np.array(context, np.int64), self.shortest, self.longest)
            text = [*context, END]
        else:
            places = self.index.longest_match(context, self.shortest, self.longest, MAX_MATCHES)
            text = self.index.tokens
        self._num_places = len(places)
        builder = TreeBuilder(context[-1])
        # The node and count of each prefix.
        known: dict[tuple[int, ...], tuple[int, int]] = {(): (0, len(places))}
        for found in count_continuations(text, places.tolist(), self.length, min(self.branches, budget)):
            parent, count = known[found.tokens[:-1]]
            position = -1 if self.index is not None else found.first + len(found.tokens) - 1
            node = builder.add(parent, found.tokens[-1], found.count / count, position)
            known[found.tokens] = node, found.count
        return builder.build()

    def note(self, tree: TokenTree) -> Note:
        """How often the longest match occurs in the corpus."""
        return Note({"places that match": self._num_places})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the corpus does not grow, and the output comes with the context."""
