"""llama.cpp: the flags of `--spec-type`, for builds before and after a renaming.

Names from ggml-org/llama.cpp, `common/arg.cpp` at f5e85d43a048. Pull request 22397 (merged in April 2026) gave each
mode its own options; earlier builds (up to b8838) have one set for all modes, which later builds refuse. The synthetic
length counts the bonus token (pull request 27711).
"""

from __future__ import annotations

from typing import Any

from specrace.lab.exports.base import Choice, Engine, Export

# Our name of an option -> its flag before pull request 22397.
OLD = {
    "size_n": "--spec-ngram-size-n",
    "size_m": "--spec-ngram-size-m",
    "min_hits": "--spec-ngram-min-hits",
    "n_match": "--spec-ngram-size-n",
    "n_min": "--draft-min",
    "n_max": "--draft-max",
}


def export(choice: Choice) -> Export:
    """The flags for builds since pull request 22397, and in a note those for earlier builds."""
    mode, options = _mode(choice)
    head = f"--spec-type ngram-{mode}"
    # Other options name the user's files, such as a lookup cache, which a sweep cannot know.
    flags = {name: value for name, value in options.items() if name in OLD}
    group = "draft" if mode == "cache" else f"ngram-{mode}"
    new = [f"--spec-{group}-{name.replace('_', '-')} {value}" for name, value in flags.items()]
    old = [f"{OLD[name]} {value}" for name, value in flags.items()]
    if "n_max" not in flags:
        old.append(f"--draft-max {choice.num_draft}")
    notes = (f"Builds before pull request 22397 (b8838 and earlier): {' '.join([head, *old])}",)
    return Export(" ".join([head, *new]), f"{head} --spec-synth-len {choice.length}", notes=notes)


def _mode(choice: Choice) -> tuple[str, dict[str, Any]]:
    """The name of the n-gram mode, and its options."""
    options = choice.options
    size = choice.num_draft
    if choice.lane == "prompt-lookup":
        return "simple", {"size_n": options["longest"], "size_m": size}
    if choice.lane == "trie":
        return "map-k4v", {"size_n": options["prefix"], "size_m": size}
    mode = choice.lane.removeprefix(ENGINE.prefix)
    return mode, {**options, **({"n_max": size} if mode == "cache" else {})}


ENGINE = Engine("llama-cpp", "llamacpp-", ("prompt-lookup", "trie"), "b9682 and later", export)
