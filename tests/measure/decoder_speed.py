"""How close plain decoding in the compiled decoder comes to the speed of a memory copy:
`python -m tests.measure.decoder_speed [SHAPE ...]`.

The models have the shapes of published ones and random weights, in float32. A round measures how fast this machine
copies memory, then how long steps of one row take after 200 tokens. A step's limit is the time in which the machine
copies as many bytes as the step reads. Both are measured in each round, because other work may share the memory. Times
leave out waits for a processor.
"""

from __future__ import annotations

import argparse
import gc
from statistics import median
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PretrainedConfig,
    Qwen3Config,
)

from specrace.core.clock import since_ms, thread_ms
from specrace.core.tree import TokenTree
from specrace.model.capture import capture_replay
from specrace.model.target import Target

# Tokens of the prompt (columns of the KV cache), and steps that are timed after it.
COLUMNS = 200
STEPS = 12
SHAPES: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "qwen3-0.6b": (
        Qwen3Config,
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
    ),
    "gemma-3-270m": (
        Gemma3TextConfig,
        {
            "vocab_size": 262144,
            "hidden_size": 640,
            "intermediate_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": 512,
            "tie_word_embeddings": True,
        },
    ),
    "smollm2-135m": (
        LlamaConfig,
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
        },
    ),
}


def random_target(shape: str) -> Target:
    """A target of this shape with random weights, run by the compiled decoder."""
    make_config, values = SHAPES[shape]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(make_config(**values), dtype=torch.float32)
    # Only parameters are random. Buffers, such as rotary frequencies, get the values that the config implies.
    buffers = AutoModelForCausalLM.from_config(make_config(**values | {"num_hidden_layers": 1, "vocab_size": 8}))
    model.to_empty(device="cpu")
    for name, buffer in buffers.named_buffers():
        model.get_buffer(name).copy_(buffer)
    model.tie_weights()
    for parameter in model.parameters():
        parameter.data.uniform_(-0.05, 0.05)
    target = Target(model, name=shape)
    capture_replay(target, compiled=True)
    return target


@torch.inference_mode()
def measure(target: Target) -> tuple[float, float]:
    """The median time of a step, and its limit, in ms."""
    target.measure_bandwidth()
    store = target.prefill(list(range(COLUMNS))).store.clone(COLUMNS + STEPS)
    times = []
    for token in range(STEPS):
        began = thread_ms()
        # A tree of one node, whose token does not matter.
        target.logits(store, TokenTree.chain(token))
        times.append(since_ms(began))
    return median(times), target.step_limit_ms(COLUMNS, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}; default: all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for shape in options.shapes or SHAPES:
        target = random_target(shape)
        pairs = [measure(target) for _ in range(options.rounds)]
        shares = [limit / step for step, limit in pairs]
        step, limit = (median(times) for times in zip(*pairs, strict=True))
        print(
            f"{shape}, {target.forward_kind}, {options.threads} threads: {median(shares):.0%} of the copy limit "
            f"({min(shares):.0%} to {max(shares):.0%}); {step:.1f} ms a step, limit {limit:.1f} ms",
            flush=True,
        )
        del target
        gc.collect()


if __name__ == "__main__":
    main()
