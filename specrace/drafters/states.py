"""Similar states: copies what followed the tokens at which the model's hidden state was most like the current one.

Source: Liu et al., "AdaPLD: Adaptive Retrieval and Reuse for Efficient Model-Free Speculative Decoding" (2026). It
copies after the longest match of the last tokens and, where none matches, after the most similar state.

As in AdaPLD, the state compared is that of the token before the pending one, because the pending token has none yet.
The rest is ours. Matches, the earlier tokens that the pending token followed, come before all others; both are sorted
by similarity, not by the length of the match. A copied token's probability is learned from the text: how often copies
from tokens of that similarity were right. Branches are the continuations of several tokens, and the tree is cut
where another row stops paying; AdaPLD's branches are the model's own likely tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from specrace.core.errors import InputError
from specrace.core.note import Fact, Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.drafters.base import ANY_DEPTH, Bounds, DrafterInputs
from specrace.drafters.head_tree import HeadTreeDrafter, Path
from specrace.drafters.sessions import PlacingHeadSession

# Why `score` cannot run the drafter.
STATES_UNSCORABLE = "it compares the model's hidden states, which no log has"


class StatesDrafter(HeadTreeDrafter):
    """Grows a tree of copies from similar states. Raises InputError if the target's states cannot be read.

    In this example the most similar state is that of the first token. 5 followed it, so what followed 5 is copied. A
    forward over nine rows costs 1.8 times one over a single row:

    >>> from specrace.core.cost_curve import CostCurve
    >>> class Places:
    ...     depth = room = depths_per_forward = 100
    ...     def begin(self, root): pass
    ...     def likeliest(self, paths, k): return [[((8, 9, 5)[len(path)], 0.8)] for path in paths]
    ...     def position(self, path): return 1 + len(path)
    ...     nearest = (0, 0.9, True)
    >>> inputs = DrafterInputs((4, 5, 8, 9, 5), 99, head=Places(), head_price=0.1, curve=CostCurve((1, 9), (1.0, 1.8)))
    >>> tree = StatesDrafter(inputs).propose((4, 5, 8, 9, 5), budget=2)
    >>> tree.tokens, tree.positions
    ((5, 8, 9), (-1, 2, 3))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 64, "maximum depth of the tree, in tokens")] = 16,
        width: Annotated[int, Bounds(1, 8, "continuations after each node, and paths continued at each depth")] = 4,
    ) -> None:
        if not isinstance(inputs.head, PlacingHeadSession):
            raise InputError(
                "The lane states compares the model's hidden states, which cannot be read here; leave it out."
            )
        super().__init__(inputs, "states", depth, width)
        self.places: PlacingHeadSession = inputs.head

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The tree of at most `budget` copied tokens with the most expected tokens for its cost; with positions."""
        tree = super().propose(context, budget, depth)
        paths: list[Path] = [()]
        positions = [-1]
        for node in range(1, len(tree)):
            paths.append((*paths[tree.parents[node]], tree.tokens[node]))
            positions.append(self.places.position(paths[node]))
        return replace(tree, positions=tuple(positions))

    def note(self, tree: TokenTree) -> Note:
        """The similarity of the nearest state, the expected tokens, and a row for each copied stretch of text.

        A row's label has the number of its first token in prompt and output, counted from 1.
        """
        nearest = self.places.nearest
        if nearest is None:
            return Note({"drafted": 0, "why": "the states were not compared: earlier copies did not pay"})
        _, similarity, matched = nearest
        rows: dict[int, list[int]] = {}
        assert tree.positions is not None
        for node in range(1, len(tree)):
            start = tree.positions[node] - tree.depths[node] + 1
            rows.setdefault(start, []).append(tree.tokens[node])
        facts: dict[str, Fact] = {
            "drafted": tree.num_draft,
            "nearest state": f"{similarity:.2f} similar",
            "followed by": "the pending token" if matched else "another token",
            "likeliest first token": f"{tree.probs[1]:.0%}" if tree.probs and tree.num_draft else "none",
            "expected": f"{sum(tree.path_probs()):.2f} tokens",
        }
        return Note(
            facts, tuple(NoteRow("Copied", f"from token {start + 1} on", tuple(row)) for start, row in rows.items())
        )
