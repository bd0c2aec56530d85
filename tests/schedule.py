"""Which tests run in the same process, and in what order.

All tests of a file run in one process, and the slowest files come first: if a slow file came last, the other processes
would be idle while it runs.

The browser tests are a few groups, each with one app, one browser and one set of recorded races. Most of their time is
waiting: as one group they would still run when all other tests have ended. A process that runs a group runs nothing
else, because the app's patches stay in place until the process ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import pytest

BROWSER = "tests/browser/"
# The files of browser tests, by group. Alone, each group takes about a quarter of the time of all.
BROWSER_GROUPS = {
    "page": ("modules", "monkey", "page", "settings", "show"),
    "logs": ("advice", "audience", "explain", "fetching", "logs", "questions", "served"),
    "steps": ("exported", "inspector", "plots", "provenance", "stage_replay"),
    "views": ("readable", "stage_sharing", "stage_views", "visitors"),
}
# The other files that take longest, by processor time or by waiting, about the longest first.
SLOW_FILES = (
    "tests/model/weights/test_fetching.py",
    "tests/cli/test_bench.py",
    "tests/ui/server/test_guard.py",
    "tests/test_docs.py",
    "tests/paths/test_lossless.py",
    "tests/cli/test_streams.py",
    "tests/model/test_tensor_parallel.py",
    "tests/test_hf.py",
    "tests/test_packaging.py",
    "tests/model/forward/test_graphs.py",
    "tests/model/forward/test_scripted.py",
    "tests/model/forward/test_compiled.py",
    "tests/test_past_outputs.py",
    "tests/ui/races/test_zero_gpu.py",
    "tests/paths/test_paste.py",
    "tests/heads/test_training.py",
    "tests/cli/test_race.py",
    "tests/model/test_draft_model.py",
    "tests/test_workers.py",
    "tests/test_first_command.py",
    "tests/ui/test_faults.py",
    "tests/heads/test_sessions.py",
    "tests/cli/test_compare.py",
    "tests/ui/server/test_http_server.py",
    "tests/lab/logs/files/test_packing.py",
    "tests/lab/logs/files/test_containers.py",
    "tests/ui/helper/test_upload_reader.py",
    "tests/ui/server/test_attacks.py",
    "tests/model/test_target.py",
    "tests/engine/test_lossless.py",
    "tests/lab/logs/formats/test_hostile.py",
    "tests/ui/api/test_endpoints.py",
    "tests/test_workbench.py",
    "tests/drafters/test_lookahead.py",
    "tests/cli/test_calibrate.py",
    "tests/model/machine/test_device_map.py",
    "tests/ui/server/test_visitors.py",
    "tests/test_provenance.py",
    "tests/cli/test_recommend.py",
    "tests/ui/helper/test_fetcher.py",
    "tests/cli/test_broken_logs.py",
    "tests/cli/test_sweep.py",
    "tests/paths/test_rejection.py",
    "tests/tiny/test_training.py",
    "tests/ui/api/test_log_routes.py",
    "tests/ui/test_front_door.py",
)


def group_of(nodeid: str) -> str:
    """The group of a test, which one process runs: a group of browser tests, or the test's file."""
    file = nodeid.partition("::")[0]
    name = file.removeprefix(f"{BROWSER}test_").removesuffix(".py")
    return next((group for group, names in BROWSER_GROUPS.items() if name in names), file)


class Schedule:
    """The groups that no process has begun. A group is the list of its tests' positions among all tests."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        groups: dict[str, list[int]] = {}
        for position, item in enumerate(items):
            groups.setdefault(group_of(item.nodeid), []).append(position)
        self._alone = _take(groups, BROWSER_GROUPS)
        self._others = _take(groups, (*SLOW_FILES, *groups))

    def __bool__(self) -> bool:
        return bool(self._alone or self._others)

    def first_group(self) -> tuple[list[int], bool]:
        """The next group for a process that has run nothing, and whether the process may run other groups after it."""
        if self._alone:
            return self._alone.popleft(), False
        return self._others.popleft(), True

    def next_group(self) -> list[int]:
        """The next group for a process that has run other groups; empty if there is none."""
        return self._others.popleft() if self._others else []

    def put_back(self, positions: list[int], *, may_take_more: bool) -> None:
        """Schedule tests again whose process ended before it ran them; `may_take_more` comes from `first_group`."""
        (self._others if may_take_more else self._alone).appendleft(positions)


def _take(groups: dict[str, list[int]], names: Iterable[str]) -> deque[list[int]]:
    """Remove the groups of these names from `groups`, and return them in the order of the names."""
    return deque(groups.pop(name) for name in [*names] if name in groups)
