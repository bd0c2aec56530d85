"""A pytest plugin for the whole run, `-p tests.schedule`: decides which process runs which files, and in what order.
All processes share one parent of the processes that tests start, which imports the libraries only once.

The browser tests go to two processes, each with one app, one browser and one set of recorded races. These processes run
no other tests, because the app's patches stay in place until the process ends. The other processes share the other
files, the slowest first: if a slow file came last, the other processes would be idle while it runs.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests import processes

BROWSER = "tests/browser/"
# Half of the browser tests by time; most of them race live or score logs.
LIVE = ("advice", "audience", "explain", "fetching", "logs", "monkey", "page", "settings", "show", "stage_replay")
BROWSER_SCOPES = (f"{BROWSER}live", f"{BROWSER}still")
# The slowest other files, by the durations that `tests/run` prints; the slowest first.
SLOW_FILES = (
    "tests/model/weights/test_fetching.py",
    "tests/ui/races/test_zero_gpu.py",
    "tests/cli/test_bench.py",
    "tests/cli/test_race.py",
    "tests/test_packaging.py",
    "tests/test_first_command.py",
    "tests/paths/test_lossless.py",
    "tests/ui/api/test_log_routes.py",
    "tests/ui/test_faults.py",
    "tests/ui/server/test_http_server.py",
    "tests/ui/api/test_endpoints.py",
    "tests/ui/server/test_visitors.py",
    "tests/test_docs.py",
    "tests/paths/test_paste.py",
    "tests/paths/test_rejection.py",
    "tests/model/test_tensor_parallel.py",
    "tests/model/forward/test_scripted.py",
    "tests/model/forward/test_compiled.py",
    "tests/tiny/test_training.py",
    "tests/test_workbench.py",
    "tests/test_hf.py",
    "tests/model/machine/test_device_map.py",
    "tests/ui/test_front_door.py",
    "tests/ui/helper/test_uploads.py",
    "tests/model/forward/test_graphs.py",
    "tests/test_provenance.py",
    "tests/cli/test_answers.py",
    "tests/ui/helper/test_fetcher.py",
    "tests/test_past_outputs.py",
)


class Scheduling(LoadFileScheduling):
    """Assigns whole files to processes; all browser tests together count as two files."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if not file.startswith(BROWSER):
            return file
        live, still = BROWSER_SCOPES
        return live if file.removeprefix(f"{BROWSER}test_").removesuffix(".py") in LIVE else still

    def _assign_work_unit(self, node: Any) -> None:
        for scope in reversed((*BROWSER_SCOPES, *SLOW_FILES)):
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if not self.assigned_work[node].keys() & set(BROWSER_SCOPES):
            super()._reschedule(node)
        elif not node.shutting_down:
            # A process with browser tests gets no more files: it finishes those that it has, and ends.
            node.shutdown()


def pytest_configure(config: pytest.Config) -> None:
    """Start the parent of the processes that tests start, unless this process is a worker, which inherits its name."""
    if not hasattr(config, "workerinput"):
        os.environ[processes.PARENT] = processes.start_parent()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """The scheduler of this run; xdist calls this hook."""
    return Scheduling(config, log)
