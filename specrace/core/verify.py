"""The verifier, sample-and-match: a walk from the root along the target's own tokens.

The target's token is drawn once at every node. The walk moves to the child with that token; if there is none, the
token is the bonus and the walk ends. Greedy decoding and seeded sampling are the same walk and print exactly vanilla's
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree

# Stands in `Scores.targets` where the model's scores are not numbers. -1 stands there for an unknown target: where a
# log or another engine (`specrace/integrations`) tells only the tokens on the accepted path.
NO_TOKEN = -2
NOT_A_NUMBER = (
    "The model computes scores that are not numbers (NaN): its weights are damaged, so fetch it again, or its numbers "
    "are too large for float16, so use --dtype bfloat16."
)


@dataclass(frozen=True)
class Scores:
    """One forward's output: `targets` [N], the target's token at every node; `top` [N, k], the k likeliest, or None.

    Raises InputError if a target is NO_TOKEN, because every lane would print the same nonsense.
    """

    targets: tuple[int, ...]
    top: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if NO_TOKEN in self.targets:
            raise InputError(NOT_A_NUMBER)


@dataclass(frozen=True)
class Verdict:
    """`path`: the accepted nodes, the root first; `bonus`: the target's token after them."""

    path: tuple[int, ...]
    bonus: int
    scores: Scores

    @property
    def accepted(self) -> int:
        """The number of accepted draft tokens; root and bonus are not counted."""
        return len(self.path) - 1

    def output(self, tree: TokenTree) -> list[int]:
        """The accepted tokens and the bonus, before any limit; `tree` is what was verified."""
        tokens = tree.tokens
        return [*[tokens[node] for node in self.path[1:]], self.bonus]


def verify(tree: TokenTree, scores: Scores) -> Verdict:
    """The verdict on a tree. Raises ValueError unless `scores` have one target token for each node.

    >>> tree = TokenTree(tokens=(5, 6, 7, 8), parents=(-1, 0, 0, 2))
    >>> verdict = verify(tree, Scores(targets=(7, 0, 8, 9)))
    >>> verdict.path, verdict.bonus, verdict.output(tree)
    ((0, 2, 3), 9, [7, 8, 9])
    """
    if len(scores.targets) != len(tree):
        raise ValueError(f"{len(scores.targets)} target tokens for {len(tree)} nodes")
    tokens, parents, targets = tree.tokens, tree.parents, scores.targets
    path, last = [0], 0
    # One pass is enough: children come after their parents, and siblings have distinct tokens.
    for node in range(1, len(tokens)):
        if parents[node] == last and tokens[node] == targets[last]:
            path.append(node)
            last = node
    return Verdict(tuple(path), targets[last], scores)
