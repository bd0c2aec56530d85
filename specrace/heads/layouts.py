"""The published layouts of heads: which tensors and config fields mean what. A layout is recognised by its tensors.

Level i is the target's hidden state that enters layer i; the level after the last layer follows the final norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.heads.block import BlockHead
from specrace.heads.block_layout import BlockBuilder
from specrace.heads.checkpoint import Checkpoint
from specrace.heads.eagle import EagleHead, EagleNetwork, EagleOne, EagleThree
from specrace.heads.hydra import HydraBlocks, HydraHead, PrefixLayer
from specrace.heads.layer import DraftLayer, LayerSizes
from specrace.heads.medusa import MedusaHead
from specrace.heads.naming import HYDRA_BLOCK, MEDUSA_BLOCK, explicit_levels, kind_of, read_names
from specrace.heads.output_layer import OutputLayer, read_shortlist, target_rows
from specrace.heads.parts import HeadParts
from specrace.heads.product import Product
from specrace.heads.space import SpaceHead, build_space
from specrace.model.forward.tapped import Levels, check_levels
from specrace.model.target import Target

Head = BlockHead | EagleHead | MedusaHead | HydraHead | SpaceHead
_KINDS = "EAGLE (1, 2, 3), Medusa, Hydra, DFlash, DSpark and the masks of SPACE"
# Hydra's code spells its prefix layer in this way.
_PREFIX_LAYER = "prefix_embeding_layer."
# Settings that a config of Hydra++ may leave to its target's.
_LAYER_FIELDS = ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")


def build_head(checkpoint: Checkpoint, target: Target) -> Head:
    """The head of a checkpoint, on the target's device. Raises InputError if its kind is unknown or it does not fit."""
    checkpoint = read_names(checkpoint)
    head = _HeadBuilder(checkpoint, target).build()
    checkpoint.check_all_used()
    return head


def with_output_rows(checkpoint: Checkpoint, target: Target) -> Checkpoint:
    """Give a Medusa head without output layers copies of the target's rows; other heads are returned unchanged.

    Raises InputError if the head does not fit the target.
    """
    head = build_head(checkpoint, target)
    if not isinstance(head, MedusaHead):
        return checkpoint
    weight, _ = target_rows(target, checkpoint.label)
    ids = read_shortlist(checkpoint, target)
    rows = (weight if ids is None else weight[ids]).to(checkpoint.dtype)
    # In Medusa's layout, a head's output layer has the number after that of its last block.
    names = [f"{number}.{len(blocks)}.weight" for number, blocks in enumerate(head.blocks)]
    config = {**checkpoint.config, "vocab_size": target.vocab_size}
    return replace(checkpoint, config=config, tensors=dict.fromkeys(names, rows) | checkpoint.tensors)


