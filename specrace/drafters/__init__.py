"""The decoders, one file each, and their registry. A new one is one file and one line here."""

from __future__ import annotations

from specrace.core.errors import InputError
from specrace.drafters.base import MODEL, NGRAM, Drafter, DrafterInputs, Method
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
from specrace.drafters.twins import llama_cpp, sglang, tensorrt_llm, vllm
from specrace.drafters.vanilla import VanillaDrafter

# fmt: off
_ALL = (
    Method("vanilla", "Vanilla", "the model alone: one token per step, the baseline", VanillaDrafter, 0),
    Method("bigram", "Bigram", "drafts what most often followed the last token", BigramDrafter, 4, profile=NGRAM),
    Method("trigram", "Trigram", "drafts what most often followed the last two tokens", TrigramDrafter, 4,
           profile=NGRAM),
    Method("jacobi", "Jacobi", "drafts a block of tokens and replaces each by the model's own prediction at every step",
           JacobiDrafter, 8, {"num_draft": 16}, profile=NGRAM),
    Method("lookahead", "Lookahead", "runs Jacobi on a window of future positions and drafts n-grams collected there",
           LookaheadDrafter, tree_size, {"n": 5, "window": 15, "guesses": 15}, scored_as=PoolDrafter, profile=None),
    Method("trie", "N-gram trie", "drafts what most often followed the same words in prompt and output", TrieDrafter,
           16, {"num_draft": 32}),
    Method("prompt-lookup", "Prompt lookup", "copies what followed the last tokens where they occurred before",
           PromptLookupDrafter, copy_length),
    Method("rest", "REST", "looks the last tokens up in all documents and drafts what most often follows them there",
           RestDrafter, 16, {"num_draft": 64}),
    Method("recycling", "Token recycling",
           "copies what followed before, and drafts tokens that the model itself found likely", RecyclingDrafter, 16,
           {"num_draft": 80}),
    Method("suffix", "Suffix decoding", "drafts the likeliest path after earlier matches of any length",
           SuffixDrafter, 16, {"num_draft": 32}),
    Method("draft-model", "Draft model", "drafts with a smaller model of the same vocabulary", DraftModelDrafter, 8,
           profile=MODEL),
    Method("fusion", "Fusion", "merges drafts of every free source into one tree, cut where drafting stops paying",
           FusionDrafter, 32, {"corpus": True, "recycling": True}, profile=None),
    *vllm.METHODS,
    *tensorrt_llm.METHODS,
    *llama_cpp.METHODS,
    *sglang.METHODS,
)
# fmt: on
METHODS: dict[str, Method] = {method.name: method for method in _ALL}


def native_methods() -> dict[str, Method]:
    """The methods that reproduce no engine's drafter: those on the page."""
    return {name: method for name, method in METHODS.items() if not method.twin_of}


def find_method(name: str) -> Method:
    """The method called `name`. Raises InputError, with all names, if there is none."""
    if name not in METHODS:
        raise InputError(f"There is no lane {name!r}; choose from {', '.join(METHODS)}.")
    return METHODS[name]


__all__ = ["METHODS", "Drafter", "DrafterInputs", "Method", "find_method", "native_methods"]
