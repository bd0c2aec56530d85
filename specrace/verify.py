"""The verifier: an integer walk from the root along the target's own choices.

Sample-and-match. The target's token has been drawn once at every node; where a child carries it the walk goes on,
where none does that token is the bonus and the walk ends. Greedy decoding and seeded sampling are the same walk.
"""

from __future__ import annotations

from dataclasses import dataclass

from specrace.tree import TokenTree


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


def verify(tree: TokenTree, scores: Scores) -> Verdict:
    """Walk from the root to the child that carries the target's token, until there is none.

    Raises ValueError unless there is one target token a node.
    """
    if len(scores.targets) != len(tree):
        raise ValueError(f"{len(scores.targets)} target tokens for {len(tree)} nodes")
    path = [0]
    children = tree.children
    while (child := children[path[-1]].get(scores.targets[path[-1]])) is not None:
        path.append(child)
    return Verdict(tuple(path), scores.targets[path[-1]], scores)
