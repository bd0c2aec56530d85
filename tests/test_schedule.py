"""The schedule of the whole run: which tests share a process, and in what order they begin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.schedule import BROWSER_GROUPS, SLOW_FILES, Schedule

ROOT = Path(__file__).parents[1]
LAST_SLOW, FIRST_SLOW = SLOW_FILES[-1], SLOW_FILES[0]
FILES = (
    "tests/core/test_tree.py",
    "tests/browser/test_readable.py",
    "tests/browser/test_page.py",
    LAST_SLOW,
    "tests/browser/test_visitors.py",
    FIRST_SLOW,
)


def items(*files: str) -> list[Any]:
    """Two tests of each file, in an order that mixes the files."""
    return [SimpleNamespace(nodeid=f"{file}::test_{number}") for number in range(2) for file in files]


def test_the_files_that_the_schedule_names_exist() -> None:
    assert [file for file in SLOW_FILES if not (ROOT / file).is_file()] == []
    names = sorted(name for group in BROWSER_GROUPS.values() for name in group)
    assert names == sorted(file.stem.removeprefix("test_") for file in (ROOT / "tests" / "browser").glob("test_*.py"))


def test_slow_files_come_first_and_groups_of_browser_tests_run_alone() -> None:
    tests = items(*FILES)
    schedule = Schedule(tests)

    def files(positions: list[int]) -> list[str]:
        return [tests[position].nodeid.partition("::")[0] for position in positions]

    # Two groups of browser tests, and the first slow file.
    groups = [schedule.first_group() for _ in range(3)]
    assert [may_take_more for _, may_take_more in groups] == [False, False, True]
    assert files(groups[0][0]) == [FILES[2]] * 2
    assert files(groups[1][0]) == [FILES[1], FILES[4]] * 2
    # A schedule is true while it has tests that no process has begun.
    assert files(groups[2][0]) == [FIRST_SLOW] * 2 and schedule
    assert [files(schedule.next_group()) for _ in range(2)] == [[LAST_SLOW] * 2, [FILES[0]] * 2]
    assert schedule.next_group() == [] and not schedule


def test_tests_that_were_not_run_are_the_next_of_their_kind() -> None:
    """The kinds: browser tests, after which a process takes no more tests, and all others."""
    schedule = Schedule(items(*FILES))
    (browser_tests, _), _, (slow_tests, _) = (schedule.first_group() for _ in range(3))
    schedule.put_back(slow_tests[1:], may_take_more=True)
    assert schedule.next_group() == slow_tests[1:]
    schedule.put_back(browser_tests[1:], may_take_more=False)
    assert schedule.first_group() == (browser_tests[1:], False)
