"""The n-gram trie drafter ("Faster In-Context Learning ... via N-Gram Trie Speculative Decoding")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, Flag, Material
from specrace.ngrams.trie import Match, NGramTrie


class TrieDrafter:
    """Drafts the most frequent continuations, in the prompt, of the longest match of the last `prefix` tokens.

    `static=True` is the paper; by default the output is added to the trie as it grows.
    """

    def __init__(
        self,
        material: Material,
        *,
        n: Annotated[int, Bounds(2, 64, "depth of the trie, in tokens")] = 13,
        prefix: Annotated[int, Bounds(1, 32, "L_p: most tokens matched")] = 3,
        static: Annotated[bool, Flag("the paper's: only the prompt, never the output")] = False,
    ) -> None:
        self.prefix = min(prefix, n - 1)
        self.trie = NGramTrie(n, material.prompt, copies=self.prefix)
        self.static = static
        self._suffix: Sequence[int] = ()
        self._match: Match | None = None

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The best `budget` nodes under the match; the bare root where nothing matches."""
        self._suffix = context[-self.prefix :]
        self._match = self.trie.match(self._suffix) if budget > 0 else None
        if self._match is None:
            return TokenTree.chain(context[-1])
        return self.trie.best(self._match, context[-1], budget)

    def note(self, tree: TokenTree) -> Note:
        """How many of the last tokens matched, and what each node weighs."""
        if self._match is None:
            return Note({"matched tokens": 0})
        length, places = self._match.length, [self._match]
        for node in range(1, len(tree)):
            places.append(self.trie.children(places[tree.parents[node]])[tree.tokens[node]])
        matched = NoteRow(
            "Matched in the trie", f"the last {length} of at most {self.prefix}", tuple(self._suffix[-length:])
        )
        counts = (0, *(self.trie.weight(place) for place in places[1:]))
        return Note({"matched tokens": length}, (matched,), counts)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Grow the trie by what was said, unless it is static."""
        if not self.static:
            self.trie.extend(verdict.output(tree))
