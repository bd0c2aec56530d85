"""Waiting with a timeout: if something never happens, the test fails instead of blocking the whole run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Far longer than anything here takes.
LONG_S = 300.0


def wait_until(condition: Callable[[], Any]) -> None:
    """Check a condition every few milliseconds until it holds; raises AssertionError after `LONG_S`."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.005)
