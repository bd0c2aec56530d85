"""Configs of tiny models of any kind: fields get small values by their names."""

from __future__ import annotations

from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 320
WINDOW = 32

# A config gets each of these values for which it has a field of the same name.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embed_dim", "dim", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "global_head_dim", "attention_head_dim"), 16),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "ffn_hidden_size", "dim_ff", "shared_intermediate_size"), 96),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("intermediate_size_mlp", "moe_shared_expert_intermediate_size"), 96),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "max_sequence_length"), 2048),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "window_size", "sliding_window_size"), WINDOW),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "experts_per_token", "num_experts_per_token"), 2),
    **dict.fromkeys(("moe_topk", "moe_k", "moe_top_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace", "num_shared_experts"), 1),
    "num_expert_group": 1,
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim"), 8),
    "v_head_dim": 24,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 16,
    # State-space, linear and convolutional layers.
    **dict.fromkeys(("linear_num_key_heads", "mamba_n_groups", "n_groups", "linear_num_heads"), 2),
    **dict.fromkeys(("linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size", "mamba_dt_rank", "time_step_rank"), 8),
    **dict.fromkeys(("mamba_d_conv", "mamba_expand", "expand"), 2),
    "mamba_d_ssm": 64,
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 8,
    # Large enough that the text varies.
    **dict.fromkeys(("initializer_range", "init_std"), 0.25),
    **dict.fromkeys(("bos_token_id", "pad_token_id"), 0),
    "eos_token_id": 1,
}

_FULL_AND_SLIDING = {"num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2}
# Kind -> values that the names alone do not give; None leaves a field to the config's default.
_CHANGES: dict[str, dict[str, Any]] = {
    "bamba": {"layer_types": None, "mamba_d_head": 32, "attn_layer_indices": [1, 3]},
    "cohere_compass_text": {"layer_types": None},
    "ctrl": {"dff": 96},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0}, "ffn_config": {"ffn_hidden_size": 96}},
    "dots1": _FULL_AND_SLIDING,
    "dots3_note_text": {"num_key_value_heads": 4},
    "falcon_h1": {"layer_types": None},
    "falcon_mamba": {"layer_types": None},
    "gemma3n_text": {"num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.0] * 4, "laurel_rank": 8},
    "gemma4_text": {"num_kv_shared_layers": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {
        "mamba_d_head": 32, "num_hidden_layers": 4, "layer_types": ["mamba", "attention"] * 2,
    },
    "jamba": {
        "layer_types": None, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "laguna": _FULL_AND_SLIDING,
    "lfm2": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "longcat_flash": {"zero_expert_num": 2},
    "mamba": {"layer_types": None},
    "mamba2": {"layer_types": None, "num_heads": 8, "head_dim": 16},
    "mellum": _FULL_AND_SLIDING,
    "mpt": {"attn_config": {"attn_type": "multihead_attention"}},
    "recurrent_gemma": {"layer_types": None, "lru_width": 64},
    "smollm3": {"num_hidden_layers": 4, "layer_types": ["full_attention"] * 4},
    "xlm": {"emb_dim": 64, "causal": True},
    "zamba2": {"hybrid_layer_ids": [1, 3]},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip


def tiny_config(kind: str, **more: Any) -> Any:
    """The config of a tiny model of this kind, with two layers of each kind of layer; `more` are further values.

    Raises whatever the config raises for sizes that do not fit together.
    """
    config_class = CONFIG_MAPPING[kind]
    default = config_class()
    names = set(default.to_dict()) | set(getattr(config_class, "attribute_map", {}).values())
    values = {name: value for name, value in _SIZES.items() if name in names}
    layers = list(dict.fromkeys(getattr(default, "layer_types", None) or ()))
    if layers:
        values |= {"layer_types": layers * 2, "num_hidden_layers": 2 * len(layers)}
    if "qk_rope_head_dim" in values and "head_dim" in values:
        # Rotary positions are computed for heads of this size.
        values["head_dim"] = values["qk_rope_head_dim"]
    if "kv_lora_rank" in values and "num_key_value_heads" in values:
        # Latent attention expands its keys to as many heads as the queries have.
        values["num_key_value_heads"] = values["num_attention_heads"]
    changed = values | _CHANGES.get(kind, {}) | more
    return config_class(**{name: value for name, value in changed.items() if value is not None})
