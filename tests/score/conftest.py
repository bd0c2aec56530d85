"""Hypothesis for these tests: the same examples in every run, and no deadline on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("score", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("score")
