"""EAGLE: a trained layer reads pairs of a hidden state and the token after it, and continues the hidden states.

Sources: Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty" (2024), "EAGLE-2" (2024) and
"EAGLE-3" (2025).

As in EAGLE-2, one forward of the head continues the likeliest paths of a level of the tree, and the nodes of the
highest path probability are kept. EAGLE-2 always runs the same number of levels and keeps the same number of nodes.
Here a level is run, and a node kept, only if that is expected to yield more tokens for its cost: the head's forward is
timed before the race, and its probabilities are corrected by how often they came true at each depth. A head that costs
more than it saves is left out for some steps, then for twice as many. At a temperature above 0 guesses are ranked with
the noise that the target will use at that position; EAGLE ranks without noise.
"""

from __future__ import annotations

from typing import Annotated

from specrace.drafters.base import Bounds, DrafterInputs
from specrace.drafters.head_tree import HeadTreeDrafter


class EagleDrafter(HeadTreeDrafter):
    """Grows a tree with an EAGLE head, one forward of the head for each level. Raises InputError without a head.

    The head in this example expects the next number with a probability of 0.9. A row of the target costs as much as a
    forward of the head, three tenths of a step (nine rows cost 3.4), so two tokens pay and the third no longer does:

    >>> from specrace.core.cost_curve import CostCurve
    >>> class Counter:
    ...     depth, room, depths_per_forward = 9, 100, 1
    ...     def begin(self, root): self.root = root
    ...     def likeliest(self, paths, k): return [[((self.root, *path)[-1] + 1, 0.9)] for path in paths]
    >>> inputs = DrafterInputs((4, 5), 99, head=Counter(), head_price=0.3, curve=CostCurve((1, 9), (1.0, 3.4)))
    >>> EagleDrafter(inputs).propose((4, 5), budget=8).tokens
    (5, 6, 7)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 32, "maximum depth of the tree, in tokens")] = 6,
        width: Annotated[int, Bounds(1, 32, "guesses after each node, and paths continued at each depth")] = 4,
    ) -> None:
        super().__init__(inputs, "eagle", depth, width)
