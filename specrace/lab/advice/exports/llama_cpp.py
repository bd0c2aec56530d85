"""llama.cpp: the flags of `--spec-type`, for builds before and after its options were renamed.

Names from ggml-org/llama.cpp, `common/arg.cpp` at f5e85d43a048. Pull request 22397 (merged in April 2026) gave each
mode its own options; earlier builds (up to b8838) have one set for all modes, which later builds refuse. The synthetic
length counts the bonus token (pull request 27711).
"""

from __future__ import annotations

from typing import Any

from specrace.lab.advice.exports.base import (
    AS_MEASURED,
    AT_THE_END,
    LESS_OUTPUT,
    SLOWER,
    Choice,
    Effect,
    Engine,
    Export,
)

# The lane that asks several drafters in turn.
LIST = "llamacpp-list"
# Drafter that a list may have -> its options, in the order in which llama.cpp asks the drafters.
LISTED = {
    "simple": ("size_n", "size_m"),
    "map_k": ("size_n", "size_m"),
    "map_k4v": ("size_n", "size_m", "min_hits"),
    "mod": ("n_match", "n_min", "n_max"),
    "cache": (),
}
# Our name of an option -> its flag before pull request 22397.
OLD = {
    "size_n": "--spec-ngram-size-n",
    "size_m": "--spec-ngram-size-m",
    "min_hits": "--spec-ngram-min-hits",
    "n_match": "--spec-ngram-size-n",
    "n_min": "--draft-min",
    "n_max": "--draft-max",
}
# What the synthetic length counts, for a reader. common/speculative.cpp divides by the steps that had a draft;
# tools/server/server-context.cpp simulates on these only.
_CONVENTION = (
    f"The length is the mean of all steps, with the bonus token; {AT_THE_END}. llama.cpp's own mean is of the steps "
    "with a draft, and its simulation needs a draft as well."
)


def export(choice: Choice) -> Export:
    """The flags for builds since pull request 22397, and in a note those for earlier builds."""
    if choice.lane == LIST:
        return _export_list(choice)
    mode, options = _mode(choice)
    mode_flag = f"--spec-type ngram-{mode}"
    # Other options name the user's files, such as a lookup cache, which a sweep cannot know.
    flags = {name: value for name, value in options.items() if name in OLD}
    group = "draft" if mode == "cache" else f"ngram-{mode}"
    new_flags = [f"--spec-{group}-{name.replace('_', '-')} {value}" for name, value in flags.items()]
    old_flags = [f"{OLD[name]} {value}" for name, value in flags.items()]
    if "n_max" not in flags:
        old_flags.append(f"--draft-max {choice.num_draft}")
    notes = (f"Builds before pull request 22397 (b8838 and earlier): {' '.join([mode_flag, *old_flags])}",)
    return Export(
        " ".join([mode_flag, *new_flags]), f"{mode_flag} --spec-synth-len {choice.length}", _CONVENTION, notes=notes
    )


def _export_list(choice: Choice) -> Export:
    """The flags for a list of drafters: the list, and the flags of each."""
    names = [name for name in LISTED if choice.options[name]]
    modes = [f"ngram-{name.replace('_', '-')}" for name in names]
    mode_flag = f"--spec-type {','.join(modes) or 'none'}"
    flags = [
        f"--spec-{mode}-{option.replace('_', '-')} {choice.options[option]}"
        for name, mode in zip(names, modes, strict=True)
        for option in LISTED[name]
    ]
    settings = " ".join([mode_flag, *flags])
    return Export(settings, f"{settings} --spec-synth-len {choice.length}", _CONVENTION)


def _mode(choice: Choice) -> tuple[str, dict[str, Any]]:
    """The n-gram mode that drafts like the lane, and its options."""
    options = choice.options
    size = choice.num_draft
    if choice.lane == "prompt-lookup":
        return "simple", {"size_n": options["longest"], "size_m": size}
    if choice.lane == "trie":
        return "map-k4v", {"size_n": options["prefix"], "size_m": size}
    mode = choice.lane.removeprefix(ENGINE.prefix)
    return mode, {**options, **({"n_max": size} if mode == "cache" else {})}


# From ggml-org/llama.cpp at 0c1e57098; each entry names its file.
EFFECTS = (
    # tools/server/server-context.cpp, where accepted tokens get `prob = 1.0f` without alternatives: llama.cpp has none.
    Effect(
        ("logprobs",),
        LESS_OUTPUT,
        "reports the probability 1 and no alternatives for each token of a step that had a draft",
    ),
    # common/sampling.cpp, common_sampler_sample_and_accept_n; a required tool is a grammar: common/chat.cpp.
    Effect(
        ("structured_output", "tool_choice"),
        SLOWER,
        "checks each drawn token against the grammar, one after the other, which the forecast leaves out; drafts are "
        "not cut where they break the grammar",
    ),
    # Also common/sampling.cpp: the whole chain of samplers draws a token at each position, and its history holds the
    # accepted tokens.
    Effect(
        (
            "presence_penalty", "frequency_penalty", "repetition_penalty", "min_p", "logit_bias", "seed", "temperature",
        ),
        AS_MEASURED,
        "draws a token at each position by all its samplers, one draw for each token of the output, and keeps the "
        "drafts that equal it: the output is the same as without drafts, and the forecast holds if the log's answers "
        "were drawn with these options",
    ),
    # tools/server/server-context.cpp: a slot for each child task.
    Effect(("n",), AS_MEASURED, "decodes each choice in a slot of its own: count them all in --batch"),
    # tools/server/server-context.cpp: n_draft_accepted grows before process_token looks for a stop.
    Effect(
        ("stop",), AS_MEASURED, "counts accepted tokens past a stop string in its timings, which the output leaves out"
    ),
)  # fmt: skip

ENGINE = Engine(
    name="llama-cpp",
    title="llama.cpp",
    prefix="llamacpp-",
    nearest=("prompt-lookup", "trie"),
    version="b9682 and later",
    export=export,
    effects=EFFECTS,
    effects_version="(0c1e57098)",
)
