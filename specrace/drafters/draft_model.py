"""Speculative decoding with a draft model (Leviathan et al., 2023; Chen et al., 2023, SpS): a smaller model runs ahead.

The draft is its greedy continuation or, with `sampled`, drawn from its own distribution, warped as the target's and
handed over for rejection sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from specrace.core.errors import InputError
from specrace.core.note import Note
from specrace.core.rejection import draw
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, DepthDrafter, DrafterInputs, Flag

# The seed's stream of these drafts; the bigram's and the trigram's are 2 and 3.
STREAM = 1
# Tokens read at a time: one; two after a draft that was accepted whole, for its last token is not read.
_ROWS = (1, 2)


class DraftModelDrafter(DepthDrafter):
    """A chain of the draft model's tokens. Raises InputError where there is no draft model."""

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        sampled: Annotated[bool, Flag("draw drafts from the draft model at the race's temperature")] = False,
    ) -> None:
        if inputs.draft_model is None:
            raise InputError(
                "The lane draft-model has no model to draft with; "
                "give a smaller one with the target's vocabulary (--draft-model)."
            )
        self.session = inputs.draft_model.session(inputs.params, inputs.room, _ROWS)
        self.vocab_size = inputs.vocab_size
        self.random = np.random.default_rng((inputs.seed, STREAM, 2)) if sampled else None
        # What the session has read; the first `committed` tokens are prompt and output.
        self.read = list(inputs.prompt[:-1])
        self.committed = len(self.read)
        self._drawn_from: list[np.ndarray] = []

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The model's next tokens, at most `budget`, `depth`, and what its own context has room for."""
        self._rewind(context)
        unread, draft, probs = list(context[self.committed :]), list[int](), [1.0]
        self._drawn_from = []
        # The last token of a draft is not read: nothing is drafted after it.
        budget = min(budget, depth, self.session.room - len(unread) + 1)
        while len(draft) < budget:
            token, prob = self._next(unread)
            self.read += unread
            unread = [token]
            draft.append(token)
            probs.append(prob)
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def distributions(self) -> np.ndarray:
        """What the last draft was drawn from, [k, V]; of a `sampled` draft only."""
        return np.array(self._drawn_from).reshape(-1, self.vocab_size)

    def note(self, tree: TokenTree) -> Note:
        """How likely the smaller model thinks its chain."""
        reached = tree.path_probs()
        return Note(
            {
                "drafted": tree.num_draft,
                "each token": "drawn at the race's temperature" if self.random else "the smaller model's likeliest",
                "probability of the whole": f"{reached[-1]:.0%}",
                "expected": f"{sum(reached):.2f} tokens",
            }
        )

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn; the next `propose` rolls back what was rejected."""

    def _next(self, unread: Sequence[int]) -> tuple[int, float]:
        """The next token of the draft, and its probability."""
        if self.random is None:
            return self.session.likeliest(unread)
        probs = self.session.distribution(unread)
        self._drawn_from.append(probs)
        token = int(draw(probs, self.random.random()))
        return token, float(probs[token])

    def _rewind(self, context: Sequence[int]) -> None:
        """Roll the model's cache back to accepted tokens, and before the pending one, which is read again."""
        committed, most = min(self.committed, len(context) - 1), min(len(self.read), len(context) - 1)
        while committed < most and self.read[committed] == context[committed]:
            committed += 1
        self.committed = committed
        del self.read[committed:]
        self.session.rewind(committed)
