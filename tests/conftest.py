"""Settings and fixtures of every test run."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from huggingface_hub.constants import HF_HOME
from hypothesis import HealthCheck, settings

from specrace.core.bundled import RECORDINGS
from specrace.ui.helper.priority import NICENESS
from tests import processes
from tests.prepare import CACHE
from tests.short_races import VALUES

if TYPE_CHECKING:
    from specrace.workbench import Workbench

pytest_plugins = ["tests.workers"]

PREPARATION = pytest.StashKey[processes.Process]()

BROWSER = Path(__file__).resolve().parent / "browser"
# At their usual priority, helper processes would get no processor time while other tests run.
os.environ.setdefault(NICENESS, "0")

# Every run draws the same examples. A busy machine must not fail a test, so there is no deadline and no check that
# examples are drawn fast enough. The mutation run uses this number of examples, too, and shows that it is enough.
settings.register_profile(
    "specrace", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("specrace")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Make the quick run skip the slow tests and use two processes, unless `-m` and `--workers` say otherwise."""
    options = config.option
    if is_quick(config):
        options.markexpr = options.markexpr or "not slow"
        options.workers = 2 if options.workers is None else options.workers


def is_quick(config: pytest.Config) -> bool:
    """Whether this is the quick run, which is pytest without a path."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage less often: with Python's thresholds, it takes a seventh of the run's processor time.

    If several processes run the tests, start one parent for the processes that tests start, and a first such process,
    which runs `tests.prepare` while the present process collects the tests. The quick run needs neither.
    """
    gc.set_threshold(20_000, 10, 10)
    folder = os.environ.get(CACHE)
    if config.option.workers and not is_quick(config):
        os.environ[processes.PARENT] = processes.start_parent()
        if folder:
            config.stash[PREPARATION] = processes.start(["-m", "tests.prepare"])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Do what each process that runs tests would do first, and wait for `tests.prepare`.

    That is to import the libraries, and to read the bundled recordings, which the apps of the browser tests show.
    """
    preparation = session.config.stash.get(PREPARATION, None)
    if preparation is not None:
        for name in processes.LIBRARIES:
            importlib.import_module(name)
        importlib.import_module("tests.browser.apps").read_gallery(RECORDINGS)
        assert preparation.wait() == 0, preparation.stdout.read()


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
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give this run its own cache folder: a cost curve calibrated on this machine must not change draft sizes in tests.

    `tests/run` gives one folder to all its processes, so that the bundled documents are embedded only once.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(os.environ.get(CACHE) or tmp_path_factory.mktemp("cache"))
        # The model library keeps its own cache folder.
        patch.setenv("HF_HOME", HF_HOME)
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True, scope="session")
def short_races() -> Iterator[None]:
    """Shorten the races of this process, except those of `tests/engine/test_pace.py`."""
    with pytest.MonkeyPatch.context() as patch:
        for module, values in VALUES.items():
            # The quick run does not import torch, and so has no models.
            if "torch" in sys.modules or not module.startswith("specrace.model."):
                for name, value in values.items():
                    patch.setattr(f"{module}.{name}", value)
        yield


@pytest.fixture(autouse=True, scope="session")
def frozen_libraries() -> Iterator[None]:
    """Exempt the imported libraries and the tests, which live to the end, from every collection of garbage.

    A workbench that loads a model would include them again, and its collection would take half a second.
    """
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("freeze", "unfreeze"):
            patch.setattr(gc, name, lambda: None)
        yield


@pytest.fixture(scope="session")
def bundled(cache_folder: Path) -> Workbench:  # noqa: ARG001  the cache holds the documents' vectors
    """The bundled model on the bundled documents, loaded once per process; no test may change it."""
    from specrace.workbench import Workbench

    return Workbench.open()
