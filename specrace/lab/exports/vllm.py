"""vLLM: the JSON of `--speculative-config`.

Names and bounds from vllm-project/vllm 0.33.0, `vllm/config/speculative.py`, class SpeculativeConfig. There
are `num_speculative_tokens` synthetic rates, within [0, 1], none above the one before it.
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
# Options that `specrace.integrations.vllm` does not take, because it sets them itself.
_FIXED = ("chain", "corpus", "past")


def export(choice: Choice) -> Export:
    """The configuration of `ngram` or `suffix`, without and with synthetic acceptance."""
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
        suffix_options = {
            "max_tree_depth": options["depth"],
            "max_spec_factor": float(options["factor"]),
            "min_token_prob": options["min_percent"] / 100,
        }
        return {"method": "suffix"} | {_SUFFIX + name: value for name, value in suffix_options.items()}
    method = choice.lane.removeprefix(ENGINE.prefix)
    # 0 stands for "not given", except in the suffix options, where it is a value.
    config = {
        name: value
        for name, value in options.items()
        if name != "num_speculative_tokens" and (value or name.startswith(_SUFFIX))
    }
    return {"method": method} | config


def plug_in(choice: Choice, curve: CostCurve) -> str:
    """The flags that load fusion into vLLM, with the options that differ from its defaults."""
    config = {"method": "custom_class", "model": "specrace.integrations.vllm.Fusion"}
    defaults = find_method(choice.lane).defaults("cuda")
    settings = {name: value for name, value in choice.options.items() if name not in _FIXED and value != defaults[name]}
    if curve != ASSUMED_GPU:
        settings["cost_curve"] = {"rows": list(curve.rows), "ratio": [round(ratio, 4) for ratio in curve.ratio]}
    additional = f" --additional-config {shlex.quote(json.dumps({'specrace': settings}))}" if settings else ""
    return _flag(config | {"num_speculative_tokens": choice.num_draft}) + additional


def _flag(config: dict[str, Any]) -> str:
    return f"--speculative-config {shlex.quote(json.dumps(config))}"


ENGINE = Engine("vllm", "vllm-", ("prompt-lookup", "suffix"), "0.33.0", export, {"fusion": plug_in})
