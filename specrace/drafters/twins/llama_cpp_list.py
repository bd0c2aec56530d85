"""Several of llama.cpp's drafters without a model, as `--spec-type` lists them: the first that drafts is verified.

Source: ggml-org/llama.cpp, common/speculative.cpp, as in build 11549. `common_speculative_init` fixes the order in
which the drafters are asked, whatever the order on the command line. `common_speculative_draft` stops at the first
drafter that has a draft, and `common_speculative_accept` tells the outcome to that drafter only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from specrace.drafters.base import Bounds, DrafterInputs, Flag, Method
from specrace.drafters.twins.llama_cpp import CACHE_DRAFT, CacheDrafter, ModDrafter
from specrace.drafters.twins.llama_cpp_maps import (
    LlamaCppDrafter,
    MapK4vDrafter,
    MapKDrafter,
    SimpleDrafter,
    SizeM,
    SizeN,
)


class ListDrafter(LlamaCppDrafter):
    """Asks several drafters in turn, and drafts what the first one that has a draft proposes.

    1 2 occurred earlier, so `simple` drafts after it. 5 1 did not, but 2 followed 1 twice, so `cache` drafts:

    >>> prompt = (7, 1, 2, 3, 9, 1, 2, 3, 9, 8)
    >>> options = {"map_k": False, "map_k4v": False, "mod": False, "size_n": 2, "size_m": 2}
    >>> drafter = ListDrafter(DrafterInputs(prompt, vocab_size=10), **options)
    >>> drafter.propose((*prompt, 1, 2), budget=4).tokens, drafter.propose((*prompt, 5, 1), budget=1).tokens
    ((2, 3, 9), (1, 2))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        simple: Annotated[bool, Flag("ask ngram-simple, first of all")] = True,
        map_k: Annotated[bool, Flag("ask ngram-map-k next")] = True,
        map_k4v: Annotated[bool, Flag("ask ngram-map-k4v next")] = True,
        mod: Annotated[bool, Flag("ask ngram-mod next")] = True,
        cache: Annotated[bool, Flag("ask ngram-cache last")] = True,
        size_n: SizeN = 12,
        size_m: SizeM = 48,
        min_hits: Annotated[int, Bounds(1, 1024, "ngram-map-k4v: minimum lookups of an n-gram for a draft")] = 1,
        n_match: Annotated[int, Bounds(1, 1024, "ngram-mod: tokens that are looked up")] = 24,
        n_min: Annotated[int, Bounds(0, 1024, "ngram-mod: minimum number of tokens of a draft")] = 48,
        n_max: Annotated[int, Bounds(1, 1024, "ngram-mod: maximum number of tokens of a draft")] = 64,
    ) -> None:
        super().__init__(inputs)
        self.drafters: list[LlamaCppDrafter] = []
        if simple:
            self.drafters.append(SimpleDrafter(inputs, size_n=size_n, size_m=size_m))
        if map_k:
            self.drafters.append(MapKDrafter(inputs, size_n=size_n, size_m=size_m))
        if map_k4v:
            self.drafters.append(MapK4vDrafter(inputs, size_n=size_n, size_m=size_m, min_hits=min_hits))
        if mod:
            self.drafters.append(ModDrafter(inputs, n_match=n_match, n_min=n_min, n_max=n_max))
        if cache:
            self.drafters.append(CacheDrafter(inputs))
        # The drafter that made the last draft.
        self._last: LlamaCppDrafter | None = None

    def draft(self, context: Sequence[int]) -> Sequence[int]:
        for drafter in self.drafters:
            if tokens := drafter.draft(context):
                self._last = drafter
                return tokens
        return ()

    def accept(self, accepted: int) -> None:
        if self._last is not None:
            self._last.accept(accepted)


def list_draft(options: Mapping[str, Any]) -> int:
    """The longest draft of any drafter in the list."""
    sizes = {"simple": "size_m", "map_k": "size_m", "map_k4v": "size_m", "mod": "n_max"}
    lengths = [int(options[size]) for name, size in sizes.items() if options[name]]
    return max(lengths, default=CACHE_DRAFT if options["cache"] else 0)


METHODS = (
    Method(
        "llamacpp-list",
        "llama.cpp, several",
        "asks several of llama.cpp's drafters, in llama.cpp's order, until one drafts",
        ListDrafter,
        list_draft,
        profile=None,
        twin_of="llama.cpp",
    ),
)
