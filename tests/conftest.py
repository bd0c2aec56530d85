"""What holds for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub.constants import HF_HOME

BROWSER = Path(__file__).resolve().parent / "browser"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser goes last: Playwright keeps an event loop running in this thread, which no test after it may need.

    Raises UsageError for a test of the browser that lies where `tests/run` does not look for it.
    """
    for item in items:
        if item.get_closest_marker("browser") and BROWSER not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is marked, and `tests/run` looks for its like in {BROWSER} only")
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the run's own: what somebody calibrated on this machine must not set our draft sizes.

    `tests/run` gives one folder to all its processes, so that the bundled documents are embedded once and not in each.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(os.environ.get("SPECRACE_TEST_CACHE") or tmp_path_factory.mktemp("cache"))
        # The model library's own cache lies where it lay.
        patch.setenv("HF_HOME", HF_HOME)
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
