"""TensorRT-LLM: the YAML of `speculative_config`.

Names from NVIDIA/TensorRT-LLM, `tensorrt_llm/llmapi/llm_args.py` (NGramDecodingConfig, SADecodingConfig). The forced
number of accepted tokens (`tensorrt_llm/_torch/speculative/interface.py`) leaves out the bonus token.
"""

from __future__ import annotations

import json
from typing import Any

from specrace.lab.exports.base import Choice, Engine, Export

FORCED = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
POOL = "global_pool_size"
TYPES = {"trtllm-ngram": "NGram", "trtllm-sa": "SA"}


def export(choice: Choice) -> Export:
    """The YAML, and the environment that forces the measured acceptance."""
    config = _config(choice)
    lines = [f"  {name}: {json.dumps(value).strip(chr(34))}\n" for name, value in config.items()]
    return Export("speculative_config:\n" + "".join(lines), f"{FORCED}={max(0.0, round(choice.mean - 1, 3))}")


def _config(choice: Choice) -> dict[str, Any]:
    options = choice.options
    if choice.lane == "prompt-lookup":
        own = {"max_matching_ngram_size": options["longest"], "is_keep_all": True, "is_use_oldest": True}
        return {"decoding_type": "NGram", "max_draft_len": choice.num_draft, **own, "is_public_pool": False}
    if choice.lane == "suffix":
        return {"decoding_type": "SA", "max_draft_len": choice.num_draft, "max_matching_ngram_size": -1}
    # A size of 0 is our word for the engine's own.
    own = {name: value for name, value in options.items() if name != "max_draft_len" and (name, value) != (POOL, 0)}
    return {"decoding_type": TYPES[choice.lane], "max_draft_len": choice.num_draft, **own}


ENGINE = Engine("tensorrt-llm", "trtllm-", ("prompt-lookup", "suffix"), "main, November 2026", export)
