"""The flags that a launched server gets."""

from __future__ import annotations

import json

import pytest

from specrace.core.errors import InputError
from specrace.lab.compare.launch_flags import drafting_flags
from specrace.lab.scoring.score import ScoredLane

# A user's command for a server; {port} is replaced before it starts.
VLLM = ("/opt/vllm/bin/vllm", "serve", "m", "--port", "{port}")
COUNTS = ["--per-request-spec-decode-metrics", "detailed"]
SUFFIX = ScoredLane.of("vllm-suffix", {"num_speculative_tokens": 16}, 16)


def test_vllm_gets_its_drafter_and_the_flag_that_counts_its_steps() -> None:
    flag, config, *counts = drafting_flags("spec", VLLM, SUFFIX)
    assert flag == "--speculative-config" and counts == COUNTS
    assert json.loads(config)["method"] == "suffix" and json.loads(config)["num_speculative_tokens"] == 16


def test_a_command_with_a_drafter_of_its_own_keeps_it() -> None:
    own_drafter = ("--speculative-config", '{"method": "ngram"}')
    for lane in (SUFFIX, None):
        assert drafting_flags("spec", (*VLLM, *own_drafter), lane) == COUNTS
        assert drafting_flags("spec", (*VLLM, *own_drafter, *COUNTS), lane) == []
    assert drafting_flags("spec", (*VLLM, '--speculative-config={"method": "ngram"}'), SUFFIX) == COUNTS


def test_the_baseline_gets_no_flags() -> None:
    assert drafting_flags("plain", VLLM, None) == []


def test_other_engines_get_their_own_flags() -> None:
    llama = drafting_flags("spec", ("llama-server", "--port", "{port}"), ScoredLane.of("llamacpp-simple", {}))
    assert llama[:2] == ["--spec-type", "ngram-simple"]
    sglang = drafting_flags("spec", ("python", "-m", "sglang.launch_server"), ScoredLane.of("sglang-ngram", {}))
    assert sglang[:2] == ["--speculative-algorithm", "NGRAM"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("my-server", "{port}"), "starts none of the engines that --settings knows"),
        (("llama-server", "{port}"), "llama.cpp has no drafter like the lane vllm-suffix"),
    ],
)
def test_a_lane_that_the_engine_lacks_is_refused(command: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        drafting_flags("spec", command, SUFFIX)
