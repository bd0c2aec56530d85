"""specrace: see, and measure, what draft-and-verify decoding does on your own documents.

>>> from specrace import METHODS, generate, load_target, race
"""

from __future__ import annotations

from typing import Any

from specrace.drafters import METHODS

# The function takes the name of its module here; nothing on these floors loads a model library.
from specrace.race import RaceSpec, generate, race

__all__ = ["METHODS", "RaceSpec", "generate", "load_target", "race"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`load_target`, imported when it is first used: that is what loads torch and transformers."""
    if name == "load_target":
        from specrace.target import load_target

        return load_target
    raise AttributeError(f"module 'specrace' has no attribute {name!r}")
