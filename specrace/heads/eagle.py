"""EAGLE (arXiv 2401.15077, 2503.01840): one decoder layer that continues the target's hidden states token by token.

A feature is a token's hidden states at the levels that the head reads (level i is what enters the target's layer i). A
row of the head is a pair: the feature of position t and the token at t + 1. The row's output stands for the feature of
position t + 1, from which the target's output layer, or the head's own, gives the token at t + 2. Pairs with the
target's own features are committed to the head's cache; draft rows, which read the head's own outputs, are overwritten
by the next step.

In shapes: N rows, f numbers in a feature; H key-value heads of D numbers, T cache columns; d is the width of the hidden
states, V the size of the vocabulary, and Vd the number of tokens that a head can draft.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specrace.core.clock import since_ms, thread_ms
from specrace.core.sampling_params import SamplingParams
from specrace.heads.embedding import embed_tokens
from specrace.heads.layer import DraftLayer, Rotations, rms_norm, tree_mask
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


class EagleNetwork(ABC):
    """The weights of a head; subclasses differ in what enters the layer and what leaves it."""

    levels: Levels
    layer: DraftLayer
    rotations: Rotations
    output_layer: OutputLayer
    # The head's own embedding table [V, d]; None: the target's.
    embeddings: Tensor | None = None

    @abstractmethod
    def enter(self, features: Tensor, embedded: Tensor, *, own: bool) -> tuple[Tensor, Tensor]:
        """The attention's input and the residual stream, from features [N, f] and embeddings [N, d].

        With `own`, the features are outputs of this head, [N, d].
        """

    @abstractmethod
    def leave(self, rows: Tensor) -> Tensor:
        """What the output layer reads, from the layer's output [N, d]."""


class EagleOne(EagleNetwork):
    """EAGLE-1 and 2: a linear layer joins embedding and feature; outputs stand for states after the target's norm."""

    def __init__(self, layer: DraftLayer, rotations: Rotations, output_layer: OutputLayer, levels: Levels) -> None:
        self.layer, self.rotations, self.output_layer, self.levels = layer, rotations, output_layer, levels
        # Set by the builder: [2d] -> [d].
        self.join: Product

    def enter(self, features: Tensor, embedded: Tensor, *, own: bool) -> tuple[Tensor, Tensor]:
        """The joined rows, [N, d], twice: EAGLE's layer has no norm before its attention."""
        rows = self.join(torch.cat([embedded, features], dim=-1))
        return rows, rows

    def leave(self, rows: Tensor) -> Tensor:
        """The rows themselves."""
        return rows


class EagleThree(EagleNetwork):
    """EAGLE-3: joins levels into one feature; attention reads embedding and feature side by side, normalised."""

    def __init__(self, layer: DraftLayer, rotations: Rotations, output_layer: OutputLayer, levels: Levels) -> None:
        self.layer, self.rotations, self.output_layer, self.levels = layer, rotations, output_layer, levels
        # Set by the builder: the product [levels * d] -> [d], and the weights [d] of three norms.
        self.join: Product
        self.before_embedding: Tensor
        self.before_feature: Tensor
        self.norm: Tensor
        # Options of some heads made by the library speculators. `norm_residual`: the residual stream starts from the
        # normalised feature. `norm_output`: the next pair reads the output after the final norm. `before_join`: weights
        # [G, levels * d / G] of the norms of a feature's G parts before these are joined.
        self.norm_residual = self.norm_output = False
        self.before_join: Tensor | None = None

    def enter(self, features: Tensor, embedded: Tensor, *, own: bool) -> tuple[Tensor, Tensor]:
        """Embedding and feature, [N, 2d], and the feature [N, d]."""
        epsilon = self.layer.sizes.epsilon
        if own:
            rows = self.leave(features) if self.norm_output else features
        else:
            if self.before_join is not None:
                parts = features.unflatten(-1, self.before_join.shape)
                features = rms_norm(parts, self.before_join, epsilon).flatten(-2)
            rows = self.join(features)
        normed = rms_norm(rows, self.before_feature, epsilon)
        inputs = torch.cat([rms_norm(embedded, self.before_embedding, epsilon), normed], dim=-1)
        return inputs, normed if self.norm_residual else rows

    def leave(self, rows: Tensor) -> Tensor:
        """The rows after the final norm."""
        return rms_norm(rows, self.norm, self.layer.sizes.epsilon)


