"""A scripted target: a model of a published shape with random weights, whose choices follow transcripts.

Its steps take as long as the real model's, because every forward runs in full, and it accepts what the real model would
have accepted, because the transcript says so. So speedups on real outputs can be measured on a fast device without the
real weights. After tokens that are not the transcript's it predicts by its random weights, so lanes that learn from
such predictions cannot be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.model.capture import capture
from specrace.model.forward.kv import Prefix
from specrace.model.placement import resolve_device
from specrace.model.scorer import DTYPES
from specrace.model.session import ModelSession
from specrace.model.target import Target

Tokens = tuple[int, ...]

# Name of a shape -> a model that has it, its config class, its sizes. Copied from the models' published configs, for
# machines that cannot reach the hub.
SHAPES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "tiny": (
        "the bundled model",
        LlamaConfig,
        {"hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
         "vocab_size": 4160, "tie_word_embeddings": True},
    ),
    "0.5b": (
        "Qwen2.5-0.5B",
        Qwen2Config,
        {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
         "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    ),
    "7b": (
        "Llama-2-7B",
        LlamaConfig,
        {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
         "vocab_size": 32000},
    ),
    "8b": (
        "Llama-3-8B",
        LlamaConfig,
        {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256},
    ),
}  # fmt: skip
# Longer than the published context of some shapes, because transcripts may be longer.
MAX_CONTEXT = 32768


class ScriptedTarget(Target):
    """A target that prints the output which `scripts` has for a prompt, and stops at the requested length only."""

    def __init__(self, model: Any, scripts: Mapping[Tokens, Tokens], shape: str) -> None:
        super().__init__(model, name=f"scripted {shape}")
        self.shape = shape
        self.eos_ids = frozenset()
        self._scripts = scripts

    def session(
        self, prefix: Prefix, room: int, params: SamplingParams | None = None, *args: Any, **kwargs: Any
    ) -> ModelSession:
        """A session that follows the prompt's script, if there is one.

        Raises InputError for a temperature above 0, and for a head or a prefix with levels: the hidden states of random
        weights say nothing about the script.
        """
        if params is not None and params.temperature:
            raise InputError("A scripted model has no distribution to sample from; leave the temperature at 0.")
        if prefix.levels or kwargs.get("head_session") is not None:
            raise InputError(
                "A scripted model has random weights, whose hidden states no head can read; leave out the lanes with "
                "heads, or race the model itself."
            )
        session = super().session(prefix, room, params, *args, **kwargs)
        # The usual session, with CUDA graphs or without, except for its choices.
        return _ScriptedSession(session, prefix.prompt + self._scripts.get(prefix.prompt, ()))

    def describe(self) -> dict[str, Any]:
        """The facts of `Target.describe`, and that the target is scripted."""
        label = f"the shape of {self.shape} with random weights; its choices follow given transcripts"
        return super().describe() | {"scripted": label}


class _ScriptedSession(ModelSession):
    """Runs every forward of `inner`, then replaces its choices by those of the script."""

    def __init__(self, inner: ModelSession, script: Tokens) -> None:
        super().__init__(inner.scorer, inner.store, inner.sampler, inner.num_top)
        self._inner, self._script = inner, script

    def score(self, tree: TokenTree) -> Scores:
        """The script's next token at every node that follows the script; elsewhere the choice of the random weights."""
        scores = self._inner.score(tree)
        base, script = self.store.length, self._script
        targets, followed = list(scores.targets), [False] * len(tree)
        for node, (token, depth) in enumerate(zip(tree.tokens, tree.depths, strict=True)):
            position = base + depth
            parent_follows = node == 0 or followed[tree.parents[node]]
            followed[node] = parent_follows and position < len(script) and script[position] == token
            if followed[node] and position + 1 < len(script):
                targets[node] = script[position + 1]
        return Scores(tuple(targets), scores.top)


def make_config(shape: str, vocab_size: int, **changes: Any) -> PreTrainedConfig:
    """The config of a published shape with at least `vocab_size` tokens. Raises InputError for an unknown shape."""
    if shape not in SHAPES:
        raise InputError(f"There is no shape {shape!r}; choose from {', '.join(SHAPES)}.")
    _, config_class, values = SHAPES[shape]
    values = {"max_position_embeddings": MAX_CONTEXT, "eos_token_id": None, "bos_token_id": None, **values, **changes}
    config: PreTrainedConfig = config_class(**values | {"vocab_size": max(values["vocab_size"], vocab_size)})
    return config


def load_scripted(
    shape: str, scripts: Mapping[Tokens, Tokens], *, device: str = "cpu", dtype: str | None = None
) -> ScriptedTarget:
    """A model of a published shape with random weights, which are created on one device.

    Raises InputError for an unknown shape or device, and if the model does not fit into the device's memory.
    """
    device = resolve_device(device, dtype)
    max_token = max((max(*prompt, *output) for prompt, output in scripts.items()), default=0)
    config = make_config(shape, max_token + 1)
    precision = DTYPES[dtype or ("float32" if device == "cpu" else "bfloat16")]
    torch.manual_seed(0)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=precision)
    except RuntimeError as error:
        raise InputError(
            f"A model of shape {shape} does not fit into the memory of {device}; choose a smaller shape."
        ) from error
    target = ScriptedTarget(model, scripts, SHAPES[shape][0])
    capture(target)
    return target
