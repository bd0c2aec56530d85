"""Fusion's tree while nodes are added to it."""

from __future__ import annotations

from dataclasses import dataclass

from specrace.core.tree import TokenTree
from specrace.ngrams.automaton import MatchState

# A prediction after a node: the match length as `Calibration` counts it (a match in earlier outputs counts as longer
# than any in this text), the likeliest next token, and its probability before calibration.
Prediction = tuple[int, int, float]
NO_PREDICTION: Prediction = (0, -1, 0.0)


@dataclass(slots=True)
class Growth:
    """A tree as lists with one entry per node, first the root, then the nodes in the order in which they were added.

    `probs`: the probabilities given the parent. `positions`: the first index in prompt and output at which the node's
    token followed its context, or -1. `matches`, `past_matches`: the longest context that ends in the node, as (state
    of the automaton, length), in prompt and output and in earlier outputs; without earlier outputs `past_matches` has
    an entry for the root only. `predictions`: entries for the expanded nodes, which are the first ones. Nodes at
    `max_depth` get no children.
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
        """The tree that has only the root, with the root's matches in the text and in earlier outputs."""
        return cls([root], [-1], [0], [1.0], [-1], [match], [past_match], [], max_depth)

    def tree(self, num_draft: int) -> TokenTree:
        """The root and the first `num_draft` draft nodes."""
        lists = (self.tokens, self.parents, self.probs, self.positions)
        return TokenTree(*[tuple(values[: num_draft + 1]) for values in lists])  # type: ignore[arg-type]
