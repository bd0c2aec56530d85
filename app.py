"""`python app.py`: serves the page at once, and loads the model in the background."""

from __future__ import annotations

import sys

from specrace.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
