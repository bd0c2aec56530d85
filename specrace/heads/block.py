"""Block drafters (DFlash, arXiv 2602.06036; DSpark, arXiv 2607.05147): one forward guesses several tokens at once.

The target's hidden states are the context: the head reads them as keys and values only. A block of rows, the pending
token and then masks (one learned embedding in place of the unknown tokens), attends to the context and to itself in
both directions. In DFlash the row of each mask guesses the token at its own position; in DSpark every row, including
the pending token's, guesses the token after it. DSpark also adds to the logits a bias that depends on the previous
token.

In shapes: L layers, H key-value heads of D numbers, T cache columns; d is the width of the hidden states, V the size of
the vocabulary, and Vd the number of tokens that a head can draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import embedding

from specrace.core.clock import since_ms, thread_ms
from specrace.core.sampling_params import SamplingParams
from specrace.heads.embedding import embed_tokens
from specrace.heads.layer import DraftLayer, Rotations, rms_norm, rotated
from specrace.heads.output_layer import OutputLayer, Ranking
from specrace.heads.product import Product
from specrace.model.forward.kv import Prefix
from specrace.model.forward.tapped import Levels
from specrace.model.target import Target

if TYPE_CHECKING:
    from specrace.heads.compiled_layer import CompiledLayer

# A node of a draft tree, by the tokens on the way to it from the root, the pending token; () is the root itself.
Path = tuple[int, ...]
# Every new cache of a session has this many columns more than are needed at once, so that few are made (not tuned).
_GROWTH = 256


@dataclass(frozen=True)
class BlockLayer:
    """A layer, the weights [d] of the norm of the block's rows before its attention, and its `keys_values`.

    `keys_values`: the product [d] -> [2 * H * D] that computes keys and values without the queries.
    """

    layer: DraftLayer
    before_attention: Tensor
    keys_values: Product

    def store(self, inputs: Tensor, rotation: tuple[Tensor, Tensor], cache: Tensor) -> None:
        """Write the keys and values of inputs [N, d] to a cache's columns [2, H, N, D]."""
        sizes, norms = self.layer.sizes, self.layer.head_norms
        assert norms is not None
        _, key_norm = norms
        heads = self.keys_values(inputs).view(len(inputs), 2 * sizes.kv_heads, sizes.size)
        keys, values = heads.chunk(2, dim=1)
        cache[0] = rotated(rms_norm(keys, key_norm, sizes.epsilon), rotation).transpose(0, 1)
        cache[1] = values.transpose(0, 1)


@dataclass(frozen=True)
class Transition:
    """DSpark's bias [Vd] of the logits after a token: the token's row in `rows` [V, r], times `product` [r] -> [Vd]."""

    rows: Tensor
    product: Product

    def after(self, tokens: Sequence[int]) -> Tensor:
        """The biases [N, Vd] after these tokens."""
        ids = torch.tensor(list(tokens), dtype=torch.int64, device=self.rows.device)
        return self.product(embedding(ids, self.rows)).float()


@dataclass(frozen=True)
class BlockNetwork:
    """The weights of a block head.

    `join` [levels * d] -> [d] makes one row of a token's hidden states, whose norm has the weights `context_norm` [d];
    `norm` [d] belongs to the norm after the last layer. `mask` [d]: the masks' embedding. `block_size`: the number of
    rows. `first`: the first row that guesses a token, 0 in DSpark and 1 in DFlash. `transition` is None in DFlash.
    `embeddings` [V, d]: the head's own; None: the target's.
    """

    levels: Levels
    join: Product
    context_norm: Tensor
    layers: tuple[BlockLayer, ...]
    norm: Tensor
    mask: Tensor
    block_size: int
    first: int
    rotations: Rotations
    output_layer: OutputLayer
    transition: Transition | None
    embeddings: Tensor | None


