"""What a user is told to take instead of a model that cannot race."""

from __future__ import annotations

# By the beginning of the refused model's type: a model that can race, from the same makers if they have one. The types
# are transformers' names; of several beginnings that fit, the longest counts.
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
    fitting = [prefix for prefix in _RELATIVES if model_type.startswith(prefix)]
    relative = _RELATIVES[max(fitting, key=len)] if fitting else _ANY
    return f"take a model whose layers all attend, such as {relative}"
