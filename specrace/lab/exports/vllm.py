"""vLLM: the JSON of `--speculative-config`.

Names and bounds from vllm-project/vllm, `vllm/config/speculative.py` at 002e77c1f0ef, class SpeculativeConfig. The
synthetic rates are as many as `num_speculative_tokens`, within [0, 1], and never rise.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from specrace.lab.exports.base import Choice, Engine, Export

_SUFFIX = "suffix_decoding_"


def export(choice: Choice) -> Export:
    """The configuration of `ngram` or `suffix`, and the same with synthetic acceptance."""
    config = _method(choice) | {"num_speculative_tokens": choice.num_draft}
    synthetic = config | {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": choice.rates_of(choice.num_draft),
    }
    return Export(_flag(config), _flag(synthetic))


def _method(choice: Choice) -> dict[str, Any]:
    options = choice.options
    if choice.lane == "prompt-lookup":
        bounds = {"prompt_lookup_min": min(options["shortest"], options["longest"])}
        return {"method": "ngram", **bounds, "prompt_lookup_max": options["longest"]}
    if choice.lane == "suffix":
        own = {"max_tree_depth": options["depth"], "max_spec_factor": float(options["factor"])}
        least = {"min_token_prob": options["min_percent"] / 100}
        return {"method": "suffix"} | {_SUFFIX + name: value for name, value in (own | least).items()}
    method = choice.lane.removeprefix(ENGINE.prefix)
    # 0 is our word for "not given".
    own = {name: value for name, value in options.items() if value and name != "num_speculative_tokens"}
    return {"method": method} | own


def _flag(config: dict[str, Any]) -> str:
    return f"--speculative-config {shlex.quote(json.dumps(config))}"


ENGINE = Engine("vllm", "vllm-", ("prompt-lookup", "suffix"), "main at 002e77c1f0ef", export)
