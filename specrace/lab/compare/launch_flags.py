"""The flags that make a launched server draft as a lane, one of our drafting methods, does, and count its steps."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from specrace.core.errors import InputError
from specrace.lab.advice.exports import ENGINES, Choice
from specrace.lab.scoring.score import ScoredLane

# A word of the command that starts a server -> the engine, as in ENGINES.
PROGRAMS = {
    "vllm": "vllm",
    "vllm.entrypoints.openai.api_server": "vllm",
    "sglang": "sglang",
    "sglang.launch_server": "sglang",
    "llama-server": "llama-cpp",
}
# vLLM lists the draft tokens of each step only with this flag, and refuses it without a drafter.
VLLM_DRAFTER, VLLM_COUNTS = "--speculative-config", "--per-request-spec-decode-metrics"


def drafting_flags(name: str, command: Sequence[str], lane: ScoredLane | None) -> list[str]:
    """The flags to add to the `command` of the server `name`: the lane's settings, and those that count its steps.

    None of the lane's flags are added if the command has one of them already. Raises InputError for a command of an
    unknown engine, and for a lane that the engine does not have.
    """
    flags: list[str] = []
    engine = next((PROGRAMS[stem] for word in command if (stem := PurePath(word).name) in PROGRAMS), None)
    if lane is not None:
        if engine is None:
            raise InputError(
                f"--launch {name}: this command starts none of the engines that --settings knows "
                f"({', '.join(PROGRAMS)}); leave out --settings, and write the engine's own flags into the command."
            )
        if not ENGINES[engine].has(lane.name):
            raise InputError(
                f"--launch {name}: {ENGINES[engine].title} has no drafter like the lane {lane.name} of --settings; "
                f"run recommend with --engine {engine}."
            )
        # The acceptance, here a placeholder, matters only to settings that simulate it.
        choice = Choice(lane=lane.name, options=lane.options, num_draft=lane.num_draft, mean=1.0, rates=())
        flags = shlex.split(ENGINES[engine].export(choice).settings)
        if any(_option(word) in map(_option, command) for word in flags if word.startswith("--")):
            flags = []
    names = [_option(word) for word in (*command, *flags)]
    if engine == "vllm" and VLLM_DRAFTER in names and VLLM_COUNTS not in names:
        flags += [VLLM_COUNTS, "detailed"]
    return flags


def _option(word: str) -> str:
    """The name of an option, without a value in the same word (--name=value)."""
    return word.partition("=")[0]
