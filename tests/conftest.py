"""Settings and fixtures of the whole run."""

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

# The same examples in every run, and nothing that fails on a busy machine: no deadline, and no check that examples are
# drawn fast enough. The mutation run has the same number of examples and shows that it is enough.
settings.register_profile(
    "specrace", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("specrace")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The quick run, which is pytest without a path, leaves the slow tests out and takes two processes.

    `-m`, `-n` and `--pdb` override this. xdist's own processes get here with the same arguments and must start no more.
    """
    options = config.option
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    options.markexpr = options.markexpr or "not slow"
    is_worker = hasattr(config, "workerinput")
    if options.numprocesses is None and not (is_worker or options.usepdb or options.collectonly):
        options.numprocesses = 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the browser's tests last: Playwright leaves an event loop running in this thread, which breaks other tests.

    Raises UsageError for a browser test outside the folder in which `tests/run` looks for them.
    """
    for item in items:
        if item.get_closest_marker("browser") and BROWSER not in item.path.parents:
            raise pytest.UsageError(
                f"{item.nodeid} is marked as a browser test, and `tests/run` looks for those in {BROWSER} only"
            )
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for this run: a curve calibrated on this machine must not set our draft sizes.

    `tests/run` gives one folder to all its processes, so that the bundled documents are embedded once and not in each.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(os.environ.get("SPECRACE_TEST_CACHE") or tmp_path_factory.mktemp("cache"))
        # The model library keeps its own cache folder.
        patch.setenv("HF_HOME", HF_HOME)
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True, scope="session")
def no_long_warm_up() -> Iterator[None]:
    """Races of this process warm up each lane's largest tree and not every size, which saves a seventh of the time of
    tests that race; their texts do not depend on it. `tests/engine/test_pace.py` and the races of other processes use
    the usual warm-up.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specrace.engine.setup.WARM_UP_S", 0.0)
        yield


@pytest.fixture(scope="session")
def bundled(own_cache_folder: Path) -> Workbench:
    """The bundled model on the bundled documents, loaded once per process; no test may change it."""
    from specrace.workbench import Workbench

    # Embedding the documents takes 15 s of a processor, so only the first process does it.
    with FileLock(own_cache_folder / "bundled.lock"):
        return Workbench.open()