class _HeadBuilder(HeadParts):
    """Builds a head of any kind."""

    def build(self) -> Head:
        """The head; the names of its tensors say of which kind it is."""
        self._check_fingerprint()
        names = self.checkpoint.tensors.keys()
        kind = kind_of(names)
        if kind == "medusa":
            return self._medusa()
        if kind == "hydra":
            return self._hydra()
        if kind == "block":
            return BlockBuilder(self.checkpoint, self.target).build()
        if kind == "space":
            return build_space(self)
        if kind == "eagle3":
            return EagleHead(self._eagle_three(), self.target, self.label)
        if kind == "eagle":
            return self._eagle_one()
        example = shorten(min(names, default="nothing"))
        raise InputError(f"{self.label} is of a kind that cannot race here (it has {example}); the kinds are {_KINDS}.")

    def _check_fingerprint(self) -> None:
        """Raises InputError if the head says that it was trained on other weights, such as those without an adapter."""
        config, target = self.checkpoint.config, self.target
        trained_on = config.get("target_fingerprint")
        if trained_on and target.fingerprint and trained_on != target.fingerprint:
            name = shorten(str(config.get("target_name", "another model")))
            raise InputError(
                f"{self.label} was trained on the answers of {name}, whose weights are not those of {target.name}; "
                "give that model with its adapter, or train a head for this one (python -m specrace.heads train)."
            )

    def _eagle_one(self) -> EagleHead:
        """EAGLE-1 and 2, in the layout of their own code."""
        sizes, width = self.layer_sizes(), self.width
        layer = DraftLayer(self.checkpoint, "layers.0.", sizes, width, self.product)
        # The state after the last layer and the final norm.
        levels = (self.target.num_layers,)
        network = EagleOne(layer, self.rotations(sizes), self.output_layer("lm_head.weight"), levels)
        bias = self.checkpoint.take("fc.bias", width) if self.checkpoint.config.get("bias", True) else None
        network.join = self.product(self.checkpoint.take("fc.weight", width, 2 * width), bias)
        head = EagleHead(self._finish(network), self.target, self.label)
        head.compiled = self.compiled(network.layer, network.output_layer)
        return head

    def _eagle_three(self) -> EagleNetwork:
        """EAGLE-3, in the layout of its own code, or with speculators' names."""
        config = self.checkpoint.config
        sizes, width = self.layer_sizes(), self.width
        prefix = "midlayer." if "midlayer.hidden_norm.weight" in self.checkpoint else "layers.0."
        levels = aux_levels(config, self.target.num_layers)
        check_levels(levels, self.target.num_layers, self.label)
        layer = DraftLayer(self.checkpoint, prefix, sizes, 2 * width, self.product)
        network = EagleThree(layer, self.rotations(sizes), self.output_layer("lm_head.weight"), levels)
        network.join = self.product(self.checkpoint.take("fc.weight", width, len(levels) * width))
        network.before_embedding = self.placed(f"{prefix}input_layernorm.weight", width)
        network.before_feature = self.placed(f"{prefix}hidden_norm.weight", width)
        network.norm = self.placed("norm.weight", width)
        network.norm_residual = bool(config.get("norm_before_residual", False))
        network.norm_output = bool(config.get("norm_output", False))
        network.before_join = self._before_join(len(levels))
        return self._finish(network)

    def _before_join(self, num_levels: int) -> Tensor | None:
        """The weights of the norms before the levels are joined: one for all levels, or one for each, or none."""
        config = self.checkpoint.config
        has_one_norm, has_norms = bool(config.get("norm_before_fc")), bool(config.get("fc_norm"))
        if has_one_norm and has_norms:
            raise InputError(
                f"{self.label} sets norm_before_fc and fc_norm, which exclude each other; set one of them."
            )
        if has_one_norm:
            return self.placed("input_norm.weight", num_levels * self.width)[None]
        if has_norms:
            return torch.stack([self.placed(f"fc_norm.{level}.weight", self.width) for level in range(num_levels)])
        return None

    def _finish(self, network: EagleNetwork) -> EagleNetwork:
        """Move the layer's norm to the target's device, and take the head's own embeddings, if it has any."""
        network.layer.before_mlp = network.layer.before_mlp.to(self.target.device, self.target.dtype)
        network.embeddings = self.own_embeddings("embed_tokens.weight")
        return network

    def _medusa(self) -> MedusaHead:
        """Medusa: the number of heads is counted, because published configs and files disagree about it."""
        blocks = [match.groups() for name in self.checkpoint.tensors if (match := MEDUSA_BLOCK.fullmatch(name))]
        num_heads, num_blocks = 1 + max(int(head) for head, _ in blocks), 1 + max(int(block) for _, block in blocks)
        stacks = [[self._block(f"{head}.{block}.linear") for block in range(num_blocks)] for head in range(num_heads)]
        outputs = [self.output_layer(f"{head}.{num_blocks}.weight") for head in range(num_heads)]
        # It reads the state after the last layer and the final norm.
        return MedusaHead(stacks, outputs, (self.target.num_layers,), self.target, self.label)

    def _hydra(self) -> HydraHead:
        """Hydra and Hydra++: heads and blocks are counted, as Medusa's are.

        Grounded heads are those that also read the draft tokens. The offset counts levels down from the last one.
        """
        config, take, width = self.checkpoint.config, self.checkpoint.take, self.width
        architecture, offset = config.get("hydra_head_arch", "mlp"), config.get("hidden_state_offset", 0)
        if architecture not in ("mlp", "prefix-mlp") or not config.get("grounded_heads", False):
            raise InputError(
                f"{self.label} has the hydra_head_arch {shorten(repr(architecture))} and grounded_heads "
                f"{shorten(repr(config.get('grounded_heads', False)))}; the heads that race here are mlp and "
                "prefix-mlp with grounded_heads true."
            )
        if not isinstance(offset, int) or not 0 <= offset <= self.target.num_layers:
            raise InputError(
                f"{self.label} has the hidden_state_offset {shorten(repr(offset))}, and {self.target.name} has "
                f"{self.target.num_layers} layers; give a head that was trained for this target."
            )
        matches = [match for name in self.checkpoint.tensors if (match := HYDRA_BLOCK.fullmatch(name))]
        num_heads = 1 + max(int(match[1]) for match in matches)
        # Block numbers have gaps in Hydra++, whose code also counts the dropout before each block.
        first, *others = sorted({int(match[2]) for match in matches})
        blocks, outputs = list[HydraBlocks](), list[OutputLayer]()
        for head in range(num_heads):
            linear, residual = (f"hydra_mlp.{head}.{first}.{name}" for name in ("linear", "res_connection"))
            inputs = (head + 2) * width
            weight = torch.cat([take(f"{name}.weight", width, inputs) for name in (linear, residual)])
            bias = torch.cat([take(f"{name}.bias", width) for name in (linear, residual)])
            later = [self._block(f"hydra_mlp.{head}.{block}.linear") for block in others]
            blocks.append(HydraBlocks(self.product(weight, bias), later))
            # For the same reason, the output layer of Hydra++ is number 1, after its dropout.
            plain, after_dropout = f"hydra_lm_head.{head}.weight", f"hydra_lm_head.{head}.1.weight"
            outputs.append(self.output_layer(after_dropout if after_dropout in self.checkpoint else plain))
        return HydraHead(
            blocks,
            outputs,
            (self.target.num_layers - offset,),
            self.target,
            self.label,
            prefix_layer=self._prefix_layer() if architecture == "prefix-mlp" else None,
            embeddings=self.own_embeddings("input_embed_fn.weight"),
        )

    def _prefix_layer(self) -> PrefixLayer:
        """Hydra++'s prefix layer, whose sizes are the target's unless the config says otherwise."""
        target = self.target.config
        sizes_of_target = {name: getattr(target, name) for name in _LAYER_FIELDS if getattr(target, name, None)}
        checkpoint = replace(self.checkpoint, config={**sizes_of_target, **self.checkpoint.config})
        sizes = LayerSizes(checkpoint, target)
        layer = DraftLayer(checkpoint, f"{_PREFIX_LAYER}layers.0.", sizes, self.width, self.product)
        layer.before_mlp = layer.before_mlp.to(self.target.device, self.target.dtype)
        # It reads hidden states, so its embeddings are not used.
        checkpoint.ignore({f"{_PREFIX_LAYER}embed_tokens.weight"} & checkpoint.tensors.keys())
        return PrefixLayer(
            layer,
            self.rotations(sizes),
            self.placed(f"{_PREFIX_LAYER}layers.0.input_layernorm.weight", self.width),
            self.placed(f"{_PREFIX_LAYER}norm.weight", self.width),
        )

    def _block(self, name: str) -> Product:
        """A residual block's linear layer [d] -> [d], with a bias."""
        weight = self.checkpoint.take(f"{name}.weight", self.width, self.width)
        return self.product(weight, self.checkpoint.take(f"{name}.bias", self.width))


def aux_levels(config: Mapping[str, Any], num_layers: int) -> Levels:
    """The levels that an EAGLE-3 head reads: its config's, or those of the reference code.

    The reference code reads levels 2, L // 2 and L - 3 of L layers. Raises InputError if the config's levels are not a
    list of numbers.
    """
    return tuple(explicit_levels(config)) or (2, num_layers // 2, num_layers - 3)