class BlockHead:
    """A head that drafts for `target`; `label` names it in messages."""

    kind = "block"

    def __init__(self, network: BlockNetwork, target: Target, label: str) -> None:
        self.network, self.target, self.label = network, target, label
        self.levels = network.levels
        # The layer in the compiled decoder, if the head has only one and the target runs there too.
        self.compiled: CompiledLayer | None = None

    @property
    def depth(self) -> int:
        """How many tokens ahead of the pending token it guesses."""
        return self.network.block_size - self.network.first

    def after(self, prompt: Sequence[int], prefix: Prefix) -> PromptedBlock:
        """The head after a prompt; `prefix` has the prompt's hidden states at this head's levels."""
        return PromptedBlock(self, prompt, prefix)

    def read(self, features: Tensor, first: int, cache: Tensor) -> None:
        """Compute keys and values of the features [N, levels * d] from position `first` on, and write them to a cache.

        `cache` [L, 2, H, T, D]: the column of a feature has the number of its position.
        """
        network, end = self.network, first + len(features)
        joined = network.join(features.to(cache.dtype))
        states = rms_norm(joined, network.context_norm, network.layers[0].layer.sizes.epsilon)
        rotation = network.rotations.at(range(first, end), cache.device, cache.dtype)
        for number, layer in enumerate(network.layers):
            layer.store(states, rotation, cache[number, :, :, first:end])

    def guess(self, root: int, position: int, cache: Tensor, threads: int = 0) -> Tensor:
        """Float32 logits [depth, Vd] of the tokens after the pending token `root`, which is at `position`.

        The context fills the first `position` columns of `cache` [L, 2, H, T, D]; at least two blocks' columns more are
        free.
        The compiled layer runs in `threads` threads; with 0, torch's layers run instead.
        """
        network, size = self.network, self.network.block_size
        pending = embed_tokens(self.target, network.embeddings, [root])
        rows = torch.cat([pending, network.mask.expand(size - 1, -1)]).to(cache.dtype)
        rotation = network.rotations.at(range(position, position + size), cache.device, cache.dtype)
        if self.compiled is not None and threads:
            return self._compiled(rows, rotation, position, cache, threads)[network.first :]
        epsilon = network.layers[0].layer.sizes.epsilon
        for number, block_layer in enumerate(network.layers):
            inputs = rms_norm(rows, block_layer.before_attention, epsilon)
            rows = block_layer.layer.run(inputs, rows, rotation, None, cache[number, :, :, : position + size])
        return network.output_layer.logits(rms_norm(rows[network.first :], network.norm, epsilon))

    def _compiled(
        self, rows: Tensor, rotation: tuple[Tensor, Tensor], position: int, cache: Tensor, threads: int
    ) -> Tensor:
        """Logits [K, Vd] of the block's K rows by the compiled layer, where no row sees later rows of the same call.

        So the block's keys and values are written beforehand, to columns of draft rows, which all rows see; the columns
        that the call itself writes are hidden from all rows. Writing them beforehand is possible in a head of one layer
        only, where they depend on the block's embeddings alone.
        """
        assert self.compiled is not None
        (block_layer,), size = self.network.layers, len(rows)
        inputs = rms_norm(rows, block_layer.before_attention, block_layer.layer.sizes.epsilon)
        block_layer.store(inputs, rotation, cache[0, :, :, position : position + size])
        seen = torch.cat([torch.ones(size, size), torch.zeros(size, size)], 1).bool()
        _, logits = self.compiled.run(rows, rotation, seen, cache[0, :, :, : position + 2 * size], threads)
        return logits

    def new_cache(self, capacity: int) -> Tensor:
        """An empty cache for a context of `capacity` states and two blocks (see `_compiled`), [L, 2, H, T, D]."""
        sizes, layers = self.network.layers[0].layer.sizes, len(self.network.layers)
        columns = capacity + 2 * self.network.block_size
        return torch.zeros(
            layers, 2, sizes.kv_heads, columns, sizes.size, dtype=self.target.dtype, device=self.target.device
        )


