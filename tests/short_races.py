"""Makes races shorter: they warm up each lane's largest tree only, run one probe, and copy little to measure bandwidth.

On a busy machine this saves a third of the time of tests that race, and changes no text.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

# Module -> the values that its names get.
VALUES: dict[str, dict[str, Any]] = {
    "specrace.engine.prepare": {"WARM_UP_S": 0.0},
    "specrace.engine.pace": {"PROBE_EVERY": math.inf, "UNUSUAL": math.inf, "WINDOW": 1},
    "specrace.model.machine.roofline": {"_COPY_BYTES": {"cpu": 1 << 20}},
}


class ShortLoader(SourceFileLoader):
    """Loads a module of VALUES and sets its names."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, then set the names."""
        super().exec_module(module)
        vars(module).update(VALUES[module.__name__])


class ShortFinder(MetaPathFinder):
    """Makes Python load the modules of VALUES with ShortLoader."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module of VALUES, and None for all others."""
        spec = PathFinder.find_spec(name, path, target) if name in VALUES else None
        if spec is not None and spec.origin is not None:
            spec.loader = ShortLoader(name, spec.origin)
        return spec


def shorten_races() -> None:
    """Make this process's races shorter, before it imports the package.

    The libraries are exempt from the collection of garbage already; a workbench that loads a model would collect them
    again, which takes half a second.
    """
    sys.meta_path.insert(0, ShortFinder())
    gc.freeze = gc.unfreeze = lambda: None
