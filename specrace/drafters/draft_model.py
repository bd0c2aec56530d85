"""Speculative decoding with a draft model: a smaller model with the target's vocabulary drafts.

Sources: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023); Chen et al.,
"Accelerating Large Language Model Decoding with Speculative Sampling" (2023).

The draft is the smaller model's greedy continuation. With `sampled` it is drawn from that model's distribution, warped
like the target's. Under the verifier `match`, the text is exactly vanilla's even then; under `rejection`, as in the
papers, that distribution is the q of rejection sampling.
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

# Each sampling drafter has its own stream of random numbers: the draft model 1, the bigram 2, the trigram 3,
# SpecInfer 4.
STREAM = 1
# The model reads one token per forward. After a fully accepted draft it first reads two tokens: the draft's last token,
# which it has not read yet, and the bonus token.
_ROWS = (1, 2)


class DraftModelDrafter(DepthDrafter):
    """Drafts a chain of the draft model's tokens. Raises InputError if there is no draft model.

    The draft model in this example always expects the next number. It reads the pending 5 and then its own draft:

    >>> class Counter:
    ...     room = 100
    ...     def session(self, params, room, rows): return self
    ...     def likeliest(self, tokens): return tokens[-1] + 1, 0.9
    ...     def rewind(self, count): pass
    >>> drafter = DraftModelDrafter(DrafterInputs((4, 5), vocab_size=10, draft_models=(Counter(),)))
    >>> drafter.propose((4, 5), budget=3).tokens
    (5, 6, 7, 8)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        sampled: Annotated[bool, Flag("draw drafts from the draft model at the race's temperature")] = False,
    ) -> None:
        if not inputs.draft_models:
            raise InputError(
                "The lane draft-model has no model to draft with; "
                "give a smaller one with the target's vocabulary (--draft-model)."
            )
        self.session = inputs.draft_models[0].session(inputs.params, inputs.room, _ROWS)
        self.vocab_size = inputs.vocab_size
        # The last 2 keeps this stream apart from those of rejection sampling, which have a 1 or a 3 in its place.
        self.random = np.random.default_rng((inputs.seed, STREAM, 2)) if sampled else None
        # The tokens that the session has read; the first `committed` of them are prompt and output.
        self.read = list(inputs.prompt[:-1])
        self.committed = len(self.read)
        self._drawn_from: list[np.ndarray] = []

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """A chain of the model's next tokens, limited by `budget`, `depth` and the room left in the model's context."""
        self._rewind(context)
        unread = list(context[self.committed :])
        draft: list[int] = []
        probs = [1.0]
        self._drawn_from = []
        # The last draft token need not be read, because nothing is drafted after it.
        budget = min(budget, depth, self.session.room - len(unread) + 1)
        while len(draft) < budget:
            token, prob = self._next(unread)
            self.read += unread
            unread = [token]
            draft.append(token)
            probs.append(prob)
        return TokenTree((context[-1], *draft), tuple(range(-1, len(draft))), tuple(probs))

    def distributions(self) -> np.ndarray:
        """The distributions that the last draft was drawn from, [k, V]; [0, V] unless it is `sampled`."""
        return np.array(self._drawn_from).reshape(-1, self.vocab_size)

    def note(self, tree: TokenTree) -> Note:
        """The probability of the chain under the smaller model."""
        path_probs = tree.path_probs()
        return Note(
            {
                "drafted": tree.num_draft,
                "each token": "drawn at the race's temperature" if self.random else "the smaller model's likeliest",
                "probability of the whole": f"{path_probs[-1]:.0%}",
                "expected": f"{sum(path_probs):.2f} tokens",
            }
        )

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn; the next `propose` rolls back what was rejected."""

    def _next(self, unread: Sequence[int]) -> tuple[int, float]:
        """Read `unread`, and return the next token of the draft and its probability."""
        if self.random is None:
            return self.session.likeliest(unread)
        probs = self.session.distribution(unread)
        self._drawn_from.append(probs)
        token = int(draw(probs, self.random.random()))
        return token, float(probs[token])

    def _rewind(self, context: Sequence[int]) -> None:
        """Roll the model's cache back to the part of `context` that it has read, without the pending token."""
        last = len(context) - 1
        committed, end = min(self.committed, last), min(len(self.read), last)
        while committed < end and self.read[committed] == context[committed]:
            committed += 1
        self.committed = committed
        del self.read[committed:]
        self.session.rewind(committed)
