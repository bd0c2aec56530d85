"""The layouts of block drafters: those of DFlash's and DSpark's own code, and speculators'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.heads.block import BlockHead, BlockLayer, BlockNetwork, Transition
from specrace.heads.checkpoint import Checkpoint
from specrace.heads.layer import DraftLayer, LayerSizes
from specrace.heads.parts import HeadParts
from specrace.model.forward.tapped import Levels, check_levels

# Settings of a config that change the forward in ways that are not implemented.
_UNSUPPORTED = ("use_swa", "causal", "is_causal", "attention_bias", "attention_sink_bias", "attention_value_scale")
# Tensors that the library speculators stores and a race does not need.
_OF_TRAINING = ("verifier_norm.weight", "verifier_lm_head.weight", "confidence_head.proj.weight")
_LAYER = re.compile(r"layers\.(\d+)\..*")


class BlockBuilder(HeadParts):
    """Builds a block head."""

    def build(self) -> BlockHead:
        """Build DFlash or DSpark from the layout of its own code or of speculators."""
        sizes, width, settings = self.layer_sizes(), self.width, self._settings()
        levels = block_levels(settings, self.label)
        check_levels(levels, self.target.num_layers, self.label)
        matches = [_LAYER.fullmatch(name) for name in self.checkpoint.tensors]
        count = 1 + max((int(match[1]) for match in matches if match), default=0)
        # 0 if the block's first row, the pending token's, guesses too: by default in DSpark, which has a `markov_rank`.
        first = 0 if settings.get("sample_from_anchor", "markov_rank" in settings) else 1
        embeddings = self.own_embeddings("embed_tokens.weight")
        network = BlockNetwork(
            levels,
            self.product(self.checkpoint.take("fc.weight", width, len(levels) * width)),
            self.placed("hidden_norm.weight", width),
            tuple(self._layer(f"layers.{number}.", sizes) for number in range(count)),
            self.placed("norm.weight", width),
            self._mask(settings, embeddings),
            Checkpoint(self.label, settings, {}).size("block_size"),
            first,
            self.rotations(sizes),
            self.output_layer("lm_head.weight"),
            self._transition(settings),
            embeddings,
        )
        head = BlockHead(network, self.target, self.label)
        if head.depth < 1:
            raise InputError(
                f"{self.label} has blocks of one row, which guesses no token; give a head with longer ones."
            )
        if count == 1:
            (only_layer,) = network.layers
            norms = {"before_attention": only_layer.before_attention, "last": network.norm}
            head.compiled = self.compiled(only_layer.layer, network.output_layer, **norms)
        return head

    def _settings(self) -> dict[str, Any]:
        """A block head's config, with the entries of `dflash_config` moved to its top level.

        Raises InputError for settings that are not implemented.
        """
        nested = self.checkpoint.config.get("dflash_config")
        settings = {**self.checkpoint.config, **(nested if isinstance(nested, dict) else {})}
        unsupported = [name for name in _UNSUPPORTED if settings.get(name)]
        if "sliding_attention" in (settings.get("layer_types") or ()):
            unsupported.append("layer_types")
        if settings.get("markov_rank") and settings.get("markov_head_type", "vanilla") != "vanilla":
            unsupported.append("markov_head_type")
        if unsupported:
            raise InputError(f"{self.label} sets {unsupported[0]}, which cannot race here; give a head without it.")
        self.checkpoint.ignore({*_OF_TRAINING, "confidence_head.proj.bias"} & self.checkpoint.tensors.keys())
        return settings

    def _layer(self, prefix: str, sizes: LayerSizes) -> BlockLayer:
        layer = DraftLayer(self.checkpoint, prefix, sizes, self.width, self.product)
        layer.before_mlp = layer.before_mlp.to(self.target.device, self.target.dtype)
        layer.head_norms = (
            self.placed(f"{prefix}self_attn.q_norm.weight", sizes.size),
            self.placed(f"{prefix}self_attn.k_norm.weight", sizes.size),
        )
        keys = sizes.kv_heads * sizes.size
        weights = [self.checkpoint.take(f"{prefix}self_attn.{name}_proj.weight", keys, self.width) for name in "kv"]
        return BlockLayer(
            layer, self.placed(f"{prefix}input_layernorm.weight", self.width), self.product(torch.cat(weights))
        )

    def _mask(self, settings: Mapping[str, Any], embeddings: Tensor | None) -> Tensor:
        """The mask's embedding [d]: a tensor of its own, as vLLM reads it, or that of `mask_token_id`."""
        if "mask_embedding" in self.checkpoint:
            return self.placed("mask_embedding", self.width)
        token = settings.get("mask_token_id")
        if not isinstance(token, int) or not 0 <= token < self.target.vocab_size:
            raise InputError(
                f"{self.label} has the mask_token_id {shorten(repr(token))}, which is no token of {self.target.name}; "
                "give a head that was trained for this target."
            )
        if embeddings is not None:
            return embeddings[token]
        ids = torch.tensor([token], device=self.target.device)
        embedded: Tensor = self.target.model.get_input_embeddings()(ids)[0].detach()
        return embedded

    def _transition(self, settings: Mapping[str, Any]) -> Transition | None:
        """DSpark's bias by the previous token, if the head has one."""
        rank = settings.get("markov_rank")
        if not rank:
            return None
        rank = self.checkpoint.size("markov_rank")
        count = self.target.vocab_size if self.shortlist is None else len(self.shortlist)
        rows = self.placed("markov_head.markov_w1.weight", self.target.vocab_size, rank)
        return Transition(rows, self.product(self.checkpoint.take("markov_head.markov_w2.weight", count, rank)))


def block_levels(settings: Mapping[str, Any], label: str) -> Levels:
    """The levels that a block head reads; `label` names the head. Raises InputError if its config does not say.

    `target_layer_ids` (DFlash, DSpark) names layers by their outputs, so a level is one more than its number;
    `aux_hidden_state_layer_ids` (speculators) names levels.
    """
    outputs, levels = settings.get("target_layer_ids"), settings.get("aux_hidden_state_layer_ids")
    numbers = outputs or levels
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise InputError(
            f"{label} does not say which layers of its target it reads; its config needs target_layer_ids or "
            "aux_hidden_state_layer_ids, a list of numbers."
        )
    return tuple(number + 1 if outputs else number for number in numbers)
