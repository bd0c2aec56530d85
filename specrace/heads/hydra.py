"""Hydra (arXiv 2402.05109): heads like Medusa's, each of which also reads the draft tokens before its guess.

Head i reads a state of the last accepted token, and the embeddings of the pending token and of the i draft tokens after
it; it guesses the next token. Plain heads read the target's hidden state. Those of Hydra++ read the output of a prefix
layer, which attends to the hidden states of the whole text.

In shapes: N rows; H key-value heads of D numbers, T cache columns; d is the width of the hidden states, V the size of
the vocabulary, and Vd the number of tokens that a head can draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from specrace.core.clock import since_ms, thread_ms
from specrace.core.sampling_params import SamplingParams
from specrace.heads.embedding import embed_tokens
from specrace.heads.layer import DraftLayer, Rotations, rms_norm, tree_mask
from specrace.heads.output_layer import OutputLayer, Ranking
from specrace.heads.product import Product
from specrace.model.forward.kv import Prefix
from specrace.model.forward.tapped import Levels
from specrace.model.target import Target

# A node of a draft tree, by the tokens on the way to it from the root, the pending token; () is the root itself.
Path = tuple[int, ...]
# Every new cache of a session's prefix layer has this many columns more than are needed at once (not tuned).
_GROWTH = 256


@dataclass(frozen=True)
class HydraBlocks:
    """What one head does between its inputs and its output layer.

    `first`: the product of head i from the state and i + 1 embeddings side by side, [(i + 2) d], to the first block's
    update and residual, [2 d]. `others`: products [d] -> [d]; each computes an update of its own input.
    """

    first: Product
    others: Sequence[Product]

    def __call__(self, inputs: Tensor) -> Tensor:
        """What the output layer reads, [N, d], from inputs [N, (i + 2) d]."""
        update, rows = self.first(inputs).chunk(2, dim=-1)
        rows = rows + silu(update)
        for block in self.others:
            rows = rows + silu(block(rows))
        return rows


class PrefixLayer:
    """Hydra++'s decoder layer over hidden states, with a norm before its attention and one after the layer."""

    def __init__(self, layer: DraftLayer, rotations: Rotations, before_attention: Tensor, norm: Tensor) -> None:
        self.layer, self.rotations = layer, rotations
        self.before_attention, self.norm = before_attention, norm

    def run(self, features: Tensor, cache: Tensor) -> Tensor:
        """The state [1, d] of the last of the features [N, d]; `cache` [2, H, T, D] ends with their own columns."""
        epsilon, count, total = self.layer.sizes.epsilon, len(features), cache.shape[2]
        rotation = self.rotations.at(range(total - count, total), cache.device, cache.dtype)
        in_order = torch.ones(count, count, dtype=torch.bool, device=cache.device).tril()
        mask = tree_mask(in_order, total - count, cache.dtype)
        inputs = rms_norm(features, self.before_attention, epsilon)
        rows = self.layer.run(inputs, features, rotation, mask, cache)
        return rms_norm(rows[-1:], self.norm, epsilon)

    def new_cache(self, capacity: int, target: Target) -> Tensor:
        """An empty cache for `capacity` tokens, [2, H, T, D]."""
        sizes = self.layer.sizes
        return torch.zeros(2, sizes.kv_heads, capacity, sizes.size, dtype=target.dtype, device=target.device)


class HydraHead:
    """Hydra's heads by depth; `outputs`: their output layers, which may be one for all.

    `prefix_layer`: Hydra++'s; None for heads that read the target's state itself. `embeddings` [V, d]: the heads' own;
    None: the target's. `label` names the head in messages.
    """

    kind = "hydra"

    def __init__(
        self,
        blocks: Sequence[HydraBlocks],
        outputs: Sequence[OutputLayer],
        levels: Levels,
        target: Target,
        label: str,
        *,
        prefix_layer: PrefixLayer | None = None,
        embeddings: Tensor | None = None,
    ) -> None:
        self.blocks, self.outputs, self.levels = blocks, outputs, levels
        self.target, self.label = target, label
        self.prefix_layer, self.embeddings = prefix_layer, embeddings

    @property
    def depth(self) -> int:
        """How many tokens ahead of the pending token it guesses."""
        return len(self.blocks)

    def after(self, prompt: Sequence[int], prefix: Prefix) -> PromptedHydra:
        """The head after a prompt; `prefix` has the prompt's hidden states at this head's levels."""
        return PromptedHydra(self, prompt, prefix)

    def guess(self, state: Tensor, paths: Sequence[Path]) -> Tensor:
        """Float32 logits [N, Vd] after paths of one length, each with the pending token at its front.

        `state` [1, d] is the last accepted token's.
        """
        depth = len(paths[0]) - 1
        embedded = embed_tokens(self.target, self.embeddings, [token for path in paths for token in path])
        tokens = embedded.to(state.dtype).view(len(paths), -1)
        rows = self.blocks[depth](torch.cat([state.expand(len(paths), -1), tokens], dim=-1))
        return self.outputs[depth].logits(rows)


