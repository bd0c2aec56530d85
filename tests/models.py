"""Small models with random weights that the tests share, and a check that two targets on one model compute the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specrace.drafters import head_lanes
from specrace.heads.loading import attach_heads
from specrace.model.target import Target
from tests.heads import folders
from tests.parts import EOS, VOCAB, CopyingModel, random_prompt, random_tree
from tests.views import test_detokenize

# Two heads of keys and values for four heads of queries.
_GROUPED = {"intermediate_size": 32, "num_key_value_heads": 2}
# Name -> (class of its config, class of its model, values of the config).
_ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, _GROUPED),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, _GROUPED),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {**_GROUPED, "head_dim": 8}),
    "mistral": (MistralConfig, MistralForCausalLM, {**_GROUPED, "sliding_window": None}),
    "gemma3": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {**_GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 7, "initializer_range": 0.3}
        | {"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt2": (GPT2Config, GPT2LMHeadModel, {"n_inner": 32}),
    "gpt-neox": (GPTNeoXConfig, GPTNeoXForCausalLM, {"intermediate_size": 32}),
}
# The architectures with which every lane is tested. Gemma 3, with its short window, has tests of its own.
ARCHITECTURES = tuple(name for name in _ARCHITECTURES if name != "gemma3")
# Changes that let a tiny model run in the compiled decoder: its vectors, of up to 16 numbers, must divide all widths.
COMPILABLE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}


def byte_tokenizer(size: int = 300, texts: list[str] = test_detokenize.TEXTS[:1]) -> PreTrainedTokenizerFast:
    """The byte-level BPE of the detokenizer's tests, wrapped as models load it."""
    core = test_detokenize.byte_tokenizer(size, texts)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", clean_up_tokenization_spaces=False)


def tiny_model(name: str, *, seed: int = 0, attention: str = "sdpa", **changes: Any) -> Any:
    """A randomly initialised model of 2 layers in fp32, with weights so large that its outputs vary."""
    config_class, model_class, architecture_values = _ARCHITECTURES[name]
    values = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "initializer_range": 0.6,
        "bos_token_id": 0,
        "eos_token_id": EOS,
        "attn_implementation": attention,
    }
    torch.manual_seed(seed)
    return model_class(config_class(**(values | architecture_values | changes))).eval()


def change_config(folder: Path, **changes: Any) -> None:
    """Change values in the config.json of a saved model."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def tiny_target(name: str, *, seed: int = 0, **changes: Any) -> Target:
    """A target on a tiny model, without a tokenizer; its draft model is a `CopyingModel`, its heads are random."""
    target = Target(tiny_model(name, seed=seed, **changes), name=name)
    target.drafting = CopyingModel(vocab=target.vocab_size)  # type: ignore[assignment]
    give_heads(target)
    return target


def give_heads(target: Target) -> None:
    """Give a target random heads for all lanes that draft with one."""
    with TemporaryDirectory() as folder:
        writers = {"block": folders.block, "eagle": folders.eagle_one, "medusa": folders.medusa}
        writers |= {"hydra": folders.hydra, "space": folders.space}
        heads = [str(write(Path(folder) / kind, target)) for kind, write in writers.items()]
        attach_heads(target, heads, head_lanes())


def assert_same_scores(target: Target, plain: Target, name: str, atol: float) -> None:
    """Assert equal logits and caches, up to rounding, after each of eight steps with random trees of any size."""
    rng = random.Random(name)
    text = list(random_prompt(rng))
    # The KV caches, with room for more tokens than the steps keep.
    store, plain_store = target.prefill(text).store.clone(400), plain.prefill(text).store.clone(400)
    for size in (0, 1, 6, 2, 0, 15, 20, 40):
        tree = random_tree(rng, text[-1], size)
        logits, expected = target.logits(store, tree), plain.logits(plain_store, tree)
        assert logits.shape == expected.shape == (len(tree), VOCAB)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=atol)
        path = tree.path_to(rng.randrange(len(tree)))
        store.keep(path)
        plain_store.keep(path)
        assert store.data is not None and plain_store.data is not None
        caches = (store.data[..., : store.length, :], plain_store.data[..., : plain_store.length, :])
        torch.testing.assert_close(*caches, rtol=1e-4, atol=atol)
        text += [tree.tokens[node] for node in path[1:]] + [rng.randrange(VOCAB)]


def write_shape(writer: gguf.GGUFWriter, config: Any) -> None:
    """Write the shape of a model of the Llama family into a GGUF file."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])


def write_zero_gguf(target: Target, file: Path, *, vocabulary: int | None = None, architecture: str = "llama") -> None:
    """Write a GGUF file in the target's shape, with all weights zero: as the file from which the target was loaded."""
    config, writer = target.config, gguf.GGUFWriter(file, architecture)
    vocabulary = vocabulary or target.vocab_size
    write_shape(writer, config)
    # All weights are float32.
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([chr(97 + token) for token in range(vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocabulary)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(min(target.eos_ids))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for key, value in target.model.state_dict().items():
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None
        writer.add_tensor(name, np.zeros(value.shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
