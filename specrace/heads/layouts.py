"""The published layouts of heads: which tensors and config fields mean what. A layout is recognised by its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.heads.checkpoint import Checkpoint
from specrace.heads.eagle import EagleHead, EagleNetwork, EagleOne, EagleThree
from specrace.heads.layer import DraftLayer, LayerSizes, Rotations
from specrace.heads.medusa import MedusaHead
from specrace.heads.words import Words, read_shortlist, target_rows
from specrace.model.forward.tapped import Levels, check_levels
from specrace.model.target import Target

Head = EagleHead | MedusaHead
_KINDS = "EAGLE (1, 2, 3) and Medusa"
# Settings of speculators' EAGLE-3 that change the forward in ways that are not implemented.
_UNSUPPORTED = ("norm_before_fc", "fc_norm", "norm_output")
_MEDUSA_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.weight")


def build_head(checkpoint: Checkpoint, target: Target) -> Head:
    """The head of a checkpoint, on the target's device. Raises InputError if its kind is unknown or it does not fit."""
    checkpoint = _unwrap(checkpoint)
    _check_fingerprint(checkpoint, target)
    names = checkpoint.tensors.keys()
    head: Head
    if any(_MEDUSA_BLOCK.fullmatch(name) for name in names):
        head = _medusa(checkpoint, target)
    elif "fc.weight" in names and any(name.endswith("hidden_norm.weight") for name in names):
        head = EagleHead(_eagle_three(checkpoint, target), target, checkpoint.label)
    elif "fc.weight" in names and "layers.0.self_attn.q_proj.weight" in names:
        head = EagleHead(_eagle_one(checkpoint, target), target, checkpoint.label)
    else:
        example = shorten(min(names, default="nothing"))
        raise InputError(
            f"{checkpoint.label} is of a kind that cannot race here (it has {example}); the kinds are {_KINDS}."
        )
    checkpoint.check_all_used()
    return head


