"""A model's context length and its end tokens, read from its configs."""

from __future__ import annotations

from typing import Any

# The context length of a model whose config states none: as good as no limit.
_DEFAULT_CONTEXT = 1 << 20
# The names under which a config states the context length; the last one is MPT's.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")


def max_context(config: Any) -> int:
    """How many tokens the model can attend to; windows and chunks of its layers do not limit it (`layer_reaches`)."""
    lengths = [getattr(config, name, None) for name in _LENGTHS]
    length = next((stated for stated in lengths if stated), _DEFAULT_CONTEXT)
    rope = getattr(config, "rope_parameters", None) or {}
    # A config may give rotary positions for each kind of layer separately.
    for rotation in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if rotation.get("rope_type") == "longrope":
            # Beyond the original length every key is rotated differently, which would change a draft's scores.
            length = min(length, rotation.get("original_max_position_embeddings") or length)
    if "local" in (getattr(config, "attention_layers", None) or ()):
        # GPT-Neo counts the window of its local layers in columns of the cache, not in positions.
        length = min(length, config.window_size)
    # Beyond this length Doge attends to some columns only, and would also choose columns of other branches.
    length = min(length, getattr(config, "keep_window_size", None) or length)
    return int(length)


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token id that ends a text, from the generation config and the config.

    The tokenizer's end token is added if there is a chat template, whose turns may end with a token that no config has.
    """
    end_ids: set[int] = set()
    generation = getattr(model, "generation_config", None)
    # A multimodal config may have the ids in its text model's part only.
    for holder in (generation, model.config, model.config.get_text_config()):
        ids = getattr(holder, "eos_token_id", None)
        if isinstance(ids, (list, tuple)):
            end_ids |= set(ids)
        elif ids is not None:
            end_ids.add(ids)
    tokenizer_id = getattr(tokenizer, "eos_token_id", None)
    if tokenizer_id is not None and (not end_ids or getattr(tokenizer, "chat_template", None)):
        end_ids.add(tokenizer_id)
    return frozenset(end_ids)
