"""N-gram trie drafting: the most frequent nodes below the last tokens, in a trie of all n-grams of the text.

Source: Chen et al., "Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding" (2025), section 3.

Of equally frequent nodes the shallower comes first, then the earlier. In the first steps a match may reach back into
the prompt; the paper matches the output only. An n-gram of the prompt counts up to L_p times (the copies of
algorithm 1), one of the output once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs, Flag
from specrace.ngrams.trie import Match, NGramTrie


class TrieDrafter:
    """Drafts the most frequent continuations of the longest match of the last `prefix` tokens.

    By default output tokens are added to the trie. With `static` the trie holds the prompt only, as in the paper.

    1 2 was followed by 3 4, by 3 6 and by 7. So 3 is the most frequent node. 7, 4 and 6 are equally frequent; 7 is the
    shallowest of these three, and 4 was seen before 6:

    >>> context = (8, 1, 2, 3, 4, 1, 2, 3, 6, 1, 2, 7, 1, 2)
    >>> tree = TrieDrafter(DrafterInputs(context, vocab_size=10), prefix=2).propose(context, budget=3)
    >>> tree.tokens, tree.parents
    ((2, 3, 7, 4), (-1, 0, 0, 1))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        n: Annotated[int, Bounds(2, 64, "depth of the trie, in tokens")] = 13,
        prefix: Annotated[int, Bounds(1, 32, "L_p: maximum number of tokens matched")] = 3,
        static: Annotated[bool, Flag("the paper's rule: copy from the prompt only, not from the output")] = False,
    ) -> None:
        self.prefix = min(prefix, n - 1)
        self.trie = NGramTrie(n, inputs.prompt, copies=self.prefix)
        self.static = static
        self._suffix: Sequence[int] = ()
        self._match: Match | None = None

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The `budget` most frequent nodes below the match; the bare root if nothing matches."""
        self._suffix = context[-self.prefix :]
        self._match = self.trie.match(self._suffix) if budget > 0 else None
        if self._match is None:
            return TokenTree.chain(context[-1])
        return self.trie.best(self._match, context[-1], budget)

    def note(self, tree: TokenTree) -> Note:
        """The tokens that matched, and each node's count."""
        if self._match is None:
            return Note({"matched tokens": 0})
        length = self._match.length
        nodes = [self._match]
        for node in range(1, len(tree)):
            nodes.append(self.trie.children(nodes[tree.parents[node]])[tree.tokens[node]])
        label = f"the last {length} of at most {self.prefix}"
        row = NoteRow("Matched in the trie", label, tuple(self._suffix[-length:]))
        return Note({"matched tokens": length}, (row,), (0, *map(self.trie.count, nodes[1:])))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens to the trie, unless it is static."""
        if not self.static:
            self.trie.extend(verdict.output(tree))
