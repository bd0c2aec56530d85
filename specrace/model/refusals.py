"""Which models cannot race, and what a user is told to take instead."""

from __future__ import annotations

from typing import Any

from specrace.core.errors import InputError
from specrace.model.forward.reach import CHUNKED, FULL, SLIDING
from specrace.model.forward.states import STATE_AND_KEYS, STATE_ONLY, WITHOUT_CACHE

# Beginning of a refused model's type -> a model that can race, from the same makers if they have one. The types are
# transformers' names; of several beginnings that fit, the longest counts.
_RELATIVES = {
    "bamba": "Granite 3.3",
    "deepseek": "DeepSeek-V3",
    "dots": "dots.llm1",
    "falcon": "Falcon 3",
    "glm": "GLM-4.5-Air",
    "granite": "Granite 3.3",
    "minimax": "MiniMax-M2",
    "olmo": "OLMo 3",
    "qwen": "Qwen3",
    "recurrent_gemma": "Gemma 3",
}
_ANY = "Qwen3 or Gemma 3"


def advice(model_type: str) -> str:
    """What to take instead of a model of this type, as the end of a sentence."""
    return f"take a model whose layers all attend, such as {_relative(model_type)}"


def _relative(model_type: str) -> str:
    fitting = [prefix for prefix in _RELATIVES if model_type.startswith(prefix)]
    return _RELATIVES[max(fitting, key=len)] if fitting else _ANY


def refuse_other_tasks(config: Any, name: str) -> None:
    """Raises InputError for a kind of model that transformers does not load as a causal language model."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = config.model_type
        raise InputError(
            f"{name} is of the kind {kind}, for which transformers has no causal language model; "
            f"take a text model, such as {_relative(kind)}."
        )


def refuse_unsupported(config: Any, name: str) -> None:
    """Raises InputError for a model with an encoder, or with layers that choose which cached tokens they read.

    Layers that keep one state for all earlier tokens race on chains (`specrace.model.forward.states`). Layers without a
    cache are allowed.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(f"{name} has an encoder and a decoder; {advice(config.model_type)}.")
    text = config.get_text_config()
    supported = {FULL, SLIDING, CHUNKED, "attention"} | STATE_ONLY | STATE_AND_KEYS | WITHOUT_CACHE
    unsupported = set(getattr(text, "layer_types", None) or ()) - supported
    if unsupported:
        kinds = " and ".join(sorted(unsupported))
        raise InputError(
            f"{name} has layers of the kind {kinds}, which cannot follow the branches of a draft tree; "
            f"{advice(text.model_type)}."
        )
