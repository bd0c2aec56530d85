"""Sessions: one lane's cache and sampler, and the forwards of the scorer that use them.

A trained head, if the lane has one, reads features: the target's hidden states at some levels (level i enters layer i).
Or it consists of masks: learned inputs below each node of a tree, at which the target guesses further tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.model.forward.graphs import GraphedStore
from specrace.model.forward.kv import KVStore
from specrace.model.forward.masked import MaskReader, Masks
from specrace.model.forward.tapped import FeatureReader, Levels
from specrace.model.sampling import Sampler, warp


class Forwards(Protocol):
    """The part of a scorer that its sessions use (see `specrace.model.scorer.Scorer`)."""

    max_context: int

    def run(self, store: KVStore, tree: TokenTree) -> Tensor:
        """Logits [N, V] of a tree after the tokens in `store`."""

    def run_tapped(self, store: KVStore, tree: TokenTree, levels: Levels) -> tuple[Tensor, Tensor]:
        """Logits and features [N, levels * d]."""

    def run_masked(self, store: KVStore, tree: TokenTree, masks: Masks) -> Tensor:
        """Logits of a tree with masks."""

    def between_forwards(self) -> AbstractContextManager[None]:
        """The context for work between two forwards."""

    def synchronize(self) -> None:
        """Wait for the device."""


class ModelSession:
    """One lane's cache and sampler, and the forwards of the scorer that use them.

    `head_session`: the session of the lane's trained head, if it has one; it gets the features of committed tokens, or
    the logits of the masks below the last of them, which are rows of the forward and not nodes of the tree.
    """

    def __init__(
        self,
        scorer: Forwards,
        store: KVStore,
        sampler: Sampler,
        num_top: int = 0,
        head_session: FeatureReader | MaskReader | None = None,
    ) -> None:
        self.scorer, self.store, self.head_session = scorer, store, head_session
        self.sampler, self.num_top = sampler, num_top
        # Which of the two protocols the head's session has, checked here because the check is too slow for a step.
        self._mask_reader = head_session if isinstance(head_session, MaskReader) else None
        self._feature_reader = head_session if isinstance(head_session, FeatureReader) else None
        # Of the tree that was run last: its tokens, and its features or the logits [N, m, V] of its masks.
        self._tokens: tuple[int, ...] = ()
        self._features: Tensor | None = None

    @torch.inference_mode()
    def logits(self, tree: TokenTree) -> Tensor:
        """Logits [N, V] by one forward over the tree."""
        return self.run(tree)

    def run(self, tree: TokenTree) -> Tensor:
        """`logits` for callers already in inference mode; with a head, also notes for `keep` what the head will get."""
        if self._mask_reader is not None:
            logits, self._features = self._run_with_masks(tree, self._mask_reader)
        elif self._feature_reader is not None:
            logits, self._features = self.run_tapped(tree, self._feature_reader.levels)
        else:
            return self.scorer.run(self.store, tree)
        self._tokens = tree.tokens
        return logits

    def _run_with_masks(self, tree: TokenTree, reader: MaskReader) -> tuple[Tensor, Tensor]:
        """Logits [N, V] of a tree, and those of the masks below its nodes, [N, m, V], computed in one forward.

        Masks whose positions would leave the model's context are left out.
        """
        size, masks = len(tree), reader.masks
        room = self.scorer.max_context - self.store.length - 1 - max(tree.depths)
        count = max(0, min(reader.num_masks, room))
        logits = self.run_masked(masks.below(tree, count), masks)
        return logits[:size], logits[size:].view(size, count, logits.shape[-1])

    def run_masked(self, tree: TokenTree, masks: Masks) -> Tensor:
        """Logits of a tree with masks."""
        return self.scorer.run_masked(self.store, tree, masks)

    def run_tapped(self, tree: TokenTree, levels: Levels) -> tuple[Tensor, Tensor]:
        """Logits and features of a tree, computed in one forward."""
        return self.scorer.run_tapped(self.store, tree, levels)

    @torch.inference_mode()
    def score(self, tree: TokenTree) -> Scores:
        """The model's token at every node: one forward and one copy to the host."""
        logits = self.run(tree)
        base = self.store.length + 1
        with self.scorer.between_forwards():
            targets = self.sampler.choose(logits, [base + depth for depth in tree.depths])
            if not self.num_top:
                return Scores(tuple(targets.tolist()))
            top = logits.topk(min(self.num_top, logits.shape[-1]), dim=-1).indices
        # One copy to the host: each node's target, then its likeliest tokens.
        choices = torch.cat([targets[:, None], top], dim=-1).tolist()
        return Scores(tuple(tokens[0] for tokens in choices), tuple(tuple(tokens[1:]) for tokens in choices))

    @torch.inference_mode()
    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        """The distribution after temperature, top-k and top-p at every node, float64 [N, V]; one-hot if greedy."""
        logits = self.run(tree).float()
        with self.scorer.between_forwards():
            probs: np.ndarray = warp(logits, self.sampler.params).double().softmax(dim=-1).cpu().numpy()
        return probs

    def keep(self, path: Sequence[int]) -> None:
        """Commit the keys and values of the nodes in `path`; the next tree overwrites those of the other nodes.

        The head's session gets a copy of the path's features, because the next forward may reuse their memory.
        """
        with self.scorer.between_forwards():
            self.store.keep(path)
            if self._features is not None:
                self._inform_head(self._features, path)
        self.scorer.synchronize()

    def _inform_head(self, features: Tensor, path: Sequence[int]) -> None:
        """Give the head's session what belongs to the accepted path; `features` may be the masks' logits."""
        tokens = [self._tokens[node] for node in path]
        if self._mask_reader is not None:
            self._mask_reader.read_masks(features[path[-1]].clone(), tokens)
        elif self._feature_reader is not None:
            index = torch.tensor(path, device=features.device)
            self._feature_reader.queue(features.index_select(0, index), tokens)


class GraphedSession(ModelSession):
    """A session on a store from the pool of graphs; it replays the graphs that were captured on that store."""

    def __init__(
        self,
        scorer: Forwards,
        pooled: GraphedStore,
        sampler: Sampler,
        num_top: int = 0,
        head_session: FeatureReader | MaskReader | None = None,
    ) -> None:
        super().__init__(scorer, pooled.store, sampler, num_top, head_session)
        self._pooled = pooled
        # Once this session is freed, because its lane has finished, the next session may use the store and its graphs.
        finalize(self, pooled.release)

    def run(self, tree: TokenTree) -> Tensor:
        """Logits [N, V], valid until the next forward of any graphed session."""
        replayed = None if self.head_session is not None else self._pooled.logits(tree)
        return super().run(tree) if replayed is None else replayed

    def run_tapped(self, tree: TokenTree, levels: Levels) -> tuple[Tensor, Tensor]:
        """Logits and features of a tree, valid until the next forward of any graphed session."""
        replayed = self._pooled.tapped(tree)
        return super().run_tapped(tree, levels) if replayed is None else replayed

    def run_masked(self, tree: TokenTree, masks: Masks) -> Tensor:
        """Logits of a tree with masks, valid until the next forward of any graphed session."""
        replayed = self._pooled.logits(tree)
        return super().run_masked(tree, masks) if replayed is None else replayed
