"""TensorRT-LLM: the YAML of `speculative_config`.

Names and rules from NVIDIA/TensorRT-LLM after pull request 12130, `tensorrt_llm/llmapi/llm_args.py`
(NGramDecodingConfig, SADecodingConfig). The forced number of accepted tokens
(`tensorrt_llm/_torch/speculative/interface.py`) leaves out the bonus token; older releases read whole numbers only.
"""

from __future__ import annotations

import json
from typing import Any

from specrace.lab.exports.base import Choice, Engine, Export

FORCED = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
POOL = "global_pool_size"
_WHOLE = "Older releases read a forced number only if it is whole."
TYPES = {"trtllm-ngram": "NGram", "trtllm-sa": "SA"}


def export(choice: Choice) -> Export:
    """The YAML, and the environment variable that forces the measured acceptance."""
    config = _config(choice)
    lines = [f"  {name}: {json.dumps(value).strip(chr(34))}\n" for name, value in config.items()]
    forced = f"{FORCED}={max(0.0, round(choice.mean - 1, 3))}"
    return Export("speculative_config:\n" + "".join(lines), forced, notes=(_WHOLE,))


def _config(choice: Choice) -> dict[str, Any]:
    options = choice.options
    if choice.lane == "prompt-lookup":
        return {
            "decoding_type": "NGram",
            "max_draft_len": choice.num_draft,
            "max_matching_ngram_size": options["longest"],
            "is_keep_all": True,
            "is_use_oldest": True,
            "is_public_pool": False,
        }
    if choice.lane == "suffix":
        return {"decoding_type": "SA", "max_draft_len": choice.num_draft, "max_matching_ngram_size": -1}
    config = {name: value for name, value in options.items() if name not in ("max_draft_len", POOL)}
    # 0 stands for the engine's own size. The engine refuses a size without its pool.
    if options.get("enable_global_pool") and options.get(POOL):
        config[POOL] = options[POOL]
    return {"decoding_type": TYPES[choice.lane], "max_draft_len": choice.num_draft, **config}


ENGINE = Engine("tensorrt-llm", "trtllm-", ("prompt-lookup", "suffix"), "main, November 2026", export)
