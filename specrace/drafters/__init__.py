"""The drafters, one file each, and their registry. A new drafter needs one file, and one line in this module."""

from __future__ import annotations

from specrace.core.errors import InputError
from specrace.drafters.base import Drafter, DrafterInputs, Method, OnChains, Scoring
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.drafters.fusion.drafter import FusionDrafter, fusion_corpus_part, fusion_num_top
from specrace.drafters.head_tree import HEAD_ON_CHAINS, HEAD_UNSCORABLE
from specrace.drafters.hybrid import HybridDrafter, hybrid_num_top
from specrace.drafters.jacobi import JacobiDrafter
from specrace.drafters.lookahead import POOL_ON_CHAINS, POOL_SCORING, LookaheadDrafter, tree_size
from specrace.drafters.ngram_table import BigramDrafter, TrigramDrafter
from specrace.drafters.profile import MODEL, NGRAM
from specrace.drafters.prompt_lookup import PromptLookupDrafter, copy_length
from specrace.drafters.recycling import NUM_TOP, RecyclingDrafter
from specrace.drafters.rest import RestDrafter
from specrace.drafters.specinfer.drafter import SpecInferDrafter, specinfer_size
from specrace.drafters.states import STATES_UNSCORABLE, StatesDrafter
from specrace.drafters.suffix import SuffixDrafter
from specrace.drafters.trained.block import BlockDrafter
from specrace.drafters.trained.eagle import EagleDrafter
from specrace.drafters.trained.hydra import HydraDrafter
from specrace.drafters.trained.medusa import MedusaDrafter
from specrace.drafters.trained.space import MASKS_ON_CHAINS, MASKS_UNSCORABLE, SpaceDrafter, space_size
from specrace.drafters.trie import TrieDrafter
from specrace.drafters.twins import llama_cpp, llama_cpp_list, sglang, tensorrt_llm, vllm
from specrace.drafters.vanilla import VanillaDrafter

# Why `score` cannot run drafters with a draft model.
MODEL_UNSCORABLE = "its drafts are a second model's own text"