def _unwrap(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint whose config is flat, and whose names have no prefix that only some writers add.

    speculators nests the layer's config; Medusa's second release prefixes all names.
    """
    config: Mapping[str, Any] = checkpoint.config
    nested = config.get("transformer_layer_config")
    if isinstance(nested, dict):
        config = {**nested, **{name: value for name, value in config.items() if name != "transformer_layer_config"}}
    tensors = {name.removeprefix("medusa_head."): tensor for name, tensor in checkpoint.tensors.items()}
    # Old files store what can be computed.
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
    return Checkpoint(checkpoint.label, config, tensors)


def _check_fingerprint(checkpoint: Checkpoint, target: Target) -> None:
    """Raises InputError if the head says that it was trained on other weights, such as those without an adapter."""
    trained_on = checkpoint.config.get("target_fingerprint")
    if trained_on and target.fingerprint and trained_on != target.fingerprint:
        name = shorten(str(checkpoint.config.get("target_name", "another model")))
        raise InputError(
            f"{checkpoint.label} was trained on the answers of {name}, whose weights are not those of {target.name}; "
            "give that model with its adapter, or train a head for this one (python -m specrace.heads train)."
        )


def _check_target(checkpoint: Checkpoint, target: Target) -> LayerSizes:
    """The layer's sizes. Raises InputError for a head of another width or vocabulary."""
    sizes, label = LayerSizes(checkpoint, target.config), checkpoint.label
    width = target.config.hidden_size
    if sizes.width != width:
        raise InputError(
            f"{label} was trained for hidden states of width {sizes.width}, and those of {target.name} have {width}; "
            "give a head that was trained for this target."
        )
    if (vocab_size := checkpoint.size("vocab_size", target.vocab_size)) != target.vocab_size:
        raise InputError(
            f"{label} was trained for a vocabulary of {vocab_size} tokens, and {target.name} has {target.vocab_size}; "
            "give a head that was trained for this target."
        )
    return sizes


def _eagle_one(checkpoint: Checkpoint, target: Target) -> EagleNetwork:
    """EAGLE-1 and 2, in the layout of their own code."""
    sizes, width = _check_target(checkpoint, target), target.config.hidden_size
    layer = DraftLayer(checkpoint, "layers.0.", sizes, width)
    levels = (target.num_layers,)
    words = _read_words(checkpoint, target, width)
    network = EagleOne(layer, Rotations(checkpoint, target.config, sizes), words, levels)
    network.join = _place(checkpoint.take("fc.weight", width, 2 * width), target)
    if checkpoint.config.get("bias", True):
        network.join_bias = _place(checkpoint.take("fc.bias", width), target)
    return _finish(network, checkpoint, target)


def _eagle_three(checkpoint: Checkpoint, target: Target) -> EagleNetwork:
    """EAGLE-3, in the layout of its own code, or with speculators' names."""
    if unsupported := [name for name in _UNSUPPORTED if checkpoint.config.get(name)]:
        raise InputError(f"{checkpoint.label} sets {unsupported[0]}, which cannot race here; give a head without it.")
    sizes, width = _check_target(checkpoint, target), target.config.hidden_size
    prefix = "midlayer." if "midlayer.hidden_norm.weight" in checkpoint else "layers.0."
    levels = aux_levels(checkpoint.config, target.num_layers)
    check_levels(levels, target.num_layers, checkpoint.label)
    layer = DraftLayer(checkpoint, prefix, sizes, 2 * width)
    words = _read_words(checkpoint, target, width)
    network = EagleThree(layer, Rotations(checkpoint, target.config, sizes), words, levels)
    network.join = _place(checkpoint.take("fc.weight", width, len(levels) * width), target)
    network.before_embedding = _place(checkpoint.take(f"{prefix}input_layernorm.weight", width), target)
    network.before_feature = _place(checkpoint.take(f"{prefix}hidden_norm.weight", width), target)
    network.norm = _place(checkpoint.take("norm.weight", width), target)
    network.norm_residual = bool(checkpoint.config.get("norm_before_residual", False))
    return _finish(network, checkpoint, target)


def _finish(network: EagleNetwork, checkpoint: Checkpoint, target: Target) -> EagleNetwork:
    """Move what is left to the target's device and dtype, and take the head's own embeddings, if it has some."""
    network.layer.to(target.device, target.dtype)
    if "embed_tokens.weight" in checkpoint:
        table = checkpoint.take("embed_tokens.weight", target.vocab_size, target.config.hidden_size)
        network.embeddings = _place(table, target)
    return network


def aux_levels(config: Mapping[str, Any], num_layers: int) -> Levels:
    """The levels that an EAGLE-3 head reads.

    `eagle_config` (SGLang, SpecForge) names layers by their outputs, which enter the next layer, so a level is one more
    than its number. At the top of a config (vLLM, speculators) the numbers are levels. Without either, they are those
    of the reference code: 2, the middle, and the third from the end.
    """
    nested = config.get("eagle_config")
    outputs = nested.get("eagle_aux_hidden_state_layer_ids") if isinstance(nested, dict) else None
    levels = config.get("eagle_aux_hidden_state_layer_ids")
    if outputs:
        return tuple(int(number) + 1 for number in outputs)
    if levels:
        return tuple(int(number) for number in levels)
    return 2, num_layers // 2, num_layers - 3


def _read_words(checkpoint: Checkpoint, target: Target, width: int) -> Words:
    """The output layer: the head's own, or the target's rows of the tokens that the head can draft."""
    ids = read_shortlist(checkpoint, target)
    places = None if ids is None else ids.to(target.device)
    if "lm_head.weight" in checkpoint:
        count = target.vocab_size if ids is None else len(ids)
        return Words(_place(checkpoint.take("lm_head.weight", count, width), target), places)
    return _target_words(checkpoint, target, places)


def _target_words(checkpoint: Checkpoint, target: Target, places: Tensor | None) -> Words:
    """The target's output layer, or its rows at `places`."""
    weight, bias = target_rows(target, checkpoint.label)
    if places is not None:
        weight, bias = weight[places], None if bias is None else bias[places]
    return Words(weight.to(target.device), places, None if bias is None else bias.to(target.device))


def _medusa(checkpoint: Checkpoint, target: Target) -> MedusaHead:
    """Medusa: the number of heads is counted, because published configs and files disagree about it."""
    width, names = target.config.hidden_size, checkpoint.tensors
    blocks = [match.groups() for name in names if (match := _MEDUSA_BLOCK.fullmatch(name))]
    num_heads, num_blocks = 1 + max(int(head) for head, _ in blocks), 1 + max(int(block) for _, block in blocks)
    ids = read_shortlist(checkpoint, target)
    places = None if ids is None else ids.to(target.device)
    shared: Words | None = None
    stacks, words = [], []
    for head in range(num_heads):
        stack = []
        for block in range(num_blocks):
            weight = _place(checkpoint.take(f"{head}.{block}.linear.weight", width, width), target)
            stack.append((weight, _place(checkpoint.take(f"{head}.{block}.linear.bias", width), target)))
        stacks.append(stack)
        own = f"{head}.{num_blocks}.weight"
        if own in checkpoint:
            count = target.vocab_size if ids is None else len(ids)
            words.append(Words(_place(checkpoint.take(own, count, width), target), places))
        else:
            shared = shared or _target_words(checkpoint, target, places)
            words.append(shared)
    return MedusaHead(stacks, words, (target.num_layers,), target, checkpoint.label)


def _place(tensor: Tensor, target: Target) -> Tensor:
    """The tensor on the target's device, in its dtype."""
    placed: Tensor = tensor.to(target.device, target.dtype)
    return placed.contiguous() if placed.device != torch.device("meta") else placed
