"""The options of a logged request that may change how an engine drafts, under one name for all APIs.

The names are those of vLLM's API. Other names are from OpenAI's, Anthropic's, Gemini's (generateContent), Bedrock's
(Converse) and Ollama's API references, from SGLang's and Text Generation Inference's request schemas, from the README
of llama.cpp's server, from transformers' GenerationConfig, and from OpenTelemetry's attributes of a request. An
option that has its neutral value does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Option -> its names, and the value that changes nothing.
_PENALTIES = {
    "presence_penalty": (("presence_penalty", "presencePenalty"), 0.0),
    "frequency_penalty": (("frequency_penalty", "frequencyPenalty"), 0.0),
    "repetition_penalty": (("repetition_penalty", "repeat_penalty", "repetitionPenalty"), 1.0),
}
# Option -> its names, and the number above which it has an effect. Seeds of 0 and more count.
_ABOVE = {
    "temperature": (("temperature",), 0.0),
    "min_p": (("min_p", "minP"), 0.0),
    "min_tokens": (("min_tokens", "min_new_tokens", "min_length"), 0.0),
    "n": (("n", "n_cmpl", "num_return_sequences", "candidateCount", "candidate_count", "choice.count"), 1.0),
    "best_of": (("best_of",), 1.0),
    "use_beam_search": (("num_beams", "beam_width"), 1.0),
    "seed": (("seed", "sampling_seed", "random_seed"), -0.5),
    "logprobs": (("top_logprobs", "n_probs"), 0.0),
}
# Option -> its names; it has an effect if its value is not empty.
_FILLED = {
    "logit_bias": ("logit_bias", "embedding_bias", "sequence_bias"),
    "stop": ("stop", "stop_sequences", "stopSequences", "stop_token_ids", "stop_regex", "stop_strings"),
    "bad_words": ("bad_words", "bad_words_ids", "bad"),
    "allowed_token_ids": ("allowed_token_ids",),
    "logits_processors": ("logits_processors", "logits_processor", "custom_logit_processor"),
    "structured_output": (
        "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "regex",
        "ebnf", "grammar", "structural_tag", "responseSchema", "response_schema", "responseJsonSchema",
        "response_json_schema",
    ),
}  # fmt: skip
# Option -> its names; it has an effect if its value is true.
_SWITCHES = {
    "use_beam_search": ("use_beam_search",),
    "logprobs": ("return_logprob", "responseLogprobs"),
}
OPTIONS = frozenset((*_PENALTIES, *_ABOVE, *_FILLED, *_SWITCHES, "tool_choice"))
# Values of tool_choice that demand a call, and kinds of format that constrain the answer.
_FORCED = ("required", "any", "tool", "function")
_FORMATS = (
    "json",
    "json_object",
    "json_schema",
    "structural_tag",
    "regex",
    "grammar",
    "application/json",
    "text/x.enum",
)


def request_options(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The options in a request's parameters (`Exchange.parameters`), in alphabetical order."""
    names = {name for name, (keys, neutral) in _PENALTIES.items() if _numbers(parameters, keys) - {neutral}}
    names |= {name for name, (keys, bound) in _ABOVE.items() if max(_numbers(parameters, keys), default=bound) > bound}
    names |= {name for name, keys in _FILLED.items() if any(_is_filled(parameters.get(key)) for key in keys)}
    names |= {name for name, keys in _SWITCHES.items() if any(_is_true(parameters.get(key)) for key in keys)}
    if _samples_by_default(parameters):
        names.add("temperature")
    # `logprobs` is a switch in OpenAI's chats. In completions and in vLLM it is a number, and 0 switches it on, too.
    if _is_true(parameters.get("logprobs")) or _number(parameters.get("logprobs")) is not None:
        names.add("logprobs")
    if _forces_tool(parameters):
        names.add("tool_choice")
    if _structures(parameters):
        names.add("structured_output")
    return tuple(sorted(names))


def ignores_end(parameters: Mapping[str, Any]) -> bool:
    """Whether the request asks to go on past the end of the answer, as load tests do."""
    return _is_true(parameters.get("ignore_eos"))


def _samples_by_default(parameters: Mapping[str, Any]) -> bool:
    """Whether `do_sample` is on without a temperature, which then is 1 (transformers, Text Generation Inference)."""
    return _is_true(parameters.get("do_sample")) and parameters.get("temperature") is None


def _forces_tool(parameters: Mapping[str, Any]) -> bool:
    """Whether the request demands a tool call."""
    choice = parameters.get("tool_choice")
    if isinstance(choice, dict):
        choice = choice.get("type", "tool")
    # OpenAI's API had this field before it had tools.
    function_call = parameters.get("function_call")
    config = parameters.get("toolConfig", parameters.get("tool_config"))
    config = config if isinstance(config, dict) else {}
    calling = config.get("functionCallingConfig", config.get("function_calling_config"))
    gemini = calling.get("mode") if isinstance(calling, dict) else None
    bedrock = config.get("toolChoice")
    return (
        choice in _FORCED
        or isinstance(function_call, dict)
        or str(gemini).upper() == "ANY"
        or (isinstance(bedrock, dict) and not bedrock.keys().isdisjoint(_FORCED))
    )


def _structures(parameters: Mapping[str, Any]) -> bool:
    """Whether the answer has to have a format, such as JSON."""
    # OpenAI's Responses API and Anthropic's Messages API put the format one level deeper.
    nested = [parameters.get(name) for name in ("text", "output_config")]
    formats = [config.get("format") for config in nested if isinstance(config, dict)]
    formats += [parameters.get(name) for name in ("response_format", "output_format")]
    kinds = [format.get("type") for format in formats if isinstance(format, dict)]
    media = [parameters.get(name) for name in ("responseMimeType", "response_mime_type")]
    # Ollama's `format` is a schema, or "json".
    ollama = parameters.get("format")
    return isinstance(ollama, dict) or any(kind in _FORMATS for kind in (*kinds, *media, ollama))


def _numbers(parameters: Mapping[str, Any], keys: tuple[str, ...]) -> set[float]:
    """The numbers that the parameters have under these names."""
    numbers = (_number(parameters.get(key)) for key in keys)
    return {number for number in numbers if number is not None}


def _number(value: Any) -> float | None:
    """The value as a finite number, even if it is text, as in tables; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_filled(value: Any) -> bool:
    return bool(value) and isinstance(value, str | list | dict)


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")
