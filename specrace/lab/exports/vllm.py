"""vLLM: the JSON of `--speculative-config`.

Names and bounds from vllm-project/vllm 0.33.0, `vllm/config/speculative.py`, class SpeculativeConfig. The synthetic
rates are as many as `num_speculative_tokens`, within [0, 1], and never rise.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.drafters import find_method
from specrace.lab.exports.base import Choice, Engine, Export

_SUFFIX = "suffix_decoding_"
_ARCTIC = "vLLM refuses suffix without the package arctic-inference."
# What `specrace.integrations.vllm` does not take: it sets these itself.
_FIXED = ("chain", "corpus", "past")


def export(choice: Choice) -> Export:
    """The configuration of `ngram` or `suffix`, and the same with synthetic acceptance."""
    config = _method(choice) | {"num_speculative_tokens": choice.num_draft}
    synthetic = config | {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": choice.rates_of(choice.num_draft),
    }
    notes = (_ARCTIC,) if config["method"] == "suffix" else ()
    return Export(_flag(config), _flag(synthetic), notes=notes)


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
    # 0 is our word for "not given", except that for the suffix options it is a value.
    own = {
        name: value
        for name, value in options.items()
        if name != "num_speculative_tokens" and (value or name.startswith(_SUFFIX))
    }
    return {"method": method} | own


def plug_in(choice: Choice, curve: CostCurve) -> str:
    """The flags that load fusion into vLLM, with what differs from its defaults."""
    config = {"method": "custom_class", "model": "specrace.integrations.vllm.Fusion"}
    defaults = find_method(choice.lane).defaults("cuda")
    own = {name: value for name, value in choice.options.items() if name not in _FIXED and value != defaults[name]}
    if curve != ASSUMED_GPU:
        own["cost_curve"] = {"rows": list(curve.rows), "ratio": [round(ratio, 4) for ratio in curve.ratio]}
    more = f" --additional-config {shlex.quote(json.dumps({'specrace': own}))}" if own else ""
    return _flag(config | {"num_speculative_tokens": choice.num_draft}) + more


def _flag(config: dict[str, Any]) -> str:
    return f"--speculative-config {shlex.quote(json.dumps(config))}"


ENGINE = Engine("vllm", "vllm-", ("prompt-lookup", "suffix"), "0.33.0", export, {"fusion": plug_in})
