"""Prompt lookup decoding: copy what followed the first earlier occurrence of the last tokens.

Sources: Saxena, "Prompt Lookup Decoding" (2023); with `llma`, which copies only from a reference text, here the prompt:
Yang et al., "Inference with Reference: Lossless Acceleration of Large Language Models" (2023).

As in transformers, a continuation that is short because the text ends there is drafted, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs, Flag
from specrace.ngrams.occurrences import FirstOccurrences


def copy_length(options: Mapping[str, int]) -> int:
    """The default number of tokens to copy: 10 in prompt lookup, 20 in LLMA."""
    return 20 if options.get("llma") else 10


class PromptLookupDrafter:
    """Copies after the first match of the last `longest` tokens, or of fewer, down to `shortest`.

    The match is in prompt and output; with `llma`, in the prompt only. Here the context ends in 1 2, which also occurs
    at its start, followed by 3 9. So 3 9 is copied:

    >>> context = (1, 2, 3, 9, 5, 1, 2)
    >>> PromptLookupDrafter(DrafterInputs(context, vocab_size=10)).propose(context, budget=2).tokens
    (2, 3, 9)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        longest: Annotated[int, Bounds(1, 32, "maximum number of tokens matched")] = 3,
        shortest: Annotated[int, Bounds(1, 32, "minimum number of tokens matched")] = 1,
        llma: Annotated[bool, Flag("LLMA's rule: copy from the prompt only, not from the output")] = False,
    ) -> None:
        self.text = FirstOccurrences(longest)
        self.text.extend(inputs.prompt)
        self.shortest = min(shortest, longest)
        self.llma = llma
        self._matched = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A chain of up to `budget` tokens; the bare root if nothing matches."""
        # With `llma` the output is not in `self.text`, so the context whose suffix is matched is passed.
        index, self._matched = self.text.match_suffix(self.shortest, context if self.llma else None)
        if not self._matched:
            return TokenTree.chain(context[-1])
        draft = self.text.tokens[index : index + max(0, budget)]
        positions = (-1, *range(index, index + len(draft)))
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), positions=positions)

    def note(self, tree: TokenTree) -> Note:
        """The number of tokens that matched."""
        return Note({"matched tokens": self._matched})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens, except with `llma`."""
        if not self.llma:
            self.text.extend(verdict.output(tree))
