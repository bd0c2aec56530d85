"""A pytest plugin for the whole run, `-p tests.schedule`: files that take long start first.

xdist's `loadfile` hands out files in the order of collection. Where a long one came last, all but one process would
wait for it.
"""

from __future__ import annotations

import pytest

# By the durations that `tests/run` prints, the longest first.
LONG: tuple[str, ...] = ()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files. `tests/conftest.py` then puts the browser's last, which keeps the rest of this order."""
    ranks = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(str(item.path.relative_to(config.rootpath)), len(LONG)))
