"""A pytest plugin for mutants: Hypothesis does not shrink a failing example, because any failure kills a mutant.

Before each test the caches of functions are cleared. Otherwise mutmut would record only the first test that calls a
cached function, and mutants, which run in forks of a process that has run the tests, would find old results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

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
_clear_caches: list[Callable[[], object]] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Load the profile, after every conftest.py has loaded another, and find the functions with caches."""
    settings.load_profile("mutants")
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] in ("specrace", "tests")]
    values = [value for module in modules for value in vars(module).values()]
    _clear_caches[:] = [value.cache_clear for value in values if hasattr(value, "cache_clear")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Clear the caches."""
    for clear in _clear_caches:
        clear()
