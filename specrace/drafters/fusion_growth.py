"""A fusion tree in the making."""

from __future__ import annotations

from dataclasses import dataclass

from specrace.core.tree import TokenTree
from specrace.ngrams.automaton import MatchState

# What was predicted after a node: the tokens matched (past the longest: in earlier outputs), the likeliest next token,
# and its probability before calibration.
Prediction = tuple[int, int, float]
NO_PREDICTION: Prediction = (0, -1, 0.0)


@dataclass(slots=True)
class Growth:
    """Lists with one entry a node, the root first, then best first; `max_depth` is where nodes get no more children.

    `probs`: estimated, given the parent. `positions`: the first index in prompt and output of the node's token after
    its context, or -1. `matches`, `past_matches`: the longest context that ends in the node, in prompt and output and
    in earlier outputs (only the root's without any). `predictions`: of the first nodes, those expanded.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    probs: list[float]
    positions: list[int]
    matches: list[MatchState]
    past_matches: list[MatchState]
    predictions: list[Prediction]
    max_depth: int

    @classmethod
    def of(cls, root: int, match: MatchState, past_match: MatchState, max_depth: int) -> Growth:
        """The bare root."""
        return cls([root], [-1], [0], [1.0], [-1], [match], [past_match], [], max_depth)

    def tree(self, num_draft: int) -> TokenTree:
        """The root and the first `num_draft` draft nodes."""
        lists = (self.tokens, self.parents, self.probs, self.positions)
        return TokenTree(*[tuple(values[: num_draft + 1]) for values in lists])  # type: ignore[arg-type]
