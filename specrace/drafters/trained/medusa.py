"""Medusa: heads beside the target's output layer guess the tokens at several positions at once.

Source: Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads" (2024).

Each head reads the hidden state of the last accepted token and guesses one position further ahead, whatever the tokens
in between. The paper's tree of 63 nodes is fixed; here it is chosen at each step by the heads' probabilities, and cut
where another row stops paying. The paper's typical acceptance, which changes the text, is not built.
"""

from __future__ import annotations

from typing import Annotated

from specrace.drafters.base import Bounds, DrafterInputs
from specrace.drafters.head_tree import HeadTreeDrafter


class MedusaDrafter(HeadTreeDrafter):
    """Combines the guesses of all depths into a tree, after one forward of the heads. Raises InputError without heads.

    The heads in this example guess the next number with a probability of 0.7, and one less with 0.2. A forward over
    nine rows costs 1.8 times one over a single row:

    >>> from specrace.core.cost_curve import CostCurve
    >>> class Counter:
    ...     depth, room, depths_per_forward = 2, 100, 2
    ...     def begin(self, root): self.root = root
    ...     def likeliest(self, paths, k):
    ...         return [[(self.root + len(path) + 1, 0.7), (self.root + len(path), 0.2)] for path in paths]
    >>> inputs = DrafterInputs((4, 5), 99, head=Counter(), head_price=0.1, curve=CostCurve((1, 9), (1.0, 1.8)))
    >>> tree = MedusaDrafter(inputs).propose((4, 5), budget=8)
    >>> tree.tokens, tree.parents
    ((5, 6, 7, 5), (-1, 0, 1, 0))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 32, "maximum depth of the tree, in tokens")] = 4,
        width: Annotated[int, Bounds(1, 32, "guesses after each node, and paths continued at each depth")] = 4,
    ) -> None:
        super().__init__(inputs, "medusa", depth, width)
