"""A pytest plugin for mutants: Hypothesis does not shrink a failing example, because any failure kills a mutant.

Mutants run in forks of a process that has run the tests before, so the plugin clears the caches of functions.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import Phase, settings

settings.register_profile(
    "mutants",
    deadline=None,
    derandomize=True,
    max_examples=40,
    phases=(Phase.explicit, Phase.generate),
    database=None,
)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Load the profile, after every conftest.py has loaded another, and clear the caches of functions."""
    settings.load_profile("mutants")
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("specrace", "tests"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
