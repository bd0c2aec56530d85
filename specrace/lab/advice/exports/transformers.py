"""transformers: the arguments of `model.generate` for prompt lookup decoding.

Names from transformers 5.23.0, `generation/configuration_utils.py`, class GenerationConfig. transformers cannot
simulate acceptance.
"""

from __future__ import annotations

from specrace.lab.advice.exports.base import (
    AS_MEASURED,
    NOT_DRAFTED,
    OTHER_TEXT,
    REFUSED,
    SLOWER,
    Choice,
    Effect,
    Engine,
    Export,
)


def export(choice: Choice) -> Export:
    """The keyword arguments, with notes where transformers' prompt lookup differs from the lane."""
    longest = choice.options["longest"]
    notes = []
    if choice.options["shortest"] > 1:
        notes.append(f"transformers also drafts after matches shorter than {choice.options['shortest']} tokens.")
    # With `llma`, the lane copies from the prompt only.
    if choice.options["llma"]:
        notes.append("transformers also copies from the output.")
    settings = f"prompt_lookup_num_tokens={choice.num_draft}, max_matching_ngram_size={longest}"
    return Export(settings, notes=tuple(notes))


# From transformers 5.23.0, in generation/: each entry names its file.
EFFECTS = (
    # utils.py, _validate_generation_mode.
    Effect(("n",), REFUSED, "refuses more than one sequence while it drafts: send a request for each"),
    # configuration_utils.py, get_generation_mode.
    Effect(("use_beam_search",), NOT_DRAFTED, "decodes beams without drafts, with a warning"),
    # utils.py, _assisted_decoding: torch.multinomial draws for all positions of a step.
    Effect(("seed",), OTHER_TEXT, "draws for rejected positions, too, so the same seed gives another text"),
    # utils.py, _assisted_decoding; candidate_generator.py, PromptLookupCandidateGenerator: both run every processor
    # once for each draft token.
    Effect(
        (
            "presence_penalty", "frequency_penalty", "repetition_penalty", "min_p", "logit_bias", "min_tokens",
            "bad_words", "logits_processors",
        ),
        SLOWER,
        "runs its processors one by one over the draft and again over each position, and cuts a draft at a token that "
        "they forbid: the output is the same as without drafts, and each step does more work, which the "
        "forecast leaves out",
    ),
    # utils.py, _assisted_decoding: without the draft's probabilities, the tokens drawn are compared.
    Effect(
        ("temperature",),
        AS_MEASURED,
        "draws a token at each position and keeps the drafts that equal it: the forecast holds on average, if the "
        "log's answers were sampled at this temperature",
    ),
)  # fmt: skip

ENGINE = Engine(
    name="transformers",
    title="transformers",
    prefix="",
    nearest=("prompt-lookup",),
    version="5.23.0",
    export=export,
    effects=EFFECTS,
    effects_version="5.23.0",
)
