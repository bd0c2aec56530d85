"""What a drafter reads from models: sessions of smaller models and of trained heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree


class DraftSession(Protocol):
    """A draft model that reads one text, with a KV cache. Each read is one forward of the draft model."""

    @property
    def room(self) -> int:
        """The number of tokens that the session can still read."""

    def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
        """Read `tokens` (at least one) and return the likeliest next token and its probability."""

    def distribution(self, tokens: Sequence[int]) -> np.ndarray:
        """Read `tokens` (at least one) and return the next token's distribution, float64 [V].

        Temperature, top-k and top-p have been applied to it.
        """

    def tree_likeliest(
        self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        """Read `unread` and score a tree that follows it, in one forward; the tree does not stay in the KV cache.

        Returns, for each of `nodes`, the k likeliest next tokens and their probabilities, the best first.
        """

    def tree_distributions(self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int]) -> np.ndarray:
        """Run the forward of `tree_likeliest`; returns the distributions after the n `nodes`, float64 [n, V].

        Temperature, top-k and top-p have been applied to it.
        """

    def rewind(self, count: int) -> None:
        """Roll back to the first `count` tokens read."""


class PromptedDraftModel(Protocol):
    """A draft model, called `name`, that has read the prompt except its last token, in `prefill_ms` milliseconds."""

    prefill_ms: float

    @property
    def name(self) -> str:
        """The model's name, for notes."""

    def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> DraftSession:
        """A session that continues the prompt, for about `room` more tokens (0: unknown).

        `rows`: the numbers of tokens that the session will read in one forward.
        """


class DraftModel(Protocol):
    """A smaller language model with the target's vocabulary (see `specrace.model.draft_model`)."""

    def after(self, prompt: Sequence[int]) -> PromptedDraftModel:
        """The model after reading `prompt`. Raises InputError if the prompt does not fit its context."""


class HeadSession(Protocol):
    """One lane's trained head, which drafts from the target's hidden states (see `specrace.heads`).

    A path is the tokens after the pending token, the root of the tree.
    """

    @property
    def depth(self) -> int:
        """The maximum depth of its drafts, in tokens."""

    @property
    def depths_per_forward(self) -> int:
        """How many depths of a tree one forward of the head drafts: all of them for Medusa, one for EAGLE."""

    @property
    def room(self) -> int:
        """The number of tokens that still fit its context."""

    def begin(self, root: int) -> None:
        """Start a step with this pending token."""

    def likeliest(self, paths: Sequence[tuple[int, ...]], k: int) -> list[list[tuple[int, float]]]:
        """Run one forward of the head; returns each path's k likeliest next tokens and their probabilities, best first.

        A step asks for [()] first, and for a path only after its parent. A list may be empty.
        """


@runtime_checkable
class PlacingHeadSession(HeadSession, Protocol):
    """A head that copies from the text, and says from which position (see `specrace.model.state_copies`)."""

    @property
    def nearest(self) -> tuple[int, float, bool] | None:
        """This step's most similar token: its index in prompt and output, its similarity, and whether it is followed by
        the pending token; None if there is none."""

    def position(self, path: tuple[int, ...]) -> int:
        """The index in prompt and output from which the last token of a path is copied; -1 for none."""


@runtime_checkable
class MaskingHeadSession(HeadSession, Protocol):
    """A head whose guesses are the target's own outputs at masks, which are extra rows (see `specrace.heads.space`).

    `num_masks`: how many masks the next tree has below each of its nodes, to be set before the target scores it.
    """

    num_masks: int


class PromptedHead(Protocol):
    """A head that has read the prompt's hidden states, in `prefill_ms` milliseconds."""

    prefill_ms: float

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> HeadSession:
        """A session for about `room` more tokens.

        If `coupled`, tokens are ranked with the target's own noise, so that head and target more often choose the same
        token.
        """


class Head(Protocol):
    """A trained head. `levels`: the layers whose input states it reads (see `specrace.model.forward.tapped`)."""

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels, in order."""

    def after(self, prompt: Sequence[int], prefix: Any) -> PromptedHead:
        """The head after a prompt. `prefix`: the target's KV cache of the prompt, with hidden states at `levels`."""
