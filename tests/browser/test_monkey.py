"""A page still races after 25 random actions, some during a race; `tests.measure.monkey` does hundreds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.measure import monkey

pytestmark = pytest.mark.browser
ACTIONS = 25


def test_no_action_breaks_the_page(app: Any, browser: Browser, tmp_path: Path) -> None:
    finished = monkey.run(browser, app.short_url, ACTIONS, 1, tmp_path)
    assert finished.complaints == []
