"""Settings exported to engines, read by an installed engine's own code, or checked by rules from its source."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import xllamacpp
import yaml

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.engine.generate import generate
from specrace.integrations.vllm import Fusion
from specrace.lab.advice.exports import ENGINES, Choice
from specrace.lab.advice.exports.profile import speculation_profile
from specrace.lab.advice.exports.sglang import corpus_flags, corpus_lines
from specrace.lab.advice.exports.simulators import simulator_settings
from specrace.lab.advice.exports.specrace import SETTINGS_FILE, read_settings
from specrace.lab.advice.recommend import acceptance_profile
from tests.integrations.vllm_runner import vllm_config
from tests.lab.advice.exports.llama_cpp_flags import parse_flags
from tests.parts import TableTarget

# The shares of steps that accept at least one, two and three draft tokens: 2.0 tokens a step, with the bonus token.
RATES = (0.6, 0.3, 0.1)


def choice(lane: str, num_draft: int = 8, **options: Any) -> Choice:
    """A lane with its defaults and these options; a twin that is not registered has only these options."""
    defaults = METHODS[lane].defaults("cuda") if lane in METHODS else {}
    return Choice(lane, defaults | options, num_draft, 1 + sum(RATES), RATES)


# The types and bounds of the fields in vllm/config/speculative.py, and its check of synthetic rates.
VLLM = {
    "num_speculative_tokens": lambda value: type(value) is int and value > 0,
    "prompt_lookup_max": lambda value: type(value) is int and value >= 1,
    "prompt_lookup_min": lambda value: type(value) is int and value >= 1,
    "suffix_decoding_max_tree_depth": lambda value: type(value) is int and value >= 1,
    "suffix_decoding_max_cached_requests": lambda value: type(value) is int and value >= 0,
    "suffix_decoding_max_spec_factor": lambda value: type(value) is float and value > 0,
    "suffix_decoding_min_token_prob": lambda value: type(value) is float and 0 <= value <= 1,
    "rejection_sample_method": lambda value: value == "synthetic",
    "synthetic_acceptance_rates": lambda value: (
        value == sorted(value, reverse=True) and 0 <= value[-1] <= value[0] <= 1
    ),
}


@pytest.mark.parametrize(
    ("chosen", "method"),
    [
        (choice("prompt-lookup"), "ngram"),
        (choice("suffix"), "suffix"),
        (choice("vllm-ngram", num_speculative_tokens=8, prompt_lookup_min=0, prompt_lookup_max=5), "ngram"),
        (choice("vllm-suffix", num_speculative_tokens=0, suffix_decoding_max_tree_depth=24), "suffix"),
    ],
)
def test_vllm_accepts_the_export(chosen: Choice, method: str) -> None:
    export = ENGINES["vllm"].export(chosen)
    for text in (export.settings, export.synthetic):
        flag, value = shlex.split(text)
        config = json.loads(value)
        assert flag == "--speculative-config" and config.pop("method") == method
        assert config["num_speculative_tokens"] == 8
        assert all(VLLM[name](value) for name, value in config.items())
    assert config["synthetic_acceptance_rates"] == [*RATES, 0, 0, 0, 0, 0]


def test_vllm_gets_options_whose_value_is_zero() -> None:
    chosen = choice("vllm-suffix", suffix_decoding_min_token_prob=0.0, suffix_decoding_max_cached_requests=0)
    config = json.loads(shlex.split(ENGINES["vllm"].export(chosen).settings)[1])
    assert (config["suffix_decoding_min_token_prob"], config["suffix_decoding_max_cached_requests"]) == (0.0, 0)


def test_fusion_is_exported_to_vllm_as_a_custom_class() -> None:
    """The flags hold the options that differ from fusion's defaults, and the class accepts them."""
    chosen = choice("fusion", longest=5, chain=True, recycling=True)
    curve = CostCurve((1, 8, 64), (1.0, 1.25, 2.0))
    default = choice("fusion", chain=True, past=False)
    assert "--additional-config" not in ENGINES["vllm"].plug_ins["fusion"](default, ASSUMED_GPU)
    words = shlex.split(ENGINES["vllm"].plug_ins["fusion"](chosen, curve))
    assert words[::2] == ["--speculative-config", "--additional-config"]
    config, settings = json.loads(words[1]), json.loads(words[3])["specrace"]
    assert config.pop("method") == "custom_class" and config.pop("model") == "specrace.integrations.vllm.Fusion"
    # The class itself sets `chain`, and `recycling` is on by default on a GPU.
    assert config == {"num_speculative_tokens": 8} and set(settings) == {"longest", "past", "cost_curve"}
    drafter = Fusion(vllm_config(8, 99, **settings))
    assert drafter.options["longest"] == 5 and drafter.options["past"] and drafter.curve == curve


