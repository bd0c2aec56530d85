"""The verifier: an integer walk from the root along the target's own choices.

Sample-and-match. The target's token has been drawn once at every node; where a child carries it the walk goes on,
where none does that token is the bonus and the walk ends. Greedy decoding and seeded sampling are the same walk.
"""

from __future__ import annotations

from dataclasses import dataclass

from specrace.core.tree import TokenTree


@dataclass(frozen=True)
class Scores:
    """What the target said in one forward: its token at each of the N nodes and, if asked for, its k likeliest."""

    targets: tuple[int, ...]
    top: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Verdict:
    """The accepted path (nodes, from the root on) and the bonus token after it."""

    path: tuple[int, ...]
    bonus: int
    scores: Scores

    @property
    def accepted(self) -> int:
        """Accepted draft tokens; the root and the bonus are not among them."""
        return len(self.path) - 1

    def output(self, tree: TokenTree) -> list[int]:
        """What a step on `tree` says: the accepted tokens and the bonus, before any limit."""
        tokens = tree.tokens
        return [*[tokens[node] for node in self.path[1:]], self.bonus]


def verify(tree: TokenTree, scores: Scores) -> Verdict:
    """Walk from the root to the child that carries the target's token, until there is none.

    Raises ValueError unless there is one target token a node.
    """
    if len(scores.targets) != len(tree):
        raise ValueError(f"{len(scores.targets)} target tokens for {len(tree)} nodes")
    tokens, parents, targets = tree.tokens, tree.parents, scores.targets
    path, last = [0], 0
    # One look at each node is enough: a child comes after its parent, and no two siblings carry the same token.
    for node in range(1, len(tokens)):
        if parents[node] == last and tokens[node] == targets[last]:
            path.append(node)
            last = node
    return Verdict(tuple(path), targets[last], scores)
