"""vLLM: the JSON of `--speculative-config`.

Names and bounds from vllm-project/vllm 0.33.0, `vllm/config/speculative.py`, class SpeculativeConfig. vLLM wants
`num_speculative_tokens` synthetic rates from 0 to 1, none above the one before it.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.drafters import find_method
from specrace.lab.advice.exports.base import (
    AS_MEASURED,
    AT_THE_END,
    NOT_DRAFTED,
    OTHER_TEXT,
    REFUSED,
    SLOWER,
    Choice,
    Effect,
    Engine,
    Export,
)

_SUFFIX = "suffix_decoding_"
_ARCTIC = "vLLM refuses suffix without the package arctic-inference."
# What the synthetic rates count, for a reader. vllm/v1/core/sched/scheduler.py counts only steps with a draft, and
# before it looks for the output's end; vllm/v1/sample/rejection_sampler.py applies synthetic rates to draft tokens.
_CONVENTION = (
    "Rate i is the share of all steps, with a draft or without, that accept at least i draft tokens, without the bonus "
    f"token; {AT_THE_END}. vLLM's own metrics count steps with a draft only, and tokens past the end; its "
    "synthetic acceptance needs a draft as well."
)
# Options that `specrace.integrations.vllm` does not take, because it sets them itself.
_FIXED = ("chain", "corpus")


def export(choice: Choice) -> Export:
    """The configuration of `ngram` or `suffix`, without and with synthetic acceptance."""
    config = _method(choice) | {"num_speculative_tokens": choice.num_draft}
    synthetic = config | {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": choice.rates_of(choice.num_draft),
    }
    notes = (_ARCTIC,) if config["method"] == "suffix" else ()
    return Export(_flag(config), _flag(synthetic), _CONVENTION, notes=notes)


def _method(choice: Choice) -> dict[str, Any]:
    options = choice.options
    if choice.lane == "prompt-lookup":
        # vLLM refuses a minimum above the maximum.
        min_match = {"prompt_lookup_min": min(options["shortest"], options["longest"])}
        return {"method": "ngram", **min_match, "prompt_lookup_max": options["longest"]}
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
    # In vLLM, fusion drafts from earlier answers only if `past` is set.
    defaults = find_method(choice.lane).defaults("cuda") | {"past": False}
    settings = {name: value for name, value in choice.options.items() if name not in _FIXED and value != defaults[name]}
    if curve != ASSUMED_GPU:
        settings["cost_curve"] = {"rows": list(curve.rows), "ratio": [round(ratio, 4) for ratio in curve.ratio]}
    additional = f" --additional-config {shlex.quote(json.dumps({'specrace': settings}))}" if settings else ""
    return _flag(config | {"num_speculative_tokens": choice.num_draft}) + additional


def _flag(config: dict[str, Any]) -> str:
    return f"--speculative-config {shlex.quote(json.dumps(config))}"


# From vllm-project/vllm 0.32.0, in vllm/: each entry names its file.
EFFECTS = (
    # sampling_params.py, SamplingParams._validate_spec_decode.
    Effect(("min_p", "logit_bias"), REFUSED, "refuses the request while it drafts"),
    # v1/sample/logits_processor/__init__.py, STR_SPEC_DEC_REJECTS_LOGITSPROCS.
    Effect(("logits_processors",), REFUSED, "does not start if it has both custom logits processors and drafting"),
    # entrypoints/generate/beam_search/online.py: max_tokens=1 for each step of a beam.
    Effect(("use_beam_search",), NOT_DRAFTED, "decodes beams as requests for one token, which have no drafts"),
    # v1/sample/rejection_sampler.py, apply_penalties: the history of each row holds the drafts before it.
    Effect(
        ("presence_penalty", "frequency_penalty", "repetition_penalty"),
        SLOWER,
        "applies the option at each draft position, with the drafts before it as history: the output is the same as "
        "without drafts, and each step does more work, which the forecast leaves out",
    ),
    # v1/structured_output/__init__.py, validate_tokens and grammar_bitmask; v1/core/sched/scheduler.py,
    # update_draft_token_ids; v1/structured_output/backend_lm_format_enforcer.py. A required or named tool is a schema:
    # tool_parsers/abstract_tool_parser.py, adjust_request.
    Effect(
        ("structured_output", "tool_choice"),
        SLOWER,
        "cuts each draft at the first token that the grammar forbids, and makes a mask for each draft position, which "
        "the forecast leaves out; the backend lm-format-enforcer refuses such requests while it drafts",
    ),
    # v1/sample/rejection_sampler.py, _get_logprobs_tensors; docs/features/speculative_decoding/README.md, "Logprob
    # Stability".
    Effect(
        ("logprobs",),
        SLOWER,
        "computes the drafts' probabilities, too, which the forecast leaves out, and does not promise the same values",
    ),
    # v1/worker/gpu/spec_decode/rejection_sampler_utils.py, _rejection_kernel: accepting a draft takes a draw as well.
    Effect(("seed",), OTHER_TEXT, "draws differently than without drafts: the same seed gives another text"),
    # v1/sample/rejection_sampler.py, rejection_random_sample_kernel: without draft probabilities a draft token is
    # accepted with the target's probability.
    Effect(
        ("temperature",),
        AS_MEASURED,
        "accepts a draft token with the probability that the model gives it, which is how often sampled answers go on "
        "with it: the forecast holds on average, if the log's answers were sampled at this temperature",
    ),
    # v1/sample/rejection_sampler.py, apply_logits_processors.
    Effect(
        ("min_tokens", "bad_words", "allowed_token_ids"),
        AS_MEASURED,
        "applies the option at each draft position: the output is the same as without drafts",
    ),
    # v1/engine/parallel_sampling.py: each choice is a request of its own.
    Effect(("n",), AS_MEASURED, "decodes each choice as a request of its own: count them all in --batch"),
    # entrypoints/openai/chat_completion/protocol.py has the field, and nothing reads it.
    Effect(("best_of",), AS_MEASURED, "does not read the option, with drafts or without"),
    # v1/core/sched/scheduler.py, update_from_output counts before it looks for a stop.
    Effect(
        ("stop",), AS_MEASURED, "counts accepted tokens past a stop string in its metrics, which the output leaves out"
    ),
)

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    prefix="vllm-",
    nearest=("prompt-lookup", "suffix"),
    version="0.33.0",
    export=export,
    plug_ins={"fusion": plug_in},
    effects=EFFECTS,
    effects_version="0.32.0",
)
