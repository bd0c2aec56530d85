"""Medusa (arXiv 2401.10774): heads beside the target's output layer, each of which guesses one position further ahead.

Of the target's levels (level i is the hidden state that enters layer i) they read the last, after the final norm.

Head i reads the last accepted token's hidden state and guesses the token i + 2 places after it, whatever the tokens in
between. The first place after it is the target's own choice, the pending token.

In shapes, d is the width of the hidden states, and Vd the number of tokens that a head can draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import silu

from specrace.core.clock import since_ms, thread_ms
from specrace.core.sampling_params import SamplingParams
from specrace.heads.output_layer import OutputLayer, Ranking
from specrace.heads.product import Product
from specrace.model.forward.kv import Prefix
from specrace.model.forward.tapped import Levels
from specrace.model.target import Target

# A node of a draft tree, by the tokens on the way to it from the root, the pending token; () is the root itself.
Path = tuple[int, ...]


class MedusaHead:
    """Residual blocks and output layers, by depth.

    `blocks`: for each depth its blocks, products [d] -> [d]; `outputs`: for each depth its output layer, which may be
    one for all. `label` names the head in messages.
    """

    kind = "medusa"

    def __init__(
        self,
        blocks: Sequence[Sequence[Product]],
        outputs: Sequence[OutputLayer],
        levels: Levels,
        target: Target,
        label: str,
    ) -> None:
        self.blocks, self.outputs, self.levels = blocks, outputs, levels
        self.target, self.label = target, label

    @property
    def depth(self) -> int:
        """How many tokens ahead of the pending token it guesses."""
        return len(self.blocks)

    def after(self, prompt: Sequence[int], prefix: Prefix) -> PromptedMedusa:
        """The head after a prompt; `prefix` has the prompt's hidden states at this head's levels."""
        return PromptedMedusa(self, prompt, prefix)

    def guess(self, feature: Tensor) -> list[Tensor]:
        """Float32 logits [1, Vd] of every depth, from the last accepted token's feature [1, d]."""
        rows = []
        for blocks in self.blocks:
            row = feature
            for block in blocks:
                row = row + silu(block(row))
            rows.append(row)
        if all(output is self.outputs[0] for output in self.outputs):
            return list(self.outputs[0].logits(torch.cat(rows)).split(1))
        return [output.logits(row) for output, row in zip(self.outputs, rows, strict=True)]


class PromptedMedusa:
    """A head after a prompt; `count` is the number of tokens with a feature: all but the last, the pending token.

    `feature` [1, d]: that of the last of these tokens; None for a prompt of one token. `prefill_ms`: how long this
    took; no lane's time includes it.
    """

    def __init__(self, head: MedusaHead, prompt: Sequence[int], prefix: Prefix) -> None:
        began = thread_ms()
        self.head, self.count = head, len(prompt) - 1
        self.feature = prefix.features_at(head.levels)[-1:] if self.count else None
        self.prefill_ms = since_ms(began)

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> MedusaSession:
        """A session for one lane; it has no cache, so it needs no `room`.

        `coupled`: whether guesses are ranked with the noise with which the target draws (see `Ranking`).
        """
        return MedusaSession(self, params, coupled=coupled)


class MedusaSession:
    """One lane's head; see `eagle.EagleSession`. The first call of a step computes every depth's logits."""

    def __init__(self, prompted: PromptedMedusa, params: SamplingParams, *, coupled: bool = True) -> None:
        self.head, self.levels, self.depth = prompted.head, prompted.head.levels, prompted.head.depth
        vocab_size = self.head.target.vocab_size
        self._rankings = [Ranking(output, params, vocab_size, coupled=coupled) for output in self.head.outputs]
        self._feature, self._count = prompted.feature, prompted.count
        # Of every depth, [1, Vd]; empty until this step's first `likeliest`.
        self._logits: list[Tensor] = []

    @property
    def depths_per_forward(self) -> int:
        """How many depths of a tree one forward guesses: all, because none reads the others' tokens."""
        return self.depth

    @property
    def room(self) -> int:
        """How many more tokens fit in the target's context."""
        return self.head.target.max_context - self._count

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Keep the last accepted token's feature."""
        self._feature = features[-1:]
        self._count += len(tokens)

    def begin(self, root: int) -> None:
        """Start a step; the heads do not read the pending token."""
        self._logits = []

    @torch.inference_mode()
    def likeliest(self, paths: Sequence[Path], k: int) -> list[list[tuple[int, float]]]:
        """For each path the k likeliest next tokens with their probabilities; only the path's length matters."""
        if self._feature is None:
            return [[] for _ in paths]
        target = self.head.target
        with target.between_forwards():
            if not self._logits:
                self._logits = self.head.guess(self._feature.to(target.dtype))
            guesses: dict[int, list[tuple[int, float]]] = {}
            for depth in {len(path) for path in paths}:
                # The pending token is at position `_count`, its child at the next one.
                scores = self._rankings[depth].scores(self._logits[depth], [self._count + 1 + depth])
                guesses[depth] = self.head.outputs[depth].likeliest(scores, k)[0]
        return [guesses[len(path)] for path in paths]
