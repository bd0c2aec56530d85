"""The names that published layouts give to the same tensors and sizes: read into one set of names, and written back.

Five layouts are their authors' own: Medusa, Hydra, EAGLE-1 and 2, EAGLE-3, and block drafters. The layout of masks is
ours, because SPACE stores its masks among the target's embeddings. vLLM renames Medusa's tensors. The library
speculators renames those of EAGLE-3, and nests the config of the layer. `read_names` restores the authors' names.

A head with a shortlist can draft only some of the target's tokens. The authors' `d2t` has, for each place in the list,
the token's id minus the place; vLLM's `token_map` has the ids. Level i is the hidden state that enters layer i.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.heads.checkpoint import Checkpoint

# Names of tensors; the groups are the number of the head and, if there is one, that of the block in it.
MEDUSA_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.weight")
HYDRA_BLOCK = re.compile(r"hydra_mlp\.(\d+)\.(\d+)\.linear\.weight")
_VLLM_BLOCK = re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
_VLLM_OUTPUT = re.compile(r"lm_heads\.(\d+)\.weight")
_MEDUSA_OUTPUT = re.compile(r"(\d+)\.(\d+)\.weight")
# Medusa's second release prefixes all names with the first of these, heads for vLLM with the second.
_PREFIXES = ("medusa_head.", "medusa_heads.")
# vLLM's names for the sizes of a Medusa head, and the authors' names.
_VLLM_SIZES = {"num_heads": "medusa_num_heads", "num_hidden_layers": "medusa_num_layers"}
# The prefix of a layer's tensors: in Llama and in speculators, and in EAGLE-3's own code.
_LAYER, _OLD_LAYER = "layers.0.", "midlayer."
# The setting that lists the layers whose hidden states a head reads.
_AUX = "eagle_aux_hidden_state_layer_ids"
# The fields of speculators' own config; all others describe the layer.
_SPECULATORS_FIELDS = frozenset(
    {
        "architectures",
        "draft_vocab_size",
        "embed_requires_grad",
        "fc_norm",
        "norm_before_fc",
        "norm_before_residual",
        "norm_output",
        "speculators_config",
        "speculators_model_type",
        "speculators_version",
        "target_hidden_size",
        "target_fingerprint",
        "target_name",
        "tie_word_embeddings",
        _AUX,
    }
)


def kind_of(names: Collection[str]) -> str:
    """The kind of head that has tensors of these names: medusa, hydra, space, block, eagle3, eagle; "" for others."""
    if any(MEDUSA_BLOCK.fullmatch(name) for name in names):
        return "medusa"
    if any(HYDRA_BLOCK.fullmatch(name) for name in names):
        return "hydra"
    if "mask_embeddings.weight" in names:
        return "space"
    if {"fc.weight", "hidden_norm.weight"} <= set(names):
        return "block"
    if "fc.weight" in names and any(name.endswith("hidden_norm.weight") for name in names):
        return "eagle3"
    return "eagle" if "fc.weight" in names and f"{_LAYER}self_attn.q_proj.weight" in names else ""


def read_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its authors' names and a flat config. Raises InputError for an unsupported setting."""
    config: dict[str, Any] = dict(checkpoint.config)
    # `auto_map` names the class of the library speculators that reads the head.
    config.pop("auto_map", None)
    nested = config.pop("transformer_layer_config", None)
    if isinstance(nested, dict):
        config = {**nested, **config}
    eagle_config = config.get("eagle_config")
    if isinstance(eagle_config, dict) and "norm_before_fc" in eagle_config:
        config["norm_before_fc"] = eagle_config["norm_before_fc"]
    tensors = dict[str, Tensor]()
    for name, tensor in checkpoint.tensors.items():
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        # Old files store rotary frequencies, which can be computed.
        if not name.endswith("rotary_emb.inv_freq"):
            tensors[name] = tensor
    plain = Checkpoint(checkpoint.label, config, tensors)
    if any(_VLLM_BLOCK.fullmatch(name) for name in tensors):
        return _from_vllm(plain)
    return plain


def write_names(checkpoint: Checkpoint, layout: str) -> Checkpoint:
    """The checkpoint, which has its authors' names, in another layout. Raises InputError if its kind lacks it."""
    kind = kind_of(checkpoint.tensors.keys())
    writers = _WRITERS.get(kind, {})
    if layout not in writers:
        layouts = ", ".join(writers) or "none that can be written"
        raise InputError(f"{checkpoint.label} has no layout {layout}; the layouts of its kind are {layouts}.")
    return writers[layout](checkpoint)


