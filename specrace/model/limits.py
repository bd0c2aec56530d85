"""Where a model's texts end: its context length and its end tokens, read from the configs."""

from __future__ import annotations

from typing import Any


def max_context(config: Any) -> int:
    """Most tokens of the model; a sliding window counts as the limit, since inside it attention is full."""
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 1 << 20
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    slides = {"sliding_attention", "local"} & set(kinds) if kinds else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) or getattr(config, "window_size", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Past its first length it rotates every key differently, so a draft that reaches over would score otherwise.
        longest = min(longest, rope.get("original_max_position_embeddings") or longest)
    return min(longest, window) if window and slides else int(longest)


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, by the generation config and the config.

    The tokenizer's is added where it has a chat template, whose turns may end with a token that the configs lack.
    """
    found: set[int] = set()
    generation = getattr(model, "generation_config", None)
    # Configs of several parts may have it in the text model's alone.
    for holder in (generation, model.config, model.config.get_text_config()):
        ids = getattr(holder, "eos_token_id", None)
        found |= set(ids) if isinstance(ids, (list, tuple)) else {ids} if ids is not None else set()
    own = getattr(tokenizer, "eos_token_id", None)
    if own is not None and (not found or getattr(tokenizer, "chat_template", None)):
        found.add(own)
    return frozenset(found)