@dataclass(frozen=True)
class Pairs:
    """Rows for a head: features [N, f], the token after each feature, and the positions of the features.

    `seen` [N, M + N]: which columns a row sees; the first M belong to draft rows that were run before in this step, the
    others to these rows.
    """

    features: Tensor
    tokens: Sequence[int]
    positions: Sequence[int]
    seen: Tensor


def in_order(count: int) -> Tensor:
    """`Pairs.seen` for pairs that follow each other, [count, count]."""
    return torch.ones(count, count, dtype=torch.bool).tril()


class EagleHead:
    """A head that drafts for `target`; `label` names it in messages."""

    kind = "eagle"

    def __init__(self, network: EagleNetwork, target: Target, label: str) -> None:
        self.network, self.target, self.label = network, target, label
        self.levels = network.levels
        # The layer in the compiled decoder, if the target runs there too.
        self.compiled: CompiledLayer | None = None

    def after(self, prompt: Sequence[int], prefix: Prefix) -> PromptedEagle:
        """The head after the pairs of a prompt; `prefix` has the prompt's hidden states at this head's levels."""
        return PromptedEagle(self, prompt, prefix)

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Embeddings [N, d] of the tokens."""
        return embed_tokens(self.target, self.network.embeddings, tokens)

    def run(self, pairs: Pairs, cache: Tensor, *, own: bool = False, threads: int = 0) -> tuple[Tensor, Tensor | None]:
        """The layer's outputs [N, d] for pairs, and their logits [N, Vd] if the compiled layer has computed them.

        `cache`: see `DraftLayer.run`. With `own`, the features are earlier outputs of this head, [N, d]. The compiled
        layer runs in `threads` threads; with 0, torch's layer runs instead.
        """
        embedded = self.embed(pairs.tokens).to(cache.dtype)
        inputs, rows = self.network.enter(pairs.features.to(cache.dtype), embedded, own=own)
        rotation = self.network.rotations.at(pairs.positions, cache.device, cache.dtype)
        if self.compiled is not None and threads:
            return self.compiled.run(rows, rotation, pairs.seen, cache, threads)
        committed = cache.shape[2] - pairs.seen.shape[1]
        mask = tree_mask(pairs.seen.to(cache.device), committed, cache.dtype)
        return self.network.layer.run(inputs, rows, rotation, mask, cache), None

    def new_cache(self, capacity: int) -> Tensor:
        """An empty cache for `capacity` pairs, [2, H, T, D]."""
        sizes = self.network.layer.sizes
        return torch.zeros(2, sizes.kv_heads, capacity, sizes.size, dtype=self.target.dtype, device=self.target.device)


class PromptedEagle:
    """A head that has read a prompt's `count` pairs, one fewer than its tokens.

    `output` [1, d] is the last pair's output, from which the first token after the prompt is guessed; None for a
    prompt of one token, which has no pair. `prefill_ms`: how long reading took; no lane's time includes it.
    """

    @torch.inference_mode()
    def __init__(self, head: EagleHead, prompt: Sequence[int], prefix: Prefix) -> None:
        self.head, self.count = head, len(prompt) - 1
        began = thread_ms()
        self.cache = head.new_cache(max(1, self.count))
        self.output: Tensor | None = None
        if self.count:
            pairs = Pairs(prefix.features_at(head.levels), prompt[1:], range(self.count), in_order(self.count))
            outputs, _ = head.run(pairs, self.cache)
            self.output = outputs[-1:]
        head.target.synchronize()
        self.prefill_ms = since_ms(began)

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> EagleSession:
        """A session on a clone of the cache with room for `room` more tokens.

        `coupled`: whether guesses are ranked with the noise with which the target draws (see `Ranking`).
        """
        return EagleSession(self, params, room, coupled=coupled)


class EagleSession:
    """One lane's head: it takes the features of accepted tokens, and guesses what follows them.

    A path is the tokens after the pending token, the root. `likeliest` runs one forward of the head. `depth`: how many
    tokens ahead the head can guess, here as many as there is room for. `depths_per_forward`: how many depths of a tree
    one forward guesses.
    """

    # More than any text has tokens.
    depth = 1 << 30
    depths_per_forward = 1

    def __init__(self, prompted: PromptedEagle, params: SamplingParams, room: int, *, coupled: bool = True) -> None:
        self.head, self.levels = prompted.head, prompted.head.levels
        self._network = prompted.head.network
        self._cache = self.head.new_cache(prompted.count + room + _GROWTH)
        self._cache[:, :, : prompted.count] = prompted.cache[:, :, : prompted.count]
        self._committed = prompted.count
        self._ranking = Ranking(self._network.output_layer, params, self.head.target.vocab_size, coupled=coupled)
        # The output of the last committed pair, if there is one, and its logits, if they are computed.
        self._last = prompted.output
        self._last_logits: Tensor | None = None
        # What was accepted and is not in the cache yet: features, and the tokens that they belong to.
        self._features: list[Tensor] = []
        self._tokens: list[int] = []
        self._root = 0
        # Path -> its output [1, d], and its column after the committed ones; of this step only.
        self._outputs: dict[Path, Tensor] = {}
        self._columns: dict[Path, int] = {}

    @property
    def room(self) -> int:
        """How many more tokens fit in the target's context, and so in the head's."""
        return self.head.target.max_context - self._committed - len(self._tokens)

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Take the features [n, levels * d] of accepted tokens; the head reads them when it is next asked."""
        self._features.append(features)
        self._tokens += tokens

    def begin(self, root: int) -> None:
        """Start a step; `root`, the pending token, completes the pair of the last accepted one."""
        self._root = root
        self._outputs.clear()
        self._columns.clear()

    @torch.inference_mode()
    def likeliest(self, paths: Sequence[Path], k: int) -> list[list[tuple[int, float]]]:
        """For each path the k likeliest next tokens with their probabilities, the best first.

        The first call of a step asks for the root, [()]; a later path's parent was asked for before. Returns empty
        lists if the head has read no pair yet.
        """
        # Read here, because `between_forwards` may limit torch to one thread; the compiled layer has its own threads.
        threads = torch.get_num_threads()
        with self.head.target.between_forwards():
            if list(paths) == [()]:
                self._commit(threads)
                if self._last is None:
                    return [[]]
                rows = self._outputs[()] = self._last
                logits = self._last_logits
            else:
                rows, logits = self._extend(paths, threads)
            if logits is None:
                logits = self._network.output_layer.logits(self._network.leave(rows))
            # The root is at position `_committed`, its child at the next one.
            positions = [self._committed + 1 + len(path) for path in paths]
            return self._network.output_layer.likeliest(self._ranking.scores(logits, positions), k)

    def _commit(self, threads: int) -> None:
        """Run the pairs of the accepted tokens, and keep their keys and values."""
        count = len(self._tokens)
        if not count:
            return
        self._make_room(count)
        base = self._committed
        # In a pair, a feature is followed by the next token; after the last accepted token comes the root.
        tokens = [*self._tokens[1:], self._root]
        pairs = Pairs(torch.cat(self._features), tokens, range(base, base + count), in_order(count))
        rows, logits = self.head.run(pairs, self._cache[:, :, : base + count], threads=threads)
        self._last, self._last_logits = rows[-1:], None if logits is None else logits[-1:]
        self._committed += count
        self._features, self._tokens = [], []

    def _extend(self, paths: Sequence[Path], threads: int) -> tuple[Tensor, Tensor | None]:
        """Run a row for each path, whose parent was run before in this step; returns what `EagleHead.run` does."""
        num_before, count, base = len(self._columns), len(paths), self._committed
        self._make_room(num_before + count)
        seen = torch.zeros(count, num_before + count, dtype=torch.bool)
        for row, path in enumerate(paths):
            self._columns[path] = num_before + row
            for length in range(1, len(path) + 1):
                seen[row, self._columns[path[:length]]] = True
        parents = torch.cat([self._outputs[path[:-1]] for path in paths])
        positions = [base + len(path) - 1 for path in paths]
        pairs = Pairs(parents, [path[-1] for path in paths], positions, seen)
        columns = self._cache[:, :, : base + num_before + count]
        rows, logits = self.head.run(pairs, columns, own=True, threads=threads)
        for row, path in enumerate(paths):
            self._outputs[path] = rows[row : row + 1]
        return rows, logits

    def _make_room(self, count: int) -> None:
        """Enlarge the cache, if necessary, for `count` more columns after the committed ones."""
        capacity = self._cache.shape[2]
        if self._committed + count > capacity:
            grown = self.head.new_cache(self._committed + count + _GROWTH)
            grown[:, :, :capacity] = self._cache
            self._cache = grown
