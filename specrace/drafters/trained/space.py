"""SPACE: one forward of the target verifies the last step's guesses and makes the next ones, with learned masks.

Sources: Yi et al., "Generation Meets Verification: Accelerating Large Language Model Inference with Smart Parallel
Auto-Correct Decoding" (2024), whose target is trained together with its masks; Monea et al., "PaSS: Parallel
Speculative Sampling" (2023), which learns the masks alone and leaves the target as it is.

A mask stands for a token that is not known yet, and the target's own output at the mask is its guess of what follows.
The pending token and each of k guesses has k masks below it, so a forward has (k + 1)(k + 1) rows. The masks below the
last accepted token are the ones that saw the right text: their outputs are the next step's guesses. Masks are rows
beside the tree. They are never drafted, accepted or counted as tokens, and their ids cannot be chosen.

A guess is accepted only if it is the token that the target draws, so every text is the target's own. At a temperature
above 0, SPACE's code accepts a guess with the probability p/q; after a rejection, it draws from p and not from the
residual max(p - q, 0), which favours the guessed tokens. Here guesses are ranked with the noise that the target will
use at that position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from specrace.core.errors import InputError
from specrace.core.note import Note
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, DepthDrafter, DrafterInputs, OnChains
from specrace.drafters.head_tree import guess_rows
from specrace.drafters.sessions import MaskingHeadSession

# Why `score` cannot run the drafter.
MASKS_UNSCORABLE = "its guesses are the model's outputs at masks, which no log has"
# A target that scores chains only refuses the drafter, whatever its options.
MASKS_ON_CHAINS = OnChains(refuses=lambda _options: "its masks are branches")


def space_size(options: Mapping[str, Any]) -> int:
    """The number of draft tokens of a step."""
    return int(options["depth"])


class SpaceDrafter(DepthDrafter):
    """Drafts the chain of tokens that the last step's masks guessed. Raises InputError without masks.

    The first step has no guesses yet. In this example the masks then guess the next two numbers:

    >>> class Counter:
    ...     depth = depths_per_forward = num_masks = 2
    ...     room, guesses = 100, []
    ...     def begin(self, root): pass
    ...     def likeliest(self, paths, k): return [self.guesses[len(path):][:k] for path in paths]
    >>> head = Counter()
    >>> drafter = SpaceDrafter(DrafterInputs((4, 5), 99, head=head))
    >>> drafter.propose((4, 5), budget=2).tokens
    (5,)
    >>> head.guesses = [(7, 0.6), (8, 0.4)]
    >>> drafter.propose((4, 5, 6), budget=2).tokens
    (6, 7, 8)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 8, "draft tokens of a step, and masks below each token of the tree")] = 3,
    ) -> None:
        if not isinstance(inputs.head, MaskingHeadSession):
            raise InputError(
                "The lane space has no masks to draft with; give some that were trained for this model "
                "(--head space=FOLDER)."
            )
        self.head: MaskingHeadSession = inputs.head
        self.depth = depth

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """A chain of at most `budget` guesses of the last step; also sets the number of masks below each node."""
        size = max(0, min(self.depth, self.head.depth, budget))
        self.head.begin(context[-1])
        # At least one token is emitted in this step, so the next step needs fewer guesses than this one.
        self.head.num_masks = max(0, min(size, depth - 1))
        builder = TreeBuilder(context[-1])
        node = 0
        path: tuple[int, ...] = ()
        for _ in range(min(size, depth)):
            (guesses,) = self.head.likeliest([path], 1)
            if not guesses:
                break
            token, prob = guesses[0]
            node, path = builder.add(node, token, prob), (*path, token)
        return builder.build()

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Do nothing: the head's session reads the outputs at the masks below the last accepted token."""

    def note(self, tree: TokenTree) -> Note:
        """How many rows the forward has, and each draft token's depth and probability."""
        masks = self.head.num_masks
        return Note(
            {
                "drafted": tree.num_draft,
                "masks below each token": masks,
                "rows of the forward": len(tree) * (1 + masks),
                "likeliest first token": f"{tree.probs[1]:.0%}" if tree.probs and tree.num_draft else "none",
                "expected": f"{sum(tree.path_probs()):.2f} tokens",
            },
            guess_rows(tree, "space masks"),
        )