def _from_vllm(checkpoint: Checkpoint) -> Checkpoint:
    """Rename a Medusa head of vLLM's. Its blocks may lack biases, and its heads may share one output layer."""
    config, tensors = dict(checkpoint.config), checkpoint.tensors
    if config.pop("logit_scale", 1.0) != 1.0:
        raise InputError(f"{checkpoint.label} scales its logits (logit_scale), which is not built; give another head.")
    blocks = [match for name in tensors if (match := _VLLM_BLOCK.fullmatch(name))]
    num_heads, num_blocks = (1 + max(int(match[group]) for match in blocks) for group in (1, 2))
    is_shared, has_bias = config.pop("original_lm_head", False), config.pop("medusa_fc_bias", False)
    draft_vocab_size, ids = config.pop("truncated_vocab_size", None), tensors.get("token_map")
    is_short = draft_vocab_size is not None and draft_vocab_size != config.get("vocab_size") and ids is not None
    renamed = dict[str, Tensor]()
    for name, tensor in tensors.items():
        if match := _VLLM_BLOCK.fullmatch(name):
            renamed[f"{match[1]}.{match[2]}.linear.{match[3]}"] = tensor
            if not has_bias and match[3] == "weight":
                renamed.setdefault(f"{match[1]}.{match[2]}.linear.bias", tensor.new_zeros(len(tensor)))
        elif (match := _VLLM_OUTPUT.fullmatch(name)) and not is_shared:
            renamed[f"{match[1]}.{num_blocks}.weight"] = _cut(tensor, ids if is_short else None)
        elif name in ("lm_head.weight", "lm_heads.0.weight") and is_shared:
            cut = _cut(tensor, ids if is_short else None)
            renamed |= {f"{head}.{num_blocks}.weight": cut for head in range(num_heads)}
        elif name != "token_map":
            renamed[name] = tensor
    if is_short and ids is not None:
        renamed["d2t"] = ids.reshape(-1).long() - torch.arange(ids.numel())
        config["draft_vocab_size"] = draft_vocab_size
    for vllm_name, name in _VLLM_SIZES.items():
        if vllm_name in config:
            config[name] = config.pop(vllm_name)
    return Checkpoint(checkpoint.label, config, renamed)


def _cut(rows: Tensor, ids: Tensor | None) -> Tensor:
    """The rows of the tokens `ids`, as vLLM cuts them out; all rows if they are cut out already, or an id has none."""
    if ids is None or len(rows) <= ids.numel() or not 0 <= int(ids.min()) <= int(ids.max()) < len(rows):
        return rows
    return rows[ids.reshape(-1).long()]


