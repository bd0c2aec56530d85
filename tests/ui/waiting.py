"""Waits that end: where something never comes about, the test fails instead of holding up the whole run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Nothing takes so long.
LONG_S = 300.0


def wait_until(condition: Callable[[], Any]) -> None:
    """Return once the condition holds, looked at every few milliseconds; AssertionError after `LONG_S`."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.005)