def test_the_suffix_export_names_the_package_that_vllm_needs() -> None:
    assert "arctic-inference" in ENGINES["vllm"].export(choice("suffix")).notes[0]
    assert not ENGINES["vllm"].export(choice("prompt-lookup")).notes


def sglang_parser() -> argparse.ArgumentParser:
    """A parser with the flags of SGLang's server_args.py and speculative_hook.py."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--speculative-algorithm", choices=("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"))
    parser.add_argument("--speculative-ngram-match-type", choices=("BFS", "PROB"))
    parser.add_argument("--speculative-ngram-external-corpus-path")
    for name in ("max-trie-depth", "min-bfs-breadth", "max-bfs-breadth", "capacity", "external-sam-budget"):
        parser.add_argument(f"--speculative-ngram-{name}", type=int)
    parser.add_argument("--speculative-num-draft-tokens", type=int)
    return parser


# SGLang's options of a draft of eight tokens; SGLang counts the root as well.
TREE = {
    "num_draft_tokens": 9,
    "max_trie_depth": 18,
    "min_bfs_breadth": 1,
    "max_bfs_breadth": 10,
    "external_sam_budget": 0,
}


@pytest.mark.parametrize("chosen", [choice("trie"), choice("sglang-ngram", match_type_prob=True, **TREE)])
def test_sglang_accepts_the_flags(chosen: Choice) -> None:
    export = ENGINES["sglang"].export(chosen)
    arguments = sglang_parser().parse_args(shlex.split(f"{export.settings} {corpus_flags(chosen)}"))
    assert (arguments.speculative_algorithm, arguments.speculative_ngram_match_type) == ("NGRAM", "PROB")
    # The root counts as a draft token.
    assert arguments.speculative_num_draft_tokens == 9
    assert 0 < arguments.speculative_ngram_external_sam_budget <= arguments.speculative_num_draft_tokens - 1
    environment = dict(setting.split("=") for setting in export.synthetic.split())
    assert environment["SGLANG_SIMULATE_ACC_LEN"] == "2.0" and len(environment) == 3
    # SGLang's eagle_utils.py refuses the other mode, real draft tokens, unless tree_topk is 1; for n-grams it is -1.
    assert environment["SGLANG_SIMULATE_ACC_TOKEN_MODE"] == "fixed"


def test_the_sglang_corpus_has_one_json_string_per_line() -> None:
    texts = ["The hall\nwas built.", 'It has "quotes" and \u2028.']
    assert [json.loads(line) for line in corpus_lines(texts).split("\n")[:-1]] == texts


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (
            choice("prompt-lookup", longest=4),
            {"decoding_type": "NGram", "max_matching_ngram_size": 4, "is_keep_all": True, "is_public_pool": False},
        ),
        (choice("suffix"), {"decoding_type": "SA", "max_matching_ngram_size": -1}),
        (
            choice("trtllm-ngram", max_draft_len=8, is_use_oldest=False),
            {"decoding_type": "NGram", "is_use_oldest": False},
        ),
        (
            choice("trtllm-sa", max_draft_len=8, enable_global_pool=True),
            {"decoding_type": "SA", "enable_global_pool": True},
        ),
    ],
)
def test_tensorrt_llm_accepts_the_yaml(chosen: Choice, expected: dict[str, Any]) -> None:
    export = ENGINES["tensorrt-llm"].export(chosen)
    config = yaml.safe_load(export.settings)["speculative_config"]
    assert config | expected == config and config["max_draft_len"] == 8
    assert export.synthetic == "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1.0"


@pytest.mark.parametrize(
    ("lane", "options", "words", "figure"),
    [
        ("vllm-ngram", {"num_speculative_tokens": 3}, "without the bonus token", json.dumps(list(RATES))),
        ("sglang-ngram", {}, "with the bonus token", "SGLANG_SIMULATE_ACC_LEN=2.0"),
        ("trtllm-sa", {}, "without the bonus token", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1.0"),
        ("llamacpp-simple", {}, "with the bonus token", "--spec-synth-len 2.0"),
    ],
)
def test_load_test_settings_say_what_their_figures_count(
    lane: str, options: dict[str, Any], words: str, figure: str
) -> None:
    (engine,) = (engine for engine in ENGINES.values() if engine.prefix and lane.startswith(engine.prefix))
    export = engine.export(choice(lane, 3, **options))
    assert figure in export.synthetic
    assert words in export.convention and "past an output's end" in export.convention


def test_settings_without_a_simulation_have_no_convention() -> None:
    # A convention is the sentence that says what the figures of a simulation count.
    for engine in (ENGINES["transformers"], ENGINES["specrace"]):
        export = engine.export(choice("prompt-lookup"))
        assert (export.synthetic, export.convention) == ("", "")


@pytest.mark.parametrize(
    ("chosen", "mode", "options"),
    [
        (choice("prompt-lookup", longest=3), "ngram_simple", {"size_n": 3, "size_m": 8}),
        (choice("trie", prefix=3), "ngram_map_k4v", {"size_n": 3, "size_m": 8}),
        (choice("llamacpp-map-k", size_n=4, size_m=8, min_hits=2), "ngram_map_k", {"size_n": 4, "min_hits": 2}),
        (choice("llamacpp-mod", n_match=6, n_min=2, n_max=8), "ngram_mod", {"n_match": 6, "n_min": 2, "n_max": 8}),
        (choice("llamacpp-cache", lookup_cache_static=False), "ngram_cache", {"n_max": 8}),
    ],
)
def test_llama_cpp_accepts_the_flags(chosen: Choice, mode: str, options: dict[str, int]) -> None:
    """llama.cpp's own parser takes the flags, and they set these fields."""
    export = ENGINES["llama-cpp"].export(chosen)
    params = parse_flags(export.settings).speculative
    kinds = xllamacpp.common_speculative_type
    assert params.types[-1] == getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{mode.upper()}")
    group = getattr(params, "draft" if mode == "ngram_cache" else mode)
    assert {name: getattr(group, name) for name in options} == options
    assert parse_flags(export.synthetic).speculative.synth_len == 2.0
    assert "--draft-max 8" in export.notes[0]


