"""What holds for the whole run."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser goes last: Playwright keeps an event loop running in this thread, which no test after it may need."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
