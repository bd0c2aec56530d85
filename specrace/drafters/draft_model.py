"""Speculative decoding with a draft model (SpS; Leviathan et al., 2023; Chen et al., 2023): a smaller model runs ahead.

By default the draft is the smaller model's greedy continuation. With `sampled` it is drawn from the model's own
distribution, warped as the target's is, and hands that distribution over, as rejection sampling needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from specrace.core.errors import InputError
from specrace.core.note import Note
from specrace.core.rejection import draw
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Flag, Material

# Which stream of the seed the drafts are drawn with; the bigram's and the trigram's are 2 and 3.
STREAM = 1
# Tokens that are read at a time: the last guess or the pending token; after a draft that was accepted whole both.
_ROWS = (1, 2)


class DraftModelDrafter:
    """A chain of the draft model's tokens. Raises InputError where there is no draft model."""

    needs_draft_model: ClassVar[bool] = True
    takes_depth: ClassVar[bool] = True
    needs_target_outputs: ClassVar[str] = "its drafts are a second model's own text"

    def __init__(
        self,
        material: Material,
        *,
        sampled: Annotated[bool, Flag("draw drafts from the draft model at the race's temperature")] = False,
    ) -> None:
        if material.draft_model is None:
            raise InputError(
                "The lane draft-model has no model to draft with; "
                "give a smaller one with the target's vocabulary (--draft-model)."
            )
        self.session = material.draft_model.session(material.params, material.room, _ROWS)
        self.vocab_size = material.vocab_size
        self.random = np.random.default_rng((material.seed, STREAM, 2)) if sampled else None
        # What the session has read, of which the first `committed` tokens stand in the text for good.
        self.read = list(material.prompt[:-1])
        self.committed = len(self.read)
        self._drawn_from: list[np.ndarray] = []

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The model's next tokens: `budget` of them, or as many as may count, or its own context has room for."""
        self._rewind(context)
        unread = list(context[self.committed :])
        draft: list[int] = []
        probs = [1.0]
        self._drawn_from = []
        # The last token of a draft is never read: nothing is drafted after it.
        budget = min(budget, depth, self.session.room - len(unread) + 1)
        while len(draft) < budget:
            token, prob = self._guess(unread)
            self.read += unread
            unread = [token]
            draft.append(token)
            probs.append(prob)
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def distributions(self) -> np.ndarray:
        """What the guesses of the last proposal were drawn from, [k, V]; only of a `sampled` draft."""
        return np.array(self._drawn_from).reshape(-1, self.vocab_size)

    def note(self, tree: TokenTree) -> Note:
        """How sure the smaller model was of its chain."""
        reached = np.cumprod((tree.probs or (1.0,))[: len(tree)])
        return Note(
            {
                "drafted": tree.num_draft,
                "each guess": "drawn at the race's temperature" if self.random else "the smaller model's likeliest",
                "sure of the whole": f"{reached[-1]:.0%}",
                "by its own estimate": f"{reached.sum():.2f} tokens",
            }
        )

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn; what was rejected is forgotten when the next context tells it."""

    def _guess(self, unread: Sequence[int]) -> tuple[int, float]:
        """The next token of the draft, and its probability."""
        if self.random is None:
            return self.session.likeliest(unread)
        probs = self.session.distribution(unread)
        self._drawn_from.append(probs)
        token = int(draw(probs, self.random.random()))
        return token, float(probs[token])

    def _rewind(self, context: Sequence[int]) -> None:
        """Roll the model's cache back to the drafts that were kept; the pending token is always read anew."""
        committed, most = min(self.committed, len(context) - 1), min(len(self.read), len(context) - 1)
        while committed < most and self.read[committed] == context[committed]:
            committed += 1
        self.committed = committed
        del self.read[committed:]
        self.session.rewind(committed)