def test_llama_cpp_accepts_a_list_of_drafters_with_the_options_of_each() -> None:
    drafters = {"simple": False, "map_k": False, "map_k4v": True, "mod": True, "cache": True}
    sizes = {"size_n": 3, "size_m": 16, "min_hits": 2, "n_match": 5, "n_min": 1, "n_max": 9}
    export = ENGINES["llama-cpp"].export(choice("llamacpp-list", 16, **drafters | sizes))
    params = parse_flags(export.settings).speculative
    kinds = xllamacpp.common_speculative_type
    names = ("NGRAM_MAP_K4V", "NGRAM_MOD", "NGRAM_CACHE")
    assert list(params.types)[-3:] == [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{name}") for name in names]
    assert (params.ngram_map_k4v.size_n, params.ngram_map_k4v.size_m, params.ngram_map_k4v.min_hits) == (3, 16, 2)
    assert (params.ngram_mod.n_match, params.ngram_mod.n_min, params.ngram_mod.n_max) == (5, 1, 9)
    assert parse_flags(export.synthetic).speculative.synth_len == 2.0


def test_the_llama_cpp_parser_refuses_unknown_flags(capfd: pytest.CaptureFixture[str]) -> None:
    """The parser also refuses the flags of builds before pull request 22397, which we write in a note only."""
    for flags in ("--spec-ngram-simple-size-q 3", "--spec-type ngram-simple --draft-max 8"):
        with pytest.raises(ValueError, match="refuses"):
            parse_flags(flags)
    assert "--draft-max" in capfd.readouterr().err


def test_the_transformers_export_notes_where_transformers_differs() -> None:
    exported = ENGINES["transformers"].export
    assert not exported(choice("prompt-lookup")).notes
    assert "shorter than 2" in exported(choice("prompt-lookup", shortest=2)).notes[0]
    assert "from the output" in exported(choice("prompt-lookup", llma=True)).notes[0]


def test_tensorrt_llm_gets_no_pool_size_without_a_pool() -> None:
    """TensorRT-LLM's SADecodingConfig refuses a pool size there."""
    for pool, size, expected in ((False, 80, None), (True, 0, None), (True, 80, 80)):
        export = ENGINES["tensorrt-llm"].export(choice("trtllm-sa", enable_global_pool=pool, global_pool_size=size))
        assert yaml.safe_load(export.settings)["speculative_config"].get("global_pool_size") == expected


def test_generate_takes_our_settings_file(tmp_path: Path) -> None:
    export = ENGINES["specrace"].export(choice("trie", n=5))
    file = tmp_path / SETTINGS_FILE
    file.write_text(export.files[SETTINGS_FILE])
    settings = read_settings(file)
    assert settings == {"method": "trie", "num_draft": 8, "n": 5, "prefix": 3, "static": False}
    steps = list(generate(TableTarget(), prompt=[2, 3, 4, 2, 3], max_new_tokens=6, **settings))
    assert sum(len(step.emitted) for step in steps) == 6


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"method": "trie"}',
        '{"method": "trie", "num_draft": "x", "options": {}}',
        '{"method": "trie", "num_draft": 1e999, "options": {}}',
    ],
)
def test_invalid_settings_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "s.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"s\.json needs"):
        read_settings(file)


