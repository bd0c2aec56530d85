"""What holds for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from huggingface_hub.constants import HF_HOME
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from specrace.workbench import Workbench

BROWSER = Path(__file__).resolve().parent / "browser"

# The same examples in every run, and nothing that a busy machine could make too late: neither a deadline nor the check
# that examples are drawn fast enough. As many as the mutation run has, which shows that they are enough.
settings.register_profile(
    "specrace", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("specrace")


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


@pytest.fixture(autouse=True, scope="session")
def no_long_warm_up() -> Iterator[None]:
    """Races of this process warm up each lane's largest tree and not every size, which takes a seventh off tests that
    race; their texts do not depend on it. `tests/engine/test_pace.py` has the usual warm-up, and so do the races of
    other processes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specrace.engine.setup.WARM_UP_S", 0.0)
        yield


@pytest.fixture(scope="session")
def bundled(own_cache_folder: Path) -> Workbench:
    """The bundled model on the bundled documents, loaded once a process: no test may change it."""
    from specrace.workbench import Workbench

    # Who comes second finds the documents embedded, which takes 15 s of a processor.
    with FileLock(own_cache_folder / "bundled.lock"):
        return Workbench.open()
