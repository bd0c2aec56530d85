"""transformers: the arguments of `model.generate` for prompt lookup decoding.

Names from transformers 5.23.0, `generation/configuration_utils.py`, class GenerationConfig. It has no simulated
acceptance.
"""

from __future__ import annotations

from specrace.lab.exports.base import Choice, Engine, Export


def export(choice: Choice) -> Export:
    """The keyword arguments. transformers always tries matches down to one token, and also copies from the output."""
    longest = choice.options["longest"]
    notes = []
    if choice.options["shortest"] > 1:
        notes.append(f"transformers also drafts after matches shorter than {choice.options['shortest']} tokens.")
    if choice.options["llma"]:
        notes.append("transformers also copies from the output.")
    settings = f"prompt_lookup_num_tokens={choice.num_draft}, max_matching_ngram_size={longest}"
    return Export(settings, notes=tuple(notes))


ENGINE = Engine("transformers", "", ("prompt-lookup",), "5.23.0", export)
