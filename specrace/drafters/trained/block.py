"""Block: a trained head guesses several tokens in one forward, without reading its own guesses.

Sources: DFlash (arXiv 2602.06036), and DSpark (arXiv 2607.05147), which adds a bias that depends on the token before.

The sources draft one chain. The tree is ours: its nodes are those of the highest path probability, as if guesses at
different positions were independent, and it is cut where another row stops paying. At a temperature above 0 guesses are
ranked with the noise that the target will use at that position.
"""

from __future__ import annotations

from typing import Annotated

from specrace.drafters.base import Bounds, DrafterInputs
from specrace.drafters.head_tree import HeadTreeDrafter


class BlockDrafter(HeadTreeDrafter):
    """Combines the guesses of a block into a tree, after one forward of the head. Raises InputError without a head.

    The head in this example guesses the next two numbers, each with a probability of 0.8. Its forward costs a tenth of
    a step, so the second token costs only another row. A forward over nine rows costs 1.8 times one over a single row:

    >>> from specrace.core.cost_curve import CostCurve
    >>> class Counter:
    ...     depth, room, depths_per_forward = 2, 100, 2
    ...     def begin(self, root): self.root = root
    ...     def likeliest(self, paths, k): return [[(self.root + len(path) + 1, 0.8)] for path in paths]
    >>> inputs = DrafterInputs((4, 5), 99, head=Counter(), head_price=0.1, curve=CostCurve((1, 9), (1.0, 1.8)))
    >>> BlockDrafter(inputs).propose((4, 5), budget=8).tokens
    (5, 6, 7)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 32, "maximum depth of the tree, in tokens")] = 8,
        width: Annotated[int, Bounds(1, 32, "guesses after each node, and paths continued at each depth")] = 4,
    ) -> None:
        super().__init__(inputs, "block", depth, width)
