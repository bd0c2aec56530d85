"""The decoders, one file each, and their registry. A new one is one file and one line here."""

from __future__ import annotations

from specrace.core.errors import InputError
from specrace.drafters.base import MODEL, NGRAM, Drafter, Material, Method
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.drafters.fusion import FusionDrafter
from specrace.drafters.jacobi import JacobiDrafter
from specrace.drafters.lookahead import LookaheadDrafter, PoolDrafter, tree_size
from specrace.drafters.ngram_table import BigramDrafter, TrigramDrafter
from specrace.drafters.prompt_lookup import PromptLookupDrafter, copy_length
from specrace.drafters.recycling import RecyclingDrafter
from specrace.drafters.rest import RestDrafter
from specrace.drafters.suffix import SuffixDrafter
from specrace.drafters.trie import TrieDrafter
from specrace.drafters.vanilla import VanillaDrafter

# fmt: off
_ALL = (
    Method("vanilla", "Vanilla", "one token per step, the baseline", VanillaDrafter, 0),
    Method("bigram", "Bigram", "the most frequent token after the last one", BigramDrafter, 4, profile=NGRAM),
    Method("trigram", "Trigram", "the most frequent token after the last two", TrigramDrafter, 4, profile=NGRAM),
    Method("jacobi", "Jacobi", "a block of draft tokens refined step by step", JacobiDrafter, 8,
           {"num_draft": 16}, profile=NGRAM),
    Method("lookahead", "Lookahead", "a window of Jacobi trajectories and a pool of n-grams", LookaheadDrafter,
           tree_size, {"n": 5, "window": 15, "guesses": 15}, scored_as=PoolDrafter, profile=None),
    Method("trie", "N-gram trie", "a trie of the prompt's n-grams", TrieDrafter, 16, {"num_draft": 32}),
    Method("prompt-lookup", "Prompt lookup", "copies from an earlier match", PromptLookupDrafter, copy_length),
    Method("rest", "REST", "the most frequent continuations in all documents", RestDrafter, 16, {"num_draft": 64}),
    Method("recycling", "Token recycling", "the model's own likely tokens at earlier steps", RecyclingDrafter, 16,
           {"num_draft": 80}),
    Method("suffix", "Suffix decoding", "the likeliest path after any match length", SuffixDrafter, 16,
           {"num_draft": 32}),
    Method("draft-model", "Draft model", "a smaller model's continuation", DraftModelDrafter, 8, profile=MODEL),
    Method("fusion", "Fusion", "every free source, cut where drafting stops paying", FusionDrafter, 32,
           {"corpus": True, "recycling": True}, profile=None),
)
# fmt: on
METHODS: dict[str, Method] = {method.name: method for method in _ALL}


def find_method(name: str) -> Method:
    """The method called `name`. Raises InputError, with all names, if there is none."""
    if name not in METHODS:
        raise InputError(f"There is no lane {name!r}; choose from {', '.join(METHODS)}.")
    return METHODS[name]


__all__ = ["METHODS", "Drafter", "Material", "Method", "find_method"]