class PromptedHydra:
    """A head after a prompt; `count` is the number of tokens with a feature: all but the last, the pending token.

    `state` [1, d]: that of the last of these tokens; None for a prompt of one token. `cache`: the prefix layer's, if
    there is one. `prefill_ms`: how long reading took; no lane's time includes it.
    """

    @torch.inference_mode()
    def __init__(self, head: HydraHead, prompt: Sequence[int], prefix: Prefix) -> None:
        self.head, self.count = head, len(prompt) - 1
        began = thread_ms()
        layer, target = head.prefix_layer, head.target
        self.cache = None if layer is None else layer.new_cache(self.count, target)
        self.state: Tensor | None = None
        if self.count:
            features = prefix.features_at(head.levels).to(target.dtype)
            self.state = features[-1:] if layer is None or self.cache is None else layer.run(features, self.cache)
        target.synchronize()
        self.prefill_ms = since_ms(began)

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> HydraSession:
        """A session for one lane, whose cache at first has room for `room` more tokens.

        `coupled`: whether guesses are ranked with the noise with which the target draws (see `Ranking`).
        """
        return HydraSession(self, params, room, coupled=coupled)


class HydraSession:
    """One lane's head; see `eagle.EagleSession`. Each depth of a tree takes one forward, of that depth's head."""

    depths_per_forward = 1

    def __init__(self, prompted: PromptedHydra, params: SamplingParams, room: int, *, coupled: bool = True) -> None:
        self.head, self.levels, self.depth = prompted.head, prompted.head.levels, prompted.head.depth
        self._target = prompted.head.target
        self._rankings = [
            Ranking(output, params, self._target.vocab_size, coupled=coupled) for output in self.head.outputs
        ]
        self._state, self._count, self._cache = prompted.state, prompted.count, prompted.cache
        # The number of tokens that the prefix layer has read, and the features of later ones.
        self._committed = prompted.count
        self._features: list[Tensor] = []
        self._root = 0
        if self._cache is not None:
            self._cache = self._grown(self._cache, room)

    @property
    def room(self) -> int:
        """How many more tokens fit in the target's context."""
        return self._target.max_context - self._count

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Take the features [n, d] of accepted tokens; a prefix layer reads them when the head is next asked."""
        self._count += len(tokens)
        features = features.to(self._target.dtype)
        if self._cache is None:
            self._state = features[-1:]
        else:
            self._features.append(features)

    def begin(self, root: int) -> None:
        """Start a step with the pending token `root`, which all heads read."""
        self._root = root

    @torch.inference_mode()
    def likeliest(self, paths: Sequence[Path], k: int) -> list[list[tuple[int, float]]]:
        """For each path the k likeliest next tokens with their probabilities, the best first.

        Runs one forward for each length of path. Returns empty lists if no token has been accepted yet.
        """
        with self._target.between_forwards():
            state = self._read()
            if state is None:
                return [[] for _ in paths]
            guesses: dict[Path, list[tuple[int, float]]] = {}
            for depth in {len(path) for path in paths}:
                same_depth = [path for path in paths if len(path) == depth]
                logits = self.head.guess(state, [(self._root, *path) for path in same_depth])
                # The pending token is at position `_count`, its child at the next one.
                scores = self._rankings[depth].scores(logits, [self._count + 1 + depth] * len(same_depth))
                guesses.update(zip(same_depth, self.head.outputs[depth].likeliest(scores, k), strict=True))
        return [guesses[path] for path in paths]

    def _read(self) -> Tensor | None:
        """The last accepted token's state, None if there is none; a prefix layer first reads the queued features."""
        layer = self.head.prefix_layer
        if layer is not None and self._cache is not None and self._features:
            features = torch.cat(self._features)
            end = self._committed + len(features)
            if end > self._cache.shape[2]:
                self._cache = self._grown(self._cache, len(features))
            self._state = layer.run(features, self._cache[:, :, :end])
            self._committed, self._features = end, []
        return self._state

    def _grown(self, cache: Tensor, room: int) -> Tensor:
        """A new cache with the committed columns of `cache` and room for `room` + `_GROWTH` more tokens."""
        assert self.head.prefix_layer is not None
        grown = self.head.prefix_layer.new_cache(self._committed + room + _GROWTH, self._target)
        grown[:, :, : self._committed] = cache[:, :, : self._committed]
        return grown
