"""Which nodes of a step were accepted and emitted, and which were rejected."""

from __future__ import annotations

import pytest

from specrace.core.events import Step, Timing
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict


def branching_step(last: int, emitted: int) -> Step:
    """A step whose accepted path ends at the node `last`; node i has the token i, and 9 is the bonus.

       0
     1   2
    3 4   6
    5
    """
    tree = TokenTree(tuple(range(7)), (-1, 0, 0, 1, 1, 3, 2))
    path = tree.path_to(last)
    verdict = Verdict(path, 9, Scores((0,) * 7))
    return Step("tested", 0, 0.0, tree, verdict, (*path[1:], 9)[:emitted], Timing(0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("last", "emitted", "accepted", "rejected"),
    [
        (0, 1, (), [1, 3, 5]),
        (1, 2, (1,), [3, 5]),
        (5, 4, (1, 3, 5), []),
        (3, 2, (1, 3), [5]),  # cut before the bonus
        (3, 1, (1,), []),  # cut inside the accepted path
    ],
)
def test_accepted_nodes_are_emitted_and_the_first_branch_below_them_is_rejected(
    last: int, emitted: int, accepted: tuple[int, ...], rejected: list[int]
) -> None:
    step = branching_step(last, emitted)
    assert (step.accepted_nodes, step.accepted, step.rejected_branch) == (accepted, len(accepted), rejected)
