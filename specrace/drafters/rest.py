"""REST: drafts what follows the context's last tokens where they occur in a corpus, found by a suffix array.

Source: He et al., "REST: Retrieval-Based Speculative Decoding" (2023).

Unlike in the published code, no match means no draft, and ties go to the shorter continuation, then to the earlier
position, not to hash order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from specrace.core.note import Note
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs
from specrace.ngrams.suffix_index import END, count_continuations, earlier_matches

# At most this many occurrences in the documents are counted, evenly spaced if there are more. No record says why
# this many; the number bounds the time of a draft.
MAX_MATCHES = 5000


class RestDrafter:
    """Drafts the most frequent continuations of the longest match in all documents.

    If there are no documents, it searches prompt and output. In the documents below, 1 2 is followed by 3 8, by 3 9 and
    by 4. The continuation 3 is the most frequent. The others occur once each, so the shortest of them, 4, comes next:

    >>> from specrace.ngrams.suffix_index import SuffixIndex
    >>> documents = SuffixIndex([(1, 2, 3, 8), (7, 1, 2, 3, 9), (1, 2, 4)])
    >>> drafter = RestDrafter(DrafterInputs((5, 1, 2), vocab_size=10, corpus_index=documents))
    >>> drafter.propose((5, 1, 2), budget=2).tokens
    (2, 3, 4)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        longest: Annotated[int, Bounds(1, 16, "maximum number of tokens matched")] = 16,
        shortest: Annotated[int, Bounds(1, 16, "minimum number of tokens matched")] = 2,
        length: Annotated[int, Bounds(1, 16, "maximum length of a continuation, in tokens")] = 10,
        branches: Annotated[int, Bounds(1, 1024, "maximum number of nodes in the tree")] = 64,
    ) -> None:
        self.index = inputs.corpus_index
        self.longest = longest
        self.shortest = min(shortest, longest)
        self.length = length
        self.branches = branches
        self._num_matches = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The tree of the most frequent continuations and their prefixes, at most `branches` and `budget` nodes."""
        self._num_matches = 0
        if budget < 1:
            return TokenTree.chain(context[-1])
        text: Sequence[int]
        if self.index is None:
            positions = earlier_matches(np.array(context, np.int64), self.shortest, self.longest)
            # Continuations stop at an END, which each document has, too.
            text = [*context, END]
        else:
            positions = self.index.longest_match(context, self.shortest, self.longest, MAX_MATCHES)
            text = self.index.tokens
        self._num_matches = len(positions)
        builder = TreeBuilder(context[-1])
        # Prefix of a continuation -> its node, and its count.
        added: dict[tuple[int, ...], tuple[int, int]] = {(): (0, len(positions))}
        for continuation in count_continuations(text, positions.tolist(), self.length, min(self.branches, budget)):
            tokens = continuation.tokens
            parent, count = added[tokens[:-1]]
            # Positions are indices in prompt and output, so a token from the documents has none.
            position = -1 if self.index is not None else continuation.first + len(tokens) - 1
            node = builder.add(parent, tokens[-1], continuation.count / count, position)
            added[tokens] = node, continuation.count
        return builder.build()

    def note(self, tree: TokenTree) -> Note:
        """The number of occurrences of the longest match that were counted."""
        return Note({"places that match": self._num_matches})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn: the corpus does not grow, and the context holds the output."""