class PromptedBlock:
    """A head that has read the states of a prompt's `count` tokens, all but the last, which is the pending token.

    `prefill_ms`: how long that took; no lane's time includes it.
    """

    @torch.inference_mode()
    def __init__(self, head: BlockHead, prompt: Sequence[int], prefix: Prefix) -> None:
        self.head, self.count = head, len(prompt) - 1
        began = thread_ms()
        self.cache = head.new_cache(self.count)
        if self.count:
            head.read(prefix.features_at(head.levels), 0, self.cache)
        head.target.synchronize()
        self.prefill_ms = since_ms(began)

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> BlockSession:
        """A session on a copy of the cache with room for `room` more tokens.

        `coupled`: whether guesses are ranked with the noise with which the target draws (see `Ranking`).
        """
        return BlockSession(self, params, room, coupled=coupled)


class BlockSession:
    """One lane's head; see `eagle.EagleSession`. The first call of a step computes every depth's logits."""

    def __init__(self, prompted: PromptedBlock, params: SamplingParams, room: int, *, coupled: bool = True) -> None:
        self.head, self.levels, self.depth = prompted.head, prompted.head.levels, prompted.head.depth
        network = prompted.head.network
        self._output_layer, self._transition = network.output_layer, network.transition
        self._ranking = Ranking(self._output_layer, params, self.head.target.vocab_size, coupled=coupled)
        # How many tokens' states are in the cache.
        self._read = prompted.count
        self._cache = self.head.new_cache(self._read + room + _GROWTH)
        self._cache[..., : self._read, :] = prompted.cache[..., : self._read, :]
        # Features of accepted tokens that are not in the cache yet.
        self._features: list[Tensor] = []
        self._root = 0
        self._logits: Tensor | None = None

    @property
    def depths_per_forward(self) -> int:
        """How many depths of a tree one forward guesses: all."""
        return self.depth

    @property
    def room(self) -> int:
        """How many more tokens fit in the target's context, and so in the head's."""
        return self.head.target.max_context - self._read - sum(map(len, self._features))

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Take the features [n, levels * d] of accepted tokens; the head reads them when it is next asked."""
        del tokens
        self._features.append(features)

    def begin(self, root: int) -> None:
        """Start a step; `root`, the pending token, is the first row of the block."""
        self._root, self._logits = root, None

    @torch.inference_mode()
    def likeliest(self, paths: Sequence[Path], k: int) -> list[list[tuple[int, float]]]:
        """For each path the k likeliest next tokens with their probabilities, the best first."""
        # Read here, because `between_forwards` may limit torch to one thread; the compiled layer has its own threads.
        threads = torch.get_num_threads()
        with self.head.target.between_forwards():
            if self._logits is None:
                self._commit()
                self._logits = self.head.guess(self._root, self._read, self._cache, threads)
            if self._transition is None:
                # Paths of one length share their guesses.
                depths = sorted({len(path) for path in paths})
                by_depth = dict(zip(depths, self._guesses(self._logits[depths], depths, k), strict=True))
                return [by_depth[len(path)] for path in paths]
            depths = [len(path) for path in paths]
            last_tokens = [path[-1] if path else self._root for path in paths]
            return self._guesses(self._logits[depths] + self._transition.after(last_tokens), depths, k)

    def _guesses(self, logits: Tensor, depths: Sequence[int], k: int) -> list[list[tuple[int, float]]]:
        """The k likeliest tokens and probabilities for each row of logits [N, Vd] after paths of these lengths."""
        # The root is at position `_read`, its child at the next one.
        positions = [self._read + 1 + depth for depth in depths]
        return self._output_layer.likeliest(self._ranking.scores(logits, positions), k)

    def _commit(self) -> None:
        """Read the queued features into the cache, which is enlarged if necessary."""
        if not self._features:
            return
        features = torch.cat(self._features)
        end = self._read + len(features)
        capacity = self._cache.shape[3] - 2 * self.head.network.block_size
        if end > capacity:
            grown = self.head.new_cache(end + _GROWTH)
            grown[..., : self._read, :] = self._cache[..., : self._read, :]
            self._cache = grown
        self.head.read(features, self._read, self._cache)
        self._read, self._features = end, []
