"""transformers: the arguments of `model.generate` for prompt lookup decoding.

Names from transformers 5.23.0, `generation/configuration_utils.py`, class GenerationConfig. It has no simulated
acceptance.
"""

from __future__ import annotations

from specrace.lab.exports.base import Choice, Engine, Export


def export(choice: Choice) -> Export:
    """The keyword arguments."""
    longest = choice.options["longest"]
    return Export(f"prompt_lookup_num_tokens={choice.num_draft}, max_matching_ngram_size={longest}")


ENGINE = Engine("transformers", "", ("prompt-lookup",), "5.23.0", export)
