"""`python -m specrace`."""

from __future__ import annotations

import sys

from specrace.cli.main import main

sys.exit(main())
