"""specrace: see and measure what draft-and-verify decoding does on your own documents.

Race on a question, and write the race as an HTML file that plays it; or import the parts:

>>> specrace.race("What causes the tides?", documents="notes/").export("race.html")  # doctest: +SKIP
>>> from specrace import METHODS, generate, load_target, race

Decode with one of our methods inside `generate` of a transformers model:

>>> model.generate(ids, custom_generate=specrace.hf.custom_generate, method="trie")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specrace.drafters import METHODS
    from specrace.engine.generate import generate
    from specrace.engine.spec import RaceSpec
    from specrace.model.loading import load_target
    from specrace.ngrams.sources import Sources
    from specrace.notebook import RecordedRace, race, show

__all__ = ["METHODS", "RaceSpec", "RecordedRace", "Sources", "generate", "load_target", "race", "show"]
__version__ = "0.1.0"

# Public name -> the module that defines it. Only the module of `load_target`, and `specrace.hf`, import torch.
_MODULES = {
    "METHODS": "specrace.drafters",
    "generate": "specrace.engine.generate",
    "RaceSpec": "specrace.engine.spec",
    "load_target": "specrace.model.loading",
    "Sources": "specrace.ngrams.sources",
    **dict.fromkeys(("RecordedRace", "race", "show"), "specrace.notebook"),
}


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used, so that `import specrace` is quick.

    `python -m specrace` imports this package before any code of ours can catch Ctrl-C.
    """
    if name == "hf":
        return importlib.import_module("specrace.hf")
    if name not in _MODULES:
        raise AttributeError(f"module 'specrace' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "hf"])
