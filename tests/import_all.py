"""`python -m tests.import_all`: imports every module of the package, and prints which fail and why."""

from __future__ import annotations

import gc
import pkgutil
import sys
from importlib import import_module

import specrace


def failures() -> dict[str, Exception]:
    """The modules that cannot be imported, each with its error."""
    failed: dict[str, Exception] = {}
    for module in pkgutil.walk_packages(specrace.__path__, "specrace.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            try:
                import_module(module.name)
            except Exception as error:
                failed[module.name] = error
    return failed


def main() -> int:
    """Return 0 if all modules can be imported, else 1."""
    # Imports create hardly any garbage, and looking for it takes a sixth of their time.
    gc.disable()
    failed = failures()
    for name, error in failed.items():
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
