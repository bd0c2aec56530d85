"""TensorRT-LLM: the YAML of `speculative_config`.

Names and rules from NVIDIA/TensorRT-LLM after pull request 12130, `tensorrt_llm/llmapi/llm_args.py`
(NGramDecodingConfig, SADecodingConfig). The forced number of accepted tokens
(`tensorrt_llm/_torch/speculative/interface.py`) leaves out the bonus token; older releases read whole numbers only.
"""

from __future__ import annotations

import json
from typing import Any

from specrace.lab.advice.exports.base import AS_MEASURED, AT_THE_END, REFUSED, SLOWER, Choice, Effect, Engine, Export

FORCED = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
# How many answers the engine keeps to draft from, if its option `enable_global_pool` is on.
POOL = "global_pool_size"
_WHOLE = "Older releases read a forced number only if it is whole."
# What the forced number counts, for a reader.
_CONVENTION = f"The number is the mean of all steps, without the bonus token; {AT_THE_END}."
TYPES = {"trtllm-ngram": "NGram", "trtllm-sa": "SA"}


def export(choice: Choice) -> Export:
    """The YAML, and the environment variable that forces the measured acceptance."""
    config = _config(choice)
    # JSON is YAML, but for the quotation marks (character 34) around a text, which are left out.
    lines = [f"  {name}: {json.dumps(value).strip(chr(34))}\n" for name, value in config.items()]
    forced = f"{FORCED}={max(0.0, round(choice.mean - 1, 3))}"
    return Export("speculative_config:\n" + "".join(lines), forced, _CONVENTION, notes=(_WHOLE,))


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
        # -1: matches of any length.
        return {"decoding_type": "SA", "max_draft_len": choice.num_draft, "max_matching_ngram_size": -1}
    config = {name: value for name, value in options.items() if name not in ("max_draft_len", POOL)}
    # 0 stands for the engine's default size. The engine refuses a size if the pool is off.
    if options.get("enable_global_pool") and options.get(POOL):
        config[POOL] = options[POOL]
    return {"decoding_type": TYPES[choice.lane], "max_draft_len": choice.num_draft, **config}


# From NVIDIA/TensorRT-LLM in November 2026; each entry names its file.
EFFECTS = (
    # docs/source/features/sampling.md at 05ce57bcac5b. SA is a one-model drafter, NGram a two-model one:
    # tensorrt_llm/_torch/pyexecutor/sampler/two_model_spec_dec.py.
    Effect(
        ("presence_penalty", "frequency_penalty", "repetition_penalty"),
        REFUSED,
        "refuses the request while it drafts with SA, unless speculative_config has enable_penalty: true; with NGram "
        "it applies the penalty",
    ),
    Effect(
        ("min_p",),
        REFUSED,
        "refuses the request while it drafts with SA, unless speculative_config has advanced_sampling_mode: fused; "
        "with NGram it applies min_p",
    ),
    # docs/source/features/feature-combination-matrix.md at 01edceae1757.
    Effect(("logits_processors",), REFUSED, "does not support logits processors while it drafts"),
    Effect(("structured_output",), SLOWER, "guides each draft position, which the forecast leaves out"),
    # two_model_spec_dec.py, _process_draft_tokens_greedy; tensorrt_llm/llmapi/llm_args.py, use_rejection_sampling.
    Effect(
        ("temperature",),
        AS_MEASURED,
        "draws a token at each position and keeps the drafts that equal it: the forecast holds on average, if the "
        "log's answers were sampled at this temperature",
    ),
)

ENGINE = Engine(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    prefix="trtllm-",
    nearest=("prompt-lookup", "suffix"),
    version="main, November 2026",
    export=export,
    effects=EFFECTS,
    effects_version="(main, November 2026)",
)
