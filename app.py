"""The front door: `python app.py` serves the page at once and loads the model behind it."""

from __future__ import annotations

import sys

from specrace.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