def test_the_profile_has_what_its_consumers_need() -> None:
    """NVIDIA/Model-Optimizer, pull request 2247: one rate per draft position, never rising."""
    # Of ten steps four accept nothing, three one token, three two.
    measured = acceptance_profile({0: 4, 1: 3, 2: 3}) | {"mean_accept_length_per_request": 2.5}
    profile = speculation_profile("suffix", 4, measured, {}, {"dataset": "logs"})
    assert profile["schema_version"] == "1.0" and profile["measured"] is True
    assert profile["marginal_accept_rates"] == [0.6, 0.3, 0, 0] and profile["conditional_accept_rates"] == [
        0.6,
        0.5,
        0,
        0,
    ]
    assert all(check["passed"] for check in profile["validation"].values())
    # Drafts of one token cannot have the measured mean.
    one_token = speculation_profile("suffix", 1, measured, {}, {})
    assert not one_token["validation"]["mean_consistency"]["passed"]
    assert (profile["mean_accept_length"], profile["mean_accept_length_per_request"]) == (1.9, 2.5)
    assert json.loads(json.dumps(profile)) == profile


def test_simulators_get_the_mean_of_all_steps_and_conditional_rates() -> None:
    """AISimulate wants a mean of accepted tokens between 0 and the draft size, Dynamo's mocker one to five rates."""
    settings = simulator_settings(3, acceptance_profile({0: 4, 1: 3, 2: 3}))
    assert settings["aisimulate"]["speculative"] == {
        "method": "ngram", "params": {"num_speculative_tokens": 3}, "accepted_tokens": 0.9,
    }  # fmt: skip
    assert settings["aisimulate"]["arguments"].endswith("--spec-num-draft-tokens 3 --spec-accepted-tokens 0.9")
    assert settings["dynamo"]["arguments"] == "--aic-nextn 3 --aic-nextn-accept-rates 0.6000,0.5000,0.0000"
    assert len(settings["notes"]) == 2
    long_drafts = simulator_settings(8, acceptance_profile({0: 1, 8: 1}))
    assert (
        "--aic-nextn 5 --aic-nextn-accept-rates 0.5000,1.0000,1.0000,1.0000,1.0000"
        in long_drafts["dynamo"]["arguments"]
    )
    assert "1.50 accepted tokens a step are beyond" in long_drafts["notes"][-1]