def _to_vllm(checkpoint: Checkpoint) -> Checkpoint:
    """A Medusa head with vLLM's names. Raises InputError if it has no output layer of its own, which vLLM needs."""
    config, outputs = dict(checkpoint.config), dict[int, Tensor]()
    tensors = dict[str, Tensor]()
    for name, tensor in checkpoint.tensors.items():
        if match := re.fullmatch(r"(\d+)\.(\d+)\.linear\.(weight|bias)", name):
            tensors[f"blocks.{match[1]}.layers.{match[2]}.{match[3]}"] = tensor
        elif match := _MEDUSA_OUTPUT.fullmatch(name):
            outputs[int(match[1])] = tensor
        elif name == "d2t":
            tensors["token_map"] = tensor + torch.arange(len(tensor))
            config["truncated_vocab_size"] = len(tensor)
    if not outputs:
        raise InputError(
            f"{checkpoint.label} uses the output layer of its target, and vLLM's layout needs one of the head's own; "
            "name the target (--model), whose rows are then written into it."
        )
    biases = [name for name in tensors if name.endswith(".bias")]
    config["medusa_fc_bias"] = any(bool(tensors[name].any()) for name in biases)
    if not config["medusa_fc_bias"]:
        tensors = {name: tensor for name, tensor in tensors.items() if name not in biases}
    first = outputs[min(outputs)]
    if "d2t" not in checkpoint:
        config.setdefault("vocab_size", len(first))
    if "vocab_size" not in config:
        raise InputError(
            f"{checkpoint.label} does not say how many tokens its target has; add vocab_size to its config."
        )
    config["original_lm_head"] = len(outputs) > 1 and all(torch.equal(first, other) for other in outputs.values())
    if config["original_lm_head"]:
        tensors["lm_head.weight"] = first
    else:
        tensors |= {f"lm_heads.{head}.weight": tensor for head, tensor in outputs.items()}
    heads = [match for name in checkpoint.tensors if (match := MEDUSA_BLOCK.fullmatch(name))]
    config["num_heads"], config["num_hidden_layers"] = (
        1 + max(int(match[group]) for match in heads) for group in (1, 2)
    )
    for name in ("draft_vocab_size", *_VLLM_SIZES.values()):
        config.pop(name, None)
    config |= {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": first.shape[1]}
    return Checkpoint(checkpoint.label, config, tensors)


def _to_eagle_three(checkpoint: Checkpoint) -> Checkpoint:
    """An EAGLE-3 head with its authors' names, and both of the conventions in which engines count layers."""
    config = {name: value for name, value in checkpoint.config.items() if not name.startswith("speculators_")}
    if levels := explicit_levels(config):
        eagle_config = config.get("eagle_config", {})
        config |= {_AUX: levels, "eagle_config": eagle_config | {_AUX: [level - 1 for level in levels]}}
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
    return Checkpoint(checkpoint.label, config, _renamed(checkpoint.tensors, _LAYER, _OLD_LAYER))


def _to_speculators(checkpoint: Checkpoint) -> Checkpoint:
    """An EAGLE-3 head as speculators writes it: the layer's config nested, and its tensors named as in Llama."""
    flat = dict(checkpoint.config)
    levels = explicit_levels(flat)
    flat.pop("eagle_config", None)
    if "architectures" in flat and "speculators_model_type" not in flat:
        flat["architectures"] = ["Eagle3Speculator"]
    config = {name: value for name, value in flat.items() if name in _SPECULATORS_FIELDS}
    layer = {name: value for name, value in flat.items() if name not in _SPECULATORS_FIELDS}
    verifier: dict[str, Any] = {"name_or_path": flat.get("target_name"), "architectures": []}
    # The library wants a number of draft tokens; 3 is how deep our heads are trained by default.
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    defaults = {
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": verifier,
        },
        "norm_before_residual": False,
    }
    config = defaults | config | {"transformer_layer_config": layer | {"model_type": "llama"}}
    if levels:
        config[_AUX] = levels
    return Checkpoint(checkpoint.label, config, _renamed(checkpoint.tensors, _OLD_LAYER, _LAYER))


def _renamed(tensors: Mapping[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    """The tensors, with `new` in place of `old` at the beginning of their names."""
    return {
        f"{new}{name.removeprefix(old)}" if name.startswith(old) else name: tensor for name, tensor in tensors.items()
    }


def explicit_levels(config: Mapping[str, Any]) -> list[int]:
    """The levels that the config of an EAGLE-3 head names; empty if it leaves them to the default.

    `eagle_config` (SGLang, SpecForge) names layers by their outputs, which enter the next layer, so a level is one more
    than its number. At the top of a config (vLLM, speculators) the numbers are levels. Raises InputError for anything
    but a list of numbers.
    """
    nested = config.get("eagle_config")
    outputs = nested.get(_AUX) if isinstance(nested, dict) else None
    numbers = outputs or config.get(_AUX) or []
    if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
        raise InputError(f"A head's config has the {_AUX} {shorten(repr(numbers))}; it must be a list of numbers.")
    return [number + 1 for number in numbers] if outputs else list(numbers)


# Kind -> layout -> the function that writes it; `replace` copies the checkpoint as it is.
_WRITERS: dict[str, dict[str, Callable[[Checkpoint], Checkpoint]]] = {
    "medusa": {"medusa": replace, "vllm": _to_vllm},
    "hydra": {"hydra": replace},
    "eagle": {"eagle": replace},
    "block": {"block": replace},
    "space": {"space": replace},
    "eagle3": {"eagle3": _to_eagle_three, "speculators": _to_speculators},
}
# All layouts that can be written.
LAYOUTS = tuple(layout for writers in _WRITERS.values() for layout in writers)
