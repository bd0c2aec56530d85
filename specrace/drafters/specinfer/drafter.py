"""SpecInfer: smaller models draft trees, which are merged into one and verified in a single forward.

Source: Miao et al., "SpecInfer: Accelerating Large Language Model Serving with Tree-based Speculative Inference and
Verification" (2023).

The paper's tree has one token at depth 1, one at depth 2, three after that, and then one after each of the three, down
to depth 8. That is the default on a GPU; on a CPU, where rows cost more, it ends at depth 3. The tokens are the models'
likeliest. With `sampled` they are drawn, and rejection sampling tries all draws below a node one after the other
(`specrace.core.multi_branch`). Trees of several models are merged; the paper trains them to complement each other, and
here they are what `--draft-model` names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from specrace.core.errors import InputError
from specrace.core.multi_branch import Draws
from specrace.core.note import Fact, Note, NoteRow
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, DepthDrafter, DrafterInputs, Flag
from specrace.drafters.specinfer.model_tree import TreeReader, tree_size

# SpecInfer's stream of random numbers (see `specrace.drafters.draft_model`).
STREAM = 4
# The heading of a note's rows.
GROUP = "Draft tokens"


class SpecInferDrafter(DepthDrafter):
    """Merges trees of one or more draft models. Raises InputError if there are fewer draft models than `models`.

    The draft model in this example always expects the next number, and then the one after it:

    >>> class Counter:
    ...     name, room = "counter", 100
    ...     def session(self, params, room, rows): return self
    ...     def tree_likeliest(self, unread, tree, nodes, k):
    ...         return [[(tree.tokens[node] + 1, 0.6), (tree.tokens[node] + 2, 0.3)][:k] for node in nodes]
    >>> inputs = DrafterInputs((4, 5), vocab_size=10, draft_models=(Counter(),))
    >>> tree = SpecInferDrafter(inputs, width=2).propose((4, 5), budget=8)
    >>> tree.tokens, tree.parents
    ((5, 6, 7, 8, 9), (-1, 0, 1, 2, 2))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 16, "depth of the tree, in tokens")] = 3,
        width: Annotated[int, Bounds(1, 8, "tokens after each node of the depth at which it branches")] = 3,
        branch_depth: Annotated[int, Bounds(1, 16, "the depth of these tokens; everywhere else there is one")] = 3,
        models: Annotated[int, Bounds(1, 4, "draft models, in the order of --draft-model")] = 1,
        sampled: Annotated[bool, Flag("draw drafts from the draft models at the race's temperature")] = False,
    ) -> None:
        if len(inputs.draft_models) < models:
            raise InputError(
                f"The lane specinfer drafts with {models} {'model' if models == 1 else 'models'} and has "
                f"{len(inputs.draft_models) or 'none'}; give smaller ones with the target's vocabulary (--draft-model)."
            )
        self.widths = _widths(depth, width, branch_depth)
        random = np.random.default_rng((inputs.seed, STREAM, 2)) if sampled else None
        self.is_sampled = sampled
        self.vocab_size = inputs.vocab_size
        self.readers = [TreeReader(model, inputs, self.widths, random) for model in inputs.draft_models[:models]]
        self._q: list[np.ndarray] = []
        # The guesses of the last tree: the model's name, the node of the merged tree, the probability, the row of `_q`.
        self._guesses: list[tuple[str, int, float, int]] = []

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The merged tree of all models, each of which may add an equal share of `budget` draft tokens."""
        merged = TreeBuilder(context[-1])
        self._q, self._guesses = [], []
        left = max(0, budget)
        for number, reader in enumerate(self.readers):
            share = -(-left // (len(self.readers) - number))  # rounded up
            tree = reader.draft(context, share, depth)
            left -= len(tree.builder.tokens) - 1
            nodes = {0: 0}
            for guess in tree.guesses:
                node = nodes[guess.node] = merged.add(nodes[guess.parent], guess.token, guess.prob)
                self._guesses.append((reader.name, node, guess.prob, len(self._q) + guess.row))
            self._q += tree.q
        return merged.build()

    def draws(self) -> Draws:
        """The draws that made the last tree; none unless it is `sampled`."""
        guesses = self._guesses if self.is_sampled else []
        return Draws(
            tuple(node for _, node, _, _ in guesses),
            tuple(row for _, _, _, row in guesses),
            np.array(self._q).reshape(-1, self.vocab_size),
        )

    def note(self, tree: TokenTree) -> Note:
        """The models, the tree's shape, and for each draft token which models drafted it with which probability."""
        drafted_by: dict[int, Counter[str]] = {}
        for name, node, prob, _ in self._guesses:
            drafted_by.setdefault(node, Counter())[f"{name} {prob:.0%}"] += 1
        rows = []
        for node, labels in sorted(drafted_by.items()):
            words = ", ".join(_with_count(*label) for label in labels.items())
            rows.append(NoteRow(GROUP, f"depth {tree.depths[node]}: {words}", (tree.tokens[node],)))
        facts: dict[str, Fact] = {
            "drafted": tree.num_draft,
            "draft models": ", ".join(reader.name for reader in self.readers),
            "tokens after each node": ", ".join(map(str, self.widths)),
            "each token": "drawn at the race's temperature" if self.is_sampled else "the draft model's likeliest",
            "expected": f"{sum(tree.path_probs()):.2f} tokens",
        }
        if self.is_sampled:
            facts["draws"] = len(self._guesses)
        return Note(facts, tuple(rows))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn; the next `propose` reads what was emitted."""


def specinfer_size(options: Mapping[str, Any]) -> int:
    """The number of draft tokens of a whole tree, with these options."""
    widths = _widths(options["depth"], options["width"], options["branch_depth"])
    return int(options["models"]) * tree_size(widths)


def _with_count(label: str, count: int) -> str:
    """The label of a draft token, with the number of its draws if it was drawn more than once."""
    return f"{label} (drawn {count} times)" if count > 1 else label


def _widths(depth: int, width: int, branch_depth: int) -> tuple[int, ...]:
    """The number of tokens after each node, for each depth: `width` at `branch_depth`, one elsewhere."""
    return tuple(width if token_depth == branch_depth else 1 for token_depth in range(1, depth + 1))
