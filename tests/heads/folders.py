"""Heads with random weights, written as folders in the published layouts, under the names that tensors have there.

`ids` are a shortlist: the only tokens that a head can draft; () stands for all. `target` gives width and vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specrace.model.target import Target

# Large enough for outputs to vary, and small enough for softmax not to saturate.
SCALE = 0.3
SIZES = {"intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}


def write_head(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Write a head's folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def offsets(ids: Sequence[int]) -> Tensor:
    """The tensor `d2t` ("draft to target") of a head that drafts these tokens only: each token's id minus its index."""
    return torch.tensor(ids) - torch.arange(len(ids))


def _random(generator: torch.Generator, *shape: int) -> Tensor:
    """Normal numbers with the standard deviation `SCALE`."""
    return SCALE * torch.randn(*shape, generator=generator)


def layer_tensors(generator: torch.Generator, target: Target, prefix: str, inputs: int) -> dict[str, Tensor]:
    """The tensors of a layer whose attention reads rows of `inputs` numbers."""
    width, hidden = target.config.hidden_size, SIZES["intermediate_size"]
    size = width // SIZES["num_attention_heads"]
    keys = size * SIZES["num_key_value_heads"]
    shapes = {
        "self_attn.q_proj": (width, inputs),
        "self_attn.k_proj": (keys, inputs),
        "self_attn.v_proj": (keys, inputs),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (hidden, width),
        "mlp.up_proj": (hidden, width),
        "mlp.down_proj": (width, hidden),
    }
    tensors = {f"{prefix}{name}.weight": _random(generator, *shape) for name, shape in shapes.items()}
    norm = 1 + _random(generator, width)
    return tensors | {f"{prefix}post_attention_layernorm.weight": norm}


def base_config(target: Target, **changes: Any) -> dict[str, Any]:
    """The config fields that all layouts with a layer have."""
    config = target.config
    values = {"hidden_size": config.hidden_size, "vocab_size": target.vocab_size, "rms_norm_eps": 1e-5}
    return values | SIZES | {"rope_theta": 10000.0, "num_hidden_layers": 1} | changes


def eagle_one(folder: Path, target: Target, *, seed: int = 0, ids: Sequence[int] = (), **changes: Any) -> Path:
    """An EAGLE-1 head; with `ids`, it drafts these tokens only. A tensor in `changes` replaces the one of its name."""
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    tensors = layer_tensors(generator, target, "layers.0.", width)
    tensors |= {"fc.weight": _random(generator, width, 2 * width), "fc.bias": _random(generator, width)}
    if ids:
        tensors["d2t"] = offsets(ids)
        changes["draft_vocab_size"] = len(ids)
    replaced = {name: value for name, value in changes.items() if isinstance(value, Tensor)}
    config = {name: value for name, value in changes.items() if name not in replaced}
    return write_head(folder, base_config(target, **config), tensors | replaced)


def eagle_three(
    folder: Path, target: Target, *, seed: int = 0, ids: Sequence[int] = (), prefix: str = "midlayer.", **changes: Any
) -> Path:
    """An EAGLE-3 head, with an output layer of its own; see `eagle_one`."""
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    num_tokens = len(ids) or target.vocab_size
    tensors = layer_tensors(generator, target, prefix, 2 * width)
    for name in (f"{prefix}input_layernorm", f"{prefix}hidden_norm", "norm"):
        tensors[f"{name}.weight"] = 1 + _random(generator, width)
    # `fc` joins the hidden states of three levels.
    tensors |= {
        "fc.weight": _random(generator, width, 3 * width),
        "lm_head.weight": _random(generator, num_tokens, width),
    }
    if ids:
        marks = torch.zeros(target.vocab_size, dtype=torch.bool)
        marks[list(ids)] = True
        tensors |= {"d2t": offsets(ids), "t2d": marks}
        changes["draft_vocab_size"] = len(ids)
    return write_head(folder, base_config(target, **changes), tensors)


def block(
    folder: Path,
    target: Target,
    *,
    seed: int = 0,
    ids: Sequence[int] = (),
    layers: int = 1,
    rank: int = 0,
    **changes: Any,
) -> Path:
    """A DFlash head; with `rank`, a DSpark head, whose bias by the previous token has this rank; see `eagle_one`."""
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    size = width // SIZES["num_attention_heads"]
    tensors: dict[str, Tensor] = {}
    for number in range(layers):
        prefix = f"layers.{number}."
        tensors |= layer_tensors(generator, target, prefix, width)
        tensors[f"{prefix}input_layernorm.weight"] = 1 + _random(generator, width)
        for name in "qk":
            tensors[f"{prefix}self_attn.{name}_norm.weight"] = 1 + _random(generator, size)
    for name in ("hidden_norm", "norm"):
        tensors[f"{name}.weight"] = 1 + _random(generator, width)
    # `fc` joins the hidden states of two levels, the outputs of the layers `target_layer_ids`; token 2 is the mask.
    tensors["fc.weight"] = _random(generator, width, 2 * width)
    config: dict[str, Any] = {"num_hidden_layers": layers, "block_size": 4}
    # A target of one layer has layer 0 only.
    config["dflash_config"] = {"target_layer_ids": [0, min(1, target.num_layers - 1)], "mask_token_id": 2}
    if ids:
        tensors["d2t"] = offsets(ids)
        config["draft_vocab_size"] = len(ids)
    if rank:
        tensors["markov_head.markov_w1.weight"] = _random(generator, target.vocab_size, rank)
        tensors["markov_head.markov_w2.weight"] = _random(generator, len(ids) or target.vocab_size, rank)
        config["markov_rank"] = rank
    return write_head(folder, base_config(target, **(config | changes)), tensors)


