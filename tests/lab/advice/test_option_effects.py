"""What engines do with requests that have options: the worst effect comes first, and every option is mentioned."""

from __future__ import annotations

import pytest

from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.exports.base import EFFECTS
from specrace.lab.advice.option_effects import option_effects
from specrace.lab.logs.request_options import OPTIONS


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_has_one_effect_at_most_in_an_engine(engine: str) -> None:
    options = [name for effect in ENGINES[engine].effects for name in effect.options]
    assert len(options) == len(set(options))
    assert set(options) <= OPTIONS
    assert {effect.kind for effect in ENGINES[engine].effects} <= set(EFFECTS)
    assert ENGINES[engine].title


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_of_a_request_is_mentioned(engine: str) -> None:
    rows = option_effects([(name,) for name in sorted(OPTIONS)], ENGINES[engine])
    assert sorted(name for row in rows for name in row["options"]) == sorted(OPTIONS)
    assert sum(row["requests"] for row in rows) == len(OPTIONS)


def test_the_worst_effect_comes_first_and_a_request_counts_once_in_each() -> None:
    log = [("frequency_penalty", "min_p", "presence_penalty"), ("presence_penalty",), (), ()]
    refused, slower = (row["sentence"] for row in option_effects(log, ENGINES["vllm"]))
    assert refused == "1 of 4 requests (25 %) have min_p: vLLM 0.32.0 refuses the request while it drafts."
    assert slower.startswith("2 of 4 requests (50 %) have presence_penalty or frequency_penalty: vLLM 0.32.0 applies")


@pytest.mark.parametrize(
    ("engine", "option", "kind"),
    [
        ("vllm", "logit_bias", "refused"),
        ("vllm", "use_beam_search", "not drafted"),
        ("sglang", "min_p", "option ignored"),
        ("sglang", "presence_penalty", "other text"),
        ("tensorrt-llm", "logits_processors", "refused"),
        ("llama-cpp", "presence_penalty", "as measured"),
        ("llama-cpp", "logprobs", "less output"),
        ("transformers", "n", "refused"),
        ("tensorrt-llm", "n", "not known"),
    ],
)
def test_an_effect_is_that_of_the_engines_source(engine: str, option: str, kind: str) -> None:
    (row,) = option_effects([(option,)], ENGINES[engine])
    assert row["effect"] == kind


def test_requests_without_options_have_no_effects() -> None:
    assert [option_effects([(), ()], engine) for engine in ENGINES.values()] == [[]] * len(ENGINES)
    assert option_effects([], ENGINES["vllm"]) == []
