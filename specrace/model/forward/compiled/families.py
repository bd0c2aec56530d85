"""The families of models that the compiled decoder runs, and how their layers differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specrace.model.forward.compiled.numbers import GELU, SILU
from specrace.model.forward.reach import ALL_LAYERS, layer_reaches
from specrace.model.forward.scripted import FAMILIES, ROTATIONS


@dataclass(frozen=True)
class Family:
    """How the layers of a family differ from those of other families.

    The four norms (`before_mlp` ...) are the names of a layer's modules, "" if it has no such norm. `norm_offset` is
    added to the weights of all norms. `activation`: the function in the MLP (`numbers.SILU` or `GELU`).
    `rotates_by_kind`: each kind of layer (`layer_kinds`) has its own rotary frequencies.
    """

    before_mlp: str
    activation: int
    before_attention: str = "input_layernorm"
    after_attention: str = ""
    after_mlp: str = ""
    norm_offset: float = 0.0
    rotates_by_kind: bool = False


LLAMA = Family("post_attention_layernorm", SILU)
GEMMA_3 = Family(
    "pre_feedforward_layernorm",
    GELU,
    after_attention="post_attention_layernorm",
    after_mlp="post_feedforward_layernorm",
    norm_offset=1.0,
    rotates_by_kind=True,
)


def find_family(model: Any) -> Family:
    """The family of a model. Raises ValueError for a model whose layers the decoder does not implement."""
    config, name = model.config, type(model).__name__
    is_llama = name in FAMILIES and config.hidden_act == "silu"
    is_gemma = (
        name == "Gemma3ForCausalLM"
        and config.hidden_activation == "gelu_pytorch_tanh"
        and not config.use_bidirectional_attention
        and not config.attn_logit_softcapping
        and not config.final_logit_softcapping
    )
    has_chunks = any(reach.chunk for reach in layer_reaches(config).values())
    if not (is_llama or is_gemma) or has_chunks or not _rotation_types(config) <= ROTATIONS:
        raise ValueError("its layers are not those of the Llama family or of Gemma 3")
    return GEMMA_3 if is_gemma else LLAMA


def _rotation_types(config: Any) -> set[str]:
    """The types of rotary positions that the layers use."""
    parameters = getattr(config, "rope_parameters", None) or {}
    # A config has the settings of each kind of layer, or else one set for all layers.
    settings = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    return {rotation.get("rope_type", "default") for rotation in settings}


def layer_kinds(config: Any) -> list[str]:
    """The kind of each layer, under the names of `layer_reaches`."""
    if ALL_LAYERS in layer_reaches(config):
        return [ALL_LAYERS] * int(config.num_hidden_layers)
    return list(config.layer_types)