# The first arguments: name, title, summary, drafter, default draft size, and defaults that differ on a GPU.
# fmt: off
_ALL = (
    Method("vanilla", "Vanilla", "the model alone: one token per step, the baseline", VanillaDrafter, 0),
    Method("bigram", "Bigram", "drafts what most often followed the last token", BigramDrafter, 4, profile=NGRAM,
           corpus_part="corpus", samples=True),
    Method("trigram", "Trigram", "drafts what most often followed the last two tokens", TrigramDrafter, 4,
           profile=NGRAM, corpus_part="corpus", samples=True),
    Method("jacobi", "Jacobi", "drafts a block of tokens and replaces each by the model's own prediction at every step",
           JacobiDrafter, 8, {"num_draft": 16}, profile=NGRAM,
           needs_target_outputs="its next draft is the model's tokens after the rejected ones"),
    Method("lookahead", "Lookahead", "guesses future tokens in parallel, and drafts the n-grams it collects",
           LookaheadDrafter, tree_size, {"n": 5, "window": 15, "guesses": 15}, profile=None, scoring=POOL_SCORING,
           on_chains=POOL_ON_CHAINS),
    Method("trie", "N-gram trie", "drafts what most often followed the same words in prompt and output", TrieDrafter,
           16, {"num_draft": 32}),
    Method("prompt-lookup", "Prompt lookup", "copies what followed the last tokens where they occurred before",
           PromptLookupDrafter, copy_length),
    Method("rest", "REST", "looks the last tokens up in all documents and drafts what most often follows them there",
           RestDrafter, 16, {"num_draft": 64}, corpus_part="corpus_index",
           scoring=Scoring("prompt and output as its corpus")),
    Method("recycling", "Token recycling",
           "copies what followed before, and drafts tokens that the model itself found likely", RecyclingDrafter, 16,
           {"num_draft": 80}, num_top=NUM_TOP,
           needs_target_outputs="its drafts are the model's likeliest tokens, at rejected nodes too"),
    Method("suffix", "Suffix decoding", "drafts the likeliest path after earlier matches of any length",
           SuffixDrafter, 16, {"num_draft": 32}),
    Method("draft-model", "Draft model", "drafts with a smaller model of the same vocabulary", DraftModelDrafter, 8,
           profile=MODEL, needs_draft_model=True, samples=True,
           needs_target_outputs=MODEL_UNSCORABLE),
    Method("specinfer", "SpecInfer", "drafts a tree of several continuations with one or more smaller models",
           SpecInferDrafter, specinfer_size, {"depth": 8}, profile=None, needs_draft_model=True, samples=True,
           needs_target_outputs=MODEL_UNSCORABLE, on_chains=OnChains(options={"width": 1, "models": 1})),
    Method("fusion", "Fusion", "copies from every source at once, and drafts only as far as it pays",
           FusionDrafter, 32, {"corpus": True, "recycling": True}, profile=None,
           num_top=fusion_num_top, corpus_part=fusion_corpus_part,
           scoring=Scoring("without the target's likely tokens at each node"),
           on_chains=OnChains(options={"chain": True})),
    Method("medusa", "Medusa", "drafts with trained heads, each of which guesses one position further ahead",
           MedusaDrafter, 16, {"num_draft": 63, "width": 10}, profile=None, needs_head="medusa",
           needs_target_outputs=HEAD_UNSCORABLE, on_chains=HEAD_ON_CHAINS),
    Method("hydra", "Hydra", "drafts with trained heads, each of which also reads the draft tokens before its guess",
           HydraDrafter, 16, {"num_draft": 63, "width": 10}, profile=None, needs_head="hydra",
           needs_target_outputs=HEAD_UNSCORABLE, on_chains=HEAD_ON_CHAINS),
    Method("eagle", "EAGLE", "drafts with a trained layer that continues the model's hidden states", EagleDrafter, 16,
           {"num_draft": 60, "width": 10}, profile=None, needs_head="eagle",
           needs_target_outputs=HEAD_UNSCORABLE, on_chains=HEAD_ON_CHAINS),
    Method("block", "Block", "drafts with a trained head that guesses several tokens in one forward", BlockDrafter, 16,
           {"num_draft": 60, "width": 10}, profile=None, needs_head="block",
           needs_target_outputs=HEAD_UNSCORABLE, on_chains=HEAD_ON_CHAINS),
    Method("space", "SPACE", "verifies guesses and makes the next ones in one forward of the model, with learned masks",
           SpaceDrafter, space_size, profile=None, needs_head="space", needs_target_outputs=MASKS_UNSCORABLE,
           on_chains=MASKS_ON_CHAINS),
    Method("hybrid", "Hybrid", "merges copies like fusion, and asks an EAGLE head where there is little to copy",
           HybridDrafter, 32, {"num_draft": 60, "width": 10, "corpus": True, "recycling": True}, profile=None,
           num_top=hybrid_num_top, corpus_part=fusion_corpus_part, needs_head="eagle",
           needs_target_outputs=HEAD_UNSCORABLE, on_chains=HEAD_ON_CHAINS),
    Method("states", "Similar states", "copies what followed places with a similar hidden state of the model (AdaPLD)",
           StatesDrafter, 16, {"num_draft": 32}, profile=None, needs_states=True,
           needs_target_outputs=STATES_UNSCORABLE, on_chains=OnChains(options={"width": 1})),
    *vllm.METHODS,
    *tensorrt_llm.METHODS,
    *llama_cpp.METHODS,
    *llama_cpp_list.METHODS,
    *sglang.METHODS,
)
# fmt: on
METHODS: dict[str, Method] = {method.name: method for method in _ALL}


def native_methods() -> dict[str, Method]:
    """Our own methods, which the page lists: all except the twins of other engines' drafters."""
    return {name: method for name, method in METHODS.items() if not method.twin_of}


def head_lanes() -> dict[str, str]:
    """Lane -> the kind of trained head that it drafts with; lanes without a head are left out."""
    return {name: method.needs_head for name, method in METHODS.items() if method.needs_head}


def draft_model_lanes() -> list[str]:
    """The lanes that draft with a smaller model."""
    return [name for name, method in METHODS.items() if method.needs_draft_model]


def find_method(name: str) -> Method:
    """The method called `name`. Raises InputError, which lists all names, if there is none."""
    if name not in METHODS:
        raise InputError(f"There is no lane {name!r}; choose from {', '.join(METHODS)}.")
    return METHODS[name]


__all__ = [
    "METHODS",
    "Drafter",
    "DrafterInputs",
    "Method",
    "draft_model_lanes",
    "find_method",
    "head_lanes",
    "native_methods",
]