def medusa(
    folder: Path, target: Target, *, seed: int = 0, depth: int = 3, ids: Sequence[int] = (), own: bool = False
) -> Path:
    """Medusa heads of one block; `own`: with output layers of their own."""
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    tensors: dict[str, Tensor] = {}
    config: dict[str, Any] = {"medusa_num_heads": depth, "medusa_num_layers": 1, "vocab_size": target.vocab_size}
    for head in range(depth):
        tensors[f"{head}.0.linear.weight"] = _random(generator, width, width)
        tensors[f"{head}.0.linear.bias"] = _random(generator, width)
        if own:
            tensors[f"{head}.1.weight"] = _random(generator, len(ids) or target.vocab_size, width)
    if ids:
        tensors["d2t"] = offsets(ids)
        config["draft_vocab_size"] = len(ids)
    return write_head(folder, config, tensors)


def space(folder: Path, target: Target, *, seed: int = 0, masks: int = 3, **changes: Any) -> Path:
    """Masks with random embeddings; see `eagle_one`."""
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    config = {"num_masks": masks, "hidden_size": width, "vocab_size": target.vocab_size, "model_type": "space"}
    return write_head(folder, config | changes, {"mask_embeddings.weight": _random(generator, masks, width)})


def vllm_medusa(
    folder: Path, target: Target, *, seed: int = 0, depth: int = 3, ids: Sequence[int] = (), shared: bool = False
) -> Path:
    """Medusa heads of two blocks in vLLM's layout; `shared`: with biases, and one output layer for all heads."""
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    tensors: dict[str, Tensor] = {}
    for head in range(depth):
        for block in range(2):
            tensors[f"blocks.{head}.layers.{block}.weight"] = _random(generator, width, width)
            if shared:
                tensors[f"blocks.{head}.layers.{block}.bias"] = _random(generator, width)
        output = "lm_head.weight" if shared else f"lm_heads.{head}.weight"
        tensors[output] = _random(generator, len(ids) or target.vocab_size, width)
    config = {"num_heads": depth, "num_hidden_layers": 2, "hidden_size": width, "vocab_size": target.vocab_size}
    config |= {"medusa_fc_bias": shared, "original_lm_head": shared, "model_type": "medusa"}
    if ids:
        tensors["token_map"] = torch.tensor(ids)
        config["truncated_vocab_size"] = len(ids)
    return write_head(folder, config, tensors)


def speculators(folder: Path, target: Target, *, ids: Sequence[int] = (), **changes: Any) -> Path:
    """An EAGLE-3 head as the library speculators writes it: it names its class and nests its layer's config.

    If `changes` sets `fc_norm` or `norm_before_fc`, the weights of these norms are written, too.
    """
    eagle_three(folder, target, ids=ids, prefix="layers.0.")
    generator, width = torch.Generator().manual_seed(9), target.config.hidden_size
    tensors = load_file(folder / "model.safetensors")
    if changes.get("fc_norm"):
        tensors |= {f"fc_norm.{level}.weight": 1 + _random(generator, width) for level in range(3)}
    if changes.get("norm_before_fc"):
        tensors["input_norm.weight"] = 1 + _random(generator, 3 * width)
    save_file(tensors, folder / "model.safetensors")
    layer = json.loads((folder / "config.json").read_text())
    config = {"auto_map": {"": "config.Eagle3SpeculatorConfig"}, "speculators_model_type": "eagle3"}
    if "draft_vocab_size" in layer:
        config["draft_vocab_size"] = layer.pop("draft_vocab_size")
    config |= {"transformer_layer_config": layer, "norm_before_fc": False} | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def hydra(
    folder: Path,
    target: Target,
    *,
    seed: int = 0,
    depth: int = 3,
    ids: Sequence[int] = (),
    own: bool = False,
    plus: bool = False,
    **changes: Any,
) -> Path:
    """Hydra heads of two blocks; `own`: with output layers of their own; `plus`: Hydra++ heads, with its names.

    A tensor in `changes` replaces the one of its name.
    """
    generator, width = torch.Generator().manual_seed(seed), target.config.hidden_size
    tensors: dict[str, Tensor] = {}
    # In Hydra++ a dropout before each block and output layer takes a number, too.
    blocks, output = ((1, 3), ".1") if plus else ((0, 1), "")
    for head in range(depth):
        name = f"hydra_mlp.{head}"
        layers = {f"{name}.{blocks[0]}.linear": (head + 2) * width, f"{name}.{blocks[1]}.linear": width}
        for layer, inputs in (layers | {f"{name}.{blocks[0]}.res_connection": (head + 2) * width}).items():
            tensors |= {
                f"{layer}.weight": _random(generator, width, inputs),
                f"{layer}.bias": _random(generator, width),
            }
        if own:
            count, layer = len(ids) or target.vocab_size, f"hydra_lm_head.{head}{output}"
            tensors |= {f"{layer}.weight": _random(generator, count, width), f"{layer}.bias": _random(generator, count)}
    if plus:
        prefix = "prefix_embeding_layer."
        tensors |= layer_tensors(generator, target, f"{prefix}layers.0.", width)
        for norm in ("norm", "layers.0.input_layernorm"):
            tensors[f"{prefix}{norm}.weight"] = 1 + _random(generator, width)
        changes = {"hydra_head_arch": "prefix-mlp", **SIZES, "rms_norm_eps": 1e-5, "rope_theta": 10000.0} | changes
    if ids:
        tensors["d2t"] = offsets(ids)
        changes["draft_vocab_size"] = len(ids)
    replaced = {name: value for name, value in changes.items() if isinstance(value, Tensor)}
    config = {name: value for name, value in changes.items() if name not in replaced}
    config = {"hydra_num_heads": depth, "hydra_num_layers": 2, "grounded_heads": True} | config
    return write_head(folder, config, tensors | replaced)
