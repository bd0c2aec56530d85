"""The draft model: a small model with its own KV cache, which is rewound to drop rejected tokens.

A warped distribution is that after temperature, top-k and top-p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.model.forward.kv import KVStore, Prefix
from specrace.model.sampling import warp
from specrace.model.scorer import Scorer

# How many tokens more than needed at once a cache has room for when it is enlarged, so that it rarely is (not tuned).
GROWTH = 256


class DraftModel:
    """A model that drafts for a target of `vocab_size` tokens; None: as many as the draft model's own vocabulary."""

    def __init__(self, model: Scorer, vocab_size: int | None = None) -> None:
        self.model = model
        self.vocab_size = model.vocab_size if vocab_size is None else vocab_size

    def after(self, prompt: Sequence[int]) -> PromptedDraftModel:
        """The model after reading all of `prompt` but its last token. Raises InputError if the prompt does not fit."""
        if len(prompt) > self.model.max_context:
            raise InputError(
                f"The prompt has {len(prompt)} tokens and the draft model {self.model.name} takes "
                f"{self.model.max_context}: use fewer passages or shorter documents, or leave out the lanes that draft "
                "with it."
            )
        return PromptedDraftModel(self, self.model.prefill(prompt))


class PromptedDraftModel:
    """A draft model with a prompt in its cache.

    `prefill_ms`: how long the model took to read the prompt; no lane's time includes it.
    """

    def __init__(self, drafting: DraftModel, prefix: Prefix) -> None:
        self.drafting, self.prefix = drafting, prefix
        self.prefill_ms = prefix.ms

    @property
    def name(self) -> str:
        """The model's name."""
        return self.drafting.model.name

    def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> DraftSession:
        """A session on a clone of the cache with room for `room` more tokens; 0: not known, so `GROWTH`.

        If the model uses CUDA graphs, the graphs that read `rows` tokens at a time are captured here.
        """
        return DraftSession(self.drafting, self.prefix, params, room or GROWTH, rows)


class DraftSession:
    """A sequence that a draft model reads; its cache has room for `room` tokens after the prefix, and then grows."""

    def __init__(
        self, drafting: DraftModel, prefix: Prefix, params: SamplingParams, room: int, rows: Sequence[int]
    ) -> None:
        self.model, self.vocab_size = drafting.model, drafting.vocab_size
        self.params, self._prefix, self._rows = params, prefix, rows
        self._session = self.model.session(prefix, room, rows=rows)

    @property
    def store(self) -> KVStore:
        """The keys and values of the tokens read."""
        return self._session.store

    @property
    def room(self) -> int:
        """How many more tokens fit in the model's context."""
        return self.model.max_context - self.store.length

    def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
        """Read `tokens` (at least one); returns the likeliest next token and its probability."""
        best = self._read(tokens).softmax(dim=-1).max(dim=-1)
        return int(best.indices), float(best.values)

    def distribution(self, tokens: Sequence[int]) -> np.ndarray:
        """Read `tokens` (at least one); returns the next token's warped distribution, float64 [V]."""
        probs: np.ndarray = warp(self._read(tokens), self.params).double().softmax(dim=-1)[0].cpu().numpy()
        return probs

    def rewind(self, count: int) -> None:
        """Keep only the first `count` tokens."""
        self.store.rewind(count)

    def tree_likeliest(
        self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        """Read `unread` and score a tree of N nodes that follows it, in one forward; the tree is not committed.

        `unread`: tokens of the text that the model has not read yet. Returns, for each of `nodes`, the k likeliest next
        tokens and their probabilities, the best first.
        """
        logits = self._score_nodes(unread, tree, nodes)
        with self.model.between_forwards():
            best = logits.softmax(dim=-1).topk(min(k, logits.shape[-1]), dim=-1)
        return [
            list(zip(tokens, probs, strict=True))
            for tokens, probs in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def tree_distributions(self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int]) -> np.ndarray:
        """Run the forward of `tree_likeliest`; returns the warped distributions after `nodes`, float64 [n, V]."""
        logits = self._score_nodes(unread, tree, nodes)
        with self.model.between_forwards():
            probs: np.ndarray = warp(logits, self.params).double().softmax(dim=-1).cpu().numpy()
        return probs

    @torch.inference_mode()
    def _score_nodes(self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int]) -> Tensor:
        """Logits after `nodes` of a tree that follows `unread`, float [n, V]; only `unread` is committed.

        Raises InputError for a tree with branches if the model's layers keep a state.
        """
        if self.model.chains_only and not tree.is_chain:
            raise InputError(
                f"Layers of the draft model {self.model.name} keep a state, which follows one branch only; "
                "give another draft model, or draft without branches (specinfer.width=1)."
            )
        num_unread = len(unread)
        # The unread tokens form a chain, and the tree's root, whose parent is -1, follows the last of them.
        parents = (*range(-1, num_unread - 1), *(parent + num_unread for parent in tree.parents))
        joined = TokenTree((*unread, *tree.tokens), parents)
        logits = self._run(joined)[[node + num_unread for node in nodes]]
        if num_unread:
            self.store.keep(range(num_unread))
            # A length that was not marked cannot be returned to by `rewind` if the layers keep a state.
            self.store.mark()
        return self._widen(logits)

    @torch.inference_mode()
    def _read(self, tokens: Sequence[int]) -> Tensor:
        """Run one forward; returns the logits after the last token, float [1, V] over the target's vocabulary."""
        logits = self._run(TokenTree.chain(tokens[0], tokens[1:]))[-1:]
        self.store.commit(len(tokens))
        self.store.mark()
        return self._widen(logits)

    def _run(self, tree: TokenTree) -> Tensor:
        """Logits [N, draft model's V] of a tree after the tokens read, in a cache that grows if it is full."""
        if self.store.length + len(tree) > self.store.capacity:
            prefix = replace(self._prefix, store=self.store)
            self._session = self.model.session(prefix, len(tree) + GROWTH, rows=self._rows)
        # If the target's embedding table is longer, its last ids are padding, which no text contains.
        ids = tuple(min(token, self.model.vocab_size - 1) for token in tree.tokens)
        return self._session.run(replace(tree, tokens=ids))

    def _widen(self, logits: Tensor) -> Tensor:
        """Logits [n, draft model's V] as float over the target's vocabulary, [n, V]."""
        logits = logits.float()
        if self.model.vocab_size < self.vocab_size:
            missing = self.vocab_size - self.model.vocab_size
            return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
        return logits[:, : self.vocab_size]


def check_vocabulary(model: Scorer, target: Scorer) -> None:
    """Raises InputError unless every token has the same id in both models; the embeddings' padding may differ."""
    ids, target_ids = (scorer.tokenizer.get_vocab() if scorer.tokenizer else {} for scorer in (model, target))
    # Without tokenizers only the sizes can be compared.
    has_tokenizers = bool(ids or target_ids)
    same = ids == target_ids if has_tokenizers else model.vocab_size == target.vocab_size
    if not same:
        sizes = f"{len(ids) or model.vocab_size} tokens against {len(target_ids) or target.vocab_size}"
        differing = [token for token, token_id in target_ids.items() if ids.get(token) != token_id]
        example = f", for instance {shorten(repr(min(differing, key=target_ids.__getitem__)))}" if differing else ""
        raise InputError(
            f"{model.name} cannot draft for {target.name}: their vocabularies differ ({sizes}{example}); "
            "choose a smaller model of the same family."
        )
