"""Hydra: Medusa's heads in sequence, so that each of them knows the draft tokens before its guess.

Source: Ankner et al., "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding" (2024).

Medusa's heads guess each position without knowing the draft tokens before it, so many combinations make no sense.
Hydra's heads also read these tokens, at the price of one forward for each level of the tree. The paper's tree is fixed;
here it is chosen at each step by the heads' probabilities, and ends where another level or row stops paying. Its
typical acceptance, which changes the text, is not built.
"""

from __future__ import annotations

from typing import Annotated

from specrace.drafters.base import Bounds, DrafterInputs
from specrace.drafters.head_tree import HeadTreeDrafter


class HydraDrafter(HeadTreeDrafter):
    """Grows a tree with Hydra's heads, one head for each level. Raises InputError without heads.

    The heads in this example expect the next number with a probability of 0.9. There are two, so no third token is
    drafted. A forward over nine rows costs 1.8 times one over a single row:

    >>> from specrace.core.cost_curve import CostCurve
    >>> class Counter:
    ...     depth, room, depths_per_forward = 2, 100, 1
    ...     def begin(self, root): self.root = root
    ...     def likeliest(self, paths, k): return [[((self.root, *path)[-1] + 1, 0.9)] for path in paths]
    >>> inputs = DrafterInputs((4, 5), 99, head=Counter(), head_price=0.1, curve=CostCurve((1, 9), (1.0, 1.8)))
    >>> HydraDrafter(inputs).propose((4, 5), budget=8).tokens
    (5, 6, 7)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 32, "maximum depth of the tree, in tokens")] = 4,
        width: Annotated[int, Bounds(1, 32, "guesses after each node, and paths continued at each depth")] = 4,
    ) -> None:
        super().__init__(inputs, "hydra", depth, width)
