"""`python -m specrace`, and the installed command `specrace`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code. Ctrl-C is silent, even while modules are still being imported."""
    try:
        from specrace.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        # What a shell returns after Ctrl-C: 128 + SIGINT.
        return 130


if __name__ == "__main__":
    sys.exit(main())
