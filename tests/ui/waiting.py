"""Waits that end: if something never happens, the test fails instead of blocking the whole run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Nothing takes this long.
LONG_S = 300.0


def wait_until(condition: Callable[[], Any]) -> None:
    """Return once the condition holds, which is checked every few milliseconds; AssertionError after `LONG_S`."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.005)
