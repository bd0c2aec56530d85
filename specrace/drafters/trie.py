"""The n-gram trie drafter ("Faster In-Context Learning ... via N-Gram Trie Speculative Decoding")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from specrace.drafters.base import Bounds, Flag, Material
from specrace.ngrams.trie import NGramTrie
from specrace.tree import TokenTree
from specrace.verify import Verdict


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

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The best `budget` nodes under the match; the bare root where nothing matches."""
        match = self.trie.match(context[-self.prefix :]) if budget > 0 else None
        if match is None:
            return TokenTree.chain(context[-1])
        return self.trie.best(match, context[-1], budget)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Grow the trie by what was said, unless it is static."""
        if not self.static:
            self.trie.extend(tree.tokens[node] for node in verdict.path[1:])
            self.trie.extend((verdict.bonus,))
