"""specrace: see and measure what draft-and-verify decoding does on your own documents.

>>> specrace.race("What causes the tides?", documents="notes/").export("race.html")  # doctest: +SKIP
>>> from specrace import METHODS, generate, load_target, race
>>> model.generate(ids, custom_generate=specrace.hf.custom_generate, method="trie")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import Any

from specrace.drafters import METHODS

# None of these imports loads a model library.
from specrace.engine.generate import generate
from specrace.engine.spec import RaceSpec
from specrace.ngrams.sources import Sources
from specrace.notebook import RecordedRace, race, show

__all__ = ["METHODS", "RaceSpec", "RecordedRace", "Sources", "generate", "load_target", "race", "show"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `load_target` and `hf` when they are first used, because they load torch and transformers."""
    if name == "load_target":
        from specrace.model.loading import load_target

        return load_target
    if name == "hf":
        return importlib.import_module("specrace.hf")
    raise AttributeError(f"module 'specrace' has no attribute {name!r}")
