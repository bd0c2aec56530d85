"""REST (He et al., 2023): drafts are what follows the last tokens elsewhere, in a corpus much larger than the prompt.

Unlike the published code it drafts nothing where nothing matches, and breaks ties by place, not by hash order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from specrace.core.note import Note
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, Material
from specrace.ngrams.suffix_index import END, count_continuations, matches_in_itself

MOST_HITS = 5000


class RestDrafter:
    """The most frequent continuations, in all documents, of the longest match of the last tokens.

    Where no corpus is given, prompt and output are the corpus.
    """

    scored_part: ClassVar[str] = "prompt and output as its corpus"

    def __init__(
        self,
        material: Material,
        *,
        longest: Annotated[int, Bounds(1, 16, "most tokens matched")] = 16,
        shortest: Annotated[int, Bounds(1, 16, "fewest tokens matched")] = 2,
        length: Annotated[int, Bounds(1, 16, "tokens of a continuation")] = 10,
        branches: Annotated[int, Bounds(1, 1024, "continuations, and their prefixes, kept")] = 64,
    ) -> None:
        self.index = material.corpus_index
        self.shortest, self.longest = min(shortest, longest), longest
        self.length, self.branches = length, branches
        self._places = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The best `branches` prefixes of the continuations, most frequent first, cut at `budget`."""
        self._places = 0
        if budget < 1:
            return TokenTree.chain(context[-1])
        text: Sequence[int]
        if self.index is None:
            places = matches_in_itself(np.array(context, np.int64), self.shortest, self.longest)
            text = [*context, END]
        else:
            places = self.index.longest_match(context, self.shortest, self.longest, MOST_HITS)
            text = self.index.tokens
        self._places = len(places)
        builder = TreeBuilder(context[-1])
        # A prefix's node and count, by its tokens.
        known: dict[tuple[int, ...], tuple[int, int]] = {(): (0, len(places))}
        for found in count_continuations(text, places.tolist(), self.length, min(self.branches, budget)):
            parent, count = known[found.tokens[:-1]]
            position = -1 if self.index is not None else found.first + len(found.tokens) - 1
            node = builder.add(parent, found.tokens[-1], found.count / count, position)
            known[found.tokens] = node, found.count
        return builder.build()

    def note(self, tree: TokenTree) -> Note:
        """In how many places of the corpus the longest match stands."""
        return Note({"places that match": self._places})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the corpus stays as it is, and the text comes with the context."""
